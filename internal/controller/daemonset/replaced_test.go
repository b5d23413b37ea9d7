// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// serveNodes is serve with the nodes.
func (w *world) serveNodes(t *testing.T) *Controller {
	t.Helper()
	c := w.serve(t)
	for _, n := range w.nodes {
		if err := c.client.Create(t.Context(), n.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A node that is claimed after the pass has read it keeps its pod, in a rolling update and in a canary. What the pass begins keeps others from
// claiming its node.
func TestClaimsAndReplacementsExcludeEachOther(t *testing.T) {
	for name, w := range map[string]*world{
		"rolling update": newWorld(2).has("old", nil, 0, 1),
		"canary":         newWorld(2).trying().has("old", nil, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if w.eds.Status.Canary != nil {
				w.eds.Status.Canary.Nodes = []string{"n0", "n1"}
			}
			c := w.serveNodes(t)
			p := w.begin(t, c)
			if w.eds.Status.Canary != nil {
				p.Canary = &daemonset.Canary{Wanted: 2}
				p.JudgeCanaryPods()
				p.DecideCanary()
			}
			n := &corev1.Node{}
			if err := c.client.Get(t.Context(), client.ObjectKey{Name: "n0"}, n); err != nil {
				t.Fatal(err)
			}
			n.Annotations = map[string]string{v1alpha1.AnnotationClaims: `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`}
			if err := errors.Join(c.client.Update(t.Context(), n), p.decide(t.Context())); err != nil {
				t.Fatal(err)
			}
			if r := p.Actions.Replace; len(r) != 1 || daemonset.NodeOf(r[0]) != "n1" {
				t.Fatalf("replaces %v", r)
			}
			if waits := p.Waits(); len(waits) == 0 || waits[0].Node != "n0" || waits[0].Reason != v1alpha1.ReasonClaimed {
				t.Errorf("waiting are %+v", waits)
			}
			s, err := c.fleet.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d := rollout.Decide(rollout.Strategy{UID: "plan", MaxConcurrent: 2}, []rollout.Unit{{Node: "n1", State: v1alpha1.UnitOutdated}}, s.Fleet, now)
			if len(d.Start) > 0 || d.Waiting[0].Reason != v1alpha1.ReasonClaimed {
				t.Errorf("a Plan starts %v, and waiting are %+v", d.Start, d.Waiting)
			}
		})
	}
}

// An ExtendedDaemonSet that is never carried out does not keep all others, Plans and NodeRollouts from starting.
func TestInvalidDaemonSetKeepsNothingFromStarting(t *testing.T) {
	for name, prepare := range map[string]func(*world, *Controller){
		"invalid": func(w *world, _ *Controller) {},
		"in deletion, as a new process finds it": func(w *world, c *Controller) {
			w.eds.Finalizers = []string{"example.com/slow"}
			if err := errors.Join(c.client.Update(t.Context(), w.eds), c.client.Delete(t.Context(), w.eds)); err != nil {
				t.Fatal(err)
			}
		},
		"refused": func(_ *world, c *Controller) { c.fleet.Refused = func(string) error { return errors.New("no status") } },
	} {
		w := newWorld(1)
		w.eds.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("x"))
		c := w.serve(t)
		prepare(w, c)
		c.legacy = &legacy{namespaces: map[string]*legacyCache{}}
		key := client.ObjectKeyFromObject(w.eds)
		c.fleet.DaemonSets(func(context.Context) ([]reconcile.Request, error) {
			return []reconcile.Request{{NamespacedName: key}}, nil
		})
		if c.fleet.KnowsReplaced(t.Context()) {
			t.Errorf("%s: it counts before its first pass", name)
		}
		if _, err := c.reconcile(t.Context(), key); err != nil || !c.fleet.KnowsReplaced(t.Context()) {
			t.Errorf("%s: nothing can start, %v", name, err)
		}
	}
}

// What an earlier process began to replace counts in the first pass of the next one, and nothing is replaced before all ExtendedDaemonSets have had theirs.
func TestRestartKeepsABudget(t *testing.T) {
	starting := func(p *corev1.Pod) {
		unready(p)
		p.CreationTimestamp, p.Status.Conditions[0].LastTransitionTime = ago(time.Minute), ago(time.Minute)
	}
	w := newWorld(3).has("new", starting, 0).has("old", nil, 1, 2)
	for _, rs := range w.sets {
		rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.eds, edsv1.GroupVersion.WithKind(edsKind))}
	}
	c := w.serveNodes(t)
	b := &v1alpha1.NodeDisruptionBudget{Spec: v1alpha1.NodeDisruptionBudgetSpec{Counts: []v1alpha1.BudgetCount{v1alpha1.CountDaemonPods}, MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
	b.Name = "one"
	if err := c.client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	all := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(w.eds)}, {NamespacedName: client.ObjectKey{Namespace: "ns", Name: "bar"}}}
	c.fleet.DaemonSets(func(context.Context) ([]reconcile.Request, error) { return all, nil })
	p := w.begin(t, c)
	if err := p.run(t.Context()); err != nil || len(p.Decision.Waiting)+len(p.Actions.Replace) > 0 || p.Wake.IsZero() {
		t.Errorf("before the other's first pass it decides %+v, %v", p.Decision, err)
	}
	all = all[:1]
	p = w.begin(t, c)
	if err := p.run(t.Context()); err != nil || len(p.Actions.Replace) > 0 {
		t.Errorf("it replaces %v, %v", p.Actions.Replace, err)
	}
	if w := p.Decision.Waiting; len(w) != 2 || w[0].Reason != v1alpha1.ReasonBudgetExhausted {
		t.Errorf("waiting are %+v", w)
	}
}

// Two ExtendedDaemonSets replace no more pods than a budget that counts them allows, though both have read the fleet before.
func TestDaemonSetsShareABudget(t *testing.T) {
	w := newWorld(2).has("old", nil, 0, 1)
	c := w.serveNodes(t)
	b := &v1alpha1.NodeDisruptionBudget{Spec: v1alpha1.NodeDisruptionBudgetSpec{Counts: []v1alpha1.BudgetCount{v1alpha1.CountDaemonPods}, TopologyKey: corev1.LabelHostname}}
	b.Name = "one"
	if err := c.client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	first, second := w.begin(t, c), w.begin(t, c)
	second.key.Name = "bar"
	if err := errors.Join(first.decide(t.Context()), second.decide(t.Context())); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	for _, pod := range append(first.Actions.Replace, second.Actions.Replace...) {
		nodes[daemonset.NodeOf(pod)] = true
	}
	if len(nodes) != 1 || len(first.Actions.Replace) != 1 {
		t.Errorf("pods are replaced on %v", nodes)
	}
	if w := second.Decision.Waiting; len(w) == 0 || w[0].Reason != v1alpha1.ReasonMaxDomains {
		t.Errorf("waiting are %+v", w)
	}
}
