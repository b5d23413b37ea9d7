// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// now is when the tests look at the world.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const (
	uid  = types.UID("5d1c2b3a-1111-4222-8333-944455566677")
	self = "NodeRollout/os"
)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

func newRollout(change ...func(*v1alpha1.NodeRollout)) *v1alpha1.NodeRollout {
	r := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "os", UID: uid, Generation: 3},
		Spec:       v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}},
	}
	for _, how := range change {
		how(r)
	}
	return r
}

// newNode makes a node with a host that has said nothing.
func newNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "uid-a", ResourceVersion: "7", Labels: map[string]string{bottlerocket.InterfaceLabel: v1alpha1.InterfaceUpdateAPI}, Annotations: map[string]string{},
	}}
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	for _, how := range change {
		how(n)
	}
	return n
}

// words puts the protocol's annotations on, as "wanted,active,state update".
func words(text string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		said, update, _ := strings.Cut(text, " ")
		parts := strings.SplitN(said, ",", 3)
		n.Annotations[bottlerocket.Wanted], n.Annotations[bottlerocket.Active], n.Annotations[bottlerocket.State] = parts[0], parts[1], parts[2]
		n.Annotations[bottlerocket.Update] = update
	}
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func unlabelledNode(n *corev1.Node) { delete(n.Labels, bottlerocket.InterfaceLabel) }

func runs(version string) func(*corev1.Node) {
	return annotated(v1alpha1.AnnotationHostVersion, version)
}

func offers(version string) func(*corev1.Node) {
	return annotated(v1alpha1.AnnotationHostTarget, version)
}

func says(text string) func(*corev1.Node) { return annotated(v1alpha1.AnnotationHostError, text) }

func booted(id string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = id }
}

// imaged is what the kubelet says that a Bottlerocket runs.
func imaged(version string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "Bottlerocket OS " + version + " (x)" }
}

func unready(n *corev1.Node) {
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, ago(time.Minute)
}

func cordonedBy(by string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		if by != "" {
			n.Annotations[v1alpha1.AnnotationCordonedBy] = by
		}
	}
}

func holding(claims ...v1alpha1.Claim) func(*corev1.Node) {
	text, err := v1alpha1.FormatClaims(claims)
	if err != nil {
		panic(err)
	}
	return annotated(v1alpha1.AnnotationClaims, text)
}

// claimed is the rollout's claim of ten minutes ago, to bring a host from 1.0.0 to 1.1.0.
func claimed(change ...func(*v1alpha1.Claim)) v1alpha1.Claim {
	c := v1alpha1.Claim{Rollout: self, UID: uid, Revision: "1.1.0", Attempt: "asked", Turn: "t1", Since: ago(10 * time.Minute), Drains: true, From: "1.0.0"}
	for _, how := range change {
		how(&c)
	}
	return c
}

func cordoned(c *v1alpha1.Claim) { c.Cordoned = at(8 * time.Minute) }

func begun(c *v1alpha1.Claim) { c.BootID = "boot-1" }

func rebooting(c *v1alpha1.Claim) {
	cordoned(c)
	c.Rebooting, c.BootID = at(5*time.Minute), "boot-1"
}

func undrained(c *v1alpha1.Claim) { c.Drains = false }

func changedAt(c *v1alpha1.Claim) {
	rebooting(c)
	c.Changed = at(2 * time.Minute)
}

func soakingSince(d time.Duration) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) {
		rebooting(c)
		c.Soaking = at(d)
	}
}

func broken(c *v1alpha1.Claim) {
	c.Failed, c.Failures = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Time: ago(5 * time.Minute)}, 1
}

func elsewise(c *v1alpha1.Claim) { c.Attempt = "other" }

func unnamed(c *v1alpha1.Claim) { c.Revision, c.From = "reboot-1", "" }

// noPods are the pods of nodes that no one has looked up.
type noPods struct{}

func (noPods) Watch(string)                     {}
func (noPods) Stop(string)                      {}
func (noPods) Pods(string) ([]corev1.Pod, bool) { return nil, false }

// seen is what one look at a node makes of it.
type seen struct {
	State   v1alpha1.UnitState
	Step    nodeturn.Step
	Reason  v1alpha1.Reason
	Message string
	// Wake is after how long the clock alone changes that.
	Wake time.Duration
	// Holds is whether it holds a slot.
	Holds bool
}

// The judge's types and steps, as the tests name them.
type (
	unit  = hostupdate.Unit
	world = hostupdate.World
)

const (
	stepAsk              = hostupdate.StepAsk
	stepReleaseUnclaimed = hostupdate.StepReleaseUnclaimed
	stepPrepare          = hostupdate.StepPrepare
	stepPerform          = hostupdate.StepPerform
	stepCallHooks        = hostupdate.StepCallHooks
	stepCordon           = hostupdate.StepCordon
	stepDrain            = hostupdate.StepDrain
	stepChanged          = hostupdate.StepChanged
)

// newWorld is what the nodes of a rollout are judged by.
func newWorld(t *testing.T, r *v1alpha1.NodeRollout) *world {
	t.Helper()
	w, err := hostupdate.NewWorld(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Now = now
	return w
}

// judged looks at one node.
func judged(t *testing.T, r *v1alpha1.NodeRollout, n *corev1.Node) (*unit, *world) {
	t.Helper()
	w := newWorld(t, r)
	asked(w, n)
	all := sees(w, n)
	if len(all) == 0 {
		return nil, w
	}
	return all[0], w
}

// asked puts the attempt that the rollout asks for now in place of "asked" in a claim.
func asked(w *world, n *corev1.Node) {
	version := strings.TrimPrefix(w.Host.Version, "v") // As hosts name it.
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil || len(claims) == 0 || claims[0].Attempt != "asked" {
		return
	}
	if version == "" && !strings.HasPrefix(claims[0].Revision, "reboot-") {
		version = claims[0].Revision
	}
	claims[0].Attempt = w.NewClaim(&unit{Turn: nodeturn.Turn{Node: n}, Verdict: hostupdate.Verdict{Version: version}}).Attempt
	holding(claims...)(n)
}

// newTestController returns a controller for calls by hand. The client may be nil where nothing is read or written.
func newTestController(tb testing.TB, api client.Client) *Controller {
	tb.Helper()
	clk := clocktesting.NewFakePassiveClock(now)
	e := turn.NewEngine(turn.Kind, clk, api, api, nil, fleet.New(clk, api, nil), nil)
	e.Works = turn.NewWorks(noPods{})
	return &Controller{Engine: e}
}

// snapshotOf is a look at these nodes.
func snapshotOf(nodes ...*corev1.Node) fleet.Snapshot {
	s := fleet.Snapshot{Objects: nodes}
	s.Nodes = map[string]*rollout.Node{}
	for _, n := range nodes {
		s.Nodes[n.Name] = rollout.NewNode(n)
	}
	return s
}

// sees looks at nodes.
func sees(w *world, nodes ...*corev1.Node) []*unit {
	w.Fleet = snapshotOf(nodes...).Fleet
	return w.Units(nodes)
}

func summary(t *unit) seen {
	if t == nil {
		return seen{}
	}
	got := seen{State: t.Unit.State, Step: t.Step, Reason: t.Unit.Reason, Message: t.Unit.Message, Holds: t.Unit.HoldsSlot()}
	if got.Message == "" {
		got.Message = t.Message
	}
	if !t.Wake.IsZero() {
		got.Wake = t.Wake.Sub(now)
	}
	return got
}

const (
	outdated = v1alpha1.UnitOutdated
	updating = v1alpha1.UnitUpdating
	soaking  = v1alpha1.UnitSoaking
	done     = v1alpha1.UnitUpdated
	failed   = v1alpha1.UnitFailed
)

// old makes a node whose host has 1.1.0 to offer and says so, in a turn or in none.
func old(said string, more ...func(*corev1.Node)) *corev1.Node {
	return newNode(append([]func(*corev1.Node){words(said), runs("1.0.0"), offers("1.1.0")}, more...)...)
}

// A turn knows the boot that it begins in, and that it is to take off a cordon which the one before had taken over.
func TestNewClaim(t *testing.T) {
	theirs := func(c *v1alpha1.Claim) { c.Uncordon = true }
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"the first":        {old("stabilize,stabilize,ready true", cordonedBy("")), false},
		"still cordoned":   {old("stabilize,stabilize,ready true", cordonedBy(""), holding(claimed(broken, changedAt, elsewise, theirs))), true},
		"uncordoned since": {old("stabilize,stabilize,ready true", holding(claimed(broken, changedAt, elsewise, theirs))), false},
		"released before":  {old("stabilize,stabilize,ready true", cordonedBy(""), holding(claimed(broken, elsewise, theirs))), false},
	} {
		s, w := judged(t, newRollout(), tc.node)
		if claim := w.NewClaim(s); claim.BootID != "boot-1" || claim.Uncordon != tc.want {
			t.Errorf("%s: %+v", name, claim)
		}
	}
}

// A cordon is taken off for which another operator may be answerable, and no person's.
func TestAdoption(t *testing.T) {
	for name, tc := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"another operator's":         {old("reboot-update,reboot-update,busy true", cordonedBy("")), true},
		"schedulable":                {old("reboot-update,reboot-update,busy true"), false},
		"this one's":                 {old("reboot-update,reboot-update,busy true", cordonedBy(self)), false},
		"a person's, in a turn":      {old("reboot-update,reboot-update,busy true", cordonedBy(""), annotated(v1alpha1.AnnotationHostWanted, "1.1.0")), false},
		"a person's, who reboots it": {newNode(unlabelledNode, labelled(v1alpha1.HostProtocols[2].InterfaceLabel, "sentinel"), annotated(v1alpha1.HostProtocols[2].Wanted, "reboot-update"), cordonedBy("")), false},
	} {
		s, w := judged(t, newRollout(), tc.node)
		if s.Step != nodeturn.StepAdopt || w.Adoption(s).Uncordon != tc.want {
			t.Errorf("%s: %+v, adopted with %+v", name, summary(s), w.Adoption(s))
		}
	}
}

// judgement is a node, and what is made of it.
type judgement struct {
	name    string
	rollout *v1alpha1.NodeRollout
	node    *corev1.Node
	want    seen
}

func TestJudge(t *testing.T) {
	for _, tc := range judgements() {
		t.Run(tc.name, func(t *testing.T) {
			s, _ := judged(t, tc.rollout.DeepCopy(), tc.node)
			if diff := cmp.Diff(tc.want, summary(s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func judgements() []judgement {
	other := claimed(func(c *v1alpha1.Claim) { c.Rollout, c.UID = "NodeRollout/other", "u2" })
	plan := claimed(func(c *v1alpha1.Claim) { c.Rollout, c.UID = "Plan/system-upgrade/k3s", "u3" })
	hooked := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.HostUpdate.Hooks = &v1alpha1.RebootHooks{BeforeReboot: []string{"before"}, AfterReboot: []string{"after"}}
	})
	disabled := labelled(v1alpha1.LabelNodeRollout("os"), v1alpha1.LabelNodeRolloutDisabled)
	timed := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{TurnTimeout: duration(9 * time.Minute)}
	})
	soaks := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Strategy = &v1alpha1.Strategy{Soak: duration(10 * time.Minute)} })
	retries := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3}}
	})
	sick := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy, r.Spec.Health = retries.Spec.Strategy, &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"startup"}}}
	})
	pinned := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = "1.1.0" })
	looks := newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.DetectOnly = true })
	startup := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "startup"}} }
	silent := "the host's agent has not answered stabilize: does it run on the node?"
	const reboot, stabilize = "reboot-update,reboot-update,", "stabilize,stabilize,"
	all := []judgement{
		// A host in no turn.
		{"not labelled", nil, newNode(unlabelledNode), seen{}},
		{"opted out", nil, newNode(disabled), seen{State: outdated}},
		{"nothing said", nil, newNode(), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent has not been asked yet whether there is an update"}},
		{"asked", nil, newNode(words("stabilize,unknown,unknown unknown")), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: silent}},
		{"looking", nil, newNode(words("stabilize,stabilize,busy unknown")), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent is busy with stabilize"}},
		{"an update", nil, old(stabilize + "ready true"), seen{State: outdated}},
		{"no update", nil, newNode(words(stabilize+"ready false"), runs("1.1.0")), seen{State: done}},
		{"what was performed is being taken back", nil, old("reset-state,unknown,unknown unknown"), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent,
			Message: "the host's agent has not answered reset-state: does it run on the node?"}},
		{"what was performed is taken back", nil, old("reset-state,reset-state,ready true"), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostSilent,
			Message: "the host's agent has not been asked yet whether there is an update"}},
		{"the look failed", nil, newNode(words(stabilize+"error unknown"), says("no network")), seen{State: outdated, Reason: v1alpha1.ReasonHostError, Message: "no network"}},
		{"left in prepare", nil, old("prepare-update,prepare-update,busy true"), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent is busy with prepare-update"}},
		{"left in perform", nil, old("perform-update,perform-update,error true", says("x")), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostError, Message: "x"}},
		{"left in reboot", nil, old(reboot + "busy true"), seen{State: updating, Step: nodeturn.StepAdopt, Holds: true}},
		{"left in reboot, and no one knows how that stands", nil, old(reboot + "unknown true"), seen{State: updating, Step: nodeturn.StepAdopt, Holds: true}},
		{"left in reboot, but opted out", nil, old(reboot+"busy true", disabled), seen{State: outdated}},
		{"left in reboot, but a Plan has it", nil, old(reboot+"busy true", holding(plan)), seen{State: outdated}},
		{"another NodeRollout has it", nil, old("prepare-update,prepare-update,busy true", holding(other)), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent is busy with prepare-update"}},
		{"another NodeRollout has it, fresh", nil, newNode(holding(other)), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent has not been asked yet whether there is an update"}},
		{"a Plan has it", nil, newNode(holding(plan)), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent has not been asked yet whether there is an update"}},
		{"left in reboot, and hosts are only looked at", looks, old(reboot + "busy true"), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent is busy with reboot-update"}},
		{"left in prepare, and hosts are only looked at", looks, old("prepare-update,prepare-update,unknown true"), seen{State: outdated, Reason: v1alpha1.ReasonHostSilent,
			Message: "the host's agent has not been asked yet whether there is an update"}},
		{"nothing said, and hosts are only looked at", looks, newNode(), seen{State: outdated, Step: stepAsk, Reason: v1alpha1.ReasonHostSilent, Message: "the host's agent has not been asked yet whether there is an update"}},
		{"its claim was taken away in the reboot, and hosts are only looked at", looks, old(reboot+"busy true", cordonedBy(self)), seen{State: updating, Step: nodeturn.StepAdopt, Holds: true}},
		{"its claim was taken away, and its cordon is left", nil, old("perform-update,perform-update,ready true", cordonedBy(self)), seen{State: outdated, Step: stepReleaseUnclaimed}},
		{"its claim was taken away in the reboot", nil, old(reboot+"busy true", cordonedBy(self)), seen{State: updating, Step: nodeturn.StepAdopt, Holds: true}},
		{"its claims can't be read", nil, old(stabilize+"ready true", annotated(v1alpha1.AnnotationClaims, "{")), seen{State: outdated}},
		{"its claims can't be read, and it is cordoned", nil, old(stabilize+"ready true", annotated(v1alpha1.AnnotationClaims, "{"), cordonedBy(self)), seen{State: outdated, Holds: true}},

		// Before the order to reboot.
		{"told to prepare", nil, old("prepare-update,stabilize,ready true", holding(claimed())), seen{State: updating, Message: "the host's agent has not taken up prepare-update yet", Holds: true}},
		{"preparing", nil, old("prepare-update,prepare-update,busy true", holding(claimed())), seen{State: updating, Message: "the host fetches 1.1.0", Holds: true}},
		{"prepared", nil, old("prepare-update,prepare-update,ready true", holding(claimed())), seen{State: updating, Step: stepPerform, Holds: true}},
		{"prepare failed", nil, old("prepare-update,prepare-update,error true", holding(claimed()), says("no space")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonHostUpdateFailed,
			Message: "on Node a prepare-update failed: no space", Holds: true}},
		{"told to perform", nil, old("perform-update,prepare-update,ready true", holding(claimed())), seen{State: updating, Message: "the host's agent has not taken up perform-update yet", Holds: true}},
		{"perform failed, and no one knows why", nil, old("perform-update,perform-update,error true", holding(claimed())), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonHostUpdateFailed,
			Message: "on Node a perform-update failed: the host's agent does not say why", Holds: true}},
		{"performed", nil, old("perform-update,perform-update,ready true", holding(claimed())), seen{State: updating, Step: stepCordon, Holds: true}},
		{"performed, and hooks must be called", hooked, old("perform-update,perform-update,ready true", holding(claimed())), seen{State: updating, Step: stepCallHooks,
			Message: "the host is about to reboot; annotations before of the Node must become true before", Holds: true}},
		{"performed, and hooks are called", hooked, old("perform-update,perform-update,ready true", holding(claimed()), labelled(v1alpha1.LabelBeforeReboot, "true")),
			seen{State: updating, Message: "the host is about to reboot; annotations before of the Node must become true before", Holds: true}},
		{"performed, and hooks have answered", hooked, old("perform-update,perform-update,ready true", holding(claimed()), labelled(v1alpha1.LabelBeforeReboot, "true"), annotated("before", "true")),
			seen{State: updating, Step: stepCordon, Holds: true}},
		{"cordoned", nil, old("perform-update,perform-update,ready true", holding(claimed(cordoned)), cordonedBy(self)), seen{State: updating, Step: stepDrain, Holds: true}},
		{"cordoned by a person", nil, old("perform-update,perform-update,ready true", holding(claimed(cordoned)), cordonedBy("")), seen{State: updating, Step: stepDrain, Holds: true}},
		{"cordoned, and a person lifts it", nil, old("perform-update,perform-update,ready true", holding(claimed(cordoned))), seen{State: updating, Step: stepCordon, Holds: true}},
		{"cordoned, and nothing must be drained", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Drain = &v1alpha1.NodeDrain{Disabled: true} }),
			old("perform-update,perform-update,ready true", holding(claimed(cordoned)), cordonedBy(self)), seen{State: updating, Step: stepDrain, Holds: true}},
		{"cordoned, and load balancers are waited for", newRollout(func(r *v1alpha1.NodeRollout) {
			r.Spec.HostUpdate.ExcludeFromLoadBalancers = &v1alpha1.LoadBalancerExclusion{Wait: duration(9 * time.Minute)}
		}), old("perform-update,perform-update,ready true", holding(claimed(cordoned)), cordonedBy(self)),
			seen{State: updating, Message: "load balancers have time to take the node out until 2026-11-20T12:01:00Z", Wake: time.Minute, Holds: true}},
		{"what was wanted is gone", nil, old(",prepare-update,busy true", holding(claimed())), seen{State: updating, Step: stepPrepare, Holds: true}},
		{"all that was said is gone", nil, newNode(holding(claimed())), seen{State: updating, Step: stepPrepare, Holds: true}},
		{"how it stands is gone", nil, old("perform-update,perform-update, true", holding(claimed())), seen{State: updating, Step: stepPrepare, Holds: true}},
		{"another client says reboot", nil, old("reboot-update,perform-update,ready true", holding(claimed())), seen{State: updating, Step: stepPrepare, Holds: true}},
		{"another client has rebooted it", nil, newNode(words("perform-update,perform-update,ready true"), runs("1.1.0"), booted("boot-2"), holding(claimed(begun))), seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"another client has rebooted it, since the turn began", nil, newNode(words("perform-update,perform-update,ready true"), runs("1.0.0"), imaged("1.1.0"), booted("boot-2"), holding(claimed(begun))),
			seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"its agent says that it runs what it should, and it has not rebooted", nil, newNode(words("prepare-update,prepare-update,busy true"), runs("1.1.0"), holding(claimed(begun))),
			seen{State: updating, Message: "the host fetches the update", Holds: true}},
		{"its agent says that it runs what it should, and its kubelet knows better", nil, newNode(words("prepare-update,prepare-update,busy true"), runs("1.1.0"), imaged("1.0.0"), booted("boot-2"), holding(claimed(begun))),
			seen{State: updating, Message: "the host fetches the update", Holds: true}},
		{"it takes too long", timed, old("prepare-update,prepare-update,busy true", holding(claimed())), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonTurnTimeout,
			Message: "the turn of Node a took longer than turnTimeout, 9m0s; the host fetches 1.1.0", Holds: true}},
		{"not selected any more", nil, old("prepare-update,prepare-update,busy true", holding(claimed()), unlabelledNode), seen{State: updating, Step: nodeturn.StepRelease, Holds: true}},
		{"opted out meanwhile", nil, old("perform-update,perform-update,ready true", holding(claimed(cordoned)), disabled), seen{State: updating, Step: nodeturn.StepRelease, Holds: true}},
		{"pinned to another meanwhile", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = "1.2.0" }), old("prepare-update,prepare-update,busy true", holding(claimed())),
			seen{State: updating, Step: nodeturn.StepRelease, Holds: true}},
		{"detect only meanwhile", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.DetectOnly = true }), old("prepare-update,prepare-update,busy true", holding(claimed())),
			seen{State: updating, Step: nodeturn.StepRelease, Holds: true}},

		// After it.
		{"told to reboot", nil, old("reboot-update,perform-update,ready true", holding(claimed(rebooting)), cordonedBy(self)),
			seen{State: updating, Message: "the host's agent has not taken up reboot-update yet", Wake: 10 * time.Minute, Holds: true}},
		{"about to go down", nil, old(reboot+"busy true", holding(claimed(rebooting)), cordonedBy(self)),
			seen{State: updating, Message: "the host is to reboot, and has not gone down yet", Wake: 10 * time.Minute, Holds: true}},
		{"about to go down, and nothing was drained", nil, old(reboot+"busy true", holding(claimed(rebooting, undrained)), cordonedBy(self)),
			seen{State: updating, Message: "the host is to reboot, and has not gone down yet", Wake: 10 * time.Minute, Holds: true}},
		{"down", nil, old(reboot+"busy true", holding(claimed(rebooting)), cordonedBy(self), unready),
			seen{State: updating, Message: "the host reboots: not ready since 2026-11-20T11:59:00Z", Wake: 10 * time.Minute, Holds: true}},
		{"up, and its agent is not", nil, old(reboot+"busy true", holding(claimed(rebooting)), cordonedBy(self), booted("boot-2")),
			seen{State: updating, Message: "the host has rebooted, and its agent has not said yet what it runs", Wake: 10 * time.Minute, Holds: true}},
		{"up", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(self), booted("boot-2")), seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"up, and a person had cordoned it", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(""), booted("boot-2")),
			seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"up, and its node is not ready yet", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(self), booted("boot-2"), unready),
			seen{State: updating, Message: "the host reboots: not ready since 2026-11-20T11:59:00Z", Wake: 10 * time.Minute, Holds: true}},
		{"up, and hooks must be called", hooked, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(self), booted("boot-2")),
			seen{State: updating, Step: stepChanged, Holds: true}},
		{"up, though its agent says error", nil, newNode(words(reboot+"error true"), says("x"), runs("1.1.0"), holding(claimed(rebooting)), booted("boot-2"), cordonedBy(self)),
			seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"up with what it ran before", nil, old(reboot+"error true", says("it fell back"), holding(claimed(rebooting)), booted("boot-2")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged,
			Message: "the host of Node a has rebooted, and runs 1.0.0, not 1.1.0: it fell back", Holds: true}},
		{"up with what it ran before, says its agent all the same", nil, old(reboot+"ready true", holding(claimed(rebooting)), booted("boot-2")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged,
			Message: "the host of Node a has rebooted, and runs 1.0.0, not 1.1.0", Holds: true}},
		{"up with what its kubelet knows better than its agent", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), imaged("1.0.0"), holding(claimed(rebooting)), booted("boot-2")),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged, Message: "the host of Node a has rebooted, and runs 1.0.0, not 1.1.0", Holds: true}},
		{"up with what it should, and an agent's word of before", nil, newNode(words(reboot+"ready true"), runs("1.0.0"), imaged("1.1.0"), holding(claimed(rebooting)), cordonedBy(self), booted("boot-2")),
			seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"up with an unknown version", nil, newNode(words(reboot+"ready true"), holding(claimed(rebooting)), booted("boot-2")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged,
			Message: "the host of Node a has rebooted, and runs an unknown version, not 1.1.0", Holds: true}},
		{"up, without a name", nil, newNode(words(reboot+"ready true"), holding(claimed(rebooting, unnamed)), booted("boot-2")), seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"up, without a name, and not as it should be", nil, newNode(words(reboot+"error true"), says("a reboot is still needed"), holding(claimed(rebooting, unnamed)), booted("boot-2")),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged, Message: "the host of Node a has rebooted, and its agent reports an error: a reboot is still needed", Holds: true}},
		{"up, an agent of the peer's that names no target", nil, newNode(words(reboot+"ready true"), imaged("1.0.0"),
			holding(claimed(rebooting, func(c *v1alpha1.Claim) { c.Revision = "reboot-1.0.0" })), booted("boot-2")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonVersionUnchanged,
			Message: "the host of Node a has rebooted, and runs 1.0.0 as before", Holds: true}},
		{"ready says the agent, of the boot from before", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(self)),
			seen{State: updating, Message: "the host is to reboot, and has not gone down yet", Wake: 10 * time.Minute, Holds: true}},
		{"error says the agent, of the boot from before", nil, old(reboot+"error true", says("inhibited"), holding(claimed(rebooting)), cordonedBy(self)),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonNotRebooted, Message: "the host of Node a was ordered to reboot and has not: inhibited", Holds: true}},
		{"error says the agent, of the boot from before, and it is going down", nil, old(reboot+"error true", says("inhibited"), holding(claimed(rebooting)), cordonedBy(self), unready),
			seen{State: updating, Message: "reboot-update failed: inhibited", Wake: 10 * time.Minute, Holds: true}},
		{"no boot id, and the agent says error", nil, old(reboot+"error true", says("x"), holding(claimed(rebooting)), booted("")), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonHostUpdateFailed,
			Message: "on Node a reboot-update failed: x", Holds: true}},
		{"not back in time", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = duration(5 * time.Minute) }), old(reboot+"busy true", holding(claimed(rebooting)), unready),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonRebootTimeout, Holds: true,
				Message: "the host of Node a was ordered to reboot at 2026-11-20T11:55:00Z, and its node was not ready again within rebootTimeout, 5m0s"}},
		{"not gone down in time", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = duration(5 * time.Minute) }), old(reboot+"ready true", holding(claimed(rebooting))),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonNotRebooted, Holds: true,
				Message: "the host of Node a was ordered to reboot at 2026-11-20T11:55:00Z, and has not within rebootTimeout, 5m0s"}},
		{"its agent not back in time", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = duration(5 * time.Minute) }), old(reboot+"busy true", holding(claimed(rebooting)), booted("boot-2")),
			seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonRebootTimeout, Holds: true,
				Message: "the host of Node a was ordered to reboot at 2026-11-20T11:55:00Z, and has rebooted, but its agent has not said what it runs within rebootTimeout, 5m0s"}},
		{"all that was said is gone after the order", nil, newNode(holding(claimed(rebooting)), cordonedBy(self)), seen{State: updating, Wake: 10 * time.Minute, Holds: true,
			Message: "the order to reboot is gone from the Node; the host is judged when rebootTimeout is over"}},
		{"the order was withdrawn, and it has not rebooted", nil, old(stabilize+"ready true", holding(claimed(rebooting)), cordonedBy(self)), seen{State: updating, Wake: 10 * time.Minute, Holds: true,
			Message: "the order to reboot is gone from the Node; the host is judged when rebootTimeout is over"}},
		{"no label in the middle of the reboot", nil, old(reboot+"busy true", holding(claimed(rebooting)), unlabelledNode), seen{State: updating, Reason: v1alpha1.ReasonHostGone, Holds: true, Wake: 10 * time.Minute,
			Message: "the node has lost the label that names its host's interface; it is waited for until it is back"}},
		{"no label, and back", nil, old(reboot+"busy true", holding(claimed(rebooting)), unlabelledNode, booted("boot-2")), seen{State: updating, Step: nodeturn.StepRelease, Reason: v1alpha1.ReasonHostGone, Holds: true,
			Message: "the node has lost the label that names its host's interface; it is waited for until it is back"}},
		{"opted out in the middle of the reboot", nil, old(reboot+"busy true", holding(claimed(rebooting)), disabled), seen{State: updating, Holds: true, Wake: 10 * time.Minute,
			Message: "the rollout no longer selects the node; the turn ends when the host is back"}},

		// Well, and not well.
		{"changed, and not ready", nil, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), cordonedBy(self), booted("boot-2"), unready), seen{State: updating, Holds: true,
			Message: "the host runs what it should; its node is not well: not ready since 2026-11-20T11:59:00Z"}},
		{"changed, and too long not ready", timed, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), booted("boot-2"), unready), seen{State: failed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonTurnTimeout, Holds: true,
			Message: "the turn of Node a took longer than turnTimeout, 9m0s; the host runs what it should; its node is not well: not ready since 2026-11-20T11:59:00Z"}},
		{"changed, and too long not healthy, which must be recorded first", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Strategy, r.Spec.Health = timed.Spec.Strategy, sick.Spec.Health }),
			newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), cordonedBy(self), booted("boot-2"), startup), seen{State: updating, Step: stepChanged, Message: "taint startup must be absent", Holds: true}},
		{"changed, and not healthy", newRollout(func(r *v1alpha1.NodeRollout) {
			r.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"startup"}}}
		}), newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), cordonedBy(self), booted("boot-2"), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "startup"}} }),
			seen{State: updating, Message: "the host runs what it should; its node is not well: taint startup must be absent", Holds: true}},
		{"changed, and not ready for long enough", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Health = &v1alpha1.NodeHealth{MinReadySeconds: 5400} }),
			newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), cordonedBy(self), booted("boot-2")), seen{State: updating, Wake: 30 * time.Minute, Holds: true,
				Message: "the host runs what it should; its node is not well: ready only since 2026-11-20T11:00:00Z, and minReadySeconds is 1h30m0s"}},
		{"changed, and its pods are not known", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.Health = &v1alpha1.NodeHealth{Pods: []v1alpha1.StablePods{{}}} }),
			newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), cordonedBy(self), booted("boot-2")), seen{State: updating, Holds: true,
				Message: "the host runs what it should; its node is not well: its pods are being looked up"}},
		{"changed, and hooks have not answered", hooked, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), cordonedBy(self), booted("boot-2"), labelled(v1alpha1.LabelAfterReboot, "true")),
			seen{State: updating, Message: "the host has rebooted; annotations after of the Node must become true before", Holds: true}},
		{"changed, and hooks have answered", hooked, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(changedAt)), booted("boot-2"), labelled(v1alpha1.LabelAfterReboot, "true"), annotated("after", "true")),
			seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},
		{"changed, and not selected any more", nil, newNode(words(reboot+"ready true"), holding(claimed(changedAt)), unlabelledNode), seen{State: updating, Step: nodeturn.StepFinish, Holds: true}},
		{"to soak", soaks, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(rebooting)), booted("boot-2")), seen{State: soaking, Step: nodeturn.StepSoak, Holds: true}},
		{"soaking", soaks, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(soakingSince(time.Minute))), booted("boot-2")), seen{State: soaking, Wake: 9 * time.Minute, Holds: true}},
		{"soaking, and not ready", soaks, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(soakingSince(time.Hour))), booted("boot-2"), unready),
			seen{State: soaking, Message: "not ready since 2026-11-20T11:59:00Z", Holds: true}},
		{"soaked", soaks, newNode(words(reboot+"ready true"), runs("1.1.0"), holding(claimed(soakingSince(time.Hour))), booted("boot-2")), seen{State: soaking, Step: nodeturn.StepFinish, Holds: true}},

		// Failed.
		{"failed", nil, old(stabilize+"ready true", holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and looking again", nil, old("stabilize,unknown,unknown unknown", holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and nothing is said", nil, newNode(holding(claimed(broken))), seen{State: failed, Step: stepAsk, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and the order was not withdrawn", nil, old(reboot+"busy true", holding(claimed(broken))), seen{State: failed, Step: stepAsk, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and it can't look", nil, old(stabilize+"error true", says("x"), holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed for something else", nil, old(stabilize+"ready true", holding(claimed(broken, func(c *v1alpha1.Claim) { c.Attempt = "other" }))), seen{State: outdated}},
		{"failed for something else, and its agent is silent", nil, old("stabilize,unknown,unknown unknown", holding(claimed(broken, elsewise))),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; another attempt waits: " + silent, Holds: true}},
		{"failed for something else, and skipped, and its agent is silent", nil, old("stabilize,unknown,unknown unknown", holding(claimed(broken, elsewise, func(c *v1alpha1.Claim) { c.Failed.Skipped = true }))),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; another attempt waits: " + silent}},
		{"failed, and the newer one is too young", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.MinimumAge = duration(time.Hour) }),
			newNode(words(stabilize+"ready true"), runs("1.0.0"), offers("1.2.0"), holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Wake: time.Hour, Holds: true,
				Message: "it broke; another attempt waits: 1.2.0 has been known since 2026-11-20T12:00:00Z, and minimumAge is 1h0m0s: not before 2026-11-20T13:00:00Z"}},
		{"failed, pinned to the same by another name, and its agent is silent", newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.Version = "v1.1.0" }),
			old("stabilize,unknown,unknown unknown", holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and not well, and a newer one is there", sick, newNode(words(stabilize+"ready true"), runs("1.1.0"), offers("1.2.0"), holding(claimed(broken, changedAt)), cordonedBy(self), booted("boot-2"), startup),
			seen{State: outdated, Holds: true}},
		{"failed, and a newer one is there", nil, newNode(words(stabilize+"ready true"), runs("1.0.0"), offers("1.2.0"), holding(claimed(broken))), seen{State: outdated}},
		{"failed, and a person asks again", nil, old(stabilize+"ready true", holding(claimed(broken, func(c *v1alpha1.Claim) { c.Attempt = "other" })), annotated(v1alpha1.AnnotationRetry, "1")), seen{State: outdated}},
		{"failed, and back with what it should run", nil, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, rebooting)), booted("boot-2")), seen{State: done, Step: nodeturn.StepFinish,
			Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed, and back with what it should run, says its kubelet, and its agent is dead", nil, newNode(words("stabilize,unknown,unknown unknown"), runs("1.0.0"), imaged("1.1.0"), holding(claimed(broken, rebooting)), booted("boot-2")),
			seen{State: done, Step: nodeturn.StepFinish, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed, and pinned, and back with what it should run, says its kubelet, and its agent is dead", pinned, newNode(words("stabilize,unknown,unknown unknown"), runs("1.0.0"), imaged("1.1.0"), holding(claimed(broken, rebooting)), booted("boot-2")),
			seen{State: done, Step: nodeturn.StepFinish, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed, and back with something else, says its kubelet, and its agent is dead", nil, newNode(words("stabilize,unknown,unknown unknown"), runs("1.1.0"), imaged("1.0.0"), holding(claimed(broken, rebooting)), booted("boot-2")),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and back late, and not ready", nil, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, rebooting)), booted("boot-2"), unready), seen{State: failed, Step: stepChanged,
			Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; not ready since 2026-11-20T11:59:00Z", Holds: true}},
		{"failed, and back late, and hooks must be called", hooked, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, rebooting)), booted("boot-2")),
			seen{State: failed, Step: stepChanged, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and not well, and it would be time", sick, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt)), cordonedBy(self), booted("boot-2"), startup),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; the host runs what it should; its node is not well: taint startup must be absent", Holds: true}},
		{"failed, and not well, and a person asks again", sick, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt, elsewise)), cordonedBy(self), booted("boot-2"), startup),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; the host runs what it should; its node is not well: taint startup must be absent", Holds: true}},
		{"failed, and a person has lifted the cordon", sick, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt)), annotated(v1alpha1.AnnotationCordonedBy, self), booted("boot-2"), startup),
			seen{State: failed, Step: nodeturn.StepUnmark, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; the host runs what it should; its node is not well: taint startup must be absent", Holds: true}},
		{"failed, and well after all", sick, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt)), cordonedBy(self), booted("boot-2")),
			seen{State: done, Step: nodeturn.StepFinish, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed, and hooks have not answered", hooked, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt)), cordonedBy(self), booted("boot-2"), labelled(v1alpha1.LabelAfterReboot, "true")),
			seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke; the host has rebooted; annotations after of the Node must become true before", Holds: true}},
		{"failed, and hooks have answered", hooked, newNode(words(stabilize+"ready false"), runs("1.1.0"), holding(claimed(broken, changedAt)), cordonedBy(self), booted("boot-2"), labelled(v1alpha1.LabelAfterReboot, "true"),
			annotated("after", "true")), seen{State: done, Step: nodeturn.StepFinish, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed before it was ordered to reboot, and there is nothing any more", nil, newNode(words(stabilize+"ready false"), runs("1.0.0"), holding(claimed(broken)), unready), seen{State: done, Step: nodeturn.StepFinish,
			Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke"}},
		{"failed, and not selected any more", nil, old(stabilize+"ready true", holding(claimed(broken)), disabled), seen{State: failed, Step: nodeturn.StepRelease, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and it is time", retries, old(stabilize+"ready true", holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed, Message: "it broke", Holds: true}},
		{"failed, and it is time, and its agent is silent", retries, old("stabilize,unknown,unknown unknown", holding(claimed(broken))), seen{State: failed, Reason: v1alpha1.ReasonHostUpdateFailed,
			Message: "it broke; another attempt waits: " + silent, Holds: true}},
	}
	for i := range all {
		if all[i].rollout == nil {
			all[i].rollout = newRollout()
		}
	}
	return all
}
