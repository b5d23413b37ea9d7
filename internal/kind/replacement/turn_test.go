// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// scene is a set of three machines, of which "old" is outdated and "new" has been added for it; both have nodes.
type scene struct {
	*World
	set  *Set
	turn *Turn
}

func newScene(phase v1alpha1.MachinePhase) *scene {
	set := &Set{
		Set:      cloud.Set{Name: "pool", Image: "images/two", ImageName: "two", Model: "2", Capacity: 4},
		Known:    true,
		LookedAt: now,
		Machines: []cloud.Machine{
			{ID: "old", ProviderID: "sky://old", Zone: "a", State: cloud.Running}, {ID: "other", ProviderID: "sky://other", Zone: "b", State: cloud.Running, UpToDate: true},
			{ID: "new", ProviderID: "sky://new", Zone: "a", State: cloud.Running, UpToDate: true},
		},
	}
	s := &scene{set: set}
	s.World = &World{
		Rules: Rules{Surge: rollout.Amount{N: 1}, Timeout: 10 * time.Minute, Drains: true}, Now: now, Revision: "two", Sets: map[string]*Set{"pool": set}, Nodes: map[string]*Node{},
		Unhealthy: func(string) (string, time.Time) { return "", time.Time{} },
		Unstable:  func(*Turn, string) (string, time.Time) { return "", time.Time{} },
		SoakEnd:   func(_ string, since time.Time) time.Time { return since },
		Attempt:   func(s *Set, _ *Node) string { return s.Model },
		Rank:      func(types.UID) uint64 { return 1 },
		Drained:   map[string]bool{}, Left: map[string]bool{},
	}
	for _, id := range []string{"old", "other", "new"} {
		s.Nodes["n-"+id] = &Node{
			Node: &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n-" + id, UID: types.UID("uid-" + id)}, Spec: corev1.NodeSpec{ProviderID: "SKY://" + id},
				Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OSImage: "two"}},
			},
			Selected: true,
		}
	}
	s.Nodes["n-old"].Status.NodeInfo.OSImage = "one"
	s.turn = &Turn{MachineTurn: v1alpha1.MachineTurn{
		Turn: "t", Node: "n-old", NodeUID: "uid-old", ScaleSet: "pool", Machine: "old", Zone: "a", Revision: "two", Attempt: "2", Phase: phase,
		Since: metav1.Time{Time: now.Add(-time.Hour)}, PhaseSince: metav1.Time{Time: now.Add(-time.Minute)},
	}}
	if phase != v1alpha1.MachineAdding {
		s.turn.Replacement = "new"
	}
	switch phase {
	case v1alpha1.MachineDraining, v1alpha1.MachineLeaving, v1alpha1.MachineDeleting:
		s.claim(func(c *v1alpha1.Claim) { c.Cordoned = &metav1.Time{Time: now.Add(-time.Minute)} })
		s.Nodes["n-old"].Spec.Unschedulable = true
		s.Drained["t"] = phase != v1alpha1.MachineDraining
	case v1alpha1.MachineSoaking:
		s.without("old")
		s.turn.Node, s.turn.NodeUID, s.turn.Machine, s.turn.ReplacementNode = "", "", "", "n-new"
	default:
	}
	return s
}

// declined is a cloud that adds no machine, which is asked since so long.
func (s *scene) declined(asked time.Duration) {
	s.set.Declined = "no such image"
	s.turn.PhaseSince.Time = now.Add(-asked)
}

func (s *scene) claim(change func(*v1alpha1.Claim)) {
	c := &v1alpha1.Claim{UID: "r", Turn: "t", Attempt: "2", Since: metav1.Time{Time: now.Add(-5 * time.Minute)}}
	change(c)
	s.Nodes["n-old"].Claim = c
}

// without takes a machine away, with its node.
func (s *scene) without(id string) {
	s.missing(id, time.Hour)
	delete(s.Nodes, "n-"+id)
}

// missing takes a machine out of the list, so long ago.
func (s *scene) missing(id string, since time.Duration) {
	for i := range s.set.Machines {
		if s.set.Machines[i].ID == id {
			s.set.Machines = append(append([]cloud.Machine{}, s.set.Machines[:i]...), s.set.Machines[i+1:]...)
			break
		}
	}
	if s.set.Missing == nil {
		s.set.Missing = map[string]time.Time{}
	}
	s.set.Missing[id] = now.Add(-since)
}

// smaller makes the set as small as it is, so that the cloud makes no other machine.
func (s *scene) smaller(is bool) {
	if is {
		s.set.Capacity = len(s.set.Machines)
		s.machine("other").Created = now.Add(-24 * time.Hour)
	}
}

// additionLate is an addition that took so long that the turn had failed by the time it ended.
func (s *scene) overdue(end *Ended) {
	s.under(v1alpha1.CloudOperationAdd, end)
	s.set.Operations[0].Since.Time = now.Add(-time.Hour)
	s.turn.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "it takes long", Time: metav1.Time{Time: now.Add(-time.Minute)}}
}

// notReady is a replacement that was ready, and is not for so long.
func (s *scene) unready(since time.Duration) {
	s.turn.UnreadySince = &metav1.Time{Time: now.Add(-since)}
}

// claimBlocked is a turn of a control plane that has failed, and whose replacement must be kept.
func (s *scene) kept() {
	s.ControlPlane, s.KeepFailed = true, time.Hour
	s.turn.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "x", Time: metav1.Time{Time: now}}
	s.claim(func(c *v1alpha1.Claim) { c.Failed = s.turn.Failed })
}

// bound is a turn of a control plane that has lost its replacement while its node was leaving.
func (s *scene) bound() {
	s.ControlPlane, s.turn.Bound = true, true
	if s.Nodes["n-old"].Claim == nil {
		s.claim(func(c *v1alpha1.Claim) { c.Cordoned = &metav1.Time{Time: now.Add(-time.Minute)} })
		s.Nodes["n-old"].Spec.Unschedulable, s.Drained["t"] = true, true
	}
}

// unjoined is a replacement that the cloud says is outdated, and that has no Node to tell by.
func (s *scene) unjoined(model string) {
	s.MatchOSImage, s.machine("new").UpToDate, s.set.Model = true, false, model
	delete(s.Nodes, "n-new")
}

// aside is a machine that people have set aside.
func (s *scene) aside() {
	s.machine("old").Protected, s.machine("old").Aside, s.machine("old").State = true, "it is in standby", cloud.Stopped
}

// mute is a replacement whose kubelet has not said yet what runs there.
func (s *scene) mute() {
	s.MatchOSImage, s.Nodes["n-new"].Status.NodeInfo.OSImage = true, ""
}

// never is a replacement that was to have joined long ago.
func (s *scene) never() {
	delete(s.Nodes, "n-new")
	s.turn.PhaseSince.Time = now.Add(-time.Hour)
}

// labels gives the node that goes a label.
func (s *scene) labels(key string) { s.Nodes["n-old"].Labels = map[string]string{key: ""} }

// double adds another Node that says that it is the machine.
func (s *scene) double(id string) {
	n := s.Nodes["n-"+id].DeepCopy()
	n.Name, n.UID, n.CreationTimestamp = "n-"+id+"-2", "uid-2", metav1.Time{Time: now}
	s.Nodes[n.Name] = &Node{Node: n, Selected: true}
}

// again registers the Node of the machine that goes again, under this name.
func (s *scene) again(name string) {
	n := s.Nodes["n-old"].DeepCopy()
	delete(s.Nodes, "n-old")
	n.Name, n.UID, n.Spec.Unschedulable = name, "uid-again", false
	s.Nodes[name] = &Node{Node: n, Selected: true}
}

// elsewhere is a replacement that is gone, and a Node of its name.
func (s *scene) elsewhere(providerID string, claim *v1alpha1.Claim) {
	s.missing("new", time.Hour)
	s.turn.Replacement, s.turn.ReplacementNode, s.turn.ReplacementProviderID = "", "n-new", "sky://new"
	s.Nodes["n-new"].Spec.ProviderID, s.Nodes["n-new"].Claim = providerID, claim
}

// under puts an operation under way that the turn waits for; end is how it has ended, if it has.
func (s *scene) under(kind v1alpha1.CloudOperationKind, end *Ended) {
	s.set.Operations = append(s.set.Operations, v1alpha1.CloudOperation{Token: "op", Kind: kind, Count: 1, Since: metav1.Time{Time: now.Add(-2 * time.Minute)}, Sent: true})
	s.turn.Operation, s.turn.Ordered = "op", kind == v1alpha1.CloudOperationDelete && s.turn.Phase == v1alpha1.MachineDeleting
	if end != nil {
		s.set.Ended = map[string]Ended{"op": *end}
	}
}

func (s *scene) machine(id string) *cloud.Machine { return s.set.Machine(id) }

func (s *scene) taint(key string) {
	s.Nodes["n-new"].Spec.Taints = append(s.Nodes["n-new"].Spec.Taints, corev1.Taint{Key: key})
}

// verdict is what is said of the turn.
type verdict struct {
	Phase   v1alpha1.MachinePhase
	Step    Step
	Reason  v1alpha1.Reason
	Message string
	Over    bool
}

func TestJudge(t *testing.T) {
	const (
		adding, joining, claiming, draining = v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming, v1alpha1.MachineDraining
		leaving, deleting, soaking, giving  = v1alpha1.MachineLeaving, v1alpha1.MachineDeleting, v1alpha1.MachineSoaking, v1alpha1.MachineDiscarding
		pending, failed                     = v1alpha1.ReasonReplacementPending, v1alpha1.ReasonReplacementFailed
	)
	for name, tc := range map[string]struct {
		phase  v1alpha1.MachinePhase
		change func(*scene)
		want   verdict
	}{
		"to be added":     {adding, func(*scene) {}, verdict{adding, StepAdd, pending, "a machine will be added", false}},
		"no quota":        {adding, func(s *scene) { s.set.NoRoom, s.set.NoRoomMessage = v1alpha1.ReasonCloudQuota, "no cores left" }, verdict{adding, StepAdd, v1alpha1.ReasonCloudQuota, "no cores left", false}},
		"throttled":       {adding, func(s *scene) { s.set.Reason, s.set.Message = v1alpha1.ReasonCloudThrottled, "slow down" }, verdict{adding, StepAdd, v1alpha1.ReasonCloudThrottled, "slow down", false}},
		"unfit meanwhile": {adding, func(s *scene) { s.set.Unfit = "it rolls by itself" }, verdict{adding, StepAdd, v1alpha1.ReasonScaleSetUnfit, "it rolls by itself", false}},
		"deletes first, and unfit": {deleting, func(s *scene) {
			s.turn.DeletesFirst, s.turn.Replacement, s.set.Unfit = true, "", "it rolls by itself"
		}, verdict{deleting, StepNone, "", "it rolls by itself", false}},
		"taken back, and unfit": {giving, func(s *scene) {
			s.claim(func(c *v1alpha1.Claim) { c.Turn = "another" })
			s.set.Unfit, s.Nodes["n-new"].Claim, s.Nodes["n-new"].Spec.Unschedulable = "it rolls by itself", &v1alpha1.Claim{Turn: "t", Cordoned: &metav1.Time{Time: now}}, true
			s.Drained["t/replacement"] = true
		}, verdict{giving, StepDelete, "", "it rolls by itself", false}},
		"being added": {adding, func(s *scene) { s.under("Add", nil) }, verdict{adding, StepNone, pending, "is being added", false}},
		"added for long": {adding, func(s *scene) {
			s.under("Add", nil)
			s.set.Operations[0].Since.Time = now.Add(-10 * time.Minute)
		}, verdict{adding, StepNone, failed, "within replacementReady.timeout, 10m0s: the cloud is still adding it", false}},
		"not sent for long": {adding, func(s *scene) {
			s.under("Add", nil)
			s.set.Operations[0].Since.Time, s.set.Operations[0].Sent, s.set.Message = now.Add(-time.Hour), false, "slow down"
		}, verdict{adding, StepNone, pending, "slow down", false}},
		"added late, and ready": {adding, func(s *scene) {
			s.overdue(&Ended{OK: true, Added: []string{"new"}})
		}, verdict{claiming, StepNone, "", "", false}},
		"added late, not ready": {adding, func(s *scene) {
			s.overdue(&Ended{OK: true, Added: []string{"new"}})
			delete(s.Nodes, "n-new")
		}, verdict{giving, StepFail, failed, "has not joined yet", false}},
		"failed late":       {adding, func(s *scene) { s.overdue(&Ended{Message: "it broke"}) }, verdict{giving, StepFail, failed, "it broke", false}},
		"late, and no room": {adding, func(s *scene) { s.overdue(&Ended{NoRoom: true, Message: "no cores"}) }, verdict{adding, StepAdd, pending, "no cores", false}},
		"declined":          {adding, func(s *scene) { s.declined(time.Minute) }, verdict{adding, StepAdd, pending, "a machine will be added", false}},
		"declined for long": {adding, func(s *scene) { s.declined(time.Hour) }, verdict{giving, StepFail, failed,
			"has no machine in place of n-old within replacementReady.timeout, 10m0s: no such image", false}},
		"declined since before the turn": {adding, func(s *scene) { s.declined(9 * time.Minute) }, verdict{adding, StepAdd, pending, "a machine will be added", false}},
		"declined, and not sent for sure": {adding, func(s *scene) {
			s.declined(time.Hour)
			s.under("Add", nil)
			s.set.Operations[0].Sent = false
		}, verdict{adding, StepNone, failed, "no such image", false}},
		"declined, and its machine is gone": {adding, func(s *scene) {
			s.declined(time.Hour)
			s.turn.Machine, s.turn.DeletesFirst = "", true
		}, verdict{adding, StepAdd, failed, "no such image", false}},
		"unknown set":      {adding, func(s *scene) { s.set.Known = false }, verdict{adding, StepAdd, pending, "a machine will be added", false}},
		"added, and ready": {adding, func(s *scene) { s.under("Add", &Ended{OK: true, Added: []string{"new"}}) }, verdict{claiming, StepNone, "", "", false}},
		"added, but none":  {adding, func(s *scene) { s.under("Add", &Ended{OK: true}) }, verdict{giving, StepFail, failed, "did not get a replacement", false}},
		"add failed":       {adding, func(s *scene) { s.under("Add", &Ended{Message: "it broke"}) }, verdict{giving, StepFail, failed, "it broke", false}},
		"add has no room":  {adding, func(s *scene) { s.under("Add", &Ended{NoRoom: true, Message: "no cores"}) }, verdict{adding, StepAdd, pending, "no cores", false}},
		"add has no room, and failed": {adding, func(s *scene) {
			s.machine("new").State = cloud.Failed
			s.under("Add", &Ended{NoRoom: true, Added: []string{"new"}, Message: "no cores"})
		}, verdict{adding, StepAdd, pending, "no cores", false}},
		"add has no room, delete first": {adding, func(s *scene) {
			s.OnFull, s.set.NoRoom = v1alpha1.OnFullDeleteFirst, v1alpha1.ReasonCloudQuota
			s.under("Add", &Ended{NoRoom: true})
		}, verdict{claiming, StepNone, "", "", false}},
		"image back":       {adding, func(s *scene) { s.machine("old").UpToDate = true }, verdict{giving, StepNone, "", "", true}},
		"opted out":        {adding, func(s *scene) { s.Nodes["n-old"].OptedOut = true }, verdict{giving, StepNone, "", "", true}},
		"not selected":     {adding, func(s *scene) { s.Nodes["n-old"].Selected = false }, verdict{giving, StepNone, "", "", true}},
		"other sets":       {adding, func(s *scene) { s.ScaleSets = []string{"others"} }, verdict{giving, StepNone, "", "", true}},
		"detects":          {adding, func(s *scene) { s.DetectOnly = true }, verdict{giving, StepNone, "", "", true}},
		"ends":             {adding, func(s *scene) { s.Ending = true }, verdict{giving, StepNone, "", "", true}},
		"ends while added": {adding, func(s *scene) { s.Ending = true; s.under("Add", nil) }, verdict{adding, StepNone, pending, "is being added", false}},
		"gone before":      {adding, func(s *scene) { s.missing("old", time.Hour) }, verdict{giving, StepDeleteNode, "", "", false}},
		"not listed":       {adding, func(s *scene) { s.missing("old", time.Second) }, verdict{adding, StepNone, pending, "", false}},

		"not joined":         {joining, func(s *scene) { delete(s.Nodes, "n-new") }, verdict{joining, StepNone, pending, "has not joined yet", false}},
		"never joined":       {joining, func(s *scene) { delete(s.Nodes, "n-new"); s.turn.PhaseSince.Time = now.Add(-time.Hour) }, verdict{giving, StepFail, failed, "was not ready within replacementReady.timeout, 10m0s: the node of machine new has not joined yet", false}},
		"starts":             {joining, func(s *scene) { s.taint("node.kubernetes.io/not-ready") }, verdict{joining, StepNone, pending, "has taint node.kubernetes.io/not-ready", false}},
		"cordoned by others": {joining, func(s *scene) { s.Nodes["n-new"].Spec.Unschedulable = true }, verdict{joining, StepNone, pending, "Node n-new is cordoned", false}},
		"readiness":          {joining, func(s *scene) { s.taint("readiness.k8s.io/storage") }, verdict{joining, StepNone, pending, "has taint readiness.k8s.io/storage", false}},
		"startup taint":      {joining, func(s *scene) { s.StartupTaints = []string{"x"}; s.taint("x") }, verdict{joining, StepNone, pending, "has taint x", false}},
		"other taint":        {joining, func(s *scene) { s.taint("x") }, verdict{claiming, StepNone, "", "", false}},
		"unhealthy":          {joining, func(s *scene) { s.Unhealthy = func(string) (string, time.Time) { return "not ready", time.Time{} } }, verdict{joining, StepNone, pending, "n-new is not healthy: not ready", false}},
		"no member yet":      {joining, func(s *scene) { s.turn.WhyNotJoined = "a learner" }, verdict{joining, StepNone, pending, "a learner", false}},
		"never a member": {joining, func(s *scene) {
			s.turn.WhyNotJoined, s.turn.PhaseSince.Time = "a learner", now.Add(-time.Hour)
		}, verdict{giving, StepFail, failed, "was not ready within replacementReady.timeout, 10m0s: a learner", false}},
		"others are sick": {joining, func(s *scene) {
			s.turn.WhyOldMustStay, s.turn.PhaseSince.Time = "member x is sick", now.Add(-time.Hour)
		}, verdict{claiming, StepNone, v1alpha1.ReasonEtcdUnhealthy, "member x is sick", false}},
		"machine failed":            {joining, func(s *scene) { s.machine("new").State, s.machine("new").Message = cloud.Failed, "no disk" }, verdict{giving, StepFail, failed, "has failed: no disk", false}},
		"image again":               {joining, func(s *scene) { s.machine("new").UpToDate = false; s.set.Model = "3" }, verdict{giving, StepClaim, "", "the model of the scale set has changed", false}},
		"image again, not joined":   {joining, func(s *scene) { s.unjoined("3") }, verdict{giving, StepDelete, "", "will be deleted", false}},
		"image as then, not joined": {joining, func(s *scene) { s.unjoined("2") }, verdict{joining, StepNone, pending, "has not joined yet", false}},
		"outdated anew":             {joining, func(s *scene) { s.machine("new").UpToDate = false }, verdict{giving, StepFail, failed, "is new, but the cloud reports it as outdated", false}},
		"wrong OS image":            {joining, func(s *scene) { s.MatchOSImage = true; s.Nodes["n-new"].Status.NodeInfo.OSImage = "Linux" }, verdict{giving, StepFail, failed, `its OS image is "Linux": it would be replaced for ever`, false}},
		"no OS image yet":           {joining, func(s *scene) { s.mute() }, verdict{joining, StepNone, pending, "Node n-new does not say yet what its OS image is", false}},
		"never an OS image":         {joining, func(s *scene) { s.mute(); s.turn.PhaseSince.Time = now.Add(-time.Hour) }, verdict{giving, StepFail, failed, "10m0s: Node n-new does not say yet", false}},
		"no OS image, bound":        {joining, func(s *scene) { s.mute(); s.bound() }, verdict{leaving, StepLeave, "", "", false}},
		"right OS image":            {joining, func(s *scene) { s.MatchOSImage = true }, verdict{claiming, StepNone, "", "", false}},
		"died, and lost":            {joining, func(s *scene) { s.missing("new", time.Hour); s.smaller(true) }, verdict{giving, StepFail, failed, "machine new, is gone", false}},
		"died, and made":            {joining, func(s *scene) { s.missing("new", time.Hour); s.set.Capacity = 2 }, verdict{giving, StepFail, failed, "machine new, is gone", false}},
		"old died, lost":            {joining, func(s *scene) { s.missing("old", time.Hour); s.smaller(true) }, verdict{deleting, StepDeleteNode, "", "its Node will be deleted", false}},
		"old died, made":            {joining, func(s *scene) { s.missing("old", time.Hour) }, verdict{giving, StepDeleteNode, "", "the cloud makes another", false}},
		"old died, a CP": {joining, func(s *scene) {
			s.ControlPlane = true
			s.missing("old", time.Hour)
			s.smaller(true)
		}, verdict{leaving, StepLeave, "", "", false}},
		"image back then": {joining, func(s *scene) { s.machine("old").UpToDate = true }, verdict{giving, StepClaim, "", "the machine is up to date", false}},

		"ready":        {claiming, func(*scene) {}, verdict{claiming, StepNone, "", "", false}},
		"not any more": {claiming, func(s *scene) { s.taint("node.kubernetes.io/unreachable") }, verdict{claiming, StepNone, pending, "is not ready any more", false}},
		"not for a while": {claiming, func(s *scene) {
			s.taint("x/y")
			s.taint("node.kubernetes.io/unreachable")
			s.unready(10*time.Minute - time.Second)
		}, verdict{claiming, StepNone, pending, "is not ready any more", false}},
		"not for long":              {claiming, func(s *scene) { s.taint("node.kubernetes.io/unreachable"); s.unready(10 * time.Minute) }, verdict{giving, StepFail, failed, "for longer than replacementReady.timeout, 10m0s, the replacement is not ready any more: Node n-new has taint", false}},
		"its Node is gone for long": {claiming, func(s *scene) { delete(s.Nodes, "n-new"); s.unready(time.Hour) }, verdict{giving, StepFail, failed, "has not joined yet", false}},
		"ready again":               {claiming, func(s *scene) { s.unready(time.Hour) }, verdict{claiming, StepNone, "", "", false}},
		"protected":                 {claiming, func(s *scene) { s.machine("old").Protected = true }, verdict{claiming, StepNone, v1alpha1.ReasonMachineProtected, "remove its protection", false}},
		"set aside":                 {claiming, func(s *scene) { s.aside() }, verdict{claiming, StepNone, v1alpha1.ReasonMachineProtected, "machine old is not to be deleted, it is in standby", false}},
		"etcd":                      {claiming, func(s *scene) { s.turn.WhyOldMustStay = "member x is sick" }, verdict{claiming, StepNone, v1alpha1.ReasonEtcdUnhealthy, "member x is sick", false}},
		"no member any more":        {claiming, func(s *scene) { s.turn.WhyNotJoined = "member n-new is sick" }, verdict{claiming, StepNone, v1alpha1.ReasonEtcdUnhealthy, "member n-new is sick", false}},
		"claimed":                   {claiming, func(s *scene) { s.claim(func(*v1alpha1.Claim) {}) }, verdict{draining, StepCordon, "", "", false}},
		"Node gone":                 {claiming, func(s *scene) { delete(s.Nodes, "n-old") }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"another's Node": {claiming, func(s *scene) {
			s.turn.NodeUID, s.Nodes["n-old"].Spec.ProviderID = "uid-before", "sky://elsewhere"
		}, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"Node again": {claiming, func(s *scene) { s.again("n-old") }, verdict{claiming, StepNone, "", "", false}},
		"two Nodes":  {claiming, func(s *scene) { s.double("old") }, verdict{claiming, StepNone, v1alpha1.ReasonMachineUnknown, "several Nodes have the provider id of machine old: n-old, n-old-2", false}},
		"claim was lost": {claiming, func(s *scene) {
			s.Drained["t"] = true
			s.claim(func(c *v1alpha1.Claim) { c.Cordoned = &metav1.Time{Time: now} })
		}, verdict{draining, StepCordon, "", "", false}},

		"cordoned":         {draining, func(*scene) {}, verdict{draining, StepDrain, "", "", false}},
		"uncordoned":       {draining, func(s *scene) { s.Nodes["n-old"].Spec.Unschedulable = false }, verdict{draining, StepCordon, "", "", false}},
		"load balancers":   {draining, func(s *scene) { s.Wait = time.Hour }, verdict{draining, StepWait, "", "load balancers have time to take the node out until", false}},
		"drained":          {draining, func(s *scene) { s.Drained["t"] = true }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"drained, a CP":    {draining, func(s *scene) { s.Drained["t"] = true; s.ControlPlane = true }, verdict{leaving, StepLeave, "", "", false}},
		"drained, unready": {draining, func(s *scene) { s.Drained["t"] = true; s.taint("node.kubernetes.io/not-ready") }, verdict{draining, StepNone, "", "its replacement is not ready any more", false}},
		"drained, unready for long": {draining, func(s *scene) {
			s.Drained["t"] = true
			s.taint("node.kubernetes.io/not-ready")
			s.unready(10 * time.Minute)
		}, verdict{giving, StepFail, failed, "the node is drained; its replacement is not ready any more", false}},
		"drained, ready again": {draining, func(s *scene) { s.Drained["t"] = true; s.unready(time.Hour) }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"not drained":          {draining, func(s *scene) { s.Drains = false }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"claim lost":           {draining, func(s *scene) { s.Nodes["n-old"].Claim = nil }, verdict{claiming, StepNone, "", "", false}},
		"drain failed": {draining, func(s *scene) {
			s.claim(func(c *v1alpha1.Claim) {
				c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonDrainRefused, Message: "a bare pod"}
			})
		}, verdict{giving, StepClaim, v1alpha1.ReasonDrainRefused, "a bare pod", false}},
		"too long":        {draining, func(s *scene) { s.Strategy = &v1alpha1.Strategy{TurnTimeout: &metav1.Duration{Duration: time.Minute}} }, verdict{giving, StepFail, v1alpha1.ReasonTurnTimeout, "took longer than turnTimeout, 1m0s", false}},
		"released":        {draining, func(s *scene) { s.Ending = true }, verdict{giving, StepRelease, "", "the rollout is being deleted", false}},
		"Node gone then":  {draining, func(s *scene) { delete(s.Nodes, "n-old") }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"nothing to take": {draining, func(s *scene) { s.missing("new", time.Hour); s.smaller(true) }, verdict{giving, StepFail, failed, "is gone", false}},

		"uncordoned then": {draining, func(s *scene) {
			s.Drained["t"], s.Nodes["n-old"].Spec.Unschedulable = true, false
		}, verdict{draining, StepCordon, "", "", false}},
		"Node again then": {draining, func(s *scene) { s.Drained["t"] = true; s.again("n-old") }, verdict{claiming, StepNone, "", "", false}},
		"other name":      {draining, func(s *scene) { s.again("n-another") }, verdict{claiming, StepNone, "", "", false}},
		"not known": {draining, func(s *scene) {
			s.set.Known, s.set.Machines = false, nil
			delete(s.Nodes, "n-old")
		}, verdict{draining, StepNone, "", "", false}},
		"made again": {draining, func(s *scene) { s.missing("new", time.Hour); s.Drained["t"], s.set.Capacity = true, 2 }, verdict{giving, StepFail, failed, "machine new, is gone", false}},

		"left":             {leaving, func(s *scene) { s.Left[s.LeftKey(s.turn, false)] = true }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"leaves for long":  {leaving, func(s *scene) { s.Strategy = &v1alpha1.Strategy{TurnTimeout: &metav1.Duration{Duration: time.Minute}} }, verdict{leaving, StepLeave, "", "", false}},
		"leaves when over": {leaving, func(s *scene) { s.Ending = true }, verdict{leaving, StepLeave, "", "", false}},

		"leaves undrained": {leaving, func(s *scene) { s.Drained["t"] = false }, verdict{leaving, StepDrain, "", "", false}},
		"leaves uncordoned": {leaving, func(s *scene) {
			s.Nodes["n-old"].Spec.Unschedulable, s.Left[s.LeftKey(s.turn, false)] = false, true
		}, verdict{leaving, StepCordon, "", "", false}},
		"leaves unclaimed":            {leaving, func(s *scene) { s.Nodes["n-old"].Claim, s.Left[s.LeftKey(s.turn, false)] = nil, true }, verdict{leaving, StepClaim, "", "must be claimed before its machine is deleted", false}},
		"leaves again":                {leaving, func(s *scene) { s.Left[s.LeftKey(s.turn, false)] = true; s.again("n-old") }, verdict{leaving, StepClaim, "", "", false}},
		"leaves unknown":              {leaving, func(s *scene) { s.set.Known, s.Left[s.LeftKey(s.turn, false)] = false, true }, verdict{leaving, StepNone, "", "", false}},
		"leaves lost its replacement": {leaving, func(s *scene) { s.ControlPlane = true; s.without("new"); s.smaller(true) }, verdict{adding, StepAdd, "", "a machine will be added", false}},
		"left, and lost its replacement": {leaving, func(s *scene) {
			s.ControlPlane, s.Left[s.LeftKey(s.turn, false)], s.set.Capacity = true, true, 2
			s.without("new")
		}, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"leaves, made again": {leaving, func(s *scene) { s.ControlPlane, s.set.Capacity = true, 2; s.without("new"); s.turn.Since.Time = now }, verdict{leaving, StepLeave, "", "", false}},
		"leaves, and waits": {leaving, func(s *scene) {
			s.ControlPlane = true
			s.without("new")
			s.turn.Since.Time, s.machine("other").UpToDate = now, false
		}, verdict{joining, StepNone, "", "has no new machine that can be the replacement", false}},
		"leaves, made of another image": {leaving, func(s *scene) {
			s.ControlPlane = true
			s.without("new")
			s.turn.Since.Time, s.machine("other").UpToDate, s.machine("other").Created = now, false, now
		}, verdict{leaving, StepLeave, "", "", false}},

		"bound when over":   {adding, func(s *scene) { s.bound(); s.Ending = true }, verdict{adding, StepAdd, "", "a machine will be added", false}},
		"bound, image back": {adding, func(s *scene) { s.bound(); s.machine("old").UpToDate = true }, verdict{adding, StepAdd, "", "", false}},
		"bound, no room": {adding, func(s *scene) {
			s.bound()
			s.OnFull = v1alpha1.OnFullDeleteFirst
			s.under("Add", &Ended{NoRoom: true, Message: "no cores"})
		}, verdict{adding, StepAdd, "", "no cores", false}},
		"bound, and none added":  {adding, func(s *scene) { s.bound(); s.under("Add", &Ended{Message: "it broke"}) }, verdict{adding, StepAdd, "", "it broke", false}},
		"bound, and gone":        {adding, func(s *scene) { s.bound(); s.missing("old", time.Hour) }, verdict{giving, StepLeave, "", "", false}},
		"bound, and outdated":    {joining, func(s *scene) { s.bound(); s.machine("new").UpToDate = false; s.set.Model = "3" }, verdict{leaving, StepLeave, "", "", false}},
		"bound, and dead":        {joining, func(s *scene) { s.bound(); s.without("new"); s.smaller(true) }, verdict{adding, StepAdd, "", "", false}},
		"bound, and never joins": {joining, func(s *scene) { s.bound(); s.never() }, verdict{joining, StepNone, failed, "was not ready within", false}},
		"bound, and tried again": {joining, func(s *scene) {
			s.bound()
			s.never()
			s.Ending, s.Strategy = true, &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3}}
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now.Add(-time.Hour)}}
		}, verdict{giving, StepLeave, "", "it is tried again", false}},
		"bound, and nothing to discard": {giving, func(s *scene) { s.bound(); s.without("new"); s.turn.Replacement = "" }, verdict{adding, StepAdd, "", "", false}},
		"bound, and unclaimed":          {claiming, func(s *scene) { s.bound(); s.Nodes["n-old"].Claim, s.Nodes["n-old"].Marked = nil, true }, verdict{claiming, StepClaim, "", "can't be released any more", false}},
		"bound, for long": {draining, func(s *scene) {
			s.bound()
			s.Strategy = &v1alpha1.Strategy{TurnTimeout: &metav1.Duration{Duration: time.Minute}}
		}, verdict{draining, StepDrain, "", "", false}},
		"bound, unready for long": {draining, func(s *scene) {
			s.bound()
			s.taint("node.kubernetes.io/not-ready")
			s.Drained["t"] = true
			s.unready(10 * time.Minute)
		}, verdict{joining, StepNone, "", "has taint", false}},

		"deletes":             {deleting, func(*scene) {}, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"deletes when over":   {deleting, func(s *scene) { s.Ending = true }, verdict{giving, StepRelease, "", "the rollout is being deleted", false}},
		"deletes, image back": {deleting, func(s *scene) { s.machine("old").UpToDate = true }, verdict{giving, StepRelease, "", "the machine is up to date", false}},
		"ordered when over":   {deleting, func(s *scene) { s.Ending = true; s.under("Delete", nil) }, verdict{deleting, StepNone, "", "is being deleted", false}},
		"a CP when over":      {deleting, func(s *scene) { s.Ending, s.ControlPlane = true, true }, verdict{deleting, StepDelete, "", "will be deleted", false}},
		"a CP not deleted":    {deleting, func(s *scene) { s.ControlPlane = true; s.under("Delete", &Ended{Message: "no right"}) }, verdict{deleting, StepDelete, "", "", false}},
		"a CP lost its replacement": {deleting, func(s *scene) {
			s.ControlPlane = true
			s.missing("new", time.Hour)
			s.smaller(true)
		}, verdict{adding, StepAdd, "", "", false}},
		"a CP uncordoned":    {deleting, func(s *scene) { s.ControlPlane, s.Nodes["n-old"].Spec.Unschedulable = true, false }, verdict{deleting, StepCordon, "", "", false}},
		"deletes uncordoned": {deleting, func(s *scene) { s.Nodes["n-old"].Spec.Unschedulable = false }, verdict{deleting, StepCordon, "", "", false}},
		"deletes undrained":  {deleting, func(s *scene) { s.Drained["t"] = false }, verdict{deleting, StepDrain, "", "", false}},
		"deletes unclaimed":  {deleting, func(s *scene) { s.Nodes["n-old"].Claim = nil }, verdict{claiming, StepNone, "", "", false}},
		"deletes again":      {deleting, func(s *scene) { s.again("n-old") }, verdict{claiming, StepNone, "", "", false}},
		"deletes duplicate":  {deleting, func(s *scene) { s.double("old") }, verdict{deleting, StepNone, "", "several Nodes have the provider id of machine old", false}},
		"deletes set aside":  {deleting, func(s *scene) { s.aside() }, verdict{deleting, StepNone, "", "machine old is not to be deleted, it is in standby", false}},
		"deletes protected": {deleting, func(s *scene) {
			s.machine("old").Protected = true
			s.Nodes["n-old"].Spec.Unschedulable = false
		}, verdict{deleting, StepCordon, "", "", false}},
		"seen once": {deleting, func(s *scene) {
			s.missing("old", time.Hour)
			s.set.LookedAt = now.Add(-time.Hour)
		}, verdict{deleting, StepNone, "", "is not listed by the cloud", false}},
		"cordoned, and its claim is gone": {claiming, func(s *scene) { s.Nodes["n-old"].Marked = true }, verdict{claiming, StepRelease, pending, "was taken away", false}},
		"being deleted":                   {deleting, func(s *scene) { s.under("Delete", nil) }, verdict{deleting, StepNone, "", "is being deleted", false}},
		"going already":                   {deleting, func(s *scene) { s.machine("old").State = cloud.Deleting }, verdict{deleting, StepNone, "", "is being deleted", false}},
		"deleted":                         {deleting, func(s *scene) { s.under("Delete", &Ended{OK: true}); s.missing("old", 0) }, verdict{deleting, StepDeleteNode, "", "its Node will be deleted", false}},
		"deleted, and listed":             {deleting, func(s *scene) { s.under("Delete", &Ended{OK: true}) }, verdict{deleting, StepNone, "", "is being deleted", false}},
		"deleted with Node":               {deleting, func(s *scene) { s.under("Delete", &Ended{OK: true}); s.without("old") }, verdict{soaking, StepNone, "", "", true}},
		"not deleted":                     {deleting, func(s *scene) { s.under("Delete", &Ended{Message: "no right"}) }, verdict{giving, StepFail, v1alpha1.ReasonDeleteFailed, "was not deleted: no right", false}},
		"failed, and not listed":          {deleting, func(s *scene) { s.under("Delete", &Ended{Message: "not found"}); s.missing("old", 0) }, verdict{deleting, StepNone, "", "machine old is not listed by the cloud", false}},
		"failed, and gone": {deleting, func(s *scene) {
			s.under("Delete", &Ended{Message: "not found"})
			s.missing("old", time.Minute)
			s.smaller(true)
		}, verdict{deleting, StepDeleteNode, "", "its Node will be deleted", false}},
		"failed, first, and gone": {deleting, func(s *scene) {
			s.turn.DeletesFirst, s.turn.Replacement = true, ""
			s.under("Delete", &Ended{Message: "another was not deleted"})
			s.without("old")
			s.smaller(true)
			s.machine("new").Created = now.Add(-24 * time.Hour)
		}, verdict{adding, StepAdd, "", "a machine will be added", false}},
		"failed, and another was made": {deleting, func(s *scene) {
			s.under("Delete", &Ended{Message: "not found"})
			s.missing("old", time.Minute)
		}, verdict{giving, StepDeleteNode, "", "the cloud makes another in its place", false}},
		"first, deleted": {deleting, func(s *scene) {
			s.turn.DeletesFirst, s.turn.Replacement = true, ""
			s.under("Delete", &Ended{OK: true})
			s.without("old")
		}, verdict{adding, StepAdd, "", "a machine will be added", false}},

		"well":  {soaking, func(*scene) {}, verdict{soaking, StepNone, "", "", true}},
		"soaks": {soaking, func(s *scene) { s.SoakEnd = func(string, time.Time) time.Time { return now.Add(time.Minute) } }, verdict{soaking, StepNone, "", "", false}},
		"soaks ill for long": {soaking, func(s *scene) {
			s.unready(10 * time.Minute)
			s.Unhealthy = func(string) (string, time.Time) { return "disk is full", time.Time{} }
		}, verdict{soaking, StepNone, failed, "is not healthy for longer than replacementReady.timeout, 10m0s: disk is full", false}},
		"soaks, just not Ready": {soaking, func(s *scene) {
			s.turn.PhaseSince = metav1.Time{Time: now.Add(-time.Hour)}
			s.Unhealthy = func(string) (string, time.Time) { return "not ready", time.Time{} }
		}, verdict{soaking, StepNone, "", "not ready", false}},
		"soaks, well again": {soaking, func(s *scene) {
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now}}
		}, verdict{soaking, StepNone, "", "", true}},
		"soaks without a Node": {soaking, func(s *scene) {
			s.unready(10 * time.Minute)
			delete(s.Nodes, "n-new")
		}, verdict{soaking, StepNone, failed, "the Node of machine new does not exist", false}},
		"soaks ill": {soaking, func(s *scene) { s.Unhealthy = func(string) (string, time.Time) { return "disk is full", time.Time{} } }, verdict{soaking, StepNone, "", "disk is full", false}},
		"pods restart": {soaking, func(s *scene) {
			s.Unstable = func(*Turn, string) (string, time.Time) { return "pod x restarts", time.Time{} }
		}, verdict{soaking, StepNone, "", "pod x restarts", false}},
		"soak ends": {soaking, func(s *scene) {
			s.Ending = true
			s.SoakEnd = func(string, time.Time) time.Time { return now.Add(time.Hour) }
		}, verdict{soaking, StepNone, "", "", true}},
		"a CP goes": {soaking, func(s *scene) {
			s.ControlPlane, s.Ending, s.machine("new").State = true, true, cloud.Deleting
		}, verdict{soaking, StepNone, "", ", the replacement, is being deleted", false}},
		"a CP not listed": {soaking, func(s *scene) {
			s.ControlPlane, s.Ending = true, true
			s.missing("new", time.Second)
		}, verdict{soaking, StepNone, "", ", the replacement, is being deleted", false}},
		"soaks no more": {soaking, func(s *scene) { s.without("new") }, verdict{soaking, StepNone, "", "", true}},

		"discards":                {giving, func(*scene) {}, verdict{giving, StepClaim, "", "", false}},
		"discards unjoined":       {giving, func(s *scene) { delete(s.Nodes, "n-new") }, verdict{giving, StepDelete, "", "will be deleted", false}},
		"discards unjoined, a CP": {giving, func(s *scene) { s.ControlPlane = true; delete(s.Nodes, "n-new") }, verdict{giving, StepLeave, "", "", false}},
		"discards unjoined, left": {giving, func(s *scene) {
			s.ControlPlane = true
			delete(s.Nodes, "n-new")
			s.Left[s.LeftKey(s.turn, true)] = true
		}, verdict{giving, StepDelete, "", "will be deleted", false}},
		"ordered unjoined, a CP": {giving, func(s *scene) {
			s.ControlPlane = true
			delete(s.Nodes, "n-new")
			s.under("Delete", nil)
			s.set.Operations[0].Sent = false
		}, verdict{giving, StepLeave, "", "once its node is emptied again", false}},
		"old gone unseen, a CP": {giving, func(s *scene) { s.ControlPlane = true; s.without("old") }, verdict{giving, StepLeave, "", "", false}},
		"releases first":        {giving, func(s *scene) { s.claim(func(*v1alpha1.Claim) {}) }, verdict{giving, StepRelease, "", "", false}},
		"kept for a look": {giving, func(s *scene) {
			s.KeepFailed = time.Hour
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now}}
			s.claim(func(c *v1alpha1.Claim) { c.Failed = s.turn.Failed })
		}, verdict{giving, StepNone, failed, "x", false}},
		"kept for a look, a CP": {giving, func(s *scene) { s.kept() }, verdict{giving, StepClaim, failed, "x", false}},
		"kept unjoined, a CP": {giving, func(s *scene) {
			s.kept()
			delete(s.Nodes, "n-new")
		}, verdict{giving, StepLeave, failed, "x", false}},
		"kept, a CP that left": {giving, func(s *scene) {
			s.kept()
			delete(s.Nodes, "n-new")
			s.Left[s.LeftKey(s.turn, true)] = true
		}, verdict{giving, StepNone, failed, "x", false}},
		"can't say why": {giving, func(s *scene) {
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now}}
			s.Nodes["n-old"].Foreign = true
		}, verdict{giving, StepClaim, failed, "x", false}},
		"need not say why": {giving, func(s *scene) {
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now}}
			s.Ending = true
			s.claim(func(*v1alpha1.Claim) {})
		}, verdict{giving, StepRelease, failed, "x", false}},
		"said, and skipped": {giving, func(s *scene) {
			s.turn.Failed = &v1alpha1.ClaimFailure{Reason: failed, Message: "x", Time: metav1.Time{Time: now}}
			s.Nodes["n-old"].Foreign = true
			s.claim(func(c *v1alpha1.Claim) { c.Failed = &v1alpha1.ClaimFailure{Reason: failed, Skipped: true} })
		}, verdict{giving, StepClaim, failed, "x", false}},
		"uncordoned back": {giving, func(s *scene) {
			s.Drained["t/replacement"] = true
			s.Nodes["n-new"].Claim = &v1alpha1.Claim{Turn: "t", Cordoned: &metav1.Time{Time: now}}
		}, verdict{giving, StepCordon, "", "", false}},
		"duplicate back": {giving, func(s *scene) {
			s.double("new")
			s.Nodes["n-new-2"].Claim, s.Nodes["n-new-2"].Spec.Unschedulable = &v1alpha1.Claim{Turn: "t", Cordoned: &metav1.Time{Time: now}}, true
			s.Drained["t/replacement"] = true
		}, verdict{giving, StepNone, "", "several Nodes have the provider id of machine new", false}},
		"is drained back": {giving, func(s *scene) {
			s.Nodes["n-new"].Claim = &v1alpha1.Claim{Turn: "t", Cordoned: &metav1.Time{Time: now}}
			s.Nodes["n-new"].Spec.Unschedulable = true
		}, verdict{giving, StepDrain, "", "", false}},
		"its Node will be deleted": {giving, func(s *scene) {
			s.turn.ReplacementNode, s.turn.ReplacementProviderID = "n-new", "sky://new"
			s.under("Delete", &Ended{OK: true})
			s.missing("new", 0)
		}, verdict{giving, StepDeleteNode, "", "", false}},
		"nothing left": {giving, func(s *scene) {
			s.turn.ReplacementNode = "n-new"
			s.under("Delete", &Ended{OK: true})
			s.without("new")
		}, verdict{giving, StepNone, "", "", true}},
		"other new Node": {giving, func(s *scene) { s.turn.Replacement, s.turn.ReplacementNode = "", "n-other" }, verdict{giving, StepNone, "", "", true}},
		"joins late": {giving, func(s *scene) {
			s.missing("new", time.Hour)
			s.turn.Replacement, s.turn.ReplacementProviderID = "", "sky://new"
		}, verdict{giving, StepDeleteNode, "", "", false}},
		"same name":      {giving, func(s *scene) { s.elsewhere("sky://of-others", nil) }, verdict{giving, StepNone, "", "", true}},
		"its providerID": {giving, func(s *scene) { s.elsewhere("SKY://new", nil) }, verdict{giving, StepDeleteNode, "", "", false}},
		"its claim": {giving, func(s *scene) {
			s.elsewhere("", &v1alpha1.Claim{Turn: "t"})
		}, verdict{giving, StepDeleteNode, "", "", false}},
		"phase of later": {"Later", func(s *scene) { s.turn.Replacement = "" }, verdict{giving, StepNone, "", "", true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(tc.phase)
			tc.change(s)
			s.Judge([]*Turn{s.turn})
			got := verdict{s.turn.Phase, s.turn.Step, s.turn.Unit.Reason, s.turn.Message, s.turn.Over}
			if got.Reason != "" && s.turn.Failed != nil {
				got.Message = s.turn.Unit.Message
			}
			if strings.Contains(got.Message, tc.want.Message) && tc.want.Message != "" || tc.want.Message == "" {
				got.Message = tc.want.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n%+v", diff, s.turn.MachineTurn)
			}
			if s.turn.UnreadySince != nil && s.turn.Replacement != "" && s.turn.Phase != soaking && !strings.Contains(s.turn.Message, "not ready any more") {
				t.Error("it is ready, or has failed, and is said not to be ready since then")
			}
		})
	}
}

// The Node of a replacement that joins while it is deleted already is noted: it is to go with its machine.
// A turn that can't do without a replacement, and which the cloud declines, has failed for good as long as that is so: it asks on, and is not waited for as
// one that must be tried again. One that goes without surge as well does not go meanwhile.
func TestDeclinedWithoutSurge(t *testing.T) {
	s := newScene(v1alpha1.MachineAdding)
	s.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3}}
	s.declined(time.Hour)
	s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.turn.DeletesFirst = "", "", "", true
	next := &Turn{MachineTurn: v1alpha1.MachineTurn{
		Turn: "u", Node: "n-old", NodeUID: "uid-old", ScaleSet: "pool", Machine: "old", Attempt: "2", Phase: v1alpha1.MachineClaiming, DeletesFirst: true,
		Since: metav1.Time{Time: now}, PhaseSince: metav1.Time{Time: now},
	}}
	s.Surge = rollout.Amount{}
	for range 2 {
		s.Judge([]*Turn{s.turn, next})
		if u := s.turn.Unit; u.State != v1alpha1.UnitFailed || !u.RetryAt.IsZero() || s.turn.Step != StepAdd {
			t.Errorf("%+v, %+v", s.turn.Unit, s.turn)
		}
		if next.Claimable || !strings.Contains(next.Message, "no machine is added") {
			t.Errorf("the next is claimable, %q", next.Message)
		}
	}
	// An addition that is under way then is no sign of room, and one that has failed leaves the turn failed since when it was.
	since := s.turn.Failed.Time
	s.under("Add", nil)
	s.turn.Operation = s.set.Operations[0].Token
	if s.Judge([]*Turn{s.turn, next}); !s.turn.Unit.RetryAt.IsZero() || next.Claimable {
		t.Errorf("%+v, the next is claimable: %v", s.turn.Unit, next.Claimable)
	}
	s.set.Ended = map[string]Ended{s.turn.Operation: {Message: "no such image"}}
	if s.Judge([]*Turn{s.turn, next}); s.turn.Operation != "" || s.turn.Failed == nil || !s.turn.Failed.Time.Equal(&since) || s.turn.Step != StepAdd {
		t.Errorf("%+v", s.turn)
	}
	s.set.Declined = "" // The operator was started anew.
	if s.Judge([]*Turn{s.turn, next}); next.Claimable || !s.turn.Unit.RetryAt.IsZero() {
		t.Errorf("%+v, the next is claimable: %v", s.turn.Unit, next.Claimable)
	}
	s.set.Declined = "no such image"
	s.Ending = true
	if s.Judge([]*Turn{s.turn}); !s.turn.Over {
		t.Errorf("it asks for ever: %+v", s.turn)
	}
}

func TestJoinsLate(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"ordered": func(s *scene) { s.under(v1alpha1.CloudOperationDelete, nil) },
		"goes":    func(s *scene) { s.machine("new").State = cloud.Deleting },
	} {
		s := newScene(v1alpha1.MachineDiscarding)
		change(s)
		s.Judge([]*Turn{s.turn})
		if s.turn.ReplacementNode != "n-new" || !strings.EqualFold(s.turn.ReplacementProviderID, "sky://new") || s.turn.Step != StepNone {
			t.Errorf("%s: %+v, step %q", name, s.turn.MachineTurn, s.turn.Step)
		}
	}
}

// A machine that is added for one turn takes a place in its zone where there is one, and what no one waits for is discarded.
func TestAdded(t *testing.T) {
	s := newScene(v1alpha1.MachineAdding)
	s.under(v1alpha1.CloudOperationAdd, &Ended{OK: true, Added: []string{"new", "b1", "b2"}})
	s.set.Operations[0].Count = 3
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "b1", Zone: "b", UpToDate: true}, cloud.Machine{ID: "b2", Zone: "b", UpToDate: true})
	other := *s.turn
	other.Turn, other.Machine, other.Node, other.Zone = "u", "x", "n-x", "b"
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "x", Zone: "b", State: cloud.Running})
	all := s.Judge([]*Turn{&other, s.turn})
	if s.turn.Replacement != "new" || other.Replacement != "b1" || len(all) != 3 || all[2].Replacement != "b2" || all[2].Phase != v1alpha1.MachineDiscarding {
		t.Errorf("%+v, %+v of %d", s.turn.MachineTurn, other.MachineTurn, len(all))
	}
	if len(s.set.Operations) != 0 {
		t.Errorf("operations are %+v", s.set.Operations)
	}
}

// A machine that runs is given to a turn while others of the same addition are being made, once, and is no one's surplus when that is over.
func TestHands(t *testing.T) {
	s := newScene(v1alpha1.MachineAdding)
	s.under(v1alpha1.CloudOperationAdd, nil)
	s.set.Operations[0].Count = 2
	s.set.Added = map[string][]string{"op": {"slow", "new"}}
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "slow", Zone: "a", State: cloud.Creating, UpToDate: true}, cloud.Machine{ID: "x", Zone: "b", State: cloud.Running})
	before := s.set.Operations
	other := *s.turn
	other.Turn, other.Machine, other.Node, other.Zone = "u", "x", "n-x", "b"
	all := s.Judge([]*Turn{&other, s.turn})
	if s.turn.Replacement != "new" || s.turn.Phase != v1alpha1.MachineClaiming || other.Operation != "op" || other.Phase != v1alpha1.MachineAdding || len(all) != 2 {
		t.Fatalf("%+v, %+v of %d", s.turn.MachineTurn, other.MachineTurn, len(all))
	}
	if o := s.set.Operations; len(o) != 1 || !slices.Equal(o[0].Machines, []string{"new"}) || len(before[0].Machines) > 0 {
		t.Fatalf("operations are %+v, and were %+v", o, before)
	}
	// The turn that has got its machine is over by the time the addition is.
	s.set.Ended = map[string]Ended{"op": {OK: true, Added: []string{"new", "slow"}}}
	if all = s.Judge([]*Turn{&other}); len(all) != 1 || other.Replacement != "slow" || len(s.set.Operations) > 0 {
		t.Errorf("%+v of %d, operations %+v", other.MachineTurn, len(all), s.set.Operations)
	}
}

// A turn gets a machine whose Node has joined before the cloud has made it. The old machine is deleted only after that, and stays if it fails.
func TestJoinsBeforeItIsMade(t *testing.T) {
	s := newScene(v1alpha1.MachineAdding)
	s.under(v1alpha1.CloudOperationAdd, nil)
	s.set.Added = map[string][]string{"op": {"new"}}
	s.machine("new").State = cloud.Creating
	s.Judge([]*Turn{s.turn})
	if s.turn.Replacement != "new" || !s.turn.Claimable {
		t.Fatalf("%+v", s.turn)
	}
	for state, want := range map[cloud.State]struct {
		phase v1alpha1.MachinePhase
		step  Step
	}{
		cloud.Creating: {v1alpha1.MachineDraining, StepNone},
		cloud.Running:  {v1alpha1.MachineDeleting, StepDelete},
		cloud.Failed:   {v1alpha1.MachineDiscarding, StepFail},
	} {
		s := newScene(v1alpha1.MachineDraining)
		s.Drained[s.turn.Key(false)] = true
		s.machine("new").State = state
		s.set.Operations = []v1alpha1.CloudOperation{{
			Token: "op", Kind: v1alpha1.CloudOperationAdd, Count: 2, Machines: []string{"new"}, Sent: true, Since: metav1.Time{Time: now.Add(-time.Minute)},
		}}
		s.Judge([]*Turn{s.turn})
		if s.turn.Phase != want.phase || s.turn.Step != want.step {
			t.Errorf("%s: %s, %s, %s", state, s.turn.Phase, s.turn.Step, s.turn.Message)
		}
		s.Now = s.Now.Add(time.Hour)
		if s.JudgeTurn(s.turn); state == cloud.Creating && s.turn.Failed == nil {
			t.Errorf("after an hour: %s, %s, %s", s.turn.Phase, s.turn.Step, s.turn.Message)
		}
	}
}

// A turn whose replacement is no longer ready fails after the timeout, although each pass begins with the drain.
func TestNotReadyAfterTheDrain(t *testing.T) {
	s := newScene(v1alpha1.MachineDraining)
	s.Unhealthy = func(string) (string, time.Time) { return "not Ready", time.Time{} }
	s.unready(time.Hour)
	if s.Judge([]*Turn{s.turn}); s.turn.Step != StepDrain {
		t.Fatalf("step %q", s.turn.Step)
	}
	s.Drained[s.turn.Key(false)] = true
	if s.JudgeTurn(s.turn); s.turn.Phase != v1alpha1.MachineDiscarding || s.turn.Failed == nil {
		t.Errorf("%s, step %q: %s", s.turn.Phase, s.turn.Step, s.turn.Message)
	}
}

// A Node is deleted although it says that it is Ready only just after the cloud has confirmed that the turn's own deletion was done.
func TestSilent(t *testing.T) {
	for what, tc := range map[string]struct {
		end   Ended
		ready corev1.ConditionStatus
		want  bool
	}{
		"confirmed":                {Ended{OK: true}, corev1.ConditionTrue, true},
		"not confirmed":            {Ended{Message: "lost"}, corev1.ConditionTrue, false},
		"not confirmed, not Ready": {Ended{Message: "lost"}, corev1.ConditionUnknown, true},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(v1alpha1.MachineDeleting)
			s.Nodes["n-old"].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready}}
			s.under(v1alpha1.CloudOperationDelete, &tc.end)
			s.missing("old", time.Minute)
			s.smaller(true) // Had no one deleted it, it would have died.
			s.set.LookedAt = now.Add(time.Second)
			s.Judge([]*Turn{s.turn})
			if s.turn.Machine != "" || s.turn.Step != StepDeleteNode {
				t.Fatalf("the machine is %q, the step %q", s.turn.Machine, s.turn.Step)
			}
			if got := s.turn.MayDeleteNode(s.Nodes["n-old"]); got != tc.want {
				t.Errorf("its Node may be deleted: %v", got)
			}
		})
	}
}

// A deletion that is written down and not sent, as by a process that was killed, is not sent before its node is empty as it was then.
func TestUnsent(t *testing.T) {
	for what, tc := range map[string]struct {
		phase  v1alpha1.MachinePhase
		change func(*scene)
		step   Step
	}{
		"as it was":         {v1alpha1.MachineDeleting, func(*scene) {}, StepNone},
		"uncordoned":        {v1alpha1.MachineDeleting, func(s *scene) { s.Nodes["n-old"].Spec.Unschedulable = false }, StepCordon},
		"not known drained": {v1alpha1.MachineDeleting, func(s *scene) { s.Drained = map[string]bool{} }, StepDrain},
		"claim taken away":  {v1alpha1.MachineDeleting, func(s *scene) { s.Nodes["n-old"].Claim = nil }, StepClaim},
		"cloud not known": {v1alpha1.MachineDeleting, func(s *scene) {
			s.set.Known = false
			s.Nodes["n-old"].Spec.Unschedulable = false
		}, StepCordon},
		"going": {v1alpha1.MachineDeleting, func(s *scene) {
			s.machine("old").State = cloud.Deleting
			s.Nodes["n-old"].Spec.Unschedulable = false
		}, StepNone},
		"gone": {v1alpha1.MachineDeleting, func(s *scene) {
			s.missing("old", time.Minute)
			s.Nodes["n-old"].Spec.Unschedulable = false
		}, StepNone},
		"sent": {v1alpha1.MachineDeleting, func(s *scene) {
			s.set.Operations[0].Sent = true
			s.Nodes["n-old"].Spec.Unschedulable = false
		}, StepNone},
		"a replacement that no one has claimed": {v1alpha1.MachineDiscarding, func(*scene) {}, StepClaim},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(tc.phase)
			s.under(v1alpha1.CloudOperationDelete, nil)
			s.set.Operations[0].Sent = false
			tc.change(s)
			s.Judge([]*Turn{s.turn})
			if s.turn.Step != tc.step || s.turn.HoldsOperation != (tc.step != StepNone) || s.turn.Operation != "op" {
				t.Errorf("step %q, held %v, operation %q: %s", s.turn.Step, s.turn.HoldsOperation, s.turn.Operation, s.turn.Message)
			}
		})
	}
}

// A deletion that is refused may have been sent before: when its machine is gone then, another one is added.
func TestRefusedAfterItWasSent(t *testing.T) {
	s := newScene(v1alpha1.MachineDeleting)
	s.turn.DeletesFirst, s.turn.Replacement, s.turn.Ordered = true, "", true
	s.under(v1alpha1.CloudOperationDelete, nil)
	s.RemoveRefused(s.set, "op", []*Turn{s.turn}, false, "too many requests")
	s.without("old")
	s.smaller(true)
	s.machine("new").Created = now.Add(-24 * time.Hour)
	if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineAdding || s.turn.Step != StepAdd {
		t.Errorf("%+v, step %q", s.turn.MachineTurn, s.turn.Step)
	}
}

// A replacement that dies before it is deleted leaves nothing behind: where the cloud makes another in its place, that one goes.
func TestDeparted(t *testing.T) {
	another := cloud.Machine{ID: "another", ProviderID: "sky://another", UpToDate: true, State: cloud.Running, Created: now.Add(-time.Second)}
	for what, tc := range map[string]struct {
		change      func(*scene)
		replacement string
		over        bool
		phase       v1alpha1.MachinePhase
	}{
		"not believed yet": {func(s *scene) { s.missing("new", 0) }, "new", false, v1alpha1.MachineDiscarding},
		"not made up for":  {func(s *scene) { s.smaller(true) }, "", true, v1alpha1.MachineDiscarding},
		"another was made": {func(s *scene) { s.set.Machines, s.set.Capacity = append(s.set.Machines, another), 3 }, "another", false, v1alpha1.MachineDiscarding},
		"another's Node is older": {func(s *scene) {
			s.set.Machines, s.set.Capacity = append(s.set.Machines, another), 3
			s.Nodes["n-another"] = &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-another"}, Spec: corev1.NodeSpec{ProviderID: another.ProviderID}}}
			s.Nodes["n-another"].CreationTimestamp.Time = s.turn.PhaseSince.Add(-time.Second)
		}, "", true, v1alpha1.MachineDiscarding},
		"another is to come": {func(*scene) {}, "new", false, v1alpha1.MachineDiscarding},
		"another never came": {func(s *scene) { s.Timeout, s.set.Capacity = 30*time.Second, 2 }, "", true, v1alpha1.MachineDiscarding},
		"another is slow":    {func(s *scene) { s.Timeout = 30 * time.Second }, "new", false, v1alpha1.MachineDiscarding},
		"perhaps another owner's": {func(s *scene) {
			s.set.Machines = append(s.set.Machines, another)
			s.set.Operations = append(s.set.Operations, v1alpha1.CloudOperation{Token: "theirs", Kind: v1alpha1.CloudOperationAdd, Count: 1})
		}, "new", false, v1alpha1.MachineDiscarding},
		"has a Node": {func(s *scene) {
			s.Nodes["n-new"] = &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-new"}, Spec: corev1.NodeSpec{ProviderID: "sky://new"}}}
			s.turn.ReplacementProviderID = "sky://new"
			s.set.Machines = append(s.set.Machines, another)
		}, "new", false, v1alpha1.MachineDiscarding},
		"must be there": {func(s *scene) {
			s.turn.DeletesFirst, s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.set.Capacity = true, "", "", "", 2
		}, "other", true, v1alpha1.MachineSoaking},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(v1alpha1.MachineDiscarding)
			s.without("new")
			s.set.Missing["new"] = now.Add(-time.Minute)
			if what != "must be there" {
				s.machine("other").Created = now.Add(-24 * time.Hour)
			}
			tc.change(s)
			s.Judge([]*Turn{s.turn})
			if s.turn.Replacement != tc.replacement || s.turn.Over != tc.over || s.turn.Phase != tc.phase {
				t.Errorf("the replacement is %q, over %v, phase %s: %s", s.turn.Replacement, s.turn.Over, s.turn.Phase, s.turn.Message)
			}
			if (s.turn.Step == StepDeleteNode) != (what == "has a Node") {
				t.Errorf("step %q", s.turn.Step)
			}
		})
	}
}

// A replacement of a control plane that dies by itself leaves etcd before it is forgotten.
func TestReplacementLostOfMember(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineLeaving, v1alpha1.MachineDeleting, v1alpha1.MachineSoaking, v1alpha1.MachineDiscarding} {
			s := newScene(phase)
			s.ControlPlane, s.turn.ReplacementNode = true, "n-new"
			s.without("new")
			s.smaller(lost)
			s.Judge([]*Turn{s.turn})
			if s.turn.Step != StepLeave || !s.turn.OnReplacement || s.turn.Replacement != "new" || s.turn.Over {
				t.Errorf("%s, %v lost: %+v, step %q", phase, lost, s.turn.MachineTurn, s.turn.Step)
			}
			s.Left[s.LeftKey(s.turn, true)] = true
			s.Judge([]*Turn{s.turn})
			if s.turn.Step == StepLeave && s.turn.OnReplacement {
				t.Errorf("%s, %v lost: it leaves again: %+v", phase, lost, s.turn.MachineTurn)
			}
			if another := s.turn.Phase != v1alpha1.MachineDiscarding && !s.turn.Over; another && (s.Left[s.LeftKey(s.turn, true)] || s.turn.Replacement == "new") {
				t.Errorf("%s, %v lost: another is said to have left: %+v", phase, lost, s.turn.MachineTurn)
			}
		}
	}
}

// A turn that can do without its replacement fails when that dies by itself, whether or not the cloud makes another: that is deleted.
func TestReplacementLost(t *testing.T) {
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineJoining, v1alpha1.MachineClaiming, v1alpha1.MachineDraining, v1alpha1.MachineDeleting} {
		s := newScene(phase)
		s.Drained["t"] = true
		s.without("new")
		s.machine("other").Created = now.Add(-24 * time.Hour)
		s.Judge([]*Turn{s.turn})
		if s.turn.Phase != v1alpha1.MachineDiscarding || s.turn.Failed == nil || s.turn.Step != StepFail {
			t.Errorf("%s: %+v, step %q", phase, s.turn.MachineTurn, s.turn.Step)
		}
		s.claim(func(c *v1alpha1.Claim) { c.Failed = s.turn.Failed })
		if s.Judge([]*Turn{s.turn}); s.turn.Over || s.turn.Step != StepNone {
			t.Errorf("%s: while the cloud makes another one: %+v, step %q", phase, s.turn.MachineTurn, s.turn.Step)
		}
		s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "healed", ProviderID: "sky://healed", State: cloud.Running, UpToDate: true, Created: now}, cloud.Machine{ID: "more"})
		if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "healed" || s.turn.Step != StepDelete || !s.turn.OnReplacement {
			t.Errorf("%s: once there is another one: %+v, step %q", phase, s.turn.MachineTurn, s.turn.Step)
		}
	}
}

// The Node of a replacement that dies by itself goes before that is forgotten, wherever its turn is.
func TestReplacementLostOfNode(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineJoining, v1alpha1.MachineSoaking, v1alpha1.MachineDiscarding} {
			s := newScene(phase)
			if phase == v1alpha1.MachineJoining {
				s.without("old")
				s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.turn.DeletesFirst = "", "", "", true
			}
			s.turn.ReplacementNode, s.turn.ReplacementProviderID = "n-new", "sky://new"
			s.missing("new", time.Hour)
			s.smaller(lost)
			s.Judge([]*Turn{s.turn})
			if s.turn.Step != StepDeleteNode || s.turn.ReplacementNode != "n-new" || s.turn.Over {
				t.Errorf("%s, %v lost: %+v, step %q", phase, lost, s.turn.MachineTurn, s.turn.Step)
			}
			delete(s.Nodes, "n-new")
			s.index = nil
			s.Judge([]*Turn{s.turn})
			if s.turn.Step == StepDeleteNode || s.turn.Replacement == "new" && phase != v1alpha1.MachineSoaking && phase != v1alpha1.MachineDiscarding {
				t.Errorf("%s, %v lost: it is not forgotten: %+v, step %q", phase, lost, s.turn.MachineTurn, s.turn.Step)
			}
		}
	}
}

// What a replacement has added in its last moment, while it was being deleted, leaves as well.
func TestLeavesAgain(t *testing.T) {
	s := newScene(v1alpha1.MachineDiscarding)
	s.ControlPlane, s.turn.ReplacementNode, s.Left[s.LeftKey(s.turn, true)] = true, "n-new", true
	s.under(v1alpha1.CloudOperationDelete, &Ended{OK: true})
	s.without("new")
	if s.Judge([]*Turn{s.turn}); s.turn.Step != StepLeave || s.turn.Replacement != "" {
		t.Errorf("%+v, step %q", s.turn.MachineTurn, s.turn.Step)
	}
	s.Left[s.LeftKey(s.turn, true)] = true
	if s.Judge([]*Turn{s.turn}); !s.turn.Over {
		t.Errorf("%+v, step %q", s.turn.MachineTurn, s.turn.Step)
	}
}

// Members of etcd are known by the names of nodes, which others may have by now.
func TestReplacementNodeName(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*scene)
		name   string
		seen   bool
	}{
		"its Node":            {func(*scene) {}, "n-new", true},
		"no Node, and a name": {func(s *scene) { delete(s.Nodes, "n-new"); s.machine("new").NodeName = "n-new" }, "n-new", false},
		"no Node, no name":    {func(s *scene) { delete(s.Nodes, "n-new") }, "", false},
		"its Node was seen":   {func(s *scene) { delete(s.Nodes, "n-new"); s.turn.ReplacementNode = "n-was" }, "n-was", true},
		"gone":                {func(s *scene) { s.without("new"); s.turn.ReplacementNode = "n-new" }, "n-new", true},
		"gone, its Node there": {func(s *scene) {
			s.missing("new", time.Hour)
			s.turn.ReplacementNode, s.turn.ReplacementProviderID = "n-new", "sky://new"
		}, "n-new", true},
		"another's of the rollout": {func(s *scene) { s.missing("new", time.Hour); s.turn.ReplacementNode = "n-other" }, "", false},
		"another's": {func(s *scene) {
			s.elsewhere("sky://of-others", nil)
		}, "", false},
	} {
		s := newScene(v1alpha1.MachineDiscarding)
		tc.change(s)
		if name, seen := s.ReplacementNodeName(s.turn); name != tc.name || seen != tc.seen {
			t.Errorf("%s: %q, %v", what, name, seen)
		}
	}
}

// A replacement that others are deleting takes no place: the node that is to go for it is neither claimed nor let go further.
func TestReplacementBeingDeleted(t *testing.T) {
	for _, plane := range []bool{false, true} {
		for _, phase := range []v1alpha1.MachinePhase{
			v1alpha1.MachineJoining, v1alpha1.MachineClaiming, v1alpha1.MachineDraining, v1alpha1.MachineLeaving, v1alpha1.MachineDeleting,
		} {
			s := newScene(phase)
			s.ControlPlane, s.machine("new").State = plane, cloud.Deleting
			s.Drained["t"] = true
			s.Judge([]*Turn{s.turn})
			if s.turn.Phase != phase || s.turn.Step != StepNone || s.turn.Claimable || !strings.Contains(s.turn.Message, "machine new, the replacement, is being deleted") {
				t.Errorf("in %s, of the control plane %v: %s, step %q, claimable %v: %s", phase, plane, s.turn.Phase, s.turn.Step, s.turn.Claimable, s.turn.Message)
			}
		}
	}
}

// Until its deletion is written down a machine stays while its replacement is not ready, and for no longer than that had to become so.
func TestNotReadyBeforeTheOrder(t *testing.T) {
	for what, change := range map[string]func(*scene){
		"has no Node": func(s *scene) { delete(s.Nodes, "n-new") },
		"is ill":      func(s *scene) { s.Unhealthy = func(string) (string, time.Time) { return "not Ready", time.Time{} } },
	} {
		s := newScene(v1alpha1.MachineDeleting)
		change(s)
		if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineDeleting || s.turn.Step != StepNone || s.turn.UnreadySince == nil {
			t.Errorf("%s: %s, step %q: %s", what, s.turn.Phase, s.turn.Step, s.turn.Message)
		}
		s.unready(time.Hour)
		if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineDiscarding || s.turn.Failed == nil {
			t.Errorf("%s for long: %s, step %q: %s", what, s.turn.Phase, s.turn.Step, s.turn.Message)
		}
	}
}

// Where the cloud is still to make a machine in the place of one that has died, nothing is asked for besides, however long that takes.
func TestOwed(t *testing.T) {
	s := newScene(v1alpha1.MachineJoining)
	s.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3, Backoff: &metav1.Duration{Duration: time.Minute}}}
	s.machine("other").Created, s.turn.Since.Time = now.Add(-48*time.Hour), now.Add(-5*time.Minute)
	s.without("new")
	s.turn.DeletesFirst, s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.set.Capacity = true, "", "", "", 2
	s.without("old")
	failed := false
	for range 10 {
		if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineJoining || s.turn.Over || s.turn.Step != StepNone {
			t.Fatalf("%s, step %q, over %v: %s", s.turn.Phase, s.turn.Step, s.turn.Over, s.turn.Message)
		}
		failed = failed || s.turn.Failed != nil
		s.Now = s.Now.Add(11 * time.Minute)
		s.set.LookedAt = s.Now
	}
	if !failed {
		t.Error("it has not failed meanwhile")
	}
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "late", ProviderID: "sky://late", State: cloud.Creating, UpToDate: true, Created: s.Now})
	if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "late" {
		t.Errorf("it does not take what has come: %+v", s.turn.MachineTurn)
	}
}

// While machines are being added, one that has just come may be another turn's.
func TestNewcomerOfAnAddition(t *testing.T) {
	s := newScene(v1alpha1.MachineJoining)
	s.without("new")
	s.without("old")
	s.turn.Replacement, s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.turn.DeletesFirst = "", "", "", "", true
	s.machine("other").Created = now.Add(-48 * time.Hour)
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "come", State: cloud.Running, UpToDate: true, Created: now})
	s.set.Operations = []v1alpha1.CloudOperation{{Token: "theirs", Kind: v1alpha1.CloudOperationAdd, Count: 1, Since: *nodeturn.Stamp(now)}}
	if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "" {
		t.Errorf("it takes %s", s.turn.Replacement)
	}
	s.set.Operations = nil
	if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "come" {
		t.Errorf("it takes %q, now that it is no one's: %s", s.turn.Replacement, s.turn.Message)
	}
}

// What has come at the time of an addition besides what was asked for is no one's surplus.
func TestAddedBesides(t *testing.T) {
	s := newScene(v1alpha1.MachineAdding)
	s.under(v1alpha1.CloudOperationAdd, &Ended{OK: true, Added: []string{"new", "healed"}})
	s.set.Operations[0].Count = 2
	s.set.Operations[0].Machines = []string{"given"}
	s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "healed", Zone: "b", State: cloud.Running, UpToDate: true})
	if all := s.Judge([]*Turn{s.turn}); s.turn.Replacement != "new" || len(all) != 1 {
		t.Errorf("%+v, and %d turns besides", s.turn.MachineTurn, len(all)-1)
	}
}

// Turns that have not asked for a machine end without a change where surge is lowered meanwhile, as many as are too many then: nodes begin anew in the way that is
// asked for now. What was asked for comes, and what is missing is made up for all the same.
func TestSurgeIsLowered(t *testing.T) {
	of := func(n int) rollout.Amount { return rollout.Amount{N: n} }
	tenth, _ := rollout.ParseAmount(intstr.FromString("10%"))
	for what, tc := range map[string]struct {
		surge  rollout.Amount
		change func(*scene)
		stay   int
	}{
		"as it was":    {of(3), func(*scene) {}, 3},
		"lowered":      {of(1), func(*scene) {}, 1},
		"none":         {of(0), func(*scene) {}, 0},
		"no quota":     {of(0), func(s *scene) { s.set.NoRoom = v1alpha1.ReasonCloudQuota }, 0},
		"not known":    {of(0), func(s *scene) { s.set.Known = false }, 3},
		"asked for":    {of(0), func(s *scene) { s.under(v1alpha1.CloudOperationAdd, nil) }, 1},
		"its own gone": {of(0), func(s *scene) { s.turn.Machine, s.turn.DeletesFirst = "", true }, 1},
		"is bound":     {of(0), func(s *scene) { s.turn.Bound = true }, 1},
		"a percentage": {tenth, func(s *scene) { s.set.Capacity = 21 }, 3},
		"percentages":  {tenth, func(s *scene) { s.set.Capacity = 20 }, 2},
	} {
		s := newScene(v1alpha1.MachineAdding)
		s.Surge = tc.surge
		all := []*Turn{s.turn}
		for _, id := range []string{"u", "v"} {
			other := *s.turn
			other.Turn, other.Machine, other.Node, other.NodeUID = id, id, "n-"+id, types.UID("uid-"+id)
			s.set.Machines = append(s.set.Machines, cloud.Machine{ID: id, Zone: "a", State: cloud.Running})
			all = append(all, &other)
		}
		tc.change(s)
		for range 2 {
			s.Judge(all)
		}
		stay := 0
		for _, turn := range all {
			if !turn.Over {
				stay++
			}
		}
		if stay != tc.stay || tc.stay == 1 && what != "lowered" && s.turn.Over {
			t.Errorf("%s: %d turns go on, want %d", what, stay, tc.stay)
		}
		if what == "no quota" {
			if room := s.Rooms(all)["pool"]; room.N == 0 || !room.DeletesFirst {
				t.Errorf("%s: then there is room for %+v", what, room)
			}
		}
	}
}

// Without surge the only node of a control plane that is well never goes, whoever keeps its etcd: no one could have another one made.
func TestOnlyNodeOfControlPlane(t *testing.T) {
	for _, others := range []bool{false, true} {
		s := newScene(v1alpha1.MachineClaiming)
		s.ControlPlane, s.turn.DeletesFirst, s.turn.Replacement, s.Surge = true, true, "", rollout.Amount{}
		s.Unhealthy = func(name string) (string, time.Time) {
			if name == "n-old" || others {
				return "", time.Time{}
			}
			return "not Ready", time.Time{}
		}
		s.Judge([]*Turn{s.turn})
		if s.turn.Claimable != others || !others && !strings.Contains(s.turn.Message, "no other node of the control plane") {
			t.Errorf("with others %v: claimable %v: %s", others, s.turn.Claimable, s.turn.Message)
		}
	}
}

// A turn that can't be released is tried again when its rollout is deleted, also where no one has asked for retries.
func TestBoundIsTriedAgainAtTheEnd(t *testing.T) {
	s := newScene(v1alpha1.MachineJoining)
	s.bound()
	s.never()
	if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineJoining || s.turn.Failed == nil {
		t.Fatalf("%+v", s.turn.MachineTurn)
	}
	s.Now = s.Now.Add(time.Hour)
	if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineJoining {
		t.Fatalf("no one has asked for that: %+v", s.turn.MachineTurn)
	}
	s.Ending = true
	if s.Judge([]*Turn{s.turn}); s.turn.Phase != v1alpha1.MachineDiscarding {
		t.Errorf("it is not tried again: %+v", s.turn.MachineTurn)
	}
}

// A machine that the cloud has made in the place of a replacement is the turn's, also where another image is asked for since, or it has failed: then it is
// taken back.
func TestMadeOfWhatWasAskedForThen(t *testing.T) {
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineDiscarding} {
		for what, change := range map[string]func(*cloud.Machine){
			"outdated": func(m *cloud.Machine) { m.UpToDate = false },
			"failed":   func(m *cloud.Machine) { m.State = cloud.Failed },
		} {
			s := newScene(phase)
			s.without("new")

			s.turn.Attempt, s.machine("other").UpToDate = "1", false
			healed := cloud.Machine{ID: "healed", ProviderID: "sky://healed", State: cloud.Running, UpToDate: true, Created: now.Add(-25 * time.Second)}
			change(&healed)
			s.set.Machines = append(s.set.Machines, healed, cloud.Machine{ID: "before", UpToDate: true, State: cloud.Running, Created: now.Add(-24 * time.Hour)})
			s.set.Capacity = 4
			if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "healed" || s.turn.Phase != v1alpha1.MachineDiscarding || s.turn.Step == StepNone {
				t.Errorf("%s in %s: it is %s, step %q, of %q: %s", what, phase, s.turn.Phase, s.turn.Step, s.turn.Replacement, s.turn.Message)
			}
		}
	}
}

// While the cloud is still to make a machine in the place of a replacement, none that came before is taken for it.
func TestOlderOneIsNotTheNewcomer(t *testing.T) {
	s := newScene(v1alpha1.MachineJoining)
	s.without("new")
	s.without("old")
	s.turn.Machine, s.turn.Node, s.turn.NodeUID, s.turn.DeletesFirst = "", "", "", true
	s.turn.Since.Time, s.machine("other").Created = now.Add(-6*time.Minute), now.Add(-5*time.Minute)
	if s.Judge([]*Turn{s.turn}); s.turn.Replacement != "" || s.turn.Phase != v1alpha1.MachineJoining {
		t.Errorf("it is %s, of %q: %s", s.turn.Phase, s.turn.Replacement, s.turn.Message)
	}
}

// A replacement that is kept to be looked at is not kept once something else is asked for, or that it is tried again. Nothing is wrong with one whose
// old node could not be drained.
func TestKeptUntilAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		attempt string
		failed  v1alpha1.Reason
		kept    bool
		unread  bool
	}{
		{"2", v1alpha1.ReasonReplacementFailed, true, false}, {"1", v1alpha1.ReasonReplacementFailed, false, false},
		{"2", v1alpha1.ReasonDrainTimeout, false, false}, {"1", v1alpha1.ReasonReplacementFailed, true, true},
	} {
		s := newScene(v1alpha1.MachineDiscarding)
		s.KeepFailed, s.turn.Attempt, s.set.Known = time.Hour, tc.attempt, !tc.unread
		s.turn.Failed = &v1alpha1.ClaimFailure{Reason: tc.failed, Time: *nodeturn.Stamp(now)}
		s.claim(func(c *v1alpha1.Claim) { c.Failed = s.turn.Failed })
		if s.Judge([]*Turn{s.turn}); (s.turn.Step == StepNone) != tc.kept {
			t.Errorf("%+v: step %q: %s", tc, s.turn.Step, s.turn.Message)
		}
		if failed := s.turn.Unit.State == v1alpha1.UnitFailed; failed != (tc.attempt == "2" || tc.unread) {
			t.Errorf("of attempt %s its unit is %s", tc.attempt, s.turn.Unit.State)
		}
	}
}

// A replacement that dies when it has taken its place leaves etcd. It is not said to be updated.
func TestPassed(t *testing.T) {
	for _, plane := range []bool{false, true} {
		s := newScene(v1alpha1.MachineSoaking)
		s.ControlPlane, s.Ending, s.turn.ReplacementNode = plane, true, "n-new"
		s.without("new")
		if s.Judge([]*Turn{s.turn}); s.turn.Over == plane || s.turn.OnReplacement != plane {
			t.Errorf("of a control plane %v: over %v, step %q", plane, s.turn.Over, s.turn.Step)
		}
		s.Left[s.LeftKey(s.turn, true)] = true
		if s.Judge([]*Turn{s.turn}); !s.turn.Over || s.turn.Updated {
			t.Errorf("of a control plane %v: over %v, updated %v", plane, s.turn.Over, s.turn.Updated)
		}
	}
}

// A replacement that etcd can't do without is not taken back for another.
func TestEtcdCantDoWithoutIt(t *testing.T) {
	for _, stays := range []bool{false, true} {
		s := newScene(v1alpha1.MachineJoining)
		s.bound()
		s.never()
		s.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 9, Backoff: &metav1.Duration{Duration: time.Minute}}}
		if s.Judge([]*Turn{s.turn}); s.turn.Failed == nil {
			t.Fatalf("%+v", s.turn.MachineTurn)
		}
		s.Now = s.Now.Add(time.Hour)
		if stays {
			s.turn.WhyReplacementMustStay = "etcd would be left with 2 voters"
		}
		if s.Judge([]*Turn{s.turn}); (s.turn.Phase == v1alpha1.MachineJoining) != stays {
			t.Errorf("it stays %v: %s", stays, s.turn.Phase)
		}
	}
}

// A replacement soaks after the old machine is gone, however long its turn took before.
func TestSoaksFromItsReplacement(t *testing.T) {
	for soak, over := range map[time.Duration]bool{30 * time.Second: true, 10 * time.Minute: false} {
		s := newScene(v1alpha1.MachineSoaking)
		s.SoakEnd = func(_ string, since time.Time) time.Time { return since.Add(soak) }
		s.Judge([]*Turn{s.turn})
		if s.turn.Over != over {
			t.Errorf("after a minute of %s: over is %t", soak, s.turn.Over)
		}
		if end := s.turn.PhaseSince.Add(soak); !over && !s.turn.Wake.Equal(end) {
			t.Errorf("it is looked at again at %s, want %s", s.turn.Wake, end)
		}
	}
}

// Turns are judged and carried out in parallel after Judge: all of them only read the index.
func TestJudgeBuildsTheIndex(t *testing.T) {
	s := newScene(v1alpha1.MachineDeleting)
	s.missing("old", time.Minute)
	s.turn.Machine = ""
	if s.Judge([]*Turn{s.turn}); s.turn.Step != StepDeleteNode || s.index == nil {
		t.Errorf("step %q, index %v", s.turn.Step, s.index)
	}
}

// A turn is not over before the evictions of its deleted Node are recorded on the Node of the replacement.
func TestOverAfterEvictionsAreRecorded(t *testing.T) {
	s := newScene(v1alpha1.MachineSoaking)
	s.turn.DeletesFirst, s.turn.Absent = true, &v1alpha1.AbsentNode{Name: "n-old", Evicted: []string{"ReplicaSet/shop/cart"}}
	if s.Judge([]*Turn{s.turn}); s.turn.Over || s.turn.Absent == nil {
		t.Errorf("%+v", s.turn)
	}
	s.turn.Absent = nil
	if s.Judge([]*Turn{s.turn}); !s.turn.Over {
		t.Errorf("%+v", s.turn)
	}
}

// While a scale set is not read, a turn does not say that its replacement is missing.
func TestDiscardsWhileTheSetIsNotRead(t *testing.T) {
	s := newScene(v1alpha1.MachineDiscarding)
	s.set.Known, s.set.Machines, s.turn.Message = false, nil, "the node's label opts it out"
	if s.Judge([]*Turn{s.turn}); s.turn.Message != "the node's label opts it out" || s.turn.Step != StepNone || s.turn.Over {
		t.Errorf("%+v", s.turn)
	}
}

// A machine may go before its node is claimed. Then the turn still starts.
func TestUnitWithoutMachine(t *testing.T) {
	w := &World{Sets: map[string]*Set{"s": {}}}
	for phase, want := range map[v1alpha1.MachinePhase]v1alpha1.UnitState{v1alpha1.MachineClaiming: v1alpha1.UnitOutdated, v1alpha1.MachineJoining: v1alpha1.UnitUpdating} {
		if u := w.UnitOf(&v1alpha1.MachineTurn{ScaleSet: "s", Node: "old", Phase: phase}); u.State != want {
			t.Errorf("%s: %s", phase, u.State)
		}
	}
}
