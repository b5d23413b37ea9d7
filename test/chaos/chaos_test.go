// SPDX-License-Identifier: Apache-2.0

// Package chaos kills the operator, again and again, in the middle of a rollout, and starts it again. Whatever it was
// doing, nothing may be done twice, nothing forgotten, and no node left behind.
//
// The operator is a process of its own. What it asks of the API server goes through a gate, which can kill it at one
// write precisely: before the write is sent, when it is done but not yet answered, or so that it arrives only when the
// next operator is at work. Other kills come at any instant.
//
// Whether all went well is read from a journal, which sees every change of every object, and from the API server's audit
// log. Neither knows anything of the operator.
package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/test/cluster"
)

const (
	namespace   = "system-upgrade"
	planName    = "chaos"
	nodes       = 60
	concurrency = 6
	// budget is how many nodes may be unavailable at once, with those that a person has cordoned: fewer than the Plan would take.
	budget = 7
	// canaries are the first wave.
	canaries = 2
	// podSeconds is how long a pod runs once its node is cordoned.
	podSeconds = 0.2
	// limit bounds the whole test.
	limit = 10 * time.Minute
)

// byPerson are the nodes that somebody has cordoned before.
var byPerson = []string{"sim-0007", "sim-0023", "sim-0042"}

func TestKilledAtAnyInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a cluster, and more than a minute")
	}
	seed := seed(t)
	t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between", seed)
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("the test took longer than %s", limit))
	defer cancel()

	c := newChaos(ctx, t, rand.New(rand.NewPCG(seed, 0)))
	defer c.end()
	began := time.Now()
	c.createPlan(ctx)
	c.killAll(ctx)
	t.Logf("%d kills in %.1f s, in rollout %d: %v", kills, time.Since(began).Seconds(), c.rollouts(), c.tally)

	c.startOperator()
	c.waitUntilComplete(ctx)
	t.Logf("the last rollout, %d, was complete after %.1f s in all", c.rollouts(), time.Since(began).Seconds())
	c.gate.wait()
	c.stopOperator()
	c.look(ctx)
	c.check(ctx)
}

// chaos is the state of the test.
type chaos struct {
	*harness

	mu sync.Mutex
	// versions of the Plan so far.
	versions []string
	// last is true when there is to be no further one.
	last bool
}

func newChaos(ctx context.Context, t *testing.T, random *rand.Rand) *chaos {
	t.Helper()
	o := cluster.Options{Nodes: nodes, PodSeconds: podSeconds, AuditLog: true}
	c := &chaos{harness: newHarness(ctx, t, random, o, writesOfPlans), versions: []string{"v1"}}
	c.now = c.standing
	c.prepare(ctx)
	c.startOperator()
	c.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	c.journal.follow(ctx, &batchv1.JobList{}, namespace, nil)
	played := map[string]bool{}
	c.journal.follow(ctx, &corev1.PodList{}, namespace, func(o client.Object) {
		pod, ok := o.(*corev1.Pod)
		if ok && pod.Status.Phase == corev1.PodRunning && !played[pod.Name] {
			played[pod.Name] = true
			go c.play(ctx, pod)
		}
	})
	return c
}

// prepare makes the namespace, and cordons nodes as a person does.
func (c *chaos) prepare(ctx context.Context) {
	c.t.Helper()
	c.makeNamespace(ctx, namespace)
	for _, name := range byPerson {
		var n corev1.Node
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			c.t.Fatal(err)
		}
		if _, err := node.Cordon(ctx, c.client, &n, ""); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *chaos) createPlan(ctx context.Context) {
	c.t.Helper()
	plan := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      planName,
			// It stands on each pod too, which runs until this is taken off it again.
			Annotations: map[string]string{annotationHang: "true"},
		},
		Spec: upgradev1.PlanSpec{
			Concurrency:  concurrency,
			NodeSelector: &metav1.LabelSelector{},
			Version:      c.versions[0],
			Cordon:       true,
			Upgrade:      &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
		},
	}
	plan.Spec.Strategy = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{
		{Name: "canary", Size: ptr.To(intstr.FromInt32(canaries))}, {Name: "half", Size: ptr.To(intstr.FromString("50%"))},
	}}
	limit := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: planName},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(budget))},
	}
	c.createSoon(ctx, limit)
	c.createSoon(ctx, plan)
	c.journal.follow(ctx, &upgradev1.PlanList{}, namespace, func(o client.Object) {
		if p, ok := o.(*upgradev1.Plan); ok {
			c.ask(ctx, p)
		}
	})
}

// ask asks for the next version as soon as the last one is everywhere, until there is to be no further one.
func (c *chaos) ask(ctx context.Context, p *upgradev1.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last || !complete(p) || p.Spec.Version != c.versions[len(c.versions)-1] {
		return
	}
	version := fmt.Sprintf("v%d", len(c.versions)+1)
	patch := fmt.Appendf(nil, `{"spec":{"version":%q}}`, version)
	if err := c.client.Patch(ctx, p.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
		if ctx.Err() == nil {
			c.t.Errorf("asking for %s, %v", version, err)
		}
		return
	}
	c.versions = append(c.versions, version)
}

func (c *chaos) rollouts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

func complete(p *upgradev1.Plan) bool {
	condition := p.Status.Condition(upgradev1.ConditionComplete)
	return p.Status.ObservedGeneration == p.Generation && condition != nil && condition.Status == metav1.ConditionTrue
}

// waitUntilComplete returns when the last version is everywhere.
func (c *chaos) waitUntilComplete(ctx context.Context) {
	c.t.Helper()
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	c.until(ctx, "the Plan is complete", func() (bool, error) {
		var p upgradev1.Plan
		err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: planName}, &p)
		return err == nil && complete(&p), err
	})
}

// standing says in short how things stand.
func (c *chaos) standing() (text string) {
	c.journal.see(func(latest map[string]client.Object) { text = standing(latest) })
	return text
}

func standing(latest map[string]client.Object) string {
	var claimed, without, running, done int
	var updated int32
	jobs := map[string]*batchv1.Job{}
	version := ""
	for _, o := range latest {
		switch o := o.(type) {
		case *batchv1.Job:
			jobs[o.Annotations[v1alpha1.AnnotationTurn]+o.Labels[upgradev1.LabelNode]] = o
		case *upgradev1.Plan:
			version = o.Spec.Version
			if o.Status.Counts != nil {
				updated = o.Status.Counts.Updated
			}
		}
	}
	for _, o := range latest {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		held, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil || len(held) == 0 {
			continue
		}
		claimed++
		switch job := jobs[held[0].Turn+n.Name]; {
		case job == nil:
			without++
		case succeeded(job):
			done++
		default:
			running++
		}
	}
	return fmt.Sprintf("%s: %d nodes reported as updated, %d claimed: %d without a Job, %d with one that runs, %d with one that is done",
		version, updated, claimed, without, running, done)
}

func succeeded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

func failed(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue
	})
}

func person(name string) bool { return slices.Contains(byPerson, name) }
