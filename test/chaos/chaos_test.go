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
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	namespace   = "system-upgrade"
	planName    = "chaos"
	nodes       = 60
	concurrency = 6
	kills       = 50
	// budget is how many nodes may be unavailable at once, with those that a person has cordoned: fewer than the Plan would take.
	budget = 7
	// canaries are the first wave.
	canaries = 2
	// podSeconds is how long a pod runs once its node is cordoned.
	podSeconds = 0.2
	// limit bounds the whole test.
	limit = 5 * time.Minute
	// patience bounds a life whose kill would wait for something that does not come.
	patience = 4 * time.Second
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
	defer func() {
		if c.process != nil {
			c.process.Kill()
		}
	}()
	began := time.Now()
	c.createPlan(ctx)
	for n := range kills {
		if n > 0 {
			c.startOperator()
		}
		c.kill(ctx, n+1)
	}
	t.Logf("%d kills in %.1f s, in rollout %d: %v", kills, time.Since(began).Seconds(), c.rollouts(), c.tally)

	c.startOperator()
	c.waitUntilComplete(ctx)
	t.Logf("the last rollout, %d, was complete after %.1f s in all", c.rollouts(), time.Since(began).Seconds())
	// Once more, to see that one that comes to work that is done leaves it as it is.
	c.gate.wait()
	c.stopOperator()
	probes := freeAddress(t)
	c.startOperator("--health-probe-bind-address=" + probes)
	c.until(ctx, "the operator is ready", func() (bool, error) { return ready(ctx, probes), nil })
	time.Sleep(2 * time.Second)
	c.stopOperator()
	c.check(ctx)
}

// seed is MOULT_SEED, or drawn.
func seed(t *testing.T) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("MOULT_SEED")
	if !ok {
		return uint64(rand.Uint32())
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("reading MOULT_SEED, %v", err)
	}
	return n
}

// chaos is the state of the test.
type chaos struct {
	t       *testing.T
	random  *rand.Rand
	cluster *cluster.Cluster
	client  client.WithWatch
	gate    *gate
	journal *journal
	program string
	process *operator.Process
	// tally counts the kills by what they hit.
	tally map[string]int

	mu sync.Mutex
	// versions of the Plan so far.
	versions []string
	// last is true when there is to be no further one.
	last bool
}

func newChaos(ctx context.Context, t *testing.T, random *rand.Rand) *chaos {
	t.Helper()
	c := &chaos{t: t, random: random, tally: map[string]int{}, versions: []string{"v1"}}
	var err error
	if c.program, err = operator.Build(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	c.cluster = cluster.New(t, cluster.Options{Nodes: nodes, PodSeconds: podSeconds, AuditLog: true})
	config := c.cluster.Config()
	config.UserAgent = "chaos"
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if c.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	c.prepare(ctx)
	c.gate = newGate(t, c.cluster.Config())
	c.startOperator()
	c.journal = newJournal(ctx, t, c.client, c.play)
	return c
}

// prepare makes the namespace, and cordons nodes as a person does.
func (c *chaos) prepare(ctx context.Context) {
	c.t.Helper()
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		c.t.Fatal(err)
	}
	// Without it no pods can be made, and the Job controller waits ever longer.
	c.until(ctx, "the namespace has its service account", func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
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
	c.until(ctx, "a budget can be created", func() (bool, error) {
		err := c.client.Create(ctx, limit.DeepCopy())
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	// The operator brings the definition along.
	c.until(ctx, "a Plan can be created", func() (bool, error) {
		err := c.client.Create(ctx, plan.DeepCopy())
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	c.journal.follow(ctx, &upgradev1.PlanList{}, namespace, func(o client.Object) {
		if p, ok := o.(*upgradev1.Plan); ok {
			c.ask(ctx, p)
		}
	})
}

// startOperator starts the operator with the gate between it and the API server.
func (c *chaos) startOperator(more ...string) {
	c.t.Helper()
	args := append([]string{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, more...)
	var err error
	c.process, err = operator.Start(c.program, c.gate.kubeconfig, c.log(), args...)
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) stopOperator() {
	c.t.Helper()
	if err := c.process.Stop(time.Minute); err != nil {
		c.t.Fatal(err)
	}
	c.process = nil
}

func (c *chaos) log() string { return filepath.Join(c.cluster.Dir(), "log", "moult.log") }

// kill kills the operator at an instant that is drawn, and notes what that hit.
func (c *chaos) kill(ctx context.Context, n int) {
	c.t.Helper()
	began := time.Now()
	at := draw(c.random)
	hit := c.gate.arm(at, c.process)
	wait := patience
	if at.write == anyInstant {
		wait = at.delay
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	what := at.String()
	select {
	case <-hit:
	case <-timer.C:
		if !c.gate.disarm() {
			<-hit
			break
		}
		if at.write != anyInstant {
			what = "waiting, without " + at.write
		}
		if !c.process.Kill() {
			c.t.Fatal(c.process.Died())
		}
	case <-c.process.Exited():
		select {
		case <-hit: // That is why.
		case <-time.After(time.Second):
			c.t.Fatal(c.process.Died())
		}
	case err := <-c.journal.failed:
		c.t.Fatal(err)
	case <-ctx.Done():
		c.t.Fatal(c.stuck(context.Cause(ctx)))
	}
	c.tally[what]++
	c.t.Logf("kill %2d after %3d ms, %s; %s", n, time.Since(began).Milliseconds(), what, c.journal.now())
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

// until waits for what must come.
func (c *chaos) until(ctx context.Context, what string, holds func() (bool, error)) {
	c.t.Helper()
	for {
		ok, err := holds()
		if err != nil {
			c.t.Fatalf("waiting until %s, %v", what, err)
		}
		if ok {
			return
		}
		var exited <-chan struct{}
		var failed <-chan error
		if c.process != nil {
			exited, failed = c.process.Exited(), c.journal.failed
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-exited:
			c.t.Fatal(c.process.Died())
		case err := <-failed:
			c.t.Fatal(err)
		case <-ctx.Done():
			c.t.Fatalf("waiting until %s, %v", what, c.stuck(context.Cause(ctx)))
		}
	}
}

// stuck adds to an error how things stand.
func (c *chaos) stuck(err error) error {
	return fmt.Errorf("%w\n%s\n%s", err, c.journal.now(), operator.Tail(c.log(), 20))
}

func person(name string) bool { return slices.Contains(byPerson, name) }
