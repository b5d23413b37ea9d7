// SPDX-License-Identifier: Apache-2.0

// Package chaos kills the operator again and again in the middle of rollouts, and starts it again. Nothing may be done
// twice, nothing forgotten, and no node left behind.
//
// A Plan, ExtendedDaemonSets, a host update and a replacement of machines go on at the same time in one cluster, under one
// operator, which is a process of its own. Plan and host update share nodes and a budget. All that the operator writes goes
// through gates, which can kill it at one write precisely: before the write is sent, when it is done but not yet answered,
// or so that it arrives when the next operator is at work. The agents of hosts are killed in the same way.
//
// A journal sees every change of every object. When all is over it is replayed in the order of the store, and the
// invariants are checked after each change. So neither late watch events nor the machine's speed can change the result.
package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/tier"
)

const (
	// sharedBudget is how many of the nodes that Plan and host update share may be unavailable: fewer than both would take.
	// With the nodes that a person has cordoned there is room for 4.
	sharedBudget = 6
	// serving begins the names of pods that are evicted from hosts and machines.
	serving = "serves-"
)

// mechanism is what the operator is killed at.
type mechanism interface {
	name() string
	targets() []target
	// writeOf is which of its writes a request to the API server is; "" for all others.
	writeOf(r *http.Request, body []byte) string
	// prepare makes what must be there before the operator starts. begin makes the rollout, which goes on to the next version
	// with each ask.
	prepare(ctx context.Context)
	begin(ctx context.Context)
	ask(ctx context.Context) error
	// missing says what is missing until the last version is everywhere and nothing is under way.
	missing() string
	// busy reports whether turns are under way, as the API server knows it.
	busy(ctx context.Context) (bool, error)
	invariants() []invariant
	// checkEnd checks what must be true at the end.
	checkEnd(r *replay)
}

// Operator and agents are killed while all kinds of rollouts go on, version after version.
func TestKilledAtAnyInstant(t *testing.T) {
	kills := 6
	if tier.All {
		kills = 150 // More than 30 of them at writes of each mechanism.
	}
	seed := seedOf(t)
	ctx, h := newHarness(t, buildOperator(t))
	c := newChaos(ctx, h, seed, newMachines(h, seed, machineCount, machineSurge),
		[]budget{{"shared", sharedBudget, []string{planPool, hostPool}}, {machinePool, machineBudget, []string{machinePool}}},
		&plans{harness: h, plan: planName, nodes: planNodes, atOnce: planAtOnce},
		&daemons{harness: h, sets: []string{"unavailable", surging}, pools: []string{daemonPool}, nodes: daemonNodes},
		&hosts{harness: h, count: hostNodes})
	began := time.Now()
	defer func() {
		if t.Failed() && !c.checked { // What does not come is perhaps missing because of what was broken before.
			replayed(t, h.journal.inOrder(), c.invariants())
		}
	}()
	c.begin(ctx)
	c.killAll(ctx, kills)
	t.Logf("after %.1f s the kills in the middle of turns are %v", time.Since(began).Seconds(), c.tally)
	c.finish(ctx)
	t.Logf("all rollouts were complete after %.1f s", time.Since(began).Seconds())
	c.check(ctx)
	c.machines.deletesInTurn(ctx, c.random)
	t.Logf("all was over after %.1f s", time.Since(began).Seconds())
}

// chaos is all rollouts at once.
type chaos struct {
	*harness
	random   *rand.Rand
	all      []mechanism
	budgets  []budget
	machines *machines
	tally    map[string]int
	// checked is true once the journal was replayed.
	checked bool

	// mu keeps the drivers from asking for more once last is true.
	mu   sync.Mutex
	last bool
}

// budget is how many nodes of some pools may be unavailable.
type budget struct {
	name  string
	most  int
	pools []string
}

func newChaos(ctx context.Context, h *harness, seed uint64, m *machines, budgets []budget, others ...mechanism) *chaos {
	h.t.Helper()
	c := &chaos{harness: h, random: rand.New(rand.NewPCG(seed, 0)), tally: map[string]int{}, machines: m, budgets: budgets, all: append(others, m)}
	h.standing = c.text
	h.gate.of = func(r *http.Request, body []byte) write {
		for _, m := range c.all {
			if name := m.writeOf(r, body); name != "" {
				return write{m.name(), name}
			}
		}
		return write{}
	}
	// A pod is evicted, and never deleted past its PodDisruptionBudget.
	h.gate.forbidden = func(r *http.Request) bool {
		return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/pods/"+serving)
	}
	for _, m := range c.all {
		m.prepare(ctx)
	}
	return c
}

// begin makes all rollouts, and asks for their next versions from now on.
func (c *chaos) begin(ctx context.Context) {
	c.t.Helper()
	c.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	pods := sync.Map{}
	c.journal.follow(ctx, &corev1.PodList{}, c.namespace, func(o client.Object) {
		pod, ok := o.(*corev1.Pod)
		if ok && pod.Annotations[annotHang] != "" && pod.Status.Phase == corev1.PodRunning {
			if _, known := pods.LoadOrStore(pod.UID, true); !known {
				c.background.Go(func() { c.runPod(ctx, pod) })
			}
		}
	})
	c.journal.follow(ctx, &batchv1.JobList{}, c.namespace, nil)
	// The operator brings the definitions of its kinds.
	c.start()
	c.until(ctx, "the kinds are there", func() (bool, error) {
		for _, list := range []client.ObjectList{
			&upgradev1.PlanList{}, &v1alpha1.NodeRolloutList{}, &v1alpha1.NodeDisruptionBudgetList{}, &edsv1.ExtendedDaemonSetList{}, &edsv1.ExtendedDaemonSetReplicaSetList{},
		} {
			if err := c.client.List(ctx, list); err != nil {
				return false, client.IgnoreNotFound(ignoreNoMatch(err))
			}
		}
		return true, nil
	})
	c.journal.follow(ctx, &v1alpha1.NodeRolloutList{}, "", nil)
	c.journal.follow(ctx, &upgradev1.PlanList{}, c.namespace, nil)
	for _, b := range c.budgets {
		c.create(ctx, b.object())
	}
	for _, m := range c.all {
		m.begin(ctx)
		c.background.Go(func() { c.drive(ctx, m) })
	}
}

func (b budget) object() *v1alpha1.NodeDisruptionBudget {
	return &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{Selector: ofPools(b.pools), MaxUnavailable: ptr.To(intstr.FromInt(b.most))},
	}
}

func ofPools(pools []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: labelPool, Operator: metav1.LabelSelectorOpIn, Values: pools},
	}}
}

func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// drive asks for the next version of a rollout whenever the last one is everywhere.
func (c *chaos) drive(ctx context.Context, m mechanism) {
	for ctx.Err() == nil {
		c.mu.Lock()
		last := c.last
		var err error
		if !last && m.missing() == "" {
			err = m.ask(ctx)
		}
		c.mu.Unlock()
		if last {
			return
		}
		if err != nil && !cluster.Passing(err) && ctx.Err() == nil {
			c.t.Errorf("%s: asking for the next version, %v", m.name(), err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// text says in short how things stand.
func (c *chaos) text() string {
	var text strings.Builder
	for _, m := range c.all {
		fmt.Fprintf(&text, "%s: %s\n", m.name(), m.missing())
	}
	return text.String() + c.machines.story()
}

// killAll kills at writes of one mechanism after the other, in an order that is drawn. A kill counts for each mechanism
// that it has left with turns under way. killAll returns when there were enough for each.
func (c *chaos) killAll(ctx context.Context, kills int) {
	c.t.Helper()
	for slices.ContainsFunc(c.all, func(m mechanism) bool { return c.tally[m.name()] < kills }) {
		c.killEach(ctx)
	}
}

// killEach kills at one write of each mechanism.
func (c *chaos) killEach(ctx context.Context) {
	c.t.Helper()
	for _, i := range c.random.Perm(len(c.all)) {
		began := time.Now()
		what := c.killAt(ctx, draw(c.random, c.all[i].name(), c.all[i].targets()))
		c.settle()
		text := ""
		for _, m := range c.all {
			c.until(ctx, "it is known what is under way", func() (bool, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				busy, err := m.busy(ctx)
				if err == nil && busy {
					c.tally[m.name()]++
					text += m.name() + ", "
				}
				return err == nil, err
			})
		}
		c.t.Logf("killed after %d ms, %s; under way: %s", time.Since(began).Milliseconds(), what, strings.TrimSuffix(text, ", "))
	}
}

// settle returns when the servers have carried out what a dead operator had sent.
func (c *chaos) settle() {
	for _, g := range []*gate{c.gate, c.machines.cloudGate} {
		g.inFlight.Lock()
		g.inFlight.Unlock() //nolint:staticcheck // To have had it is enough: then no write holds it.
	}
}

// finish returns when the last versions are everywhere, and what was to arrive late has changed nothing of that.
func (c *chaos) finish(ctx context.Context) {
	c.t.Helper()
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	c.start()
	for range 2 {
		for _, m := range c.all {
			c.until(ctx, m.name()+" is complete", func() (bool, error) { return m.missing() == "", nil })
		}
		c.trap.onTheWay.Wait()
	}
	c.stop()
}

// check replays the journal.
func (c *chaos) check(ctx context.Context) {
	c.t.Helper()
	c.until(ctx, "the journal is complete", func() (bool, error) { return c.journal.complete(ctx) })
	c.checked = true
	entries, invariants := c.journal.inOrder(), c.invariants()
	r := replayed(c.t, entries, invariants)
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		if left := leftOn(r.nodes[name]); left != "" {
			c.t.Errorf("at the end node %s has %s", name, left)
		}
	}
	for _, m := range c.all {
		m.checkEnd(r)
	}
	if len(c.gate.faults) > 0 { // A cloud may refuse to delete a machine again.
		c.t.Errorf("the operator has sent %v", c.gate.faults)
	}
	c.t.Logf("%d changes, and %d invariants after each", len(entries), len(invariants))
}

func (c *chaos) invariants() []invariant {
	all := sharedInvariants()
	for _, b := range c.budgets {
		all = append(all, limited("the budget "+b.name+" is not exceeded", "", b.most, b.pools...))
	}
	for _, m := range c.all {
		all = append(all, m.invariants()...)
	}
	return all
}

// serve runs pods on the nodes of a pool, of which some must always be available, and waits until they run.
func (h *harness) serve(ctx context.Context, pool string, replicas, available int32) {
	h.t.Helper()
	object := metav1.ObjectMeta{Name: serving + pool, Namespace: h.namespace}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": object.Name}}
	d := &appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: selector,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: ptr.To[int64](1), NodeSelector: map[string]string{labelPool: pool},
				Containers: []corev1.Container{{Name: "serve", Image: "example.com/serve"}},
			},
		},
	}}
	h.create(ctx, d, &policyv1.PodDisruptionBudget{ObjectMeta: object, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(available)), Selector: selector,
	}})
	h.until(ctx, "the pods serve", func() (bool, error) {
		err := h.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		return d.Status.AvailableReplicas == replicas, err
	})
}
