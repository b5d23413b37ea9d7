// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

const azurePath = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/"

// aReplacement is a NodeRollout with replacement whose controller looks at it.
func aReplacement(options ...func(*v1alpha1.NodeRollout)) v1alpha1.NodeRollout {
	nr := aNodeRollout(func(nr *v1alpha1.NodeRollout) {
		nr.Spec.HostUpdate, nr.Spec.Replacement = nil, &v1alpha1.Replacement{Provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{}}}
		nr.Status.Revision, nr.Status.Releases = "image-2", nil
		nr.Status.ScaleSets = []v1alpha1.ScaleSetStatus{{Name: "pool", Image: "/subscriptions/s/images/image-2", Capacity: 3, Machines: 3, Outdated: 1}}
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 1, Updated: 1}
	})
	for _, option := range options {
		option(&nr)
	}
	return nr
}

// aMachine is a node of a scale set.
func aMachine(name, set string, options ...func(*corev1.Node)) corev1.Node {
	return aNode(name, append([]func(*corev1.Node){func(n *corev1.Node) {
		n.Annotations = map[string]string{}
		n.Spec.ProviderID = azurePath + set + "/virtualMachines/" + name
		n.Status.NodeInfo.OSImage = "image-1"
	}}, options...)...)
}

func inTurn(phase v1alpha1.MachinePhase, change ...func(*v1alpha1.MachineTurn)) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) {
		turn := v1alpha1.MachineTurn{
			Turn: "t", Node: "n", Machine: "1", ScaleSet: "pool", Revision: "image-2", Phase: phase, Since: *at(now.Add(-5 * time.Minute)), PhaseSince: *at(minute),
		}
		for _, c := range change {
			c(&turn)
		}
		nr.Status.Turns = append(nr.Status.Turns, turn)
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Updated: 1, Updating: 1}
	}
}

// unknown is a NodeRollout whose controller may not look at the cloud.
func unknown(nr *v1alpha1.NodeRollout) {
	nr.Status.Counts = &v1alpha1.UnitCounts{}
	nr.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(v1alpha1.ReasonCloudDenied), Message: "scale set pool: 403", ObservedGeneration: nr.Generation,
	}}
}

func by(machine, node string) func(*v1alpha1.MachineTurn) {
	return func(t *v1alpha1.MachineTurn) { t.Replacement, t.ReplacementNode = machine, node }
}

func says(message string) func(*v1alpha1.MachineTurn) {
	return func(t *v1alpha1.MachineTurn) { t.Message = message }
}

func waitsFor(reason v1alpha1.Reason, message string) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) {
		nr.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n", Reason: reason, Message: message}}
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Updated: 1, Waiting: 1}
	}
}

func byOSImage(nr *v1alpha1.NodeRollout) {
	nr.Spec.Replacement.ImageMatch = v1alpha1.ImageMatchOSImage
	nr.Status.Counts = &v1alpha1.UnitCounts{Total: 100, Waiting: 100}
}

// TestMachines: the claim, the status and the node itself make the unit.
func TestMachines(t *testing.T) {
	ofOne := func(nr *v1alpha1.NodeRollout) { nr.Status.Counts = &v1alpha1.UnitCounts{Total: 1, Updated: 1} }
	many := func(nr *v1alpha1.NodeRollout) { nr.Status.Counts = &v1alpha1.UnitCounts{Total: 100, Waiting: 100} }
	updating := func(reason v1alpha1.Reason, message string) func(*v1alpha1.NodeRollout) {
		return func(nr *v1alpha1.NodeRollout) {
			nr.Status.Updating = []v1alpha1.UnitStatus{{Node: "n", Phase: "Claiming", Reason: reason, Message: message, Since: at(minute)}}
		}
	}
	failedTurn := func(t *v1alpha1.MachineTurn) {
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "not ready in 15m", Time: *at(minute)}
	}
	gone := func(t *v1alpha1.MachineTurn) { t.Node = "" }
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    corev1.Node
		// want is name, state, phase, reason, message, version, target of each unit.
		want []string
	}{
		"updated":        {aReplacement(), aMachine("n", "pool"), []string{"n Updated"}},
		"outdated":       {aReplacement(waitsFor(v1alpha1.ReasonCloudQuota, "no room")), aMachine("n", "pool"), []string{"n Outdated CloudQuota no room"}},
		"not known":      {aReplacement(unknown), aMachine("n", "pool"), nil},
		"not counted":    {aReplacement(func(nr *v1alpha1.NodeRollout) { nr.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Failed: 2} }), aMachine("n", "pool"), nil},
		"untold":         {aReplacement(many), aMachine("n", "pool"), nil},
		"told by its OS": {aReplacement(byOSImage, waitsFor("", "")), aMachine("n", "pool"), []string{"n Outdated image-1 → image-2"}},
		"waits unlisted": {aReplacement(byOSImage), aMachine("n", "pool"), nil},
		"in another set": {aReplacement(byOSImage, ofOne), aMachine("n", "other"), nil},
		"updated by OS":  {aReplacement(byOSImage), aMachine("n", "POOL", func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "image-2" }), []string{"n Updated image-2"}},
		"OS not told":    {aReplacement(byOSImage), aMachine("n", "pool", func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "" }), nil},
		"no machine":     {aReplacement(), aNode("n"), nil},
		"another cloud":  {aReplacement(), aMachine("n", "", func(n *corev1.Node) { n.Spec.ProviderID = "aws:///eu-central-1a/i-1" }), []string{"n Updated"}},
		"adding":         {aReplacement(inTurn(v1alpha1.MachineAdding)), aMachine("n", "pool"), []string{"n Updating Adding ReplacementPending"}},
		"joining":        {aReplacement(inTurn(v1alpha1.MachineJoining, by("7", ""), says("its node has not joined"))), aMachine("n", "pool"), []string{"n Updating Joining ReplacementPending replaced by machine 7; its node has not joined"}},
		"joining, ready": {aReplacement(inTurn(v1alpha1.MachineJoining, by("7", "m"), says("it starts"))), aMachine("n", "pool"), []string{"n Updating Joining ReplacementPending replaced by m; it starts"}},
		"claiming":       {aReplacement(inTurn(v1alpha1.MachineClaiming, by("7", "m")), updating(v1alpha1.ReasonBudgetExhausted, "2 of 2")), aMachine("n", "pool"), []string{"n Updating Claiming BudgetExhausted replaced by m; 2 of 2"}},
		"told before": {aReplacement(inTurn(v1alpha1.MachineDraining, by("7", "m")), updating(v1alpha1.ReasonReplacementPending, "m has taint x")), aMachine("n", "pool", taken()),
			[]string{"n Updating Draining replaced by m"}},
		"draining":                {aReplacement(inTurn(v1alpha1.MachineDraining, by("7", "m"))), aMachine("n", "pool", taken()), []string{"n Updating Draining replaced by m"}},
		"claimed, and in no turn": {aReplacement(), aMachine("n", "pool", taken()), []string{"n Outdated"}},
		"soaking":                 {aReplacement(inTurn(v1alpha1.MachineSoaking, by("7", "n"), gone)), aMachine("n", "pool"), []string{"n " + string(v1alpha1.UnitSoaking) + " Soaking"}},
		"replacement":             {aReplacement(inTurn(v1alpha1.MachineDraining, by("7", "m"))), aMachine("m", "pool"), []string{"n Updating Draining replaced by m"}},
		"taken back": {aReplacement(inTurn(v1alpha1.MachineDiscarding, by("7", "m"))), aMachine("m", "pool", taken(func(c *v1alpha1.Claim) { c.Turn = "t" })),
			[]string{"n Updating Discarding replaced by m"}},
		"gone": {aReplacement(inTurn(v1alpha1.MachineAdding, gone)), aMachine("m", "pool"), []string{"pool/1 Updating Adding ReplacementPending", "m Updated"}},
		"gone, and failed": {aReplacement(inTurn(v1alpha1.MachineJoining, gone, failedTurn)), aMachine("m", "pool"),
			[]string{"pool/1 Failed Joining ReplacementFailed not ready in 15m", "m Updated"}},
		"failed, and bound": {
			aReplacement(inTurn(v1alpha1.MachineJoining, by("7", "other"), failedTurn), updating(v1alpha1.ReasonReplacementPending, "other is not ready")), aMachine("n", "pool", taken()),
			[]string{"n Failed Joining ReplacementFailed replaced by other; not ready in 15m"},
		},
		"failed, and is being added": {aReplacement(inTurn(v1alpha1.MachineAdding, failedTurn)), aMachine("n", "pool"), []string{"n Failed Adding ReplacementFailed not ready in 15m"}},
		"failed, and its claim does not say so yet": {aReplacement(inTurn(v1alpha1.MachineDiscarding, failedTurn)), aMachine("n", "pool", taken()),
			[]string{"n Failed Discarding ReplacementFailed not ready in 15m"}},
		"failed, and has the place": {aReplacement(inTurn(v1alpha1.MachineSoaking, by("7", "n"), gone, func(t *v1alpha1.MachineTurn) { t.Machine = "" }, failedTurn)), aMachine("n", "pool"),
			[]string{"n Failed Soaking ReplacementFailed not ready in 15m"}},
		"failed": {aReplacement(), aMachine("n", "pool", taken(fails(v1alpha1.ReasonDrainTimeout, false))), []string{"n Failed DrainTimeout it broke"}},
		"failed, and its replacement is on its way out": {
			aReplacement(inTurn(v1alpha1.MachineDiscarding, by("7", ""), failedTurn)), aMachine("n", "pool", taken(fails(v1alpha1.ReasonReplacementFailed, false))),
			[]string{"n Failed ReplacementFailed it broke"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := See(nil, []corev1.Node{tc.node}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Rollouts()[0]
			var got []string
			for _, n := range r.Nodes {
				versions := n.Version
				if n.Target != "" {
					versions += " → " + n.Target
				}
				all := []string{n.Node, string(n.State), string(n.Phase), string(n.Reason), n.Message, versions}
				got = append(got, strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("units (-want +got):\n%s", diff)
			}
		})
	}
}

// A failed turn is tried again when its controller says so, whoever else knows of it.
func TestMachinesTriedAgain(t *testing.T) {
	retried := func(nr *v1alpha1.NodeRollout) {
		nr.Spec.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3, Backoff: &metav1.Duration{Duration: 10 * time.Minute}}}
	}
	failed := func(at time.Time, skipped bool) func(*v1alpha1.MachineTurn) {
		return func(t *v1alpha1.MachineTurn) {
			t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "it broke", Time: metav1.Time{Time: at}, Skipped: skipped}
		}
	}
	again := now.Add(5 * time.Minute)
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    string
		want    time.Time
		skipped bool
	}{
		"never":            {rollout: aReplacement(inTurn(v1alpha1.MachineJoining, failed(now.Add(-5*time.Minute), false))), node: "n"},
		"later":            {rollout: aReplacement(retried, inTurn(v1alpha1.MachineJoining, failed(now.Add(-5*time.Minute), false))), node: "n", want: again},
		"at once":          {rollout: aReplacement(retried, inTurn(v1alpha1.MachineJoining, failed(now.Add(-time.Hour), false))), node: "n", want: now.Add(time.Minute)},
		"skipped":          {rollout: aReplacement(retried, inTurn(v1alpha1.MachineJoining, failed(now.Add(-5*time.Minute), true))), node: "n", skipped: true},
		"has the place":    {rollout: aReplacement(retried, inTurn(v1alpha1.MachineSoaking, failed(now.Add(-5*time.Minute), false))), node: "n"},
		"its Node is gone": {rollout: aReplacement(retried, inTurn(v1alpha1.MachineJoining, failed(now.Add(-5*time.Minute), false))), node: "m", want: again},
	} {
		t.Run(name, func(t *testing.T) {
			r := See(nil, []corev1.Node{aMachine(tc.node, "pool")}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Rollouts()[0]
			n := &r.Nodes[0]
			if n.State != v1alpha1.UnitFailed || n.Skipped != tc.skipped || !n.RetryAt.Equal(timeOrNil(tc.want)) || !n.Since.Equal(&tc.rollout.Status.Turns[0].Failed.Time) {
				t.Errorf("%+v, retried at %v, want %v", n, n.RetryAt, tc.want)
			}
		})
	}
}

// Where the status has no room for all nodes its counts are told, and where all can be told these.
func TestMachineCounts(t *testing.T) {
	many := aReplacement(func(nr *v1alpha1.NodeRollout) {
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 100, Updated: 70, Waiting: 30}
	})
	r := See(nil, []corev1.Node{aMachine("n", "pool")}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{many}).Rollouts()[0]
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 100, Updated: 70, Waiting: 30}, r.Counts); diff != "" || len(r.ScaleSets) != 1 || r.State != Waiting {
		t.Errorf("counts (-want +got), %v, %s:\n%s", r.ScaleSets, r.State, diff)
	}
	few := aReplacement(waitsFor(v1alpha1.ReasonPaused, "paused"))
	r = See(nil, []corev1.Node{aMachine("n", "pool"), aMachine("m", "pool")}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{few}).Rollouts()[0]
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 2, Updated: 1, Waiting: 1}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	denied := aReplacement(unknown, func(nr *v1alpha1.NodeRollout) { nr.Status.ScaleSets = nil })
	if r = See(nil, nil, nil, now).NodeRollouts([]v1alpha1.NodeRollout{denied}).Rollouts()[0]; r.Message != "scale set pool: 403" {
		t.Errorf("without a known scale set it says %q", r.Message)
	}
	unseen := See(nil, nil, nil, now).NodeRollouts([]v1alpha1.NodeRollout{few}).Rollouts()[0]
	if len(unseen.Nodes) != 1 || unseen.Counts.Total != 2 {
		t.Errorf("without nodes: %+v", unseen)
	}
}

// TestWhyMachines: a node's part, or why it has none.
func TestWhyMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		rollout     v1alpha1.NodeRollout
		node        corev1.Node
		state       v1alpha1.UnitState
		checks      []v1alpha1.Reason
		other, part string
	}{
		"no machine": {rollout: aReplacement(), node: aNode("n"), other: "the node has no spec.providerID"},
		"taken back": {rollout: aReplacement(inTurn(v1alpha1.MachineDiscarding, by("7", "n"), func(t *v1alpha1.MachineTurn) { t.Node = "old" })),
			node: aMachine("n", "pool", taken(func(c *v1alpha1.Claim) { c.Turn = "t" })), other: "its machine is to take the place of that of node old, whose turn is at Discarding"},
		"not selected": {rollout: aReplacement(func(nr *v1alpha1.NodeRollout) { nr.Spec.NodeSelector.MatchLabels = map[string]string{"a": "b"} }),
			node: aMachine("n", "pool"), other: "its spec.nodeSelector asks for a=b"},
		"a replacement": {rollout: aReplacement(inTurn(v1alpha1.MachineJoining, by("7", "n"), func(t *v1alpha1.MachineTurn) { t.Node = "old" })),
			node: aMachine("n", "pool"), other: "its machine is to take the place of that of node old, whose turn is at Joining"},
		"untold": {rollout: aReplacement(func(nr *v1alpha1.NodeRollout) {
			nr.Status.Counts = &v1alpha1.UnitCounts{Total: 100, Updated: 70, Waiting: 30}
		}), node: aMachine("n", "pool"), state: Untold, part: "of 100 nodes 70 are updated, and it lists the first 0 of 30 that wait"},
		"unknown":   {rollout: aReplacement(unknown), node: aMachine("n", "pool"), state: Untold, part: "scale set pool: 403"},
		"the cloud": {rollout: aReplacement(waitsFor(v1alpha1.ReasonCloudDenied, "403")), node: aMachine("n", "pool"), state: v1alpha1.UnitOutdated, checks: []v1alpha1.Reason{v1alpha1.ReasonCloudDenied}},
		"detect only": {rollout: aReplacement(waitsFor(v1alpha1.ReasonDetectOnly, "x"), func(nr *v1alpha1.NodeRollout) { nr.Spec.Replacement.DetectOnly = true }),
			node: aMachine("n", "pool"), state: v1alpha1.UnitOutdated, checks: []v1alpha1.Reason{v1alpha1.ReasonDetectOnly}},
		"opted out": {rollout: aReplacement(), node: aMachine("n", "pool", func(n *corev1.Node) { n.Labels["noderollout.moult.dev/bottlerocket"] = "disabled" }), state: v1alpha1.UnitOutdated, checks: []v1alpha1.Reason{v1alpha1.ReasonOptedOut}},
		"claiming": {rollout: aReplacement(inTurn(v1alpha1.MachineClaiming), goes(func(s *v1alpha1.Strategy) { s.Paused = true })), node: aMachine("n", "pool"),
			state: v1alpha1.UnitUpdating, checks: []v1alpha1.Reason{v1alpha1.ReasonPaused}},
	} {
		t.Run(name, func(t *testing.T) {
			w, ok := See(nil, []corev1.Node{tc.node}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Why("n")
			if !ok {
				t.Fatal("there is no such node")
			}
			if tc.other != "" {
				if len(w.Others) != 1 || !strings.Contains(w.Others[0].Message, tc.other) || len(w.Rollouts) > 0 {
					t.Errorf("others %+v, rollouts %+v, want %q", w.Others, w.Rollouts, tc.other)
				}
				return
			}
			if len(w.Rollouts) != 1 {
				t.Fatalf("%+v", w)
			}
			p := w.Rollouts[0]
			var checks []v1alpha1.Reason
			for _, c := range p.Checks {
				if c.Reason != "" {
					checks = append(checks, c.Reason)
				}
			}
			if p.Unit.State != tc.state || !cmp.Equal(tc.checks, checks) || !strings.Contains(p.Unit.Message, tc.part) || p.OptedOut != (name == "opted out") {
				t.Errorf("%+v, checks %v; want %s, %v, %q", p.Unit, checks, tc.state, tc.checks, tc.part)
			}
		})
	}
}

// TestWhyMachinesTurn: the node's facts tell which part its machine has in a turn.
func TestWhyMachinesTurn(t *testing.T) {
	nr := aReplacement(inTurn(v1alpha1.MachineDraining, by("7", "m")))
	for node, replaces := range map[string]bool{"n": false, "m": true} {
		w, _ := See(nil, []corev1.Node{aMachine("n", "pool"), aMachine("m", "pool")}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{nr}).Why(node)
		if len(w.Node.Machines) != 1 || w.Node.Machines[0].Replaces != replaces || w.Node.Machines[0].Turn != "t" || w.Node.ProviderID == "" {
			t.Errorf("%s: %+v", node, w.Node)
		}
	}
}

func TestPreviewMachines(t *testing.T) {
	nodes := []corev1.Node{aMachine("a", "pool"), aMachine("b", "pool"), aMachine("c", "pool"), aNode("plain")}
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		suppose Supposition
		// want is node, reason and versions of each step.
		want  []string
		surge Surge
		notes int
	}{
		"new": {
			aReplacement(func(nr *v1alpha1.NodeRollout) { nr.Status, nr.UID = v1alpha1.NodeRolloutStatus{}, "" }), Supposition{New: true},
			[]string{"a", "b MaxConcurrent", "c MaxConcurrent"}, Surge{Rule: "1", OnFull: "Wait"}, 2,
		},
		"there": {
			aReplacement(waitsFor("", ""), func(nr *v1alpha1.NodeRollout) {
				nr.Status.Counts = &v1alpha1.UnitCounts{Total: 3, Updated: 2, Waiting: 1}
				nr.Status.Waiting[0].Node, nr.Spec.Replacement.Surge, nr.Spec.Replacement.OnFull = "b", ptr.To(intstr.FromString("34%")), v1alpha1.OnFullDeleteFirst
			}), Supposition{},
			[]string{"b"}, Surge{Rule: "34%", OnFull: "DeleteFirst", ScaleSets: []SurgeOf{{Name: "pool", Image: "/subscriptions/s/images/image-2", Machines: 3, Outdated: 1, More: 2}}}, 0,
		},
		"by OS": {
			aReplacement(byOSImage, func(nr *v1alpha1.NodeRollout) {
				nr.Spec.Replacement.Surge, nr.Spec.Replacement.ControlPlane = ptr.To(intstr.FromInt32(0)), &v1alpha1.ControlPlane{}
			}), Supposition{},
			[]string{"a image-1 → image-2", "b MaxConcurrent image-1 → image-2", "c MaxConcurrent image-1 → image-2"},
			Surge{Rule: "0", OnFull: "Wait", DeletesFirst: true, ScaleSets: []SurgeOf{{Name: "pool", Image: "/subscriptions/s/images/image-2", Machines: 3, Outdated: 1}}}, 0,
		},
		"detect only": {
			aReplacement(byOSImage, func(nr *v1alpha1.NodeRollout) {
				nr.Spec.Replacement.DetectOnly, nr.Status.ScaleSets[0].Message = true, "no"
			}), Supposition{},
			[]string{"a DetectOnly image-1 → image-2", "b DetectOnly image-1 → image-2", "c DetectOnly image-1 → image-2"},
			Surge{Rule: "1", OnFull: "Wait", ScaleSets: []SurgeOf{{Name: "pool", Image: "/subscriptions/s/images/image-2", Machines: 3, Outdated: 1, More: 1, Message: "no"}}}, 0,
		},
		"in a turn": {
			aReplacement(inTurn(v1alpha1.MachineClaiming, func(t *v1alpha1.MachineTurn) { t.Node = "a" }), func(nr *v1alpha1.NodeRollout) {
				nr.Status.Counts = &v1alpha1.UnitCounts{Total: 3, Updated: 2, Updating: 1}
			}), Supposition{},
			[]string{"a"}, Surge{Rule: "1", OnFull: "Wait", ScaleSets: []SurgeOf{{Name: "pool", Image: "/subscriptions/s/images/image-2", Machines: 3, Outdated: 1, More: 1}}}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			goes(func(s *v1alpha1.Strategy) {
				s.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
			})(&tc.rollout)
			tc.suppose.Turn = time.Minute
			v := See(nil, nodes, nil, now).Preview(&tc.rollout, tc.suppose)
			var got []string
			for _, s := range v.Steps {
				line := strings.TrimSpace(fmt.Sprint(s.Node, " ", s.Reason))
				if s.To != "" {
					line += " " + s.From + " → " + s.To
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&tc.surge, v.Surge); diff != "" {
				t.Errorf("surge (-want +got):\n%s", diff)
			}
			if len(v.Notes) != tc.notes || v.Problem != "" || v.Schedule == nil {
				t.Errorf("notes %q, problem %q, schedule %v", v.Notes, v.Problem, v.Schedule)
			}
		})
	}
	other := func(nr *v1alpha1.NodeRollout) { nr.Spec.Replacement.ImageMatch = v1alpha1.ImageMatchOSImage }
	for _, nr := range []v1alpha1.NodeRollout{aReplacement(), aReplacement(other)} { // Its status counts one node, and lists none.
		if v := See(nil, nodes, nil, now).Preview(&nr, Supposition{}); len(v.Steps) > 0 {
			t.Errorf("nodes of other scale sets are next: %+v", v.Steps)
		}
	}
	full := aReplacement(waitsFor(v1alpha1.ReasonSurgeExhausted, "1 of 1"))
	if s := See(nil, []corev1.Node{aMachine("n", "pool")}, nil, now).Preview(&full, Supposition{Turn: time.Minute}).Schedule; s == nil || s.Stuck != "" {
		t.Errorf("a surge ends with a turn: %+v", s)
	}
	broken := aReplacement(func(nr *v1alpha1.NodeRollout) {
		nr.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}
	})
	if v := See(nil, nodes, nil, now).Preview(&broken, Supposition{}); !strings.Contains(v.Problem, "spec.nodeSelector") {
		t.Errorf("problem %q", v.Problem)
	}
}

// TestPreviewMachinesInTurn: a turn that has claimed no node yet ends in the estimate too.
func TestPreviewMachinesInTurn(t *testing.T) {
	nr := aReplacement(inTurn(v1alpha1.MachineAdding))
	s := See(nil, []corev1.Node{aMachine("n", "pool")}, nil, now).Preview(&nr, Supposition{Turn: 10 * time.Minute}).Schedule
	if s == nil || s.End == nil || s.End.Sub(now) != 5*time.Minute {
		t.Errorf("schedule: %+v, want an end after 5m: the turn began 5m ago", s)
	}
}
