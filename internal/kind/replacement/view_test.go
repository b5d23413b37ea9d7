// SPDX-License-Identifier: Apache-2.0

package replacement_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
	"moult.dev/moult/internal/view"
)

// In each state of the simulation the plugin gives the reason that the operator writes into the status: with the lists of the status, and also
// without the list of turns, which has room for a few of many only.
func TestViewGivesTheReasonOfStatus(t *testing.T) {
	compared := map[v1alpha1.Reason]int{}
	for seed := range uint64(4) {
		for _, plane := range []bool{false, true} {
			replacement.Simulate(t, seed, plane, func(w *replacement.World, turns []*replacement.Turn, units []rollout.Unit, d rollout.Decision) {
				nr := statusOf(w, turns, units, d)
				for reason, n := range compare(t, w, nr, slices.Concat(nr.Status.Updating, nr.Status.Failed, nr.Status.Waiting)) {
					compared[reason] += n
				}
				inTurn := slices.DeleteFunc(nr.Status.Updating, func(s v1alpha1.UnitStatus) bool {
					// Only the operator knows what blocks a claim, and whether there is room to start over.
					return s.Phase == v1alpha1.Phase(v1alpha1.MachineClaiming) || s.Phase == ""
				})
				nr.Status.Updating = nil
				compare(t, w, nr, inTurn)
				if t.Failed() {
					t.FailNow()
				}
			})
		}
	}
	for _, reason := range []v1alpha1.Reason{"", v1alpha1.ReasonReplacementPending, v1alpha1.ReasonReplacementFailed, v1alpha1.ReasonMaxConcurrent} {
		if compared[reason] == 0 {
			t.Errorf("no unit with reason %q was compared: %v", reason, compared)
		}
	}
}

// statusOf is the NodeRollout with the status that its controller writes.
func statusOf(w *replacement.World, turns []*replacement.Turn, units []rollout.Unit, d rollout.Decision) v1alpha1.NodeRollout {
	nr := v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{}, Strategy: &v1alpha1.Strategy{
		MaxConcurrent: ptr.To(intstr.FromInt32(2)), Retries: w.Strategy.Retries,
	}}}
	nr.Name, nr.UID, nr.Status.Revision = "pool", "r", w.Revision
	if w.ControlPlane {
		nr.Spec.Replacement.ControlPlane = &v1alpha1.ControlPlane{}
	}
	byName := map[string]*replacement.Turn{}
	for _, t := range turns {
		if !t.Over {
			nr.Status.Turns = append(nr.Status.Turns, t.MachineTurn)
			byName[t.Unit.Node] = t
		}
	}
	p := &turn.Pass[*nodeturn.Turn]{Decision: d}
	for i := range units {
		p.Turns = append(p.Turns, &nodeturn.Turn{Unit: units[i], Counted: true})
	}
	g := p.Summarize(func(u *nodeturn.Turn) (v1alpha1.Phase, time.Time, string) {
		if t := byName[u.Unit.Node]; t != nil {
			return v1alpha1.Phase(t.Phase), t.PhaseSince.Time, t.Message
		}
		return "", u.Unit.Since, ""
	})
	nr.Status.Updating, nr.Status.Failed, nr.Status.Waiting, nr.Status.Counts = g.Updating, g.Failed, g.Waiting, &g.Counts
	return nr
}

// compare compares the reasons of units with those that package view gives, and counts them.
func compare(t *testing.T, w *replacement.World, nr v1alpha1.NodeRollout, units []v1alpha1.UnitStatus) map[v1alpha1.Reason]int {
	t.Helper()
	var nodes []corev1.Node
	for _, known := range w.Nodes {
		n := known.Node.DeepCopy()
		if n.Labels = map[string]string{}; known.OptedOut {
			n.Labels[v1alpha1.LabelNodeRollout(nr.Name)] = v1alpha1.LabelNodeRolloutDisabled
		}
		if known.Claim != nil {
			claim := *known.Claim
			claim.Rollout = "NodeRollout/" + nr.Name
			claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{claim})
			if err != nil {
				t.Fatal(err)
			}
			n.Annotations[v1alpha1.AnnotationClaims] = claims
		}
		nodes = append(nodes, *n)
	}
	shown := map[string]view.Node{}
	for _, n := range view.See(nil, nodes, nil, w.Now).NodeRollouts([]v1alpha1.NodeRollout{nr}).Rollouts()[0].Nodes {
		shown[n.Node] = n
	}
	compared := map[v1alpha1.Reason]int{}
	for i := range units {
		s := &units[i]
		compared[s.Reason]++
		if n, ok := shown[s.Node]; !ok || n.Reason != s.Reason {
			t.Errorf("%s: the status says %s %q (%s), the view %s %s %q (%s): %+v", s.Node, s.Phase, s.Reason, s.Message, n.State, n.Phase, n.Reason, n.Message, nr.Status.Turns)
		}
	}
	return compared
}
