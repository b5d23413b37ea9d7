// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
)

// labelPool is a label of nodes: what happens to them.
const labelPool = "example.com/pool"

// replay goes through the journal, and knows all objects as they were after each change.
type replay struct {
	t       *testing.T
	objects map[string]client.Object
	// nodes are those of the objects, and claims their claims that disrupt them.
	nodes  map[string]*corev1.Node
	claims map[string]v1alpha1.Claim
	// bound and cordoned are the revisions at which a pod, by uid, came to its node and a node was cordoned last.
	bound, cordoned map[string]uint64
	wrong           map[string]bool
}

// invariant must hold after each change. Check returns what is wrong; before is the object before this change, or nil.
type invariant struct {
	name  string
	check func(r *replay, before client.Object, e entry) string
}

// replayed replays the journal, and reports each broken invariant.
func replayed(t *testing.T, entries []entry, invariants []invariant) *replay {
	t.Helper()
	r := &replay{
		t: t, objects: map[string]client.Object{}, nodes: map[string]*corev1.Node{}, claims: map[string]v1alpha1.Claim{},
		bound: map[string]uint64{}, cordoned: map[string]uint64{}, wrong: map[string]bool{},
	}
	for _, e := range entries {
		before := r.objects[keyOf(e.object)]
		r.apply(before, e)
		for _, i := range invariants {
			if what := i.check(r, before, e); what != "" {
				r.report(i.name, e, what)
			}
		}
	}
	return r
}

// report reports each fault once, and no more than the first few: the others follow from them.
func (r *replay) report(name string, e entry, what string) {
	r.t.Helper()
	const most = 20
	if key := name + what; !r.wrong[key] {
		r.wrong[key] = true
		if len(r.wrong) <= most {
			r.t.Errorf("broken: %s\nat revision %d, with %s: %s", name, e.revision, keyOf(e.object), what)
		}
	}
}

// apply brings the objects up to a change.
func (r *replay) apply(before client.Object, e entry) {
	key := keyOf(e.object)
	if r.objects[key] = e.object; e.deleted {
		delete(r.objects, key)
	}
	switch o := e.object.(type) {
	case *corev1.Node:
		delete(r.claims, o.Name)
		if r.nodes[o.Name] = o; e.deleted {
			delete(r.nodes, o.Name)
			return
		}
		for _, c := range claimsOf(o) {
			r.claims[o.Name] = c
		}
		if old, ok := before.(*corev1.Node); o.Spec.Unschedulable && (!ok || !old.Spec.Unschedulable) {
			r.cordoned[o.Name] = e.revision
		}
	case *corev1.Pod:
		if uid := string(o.UID); o.Spec.NodeName != "" && r.bound[uid] == 0 {
			r.bound[uid] = e.revision
		}
	}
}

// claimsOf are the claims that disrupt a node.
func claimsOf(n *corev1.Node) []v1alpha1.Claim {
	all, _ := v1alpha1.ParseClaims(n.Annotations)
	return slices.DeleteFunc(all, func(c v1alpha1.Claim) bool { return c.RecordsResult() })
}

// disrupted are the nodes of some pools that a rollout disrupts; without a rollout all that are claimed, or cordoned by a person.
func (r *replay) disrupted(rollout string, pools ...string) (names []string) {
	for name, n := range r.nodes {
		claimed := r.claims[name].Rollout
		if (rollout == "" && (claimed != "" || byPerson(name)) || rollout != "" && rollout == claimed) && slices.Contains(pools, n.Labels[labelPool]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// remaining are the pods that serve on a node though they were there when it was cordoned. The scheduler may send
// others for a moment after that.
func (r *replay) remaining(node string) (names []string) {
	for _, o := range r.objects {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == node && strings.HasPrefix(p.Name, serving) &&
			r.bound[string(p.UID)] < r.cordoned[node] && !bottlerocket.Ended(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// limited says that a rollout, or all together without a name, never disrupts more nodes of some pools than that.
func limited(name, rollout string, most int, pools ...string) invariant {
	return ofNodes(name, func(r *replay, _, _ *corev1.Node) string {
		if names := r.disrupted(rollout, pools...); len(names) > most {
			return fmt.Sprintf("%d nodes are disrupted, and %d may be: %v", len(names), most, names)
		}
		return ""
	})
}

// of is an invariant that is checked after each change of an object of this type. Of a deleted one the check sees the last state.
func of[T client.Object](name string, check func(r *replay, before, o T, deleted bool) string) invariant {
	return invariant{name, func(r *replay, before client.Object, e entry) string {
		o, ok := e.object.(T)
		if !ok {
			return ""
		}
		old, _ := before.(T)
		return check(r, old, o, e.deleted)
	}}
}

// ofNodes is an invariant of each Node that is there.
func ofNodes(name string, check func(r *replay, before, n *corev1.Node) string) invariant {
	return of(name, func(r *replay, before, n *corev1.Node, deleted bool) string {
		if deleted {
			return ""
		}
		return check(r, before, n)
	})
}

// sharedInvariants hold for every mechanism.
func sharedInvariants() []invariant {
	return []invariant{
		ofNodes("no node is disrupted by two rollouts", func(_ *replay, _, n *corev1.Node) string {
			if _, err := v1alpha1.ParseClaims(n.Annotations); err != nil || len(claimsOf(n)) > 1 {
				return fmt.Sprintf("it has the claims %q, %v", n.Annotations[v1alpha1.AnnotationClaims], err)
			}
			return ""
		}),
		ofNodes("a node is cordoned by the rollout that has claimed it, and by no one else", func(r *replay, _, n *corev1.Node) string {
			by, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]
			if !byPerson(n.Name) && (marked != n.Spec.Unschedulable || marked && r.claims[n.Name].Rollout != by) {
				return fmt.Sprintf("it is unschedulable %t, marked by %q and claimed by %q", n.Spec.Unschedulable, by, r.claims[n.Name].Rollout)
			}
			return ""
		}),
		ofNodes("a node that a person has cordoned stays cordoned", func(_ *replay, old, n *corev1.Node) string {
			if _, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]; byPerson(n.Name) && (old != nil && old.Spec.Unschedulable && !n.Spec.Unschedulable || marked) {
				return fmt.Sprintf("it is unschedulable %t, and marked %t", n.Spec.Unschedulable, marked)
			}
			return ""
		}),
		of("a Node is deleted only after its machine", func(_ *replay, old, _ *corev1.Node, deleted bool) string {
			if deleted && old.Annotations[cluster.NodeNotReady] == "" {
				return "its machine runs"
			}
			return ""
		}),
	}
}

// leftOn says what a rollout has left on a node, or what is wrong with it.
func leftOn(n *corev1.Node) string {
	for _, keys := range []map[string]string{n.Annotations, n.Labels} {
		for key := range keys {
			if strings.HasPrefix(key, v1alpha1.GroupName+"/") && !strings.HasPrefix(key, v1alpha1.GroupName+"/host-") ||
				key == v1alpha1.AnnotationScaleDownDisabled || key == corev1.LabelNodeExcludeBalancers {
				return key
			}
		}
	}
	for _, taint := range n.Spec.Taints {
		if !byPerson(n.Name) || taint.Key != corev1.TaintNodeUnschedulable {
			return "the taint " + taint.Key
		}
	}
	if n.Spec.Unschedulable != byPerson(n.Name) {
		return "a cordon, or none"
	}
	return ""
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
