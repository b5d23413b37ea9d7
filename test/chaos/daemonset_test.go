// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	daemonNamespace = "daemons"
	daemonSetName   = "chaos"
	daemonNodes     = 100
	// daemonCanaries is on how many nodes a template is tried.
	daemonCanaries = 3
	// daemonTenth is what 10% of the nodes comes to: of how many pods may be replaced at once.
	daemonTenth = 10
	// daemonStartSeconds is how long a pod takes to become ready, and daemonCanary how long the canary takes then.
	daemonStartSeconds = "0.3"
	daemonCanary       = time.Second
	// daemonLimit bounds one run.
	daemonLimit = 16 * time.Minute
)

// Each template goes out over nodes of which some are not ready for a while, by a canary and a rolling update.
func TestDaemonSetKilledAtAnyInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes clusters, and minutes")
	}
	seed := seed(t)
	for _, surge := range []bool{false, true} {
		name := "maxUnavailable"
		if surge {
			name = "maxSurge"
		}
		t.Run(name, func(t *testing.T) {
			t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between", seed)
			ctx, cancel := context.WithTimeoutCause(t.Context(), daemonLimit, fmt.Errorf("the test took longer than %s", daemonLimit))
			defer cancel()
			d := newDaemonChaos(ctx, t, seed, surge)
			defer d.end()
			d.run(ctx)
		})
	}
}

// daemonChaos is the state of one run.
type daemonChaos struct {
	*harness
	surge   bool
	outages *outages
	began   time.Time

	mu sync.Mutex
	// images of the template so far.
	images []string
	// last is true when there is to be no further one.
	last bool
}

func newDaemonChaos(ctx context.Context, t *testing.T, seed uint64, surge bool) *daemonChaos {
	t.Helper()
	o := cluster.Options{Nodes: daemonNodes, AuditLog: true}
	d := &daemonChaos{
		harness: newHarness(ctx, t, rand.New(rand.NewPCG(seed, 1)), o, writesOfDaemonSets),
		surge:   surge, images: []string{imageOf(1)},
	}
	d.now = d.standing
	d.outages = newOutages(rand.New(rand.NewPCG(seed, 2)), d.client, d.journal)
	d.makeNamespace(ctx, daemonNamespace)
	d.startOperator()
	d.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	d.journal.follow(ctx, &corev1.PodList{}, daemonNamespace, nil)
	return d
}

func imageOf(version int) string { return fmt.Sprintf("example.com/daemon:v%d", version) }

func (d *daemonChaos) run(ctx context.Context) {
	d.t.Helper()
	d.began = time.Now()
	d.create(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { d.askAgainAndAgain(ctx) })
	defer func() {
		cancel()
		asking.Wait()
	}()
	d.killAll(ctx)
	d.t.Logf("%d kills in %.1f s, of template %d: %v", kills, time.Since(d.began).Seconds(), d.templates(), d.tally)

	d.startOperator()
	d.mu.Lock()
	d.last = true
	d.mu.Unlock()
	d.until(ctx, "the last template is everywhere", func() (bool, error) { return d.complete(), nil })
	d.t.Logf("the last template, %d, was everywhere after %.1f s in all", d.templates(), time.Since(d.began).Seconds())
	d.gate.wait()
	d.until(ctx, "what came late is cleared up", func() (bool, error) { return d.complete(), nil })
	// What is reported once a second, and said in Events, is over then.
	time.Sleep(3 * time.Second)
	d.stopOperator()
	d.check(ctx, d.look(ctx))
}

func (d *daemonChaos) create(ctx context.Context) {
	d.t.Helper()
	rolling := edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
		SlowStartIntervalDuration: &metav1.Duration{Duration: time.Second},
		SlowStartAdditiveIncrease: ptr.To(intstr.FromInt32(daemonNodes)),
	}
	if tenth := ptr.To(intstr.FromString("10%")); d.surge {
		rolling.MaxSurge = tenth
	} else {
		rolling.MaxUnavailable = tenth
	}
	labels := map[string]string{"app": daemonSetName}
	set := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: daemonSetName},
		Spec: edsv1.ExtendedDaemonSetSpec{
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"test.moult.dev/start-seconds": daemonStartSeconds}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "daemon", Image: d.images[0]}}},
			},
			Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
				RollingUpdate: rolling,
				Canary: &edsv1.ExtendedDaemonSetSpecStrategyCanary{
					Replicas:           ptr.To(intstr.FromInt32(daemonCanaries)),
					Duration:           &metav1.Duration{Duration: daemonCanary},
					NoRestartsDuration: &metav1.Duration{Duration: daemonCanary},
				},
			},
		},
	}
	// The operator brings the definitions along. The journal has to know the objects from their beginning.
	d.until(ctx, "the kinds are there", func() (bool, error) {
		err := errors.Join(
			d.client.List(ctx, &edsv1.ExtendedDaemonSetList{}), d.client.List(ctx, &edsv1.ExtendedDaemonSetReplicaSetList{}),
		)
		return err == nil, nil
	})
	d.journal.follow(ctx, &edsv1.ExtendedDaemonSetList{}, daemonNamespace, nil)
	d.journal.follow(ctx, &edsv1.ExtendedDaemonSetReplicaSetList{}, daemonNamespace, nil)
	if err := d.client.Create(ctx, set); err != nil {
		d.t.Fatal(err)
	}
}

// askAgainAndAgain asks for the next template as soon as the last one is everywhere, and lets nodes fail meanwhile, until
// there is to be no further one.
func (d *daemonChaos) askAgainAndAgain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
		err := d.outages.play(ctx, time.Now())
		if err == nil && d.outages.over() && d.complete() {
			err = d.ask(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.t.Errorf("asking for the next template, %v", err)
			return
		}
	}
}

func (d *daemonChaos) ask(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last {
		return nil
	}
	image := imageOf(len(d.images) + 1)
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"daemon","image":%q}]}}}}`, image)
	set := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: daemonSetName}}
	if err := d.client.Patch(ctx, set, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return err
	}
	d.images = append(d.images, image)
	d.outages.draw(time.Now())
	d.t.Logf("asked for %s after %.1f s", image, time.Since(d.began).Seconds())
	return nil
}

func (d *daemonChaos) templates() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.images)
}

// complete reports whether the last template is everywhere, and nothing else is anywhere, by what is reported and by the
// pods.
func (d *daemonChaos) complete() (is bool) {
	d.mu.Lock()
	image := d.images[len(d.images)-1]
	d.mu.Unlock()
	d.journal.see(func(latest map[string]client.Object) {
		s := standingOf(latest)
		is = s.reported() && s.active == image && s.image == image && s.pods == daemonNodes && s.updated == daemonNodes
	})
	return is
}

// standing says in short how things stand.
func (d *daemonChaos) standing() (text string) {
	d.journal.see(func(latest map[string]client.Object) { text = standingOf(latest).String() })
	return text
}

// daemonStanding is how things stand.
type daemonStanding struct {
	set *edsv1.ExtendedDaemonSet
	// image is what the ExtendedDaemonSet asks for, and active that of its active revision.
	image, active string
	// pods is how many there are, updated how many are ready with that image, and unready how many nodes are not ready.
	pods, updated, unready int
}

func standingOf(latest map[string]client.Object) daemonStanding {
	var s daemonStanding
	revisions := map[string]string{}
	for _, o := range latest {
		switch o := o.(type) {
		case *edsv1.ExtendedDaemonSet:
			s.set, s.image = o, o.Spec.Template.Spec.Containers[0].Image
		case *edsv1.ExtendedDaemonSetReplicaSet:
			revisions[o.Name] = o.Spec.Template.Spec.Containers[0].Image
		case *corev1.Node:
			if !nodeReady(o) {
				s.unready++
			}
		}
	}
	if s.set != nil {
		s.active = revisions[s.set.Status.ActiveReplicaSet]
	}
	for _, o := range latest {
		if pod, ok := o.(*corev1.Pod); ok {
			s.pods++
			if serves(pod) && pod.Spec.Containers[0].Image == s.image {
				s.updated++
			}
		}
	}
	return s
}

// reported reports whether the status says that all is done.
func (s daemonStanding) reported() bool {
	if s.set == nil {
		return false
	}
	is := &s.set.Status
	counts := []int32{is.Desired, is.Current, is.Ready, is.Available, is.UpToDate}
	return is.ObservedGeneration == s.set.Generation && is.State == edsv1.StateRunning && is.Canary == nil &&
		!slices.ContainsFunc(counts, func(n int32) bool { return n != daemonNodes })
}

func (s daemonStanding) String() string {
	text := fmt.Sprintf("%s: %d pods, %d of it and ready; %d nodes not ready", s.image, s.pods, s.updated, s.unready)
	if s.set == nil {
		return text
	}
	is := &s.set.Status
	text += fmt.Sprintf("; reported: %s, %s is active, %d up to date, %d available", is.State, s.active, is.UpToDate, is.Available)
	if is.Canary != nil {
		text += fmt.Sprintf(", canary on %v", is.Canary.Nodes)
	}
	return text
}

func nodeReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func podReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// serves reports whether a pod is ready, and is to stay so.
func serves(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && podReady(p) }
