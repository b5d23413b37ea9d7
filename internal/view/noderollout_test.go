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

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
)

// aNodeRollout is one whose controller looks at it; options change it.
func aNodeRollout(options ...func(*v1alpha1.NodeRollout)) v1alpha1.NodeRollout {
	nr := v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "bottlerocket", UID: "nr", Generation: 2, CreationTimestamp: *at(now.Add(-time.Hour))},
		Spec:       v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}},
		Status: v1alpha1.NodeRolloutStatus{
			Revision: "1.20.3", ObservedGeneration: 2,
			Releases: []v1alpha1.HostRelease{{Version: "1.20.3", Since: *at(minute)}},
		},
	}
	isReady(metav1.ConditionFalse)(&nr)
	for _, option := range options {
		option(&nr)
	}
	return nr
}

func isReady(status metav1.ConditionStatus) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) {
		nr.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, LastTransitionTime: *at(minute)}}
	}
}

func isInvalid(nr *v1alpha1.NodeRollout) {
	nr.Status.Conditions = append(nr.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Invalid", Message: "spec.strategy.windows[0]: no such zone",
	})
	nr.Status.Counts = &v1alpha1.UnitCounts{Total: 7, Waiting: 7}
}

func hostWants(change func(*v1alpha1.HostUpdate)) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) { change(nr.Spec.HostUpdate) }
}

func goes(change func(*v1alpha1.Strategy)) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) {
		nr.Spec.Strategy = &v1alpha1.Strategy{}
		change(nr.Spec.Strategy)
	}
}

// aHost is a node with a host that has said this.
func aHost(name string, wanted, active v1alpha1.HostAction, state v1alpha1.HostState, update string, options ...func(*corev1.Node)) corev1.Node {
	p := v1alpha1.HostProtocols[0]
	n := aNode(name, func(n *corev1.Node) {
		n.Labels[p.InterfaceLabel] = v1alpha1.InterfaceUpdateAPI
		n.Annotations = map[string]string{p.Wanted: string(wanted), p.Active: string(active), p.State: string(state), p.Update: update}
		n.Status.NodeInfo.BootID = "before"
	})
	for _, option := range options {
		option(&n)
	}
	return n
}

const (
	stabilize = v1alpha1.HostActionStabilize
	prepare   = v1alpha1.HostActionPrepare
	perform   = v1alpha1.HostActionPerform
	reboot    = v1alpha1.HostActionReboot
	isBusy    = v1alpha1.HostStateBusy
	isDone    = v1alpha1.HostStateReady
	isFailed  = v1alpha1.HostStateError
)

// offering is a host that has an update.
func offering(name, version, target string, options ...func(*corev1.Node)) corev1.Node {
	return aHost(name, stabilize, stabilize, isDone, v1alpha1.HostUpdateTrue, append([]func(*corev1.Node){runs(version), offers(target)}, options...)...)
}

// upToDate is a host that has none.
func upToDate(name, version string) corev1.Node {
	return aHost(name, stabilize, stabilize, isDone, v1alpha1.HostUpdateFalse, runs(version))
}

func noted(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func runs(version string) func(*corev1.Node)   { return noted(v1alpha1.AnnotationHostVersion, version) }
func offers(version string) func(*corev1.Node) { return noted(v1alpha1.AnnotationHostTarget, version) }

// taken is a node with a claim of the NodeRollout.
func taken(change ...func(*v1alpha1.Claim)) func(*corev1.Node) {
	c := v1alpha1.Claim{Rollout: "NodeRollout/bottlerocket", UID: "nr", Revision: "1.20.3", Since: *at(now.Add(-10 * time.Minute))}
	for _, f := range change {
		f(&c)
	}
	return func(n *corev1.Node) {
		value, err := v1alpha1.FormatClaims([]v1alpha1.Claim{c})
		if err != nil {
			panic(err)
		}
		n.Annotations[v1alpha1.AnnotationClaims] = value
	}
}

func drainsSince(t time.Time) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) { c.Cordoned = at(t) }
}

func rebootsSince(t time.Time) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) { c.Rebooting, c.BootID = at(t), "before" }
}

func fails(reason v1alpha1.Reason, skipped bool) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) {
		c.Failed = &v1alpha1.ClaimFailure{Reason: reason, Message: "it broke", Time: *at(minute), Skipped: skipped}
		c.Failures, c.Attempt = 1, currentAttempt()
	}
}

// currentAttempt is what aNodeRollout starts turns to 1.20.3 for.
func currentAttempt() string {
	nr, t := aNodeRollout(), hostupdate.Unit{Turn: nodeturn.Turn{Node: &corev1.Node{}}, Verdict: hostupdate.Verdict{Version: "1.20.3"}}
	w, err := hostupdate.NewWorld(&nr, nil)
	if err != nil {
		panic(err)
	}
	return w.NewClaim(&t).Attempt
}

func forAnother(c *v1alpha1.Claim) { c.Attempt = "another" }

// TestHosts: what a node says of its host, and the claim on it, make its unit.
func TestHosts(t *testing.T) {
	type unit struct {
		State           v1alpha1.UnitState
		Phase           v1alpha1.Phase
		Since           *metav1.Time
		Reason          v1alpha1.Reason
		Message         string
		Version, Target string
		Skipped         bool
	}
	updating, outdated := v1alpha1.UnitUpdating, v1alpha1.UnitOutdated
	tells := func(phase v1alpha1.Phase, message string) v1alpha1.NodeRollout {
		return aNodeRollout(func(nr *v1alpha1.NodeRollout) {
			nr.Status.Updating = []v1alpha1.UnitStatus{{Node: "n", Phase: phase, Message: message, Since: at(minute)}}
		})
	}
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    corev1.Node
		want    unit
	}{
		"updated": {node: upToDate("n", "1.20.3"), want: unit{State: v1alpha1.UnitUpdated, Version: "1.20.3"}},
		"next":    {node: offering("n", "1.19.0", "1.20.3"), want: unit{State: outdated, Version: "1.19.0", Target: "1.20.3"}},
		"by osImage": {
			node: aHost("n", stabilize, stabilize, isDone, "false", func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "Bottlerocket OS 1.20.3 (aws-k8s-1.37)" }),
			want: unit{State: v1alpha1.UnitUpdated, Version: "1.20.3"},
		},
		"without names": {node: aHost("n", stabilize, stabilize, isDone, "true"), want: unit{State: outdated}},
		"silent": {
			node: aHost("n", stabilize, stabilize, isBusy, "unknown"),
			want: unit{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent is busy with stabilize"},
		},
		"in error": {
			node: aHost("n", stabilize, stabilize, isFailed, "unknown", noted(v1alpha1.AnnotationHostError, "no route to the updates")),
			want: unit{State: outdated, Reason: v1alpha1.ReasonHostError, Message: "no route to the updates"},
		},
		"another version": {
			rollout: aNodeRollout(hostWants(func(h *v1alpha1.HostUpdate) { h.Version = "1.21.0" })),
			node:    offering("n", "1.19.0", "1.20.3"),
			want: unit{
				State: outdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.19.0", Target: "1.21.0",
				Message: "the host runs 1.19.0 and has 1.20.3 to offer; the rollout wants 1.21.0",
			},
		},
		"another rollout has it": {
			node: offering("n", "1.19.0", "1.20.3", func(n *corev1.Node) {
				n.Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/x/y","uid":"x","revision":"r","turn":"t","since":"2026-11-20T11:00:00Z"}]`
			}),
			want: unit{State: outdated, Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/x/y since 2026-11-20T11:00:00Z", Version: "1.19.0", Target: "1.20.3"},
		},
		"fetches": {
			node: aHost("n", prepare, prepare, isBusy, "true", runs("1.19.0"), offers("1.20.3"), taken()),
			want: unit{State: updating, Phase: v1alpha1.PhasePreparing, Since: at(now.Add(-10 * time.Minute)), Message: "the host fetches 1.20.3", Version: "1.19.0", Target: "1.20.3"},
		},
		"drains, as the status tells": {
			rollout: tells(v1alpha1.PhaseDraining, "2 pods left"),
			node:    aHost("n", perform, perform, isDone, "true", runs("1.19.0"), taken(drainsSince(minute))),
			want:    unit{State: updating, Phase: v1alpha1.PhaseDraining, Since: at(minute), Message: "2 pods left", Version: "1.19.0", Target: "1.20.3"},
		},
		"is further than the status tells": {
			rollout: tells(v1alpha1.PhaseDraining, "2 pods left"),
			node:    aHost("n", reboot, reboot, isBusy, "true", runs("1.19.0"), taken(drainsSince(minute), rebootsSince(minute)), unready),
			want: unit{
				State: updating, Phase: v1alpha1.PhaseChanging, Since: at(minute), Version: "1.19.0", Target: "1.20.3",
				Message: "the host reboots: not ready since 2026-11-20T11:59:00Z",
			},
		},
		"soaks": {
			node: aHost("n", reboot, reboot, isDone, "true", runs("1.20.3"), taken(rebootsSince(minute), func(c *v1alpha1.Claim) { c.Soaking = at(now) })),
			want: unit{State: v1alpha1.UnitSoaking, Phase: v1alpha1.PhaseSoaking, Since: at(now), Version: "1.20.3"},
		},
		"soaks with a version that is written otherwise": {
			node: aHost("n", reboot, reboot, isDone, "true", runs("1.20.3"), taken(rebootsSince(minute), func(c *v1alpha1.Claim) { c.Soaking, c.Revision = at(now), "v1.20.3" })),
			want: unit{State: v1alpha1.UnitSoaking, Phase: v1alpha1.PhaseSoaking, Since: at(now), Version: "1.20.3"},
		},
		"failed": {
			node: offering("n", "1.19.0", "1.20.3", taken(fails(v1alpha1.ReasonVersionUnchanged, false))),
			want: unit{State: v1alpha1.UnitFailed, Since: at(minute), Reason: v1alpha1.ReasonVersionUnchanged, Message: "it broke", Version: "1.19.0", Target: "1.20.3"},
		},
		"skipped": {
			node: offering("n", "1.19.0", "1.20.3", taken(fails(v1alpha1.ReasonDrainTimeout, true))),
			want: unit{State: v1alpha1.UnitFailed, Since: at(minute), Reason: v1alpha1.ReasonDrainTimeout, Message: "it broke", Version: "1.19.0", Target: "1.20.3", Skipped: true},
		},
		"failed, and waits for another turn": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (m)"}}
			}),
			node: offering("n", "1.19.0", "1.20.3", taken(fails(v1alpha1.ReasonVersionUnchanged, false), forAnother)),
			want: unit{State: outdated, Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (m)", Version: "1.19.0", Target: "1.20.3"},
		},
		"looks for updates again after its turn": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Status.Counts = &v1alpha1.UnitCounts{Total: 1, Updated: 1} }),
			node:    aHost("n", stabilize, stabilize, isBusy, "unknown", noted(v1alpha1.AnnotationHostChecked, "2026-11-20T11:59:00Z")),
			want:    unit{State: v1alpha1.UnitUpdated},
		},
		"lost its label in the middle": {
			node: aHost("n", prepare, prepare, isBusy, "true", taken(), func(n *corev1.Node) { delete(n.Labels, v1alpha1.HostProtocols[0].InterfaceLabel) }),
			want: unit{State: updating, Phase: v1alpha1.PhasePreparing, Since: at(now.Add(-10 * time.Minute)), Target: "1.20.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.rollout.Name == "" {
				tc.rollout = aNodeRollout()
			}
			all := See(nil, []corev1.Node{tc.node}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Rollouts()
			if len(all) != 1 || len(all[0].Nodes) != 1 || all[0].Kind != KindNodeRollout {
				t.Fatalf("%+v", all)
			}
			n := all[0].Nodes[0]
			got := unit{n.State, n.Phase, n.Since, n.Reason, n.Message, n.Version, n.Target, n.Skipped}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeRollout sums up its units.
func TestNodeRollout(t *testing.T) {
	plain := aNode("plain")
	out := offering("out", "1.19.0", "1.20.3", func(n *corev1.Node) { n.Labels["noderollout.moult.dev/bottlerocket"] = "disabled" })
	nodes := []corev1.Node{
		upToDate("a", "1.20.3"), upToDate("b", "1.20.3"), offering("c", "1.19.0", "1.20.3"), offering("d", "1.19.0", "1.20.3"), offering("e", "1.18.0", "1.20.3"),
		aHost("f", reboot, reboot, isBusy, "true", runs("1.19.0"), taken(rebootsSince(minute))), plain, out,
	}
	r := See(nil, nodes, []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1))}, now).NodeRollouts([]v1alpha1.NodeRollout{aNodeRollout()}).Rollouts()[0]
	want := Rollout{
		Kind: "NodeRollout", Name: "bottlerocket", Version: "1.20.3", Revision: "1.20.3", State: Progressing, Since: at(minute),
		Counts: v1alpha1.UnitCounts{Total: 6, Updated: 2, Updating: 1, Waiting: 3}, OptedOut: 1, Unlabelled: 1, Budgets: []string{"all"},
		Versions: []v1alpha1.HostVersion{{Version: "1.19.0", Nodes: 3}, {Version: "1.20.3", Nodes: 2}, {Version: "1.18.0", Nodes: 1}},
	}
	got := r
	got.Nodes = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Nodes[0].Node != "f" || r.Nodes[1].Reason != v1alpha1.ReasonMaxConcurrent {
		t.Errorf("one at a time, and f is under way: %+v", r.Nodes)
	}
	if r.FullName() != "bottlerocket" {
		t.Error(r.FullName())
	}
}

// A failed turn whose host runs the version ends when the node is healthy, and a person must know of it.
func TestHostsThatRecover(t *testing.T) {
	n := aHost("n", stabilize, stabilize, isDone, "false", runs("1.20.3"), unready, taken(rebootsSince(minute), fails(v1alpha1.ReasonTurnTimeout, false), func(c *v1alpha1.Claim) {
		c.Changed = at(minute)
	}))
	all := See(nil, []corev1.Node{n}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{aNodeRollout()}).Rollouts()
	if n := &all[0].Nodes[0]; n.State != v1alpha1.UnitFailed || !n.ContinuesFailed() || len(Needs(all, nil)) != 1 {
		t.Errorf("%+v, needs %+v", n, Needs(all, nil))
	}
}

// That no agent can look for updates shows beside "Complete".
func TestHostsThatCannotLook(t *testing.T) {
	n := aHost("n", stabilize, stabilize, isFailed, "unknown", runs("1.20.3"), noted(v1alpha1.AnnotationHostChecked, "2026-11-20T11:59:00Z"))
	r := See(nil, []corev1.Node{n}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{aNodeRollout()}).Rollouts()[0]
	if !strings.Contains(r.Message, "can't look for updates: 1, such as that of n") {
		t.Errorf("%s: %q", r.State, r.Message)
	}
}

// TestNodeRolloutStates: how it stands in one word.
func TestNodeRolloutStates(t *testing.T) {
	stalled := func(nr *v1alpha1.NodeRollout) {
		nr.Status.Conditions = append(nr.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Message: "halted: it broke"})
	}
	silent := []corev1.Node{aHost("n", stabilize, stabilize, isBusy, "unknown")}
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		nodes   []corev1.Node
		want    State
		message string
	}{
		"complete":    {aNodeRollout(isReady(metav1.ConditionTrue)), []corev1.Node{upToDate("n", "1.20.3")}, Complete, ""},
		"about to be": {aNodeRollout(), []corev1.Node{offering("n", "1.19.0", "1.20.3")}, Progressing, ""},
		"waits":       {aNodeRollout(), silent, Waiting, ""},
		"stalled":     {aNodeRollout(stalled), silent, Stalled, "halted: it broke"},
		"changed":     {aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Generation++ }), silent, Pending, "the controller has not looked at its latest change yet"},
		"nobody's":    {aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Status = v1alpha1.NodeRolloutStatus{} }), silent, Pending, "no controller has looked at it: does one run, for its kind and namespace?"},
		"just made": {aNodeRollout(func(nr *v1alpha1.NodeRollout) {
			nr.Status, nr.CreationTimestamp = v1alpha1.NodeRolloutStatus{}, *at(now)
		}), silent, Pending, ""},
		"nodes unseen": {aNodeRollout(func(nr *v1alpha1.NodeRollout) {
			nr.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Updating: 1, Waiting: 1}
		}), nil, Progressing, ""},
		"not decodable": {aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec = v1alpha1.NodeRolloutSpec{} }), silent, Waiting, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := See(nil, tc.nodes, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Rollouts()[0]
			if r.State != tc.want || r.Message != tc.message {
				t.Errorf("%s: %q, want %s: %q", r.State, r.Message, tc.want, tc.message)
			}
		})
	}
}

// TestNodeRolloutWithoutNodes is what its status lists.
func TestNodeRolloutWithoutNodes(t *testing.T) {
	nr := aNodeRollout(func(nr *v1alpha1.NodeRollout) {
		s := &nr.Status
		s.Counts, s.Versions = &v1alpha1.UnitCounts{Total: 3, Updated: 1, Updating: 1, Waiting: 1}, []v1alpha1.HostVersion{{Version: "1.19.0", Nodes: 2}}
		s.Updating = []v1alpha1.UnitStatus{{Node: "a", Phase: v1alpha1.PhaseDraining}}
		s.Waiting = []v1alpha1.UnitStatus{{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent}}
	})
	r := See(nil, nil, nil, now).NodeRollouts([]v1alpha1.NodeRollout{nr}).Rollouts()[0]
	if len(r.Nodes) != 2 || r.Nodes[0].Phase != v1alpha1.PhaseDraining || r.Nodes[1].Reason != v1alpha1.ReasonMaxConcurrent || r.Counts.Total != 3 || len(r.Versions) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestWhyHosts(t *testing.T) {
	young := hostWants(func(h *v1alpha1.HostUpdate) { h.MinimumAge = &metav1.Duration{Duration: time.Hour} })
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    corev1.Node
		state   v1alpha1.UnitState
		place   int
		want    []v1alpha1.Reason
		other   string // why it has nothing to do with the node
	}{
		"next":    {rollout: aNodeRollout(), node: offering("n", "1.19.0", "1.20.3"), state: v1alpha1.UnitOutdated, place: 1},
		"updated": {rollout: aNodeRollout(), node: upToDate("n", "1.20.3"), state: v1alpha1.UnitUpdated},
		"young and paused": {
			rollout: aNodeRollout(young, goes(paused)), node: offering("n", "1.19.0", "1.20.3"), state: v1alpha1.UnitOutdated, place: 1,
			want: []v1alpha1.Reason{v1alpha1.ReasonReleaseTooYoung, v1alpha1.ReasonPaused},
		},
		"in a turn": {rollout: aNodeRollout(), node: aHost("n", prepare, prepare, isBusy, "true", taken()), state: v1alpha1.UnitUpdating},
		"opted out": {
			rollout: aNodeRollout(),
			node: offering("n", "1.19.0", "1.20.3", func(n *corev1.Node) {
				n.Labels[v1alpha1.LabelNodeRollout("bottlerocket")] = v1alpha1.LabelNodeRolloutDisabled
			}),
			state: v1alpha1.UnitOutdated, place: 1, want: []v1alpha1.Reason{v1alpha1.ReasonOptedOut},
		},
		"claim lost": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n", Reason: v1alpha1.ReasonClaimLost}}
			}),
			node: offering("n", "1.19.0", "1.20.3"), state: v1alpha1.UnitOutdated, place: 1, want: []v1alpha1.Reason{v1alpha1.ReasonClaimLost},
		},
		"no label": {rollout: aNodeRollout(), node: aNode("n"), other: "no label names the interface of the node's host, such as bottlerocket.aws/updater-interface-version"},
		"not selected": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
			}),
			node: offering("n", "1.19.0", "1.20.3"), other: "its spec.nodeSelector asks for pool=blue",
		},
		"invalid": {rollout: aNodeRollout(isInvalid), node: offering("n", "1.19.0", "1.20.3"), state: Untold},
		"not decodable": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec.HostUpdate = nil }), node: upToDate("n", "1"), other: "spec.hostUpdate must be given: {} brings hosts to the newest version that they have to offer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ok := See(nil, []corev1.Node{tc.node}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Why("n")
			switch {
			case !ok:
				t.Fatal("there is no node")
			case tc.other != "":
				if len(w.Rollouts) != 0 || len(w.Others) != 1 || w.Others[0].Message != tc.other || w.Others[0].FullName() != "bottlerocket" {
					t.Errorf("%+v, want %s", w, tc.other)
				}
				return
			case len(w.Rollouts) != 1:
				t.Fatalf("%+v", w)
			}
			p := &w.Rollouts[0]
			if p.Unit.State != tc.state || p.Place != tc.place || p.OptedOut != (name == "opted out") {
				t.Errorf("%s at place %d, want %s at %d", p.Unit.State, p.Place, tc.state, tc.place)
			}
			if diff := cmp.Diff(tc.want, refusals(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhyOfTheHostItself(t *testing.T) {
	n := aHost("n", prepare, stabilize, isDone, "true", runs("1.19.0"), offers("1.20.3"), noted(v1alpha1.AnnotationHostWanted, "1.20.3"),
		noted(v1alpha1.AnnotationHostPrevious, "1.18.0"), noted(v1alpha1.AnnotationHostAttempts, "2"), noted(v1alpha1.AnnotationHostError, "it broke"),
		noted(v1alpha1.AnnotationHostChecked, "2026-11-20T11:59:00Z"))
	want := &Host{
		Label: "bottlerocket.aws/updater-interface-version", Interface: "2.0.0", Wanted: prepare, Active: stabilize, State: isDone, Update: "true",
		Version: "1.19.0", Previous: "1.18.0", Target: "1.20.3", Asked: "1.20.3", Error: "it broke", Attempts: 2, Checked: at(minute),
	}
	w, _ := See(nil, []corev1.Node{n}, nil, now).Why("n")
	if diff := cmp.Diff(want, w.Node.Host); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w, _ := See(nil, []corev1.Node{aNode("n")}, nil, now).Why("n"); w.Node.Host != nil {
		t.Errorf("a node without the label has a host: %+v", w.Node.Host)
	}
}

func TestPreviewHosts(t *testing.T) {
	byName := goes(func(s *v1alpha1.Strategy) {
		s.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
	})
	five := func(nr *v1alpha1.NodeRollout) { nr.Status.TurnSeconds = 300 }
	old := func(names ...string) []corev1.Node {
		var all []corev1.Node
		for _, name := range names {
			all = append(all, offering(name, "1.19.0", "1.20.3"))
		}
		return all
	}
	young := hostWants(func(h *v1alpha1.HostUpdate) { h.MinimumAge = &metav1.Duration{Duration: time.Hour} })
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		nodes   []corev1.Node
		suppose Supposition
		steps   []string // node: from to, reason
		end     time.Duration
		stuck   v1alpha1.Reason
		notes   int
		problem string
	}{
		"one after the other": {
			rollout: aNodeRollout(byName, five), nodes: append(old("a", "b"), upToDate("c", "1.20.3")),
			steps: []string{"a: 1.19.0 1.20.3 ", "b: 1.19.0 1.20.3 MaxConcurrent"}, end: 10 * time.Minute,
		},
		"nothing measured": {rollout: aNodeRollout(byName), nodes: old("a"), steps: []string{"a: 1.19.0 1.20.3 "}},
		"supposed":         {rollout: aNodeRollout(byName), nodes: old("a"), suppose: Supposition{Turn: time.Minute}, steps: []string{"a: 1.19.0 1.20.3 "}, end: time.Minute},
		"too young yet": {
			rollout: aNodeRollout(byName, five, young), nodes: old("a"), steps: []string{"a: 1.19.0 1.20.3 ReleaseTooYoung"}, end: 64 * time.Minute,
		},
		"only looks": {
			rollout: aNodeRollout(byName, five, hostWants(func(h *v1alpha1.HostUpdate) { h.DetectOnly = true })), nodes: old("a"),
			steps: []string{"a: 1.19.0 1.20.3 DetectOnly"}, stuck: v1alpha1.ReasonDetectOnly,
		},
		"a host is silent": {
			rollout: aNodeRollout(byName, five), nodes: append(old("a"), aHost("b", "", "", "", "")),
			steps: []string{"a: 1.19.0 1.20.3 ", "b:   HostSilent"}, stuck: v1alpha1.ReasonHostSilent,
		},
		"under way": {
			rollout: aNodeRollout(byName, five), nodes: append(old("a"), aHost("b", reboot, reboot, isBusy, "true", runs("1.19.0"), taken(rebootsSince(minute)))),
			steps: []string{"a: 1.19.0 1.20.3 MaxConcurrent"}, end: 5 * time.Minute,
		},
		"not in the cluster": {
			rollout: v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{MinimumAge: &metav1.Duration{Duration: time.Hour}}}},
			nodes:   old("a"), suppose: Supposition{New: true, Turn: time.Minute}, steps: []string{"a: 1.19.0 1.20.3 ReleaseTooYoung"}, end: 61 * time.Minute, notes: 1,
		},
		"without hostUpdate": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec.HostUpdate = nil }), nodes: old("a"), suppose: Supposition{Turn: time.Minute},
			problem: "spec.hostUpdate must be given: ",
		},
		"selector": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}
			}),
			nodes: old("a"), problem: "spec.nodeSelector is invalid, ",
		},
		"pods to evict": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Spec.Drain = &v1alpha1.NodeDrain{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}}}
			}),
			nodes: old("a"), problem: "spec.drain.podSelector is invalid, ",
		},
		"pods that must be well": {
			rollout: aNodeRollout(func(nr *v1alpha1.NodeRollout) {
				nr.Spec.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}}}}}
			}),
			nodes: old("a"), problem: "spec.health.pods[0].selector is invalid, ",
		},
		"invalid before": {
			rollout: aNodeRollout(isInvalid), nodes: old("a"), suppose: Supposition{Changed: true, Turn: time.Minute}, steps: []string{"a: 1.19.0 1.20.3 "}, end: time.Minute,
		},
		"strategy": {
			rollout: aNodeRollout(goes(func(s *v1alpha1.Strategy) {
				s.Windows = []v1alpha1.Window{{Schedule: "0 0 * * *", TimeZone: "Nowhere"}}
			})),
			nodes: old("a"), steps: []string{"a: 1.19.0 1.20.3 WindowInvalid"}, problem: "spec.strategy.windows[0]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := See(nil, tc.nodes, nil, now).Preview(&tc.rollout, tc.suppose)
			var steps []string
			for _, s := range v.Steps {
				steps = append(steps, fmt.Sprintf("%s: %s %s %s", s.Node, s.From, s.To, s.Reason))
			}
			if diff := cmp.Diff(tc.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			var end time.Duration
			stuck := ""
			if v.Schedule != nil {
				stuck, _, _ = strings.Cut(v.Schedule.Stuck, ":")
				if v.Schedule.End != nil {
					end = v.Schedule.End.Sub(now)
				}
			}
			if end != tc.end || stuck != string(tc.stuck) || len(v.Notes) != tc.notes {
				t.Errorf("ends in %s, stuck %q, notes %q; want %s, %q, %d", end, stuck, v.Notes, tc.end, tc.stuck, tc.notes)
			}
			if !strings.HasPrefix(v.Problem, tc.problem) || (v.Problem == "") != (tc.problem == "") {
				t.Errorf("problem %q, want %q", v.Problem, tc.problem)
			}
		})
	}
}

// TestPreviewOwnNode: the operator's own node goes last, of a Plan and of a NodeRollout.
func TestPreviewOwnNode(t *testing.T) {
	nr, plan := aNodeRollout(isReady(metav1.ConditionTrue)), aPlan()
	nodes := []corev1.Node{offering("a", "1.19.0", "1.20.3"), offering("b", "1.19.0", "1.20.3")}
	for _, own := range []string{"a", "b"} {
		c := See([]upgradev1.Plan{plan}, nodes, nil, now).NodeRollouts([]v1alpha1.NodeRollout{nr})
		c.OwnNode(own)
		for _, v := range []Preview{c.Preview(&nr, Supposition{}), c.Preview(&plan, Supposition{})} {
			if len(v.Steps) != 2 || v.Steps[1].Node != own {
				t.Errorf("%s goes last: got %+v", own, v.Steps)
			}
		}
		w, _ := c.Why(own)
		for _, part := range w.Rollouts {
			if part.Place != 2 {
				t.Errorf("%s is number %d of %s", own, part.Place, part.Rollout.Name)
			}
		}
	}
}

// TestPreviewHealth: what a NodeRollout asks of changed nodes keeps its waves back.
func TestPreviewHealth(t *testing.T) {
	nr := aNodeRollout(isReady(metav1.ConditionTrue), hostWants(func(h *v1alpha1.HostUpdate) { h.Version = "v1.20.3" }), goes(func(s *v1alpha1.Strategy) {
		s.Waves = []v1alpha1.Wave{{Name: "canary", Size: size(1)}}
	}), func(nr *v1alpha1.NodeRollout) {
		nr.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"broken"}}}
	})
	nodes := []corev1.Node{offering("a", "1.20.3", "1.20.3"), offering("b", "1.19.0", "1.20.3")}
	for _, want := range []v1alpha1.Reason{"", v1alpha1.ReasonWaveUnhealthy} {
		v := See(nil, nodes, nil, now).Preview(&nr, Supposition{Turn: time.Minute})
		if len(v.Steps) != 1 || v.Steps[0].Node != "b" || v.Steps[0].Reason != want {
			t.Errorf("got %+v, want %q", v.Steps, want)
		}
		nodes[0].Spec.Taints = []corev1.Taint{{Key: "broken"}}
	}
}

// TestPreviewAnotherVersion: a version that is asked for makes hosts outdated that have what was asked for before, and waves begin anew.
func TestPreviewAnotherVersion(t *testing.T) {
	nr := aNodeRollout(isReady(metav1.ConditionTrue), hostWants(func(h *v1alpha1.HostUpdate) { h.Version = "v1.21.0" }), goes(func(s *v1alpha1.Strategy) {
		s.Waves = []v1alpha1.Wave{{Name: "canary", Size: size(1)}}
	}), func(nr *v1alpha1.NodeRollout) {
		nr.Status.Wave = &v1alpha1.WaveStatus{Name: "remainder", Number: 2, Of: 2, Revision: "1.20.3", State: v1alpha1.WaveComplete}
	})
	nodes := []corev1.Node{offering("a", "1.20.3", "1.21.0"), offering("b", "1.20.3", "1.21.0"), aNode("plain")}
	v := See(nil, nodes, nil, now).Preview(&nr, Supposition{Turn: time.Minute})
	reasons := []v1alpha1.Reason{}
	for _, s := range v.Steps {
		reasons = append(reasons, s.Reason)
	}
	if !slices.Equal(reasons, []v1alpha1.Reason{"", v1alpha1.ReasonWavePending}) || v.Rollout.Revision != "v1.21.0" || !slices.Equal(v.Unlabelled, []string{"plain"}) {
		t.Errorf("%q, revision %s, unlabelled %q", reasons, v.Rollout.Revision, v.Unlabelled)
	}
}
