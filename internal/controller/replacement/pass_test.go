// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
	"moult.dev/moult/test/clouds"
)

// passOf is a pass over a rollout with this status, in a cluster of these nodes.
func passOf(t *testing.T, status v1alpha1.NodeRolloutStatus, nodes ...*corev1.Node) *pass {
	t.Helper()
	r := &v1alpha1.NodeRollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: turnof.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "rollout"},
		Spec:       v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}}},
		Status:     status,
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := clientfake.NewClientBuilder().WithScheme(scheme).WithIndex(turnof.Object(), indexMachines, indexedByMachines).WithObjects(r).WithStatusSubresource(r).Build()
	key := client.ObjectKeyFromObject(r)
	stored := turnof.Object()
	if err := c.Get(t.Context(), key, stored); err != nil {
		t.Fatal(err)
	}
	of := &Controller{
		Engine: &turnof.Engine{
			Kind: turnof.Kind, Clock: testingclock.NewFakePassiveClock(noon), Client: c, Reports: fleet.NewReports(fleet.StatusDelay), Waiting: &fleet.Waiters{},
			Works: turnof.NewWorks(nil),
		},
	}
	p, err := of.newPass(key, stored, fleet.Snapshot{Fleet: rollout.Fleet{Nodes: map[string]*rollout.Node{}}})
	if err != nil || p.problem != nil {
		t.Fatal(err, p.problem)
	}
	p.selector = labels.Everything()
	for _, n := range nodes {
		if err := c.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		p.Seen.Objects = append(p.Seen.Objects, n)
		p.Seen.Nodes[n.Name] = &rollout.Node{Name: n.Name, Claims: claims}
	}
	p.world = &machine.World{Rules: p.rules, Now: noon, Sets: map[string]*machine.Set{}, Nodes: map[string]*machine.Node{}}
	for _, n := range nodes {
		p.world.Nodes[n.Name] = p.nodeOf(n)
	}
	return p
}

func nodeNamed(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}}, Spec: corev1.NodeSpec{ProviderID: "sky://" + name},
	}
	for _, how := range change {
		how(n)
	}
	return n
}

func turnIn(phase v1alpha1.MachinePhase) v1alpha1.MachineTurn {
	at := metav1.Time{Time: noon.Add(-time.Minute)}
	return v1alpha1.MachineTurn{
		Turn: "turn", Node: "old", NodeUID: "uid-old", ScaleSet: "set", Machine: "m-old", Revision: "two", Phase: phase, Since: at, PhaseSince: at,
		Replacement: "m-new", ReplacementNode: "new",
	}
}

// judged judges the turns and nodes of a pass.
func judged(t *testing.T, p *pass) {
	t.Helper()
	if err := p.judge(t.Context()); err != nil {
		t.Error(err)
	}
}

// While the cloud can't be asked, nothing of what is under way is forgotten, and nothing is asked for again.
func TestCloudThatCantBeAsked(t *testing.T) {
	turn := turnIn(v1alpha1.MachineAdding)
	turn.Replacement, turn.ReplacementNode, turn.Operation = "", "", "token"
	operation := v1alpha1.CloudOperation{Token: "token", Kind: v1alpha1.CloudOperationAdd, Count: 1, Since: metav1.Time{Time: noon}}
	before := v1alpha1.NodeRolloutStatus{
		Turns: []v1alpha1.MachineTurn{turn},
		ScaleSets: []v1alpha1.ScaleSetStatus{
			{Name: "another", Image: "images/two"},
			{Name: "before", Image: "images/two", PreviousImage: "images/one", RolledBack: "images/bad"},
			{Name: "set", Image: "images/two", Operations: []v1alpha1.CloudOperation{operation}},
		},
	}
	p := passOf(t, before, nodeNamed("old"))
	p.options.Clouds = func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) {
		return nil, cloud.Errorf(cloud.KindDenied, "no credentials")
	}
	p.look(t.Context())
	p.gather()
	judged(t, p)
	p.order(t.Context())
	p.fillStatus()
	if len(p.orders) > 0 {
		t.Errorf("ordered is %+v", p.orders)
	}
	if !p.isWritten() {
		t.Errorf("%+v", p.rollout.Status)
	}
	var names []string
	for i := range p.rollout.Status.ScaleSets {
		names = append(names, p.rollout.Status.ScaleSets[i].Name)
	}
	if diff := cmp.Diff([]string{"another", "before", "set"}, names); diff != "" {
		t.Error(diff)
	}
	counts, runs := v1alpha1.UnitCounts{Total: 3, Updated: 2, Updating: 1}, []v1alpha1.Run{{Revision: p.rollout.Status.Revision, Total: 3, Updated: 2}}
	p.rollout.Status.Counts, p.rollout.Status.History = &counts, runs
	if p.countProgress(); p.unreadable != v1alpha1.ReasonCloudDenied {
		t.Errorf("it is blind by %q", p.unreadable)
	}
	if diff := cmp.Diff(&counts, p.rollout.Status.Counts) + cmp.Diff(runs, p.rollout.Status.History); diff != "" {
		t.Errorf("what is not known is counted: %s", diff)
	}
	for _, s := range p.world.Sets {
		s.Known = true
	}
	if p.countProgress(); cmp.Equal(counts, *p.rollout.Status.Counts) {
		t.Error("what is known is not counted")
	}
}

// A set that the rollout has nothing to do with any more leaves the status, but for the image that it had before.
func TestKeptSets(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{ScaleSets: []v1alpha1.ScaleSetStatus{
		{Name: "a", Image: "two", Machines: 3}, {Name: "b", Image: "two", PreviousImage: "one", Reason: v1alpha1.ReasonCloudError, Message: "down", Machines: 3},
	}})
	p.world.Sets["c"] = &machine.Set{Set: cloud.Set{Name: "c"}}
	p.fillStatus()
	want := []v1alpha1.ScaleSetStatus{{Name: "b", Image: "two", PreviousImage: "one"}, {Name: "c"}}
	if diff := cmp.Diff(want, p.rollout.Status.ScaleSets); diff != "" {
		t.Error(diff)
	}
	p.countProgress()
}

func TestMessagesAreCut(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	turn := turnIn(v1alpha1.MachineDraining)
	turn.Message = strings.Repeat("x", 10000)
	p.machineTurns = []*machine.Turn{{MachineTurn: turn}}
	p.fillStatus()
	if n := len(p.rollout.Status.Turns[0].Message); n > 2000 {
		t.Errorf("a message has %d characters", n)
	}
}

// A pass never comes back at an instant that is past.
func TestAt(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	for _, when := range []time.Time{{}, noon.Add(time.Hour), noon.Add(-time.Hour), noon} {
		p.at(when)
	}
	if got := p.Wake.Sub(noon); got != atLeast {
		t.Errorf("it comes back after %s", got)
	}
	p.soon()
	if got := p.Wake.Sub(noon); got != fleet.Coalesce {
		t.Errorf("it comes back after %s", got)
	}
	p = passOf(t, v1alpha1.NodeRolloutStatus{})
	s := newSet("set")
	s.changing.record(errors.New("down"), noon.Add(-time.Hour))
	s.adding.record(errors.New("down"), noon)
	p.memo.sets["set"] = s
	p.gather()
	if got := p.Wake.Sub(noon); got != time.Second {
		t.Errorf("it comes back after %s", got)
	}
}

// A turn that is given up does not wait for its replacement to be a member of the control plane.
func TestLeaves(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	other := turnIn(v1alpha1.MachineLeaving)
	other.Turn, other.Node = "other", "another"
	all := []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineLeaving)}, {MachineTurn: other}}
	p.machineTurns = all
	there := []cloud.Machine{{ID: "m-old", State: cloud.Running}}
	for name, tc := range map[string]struct {
		phase       v1alpha1.MachinePhase
		back        bool
		machines    []cloud.Machine
		replacement string
	}{
		"goes on":                        {v1alpha1.MachineLeaving, false, nil, "new"},
		"is given up":                    {v1alpha1.MachineDiscarding, false, nil, ""},
		"its replacement":                {v1alpha1.MachineDiscarding, true, there, "old"},
		"its replacement, the other too": {v1alpha1.MachineDiscarding, true, nil, ""},
		"its replacement, having left":   {v1alpha1.MachineLeaving, true, there, ""},
	} {
		p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: tc.machines}
		o := p.leaveOptions(&machine.Turn{MachineTurn: turnIn(tc.phase)}, tc.back)
		if o.Replacement != tc.replacement || !o.Gone || !slices.Equal(o.Leaving, []string{"another"}) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// plane is a control plane that is asked, and does as it is told.
type plane struct {
	// unjoined and staying say why a node is no member, and why it can't leave.
	unjoined, staying map[string]string
	left              []string
	// told are the versions that it was told, or not, for this.
	told    []string
	untells error
	closed  string // what Leavable says
	asked   int    // how often it was called
}

func (f *plane) Leavable(context.Context) (string, error) {
	f.asked++
	return f.closed, nil
}

func (f *plane) MayLeave(_ context.Context, node string, _ controlplane.Options) (string, error) {
	return f.staying[node], nil
}

func (f *plane) Joined(_ context.Context, node string) (string, error) { return f.unjoined[node], nil }

func (f *plane) Leave(_ context.Context, node string, _ controlplane.Options) (bool, string, error) {
	f.left = append(f.left, node)
	return f.staying[node] == "", f.staying[node], nil
}

func (f *plane) SetVersion(_ context.Context, version string, _ bool) error {
	f.told = append(f.told, version)
	return f.untells
}

// A machine whose node no one has seen is not deleted while a member of etcd could be its.
func TestLeavesUnseen(t *testing.T) {
	for what, tc := range map[string]struct {
		machines []cloud.Machine
		seen     string
		unowned  string
		external bool
		want     []string
	}{
		"known by its node":    {[]cloud.Machine{{ID: "m-new"}}, "new", "", false, []string{"new"}},
		"known by the cloud":   {[]cloud.Machine{{ID: "m-new", NodeName: "new"}}, "", "", false, []string{"new", ""}},
		"not known":            {[]cloud.Machine{{ID: "m-new"}}, "", "", false, []string{""}},
		"not known, a unowned": {[]cloud.Machine{{ID: "m-new"}}, "", "a member is of no node", false, []string{""}},
		"gone":                 {nil, "new", "", false, []string{"new"}},
		"etcd is elsewhere":    {[]cloud.Machine{{ID: "m-new", NodeName: "new"}}, "", "", true, nil},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		of := &plane{staying: map[string]string{"": tc.unowned}}
		p.options.Plane = of
		if tc.external {
			p.replacement.ControlPlane = &v1alpha1.ControlPlane{Etcd: v1alpha1.EtcdExternal}
		}
		p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: tc.machines}
		turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineDiscarding), Step: machine.StepLeave, OnReplacement: true}
		turn.ReplacementNode = tc.seen
		if err := p.step(t.Context(), turn); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, of.left); diff != "" || turn.Message != tc.unowned || p.memo.left[p.world.LeftKey(turn, true)] != (tc.unowned == "") {
			t.Errorf("%s: %s, %q, %v", what, diff, turn.Message, p.memo.left)
		}
	}
}

// What keeps the old node from leaving is told apart from what is wrong with the replacement: the others are not its fault.
func TestAsk(t *testing.T) {
	sick := map[string]string{"old": "another is sick"}
	for what, tc := range map[string]struct {
		phase           v1alpha1.MachinePhase
		deletesFirst    bool
		unjoined        map[string]string
		missing         bool
		external        bool
		notYet, waiting string
	}{
		"joins, a learner":          {phase: v1alpha1.MachineJoining, unjoined: map[string]string{"new": "a learner"}, notYet: "a learner"},
		"joins, others are sick":    {phase: v1alpha1.MachineJoining, waiting: "another is sick"},
		"waits, others are sick":    {phase: v1alpha1.MachineClaiming, waiting: "another is sick"},
		"waits, it is sick":         {phase: v1alpha1.MachineClaiming, unjoined: map[string]string{"new": "sick"}, notYet: "sick"},
		"has not come":              {phase: v1alpha1.MachineJoining, missing: true, notYet: "its replacement has not joined the control plane yet"},
		"is to come afterwards":     {phase: v1alpha1.MachineClaiming, deletesFirst: true, missing: true, waiting: "another is sick"},
		"is drained, and not asked": {phase: v1alpha1.MachineDraining},
		"etcd is elsewhere":         {phase: v1alpha1.MachineClaiming, external: true, unjoined: map[string]string{"new": "a learner"}},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"), nodeNamed("new"))
		p.options.Plane, p.rules.ControlPlane = &plane{unjoined: tc.unjoined, staying: sick}, true
		if tc.external {
			p.replacement.ControlPlane = &v1alpha1.ControlPlane{Etcd: v1alpha1.EtcdExternal}
		}
		set := &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: []cloud.Machine{{ID: "m-old", ProviderID: "sky://old"}}}
		if !tc.missing {
			set.Machines = append(set.Machines, cloud.Machine{ID: "m-new", ProviderID: "sky://new"})
		}
		p.world.Sets["set"] = set
		turn := &machine.Turn{MachineTurn: turnIn(tc.phase)}
		turn.DeletesFirst = tc.deletesFirst
		p.machineTurns = []*machine.Turn{turn}
		p.askPlane(t.Context())
		if turn.WhyNotJoined != tc.notYet || turn.WhyOldMustStay != tc.waiting {
			t.Errorf("%s: not yet %q, waiting %q", what, turn.WhyNotJoined, turn.WhyOldMustStay)
		}
	}
}

// The node of a replacement whose machine is not listed is no unit of its own.
func TestNodesInTurn(t *testing.T) {
	claim, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "NodeRollout/pool", UID: "rollout", Turn: "turn", Machine: "m-new"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(*machine.Turn, *pass, *corev1.Node)
		want   []string
	}{
		"listed": {func(_ *machine.Turn, p *pass, n *corev1.Node) {
			n.Spec.ProviderID = "sky://new"
			p.world.Sets["set"].Machines = []cloud.Machine{{ID: "m-new", ProviderID: "sky://new"}}
		}, []string{"new", "old"}},
		"not listed": {func(*machine.Turn, *pass, *corev1.Node) {}, []string{"new", "old"}},
		"gone":       {func(t *machine.Turn, _ *pass, _ *corev1.Node) { t.Replacement = "" }, []string{"new", "old"}},
		"another machine's": {func(_ *machine.Turn, p *pass, n *corev1.Node) {
			n.Spec.ProviderID = "sky://other"
			p.world.Sets["set"].Machines = []cloud.Machine{{ID: "m-other", ProviderID: "sky://other"}}
		}, []string{"old"}},
	} {
		fresh := nodeNamed("new", func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationClaims] = claim })
		if name == "another machine's" {
			fresh = nodeNamed("new")
		}
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"), fresh)
		p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true}
		turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineDiscarding)}
		tc.change(turn, p, fresh)
		got := map[string]bool{}
		p.inTurn(turn, got)
		if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// An operation that the cloud refuses the first time that it is asked for has had no effect, and is withdrawn; later that is not known.
func TestSendOne(t *testing.T) {
	for name, tc := range map[string]struct {
		err              error
		first, withdrawn bool
	}{
		"denied":                    {cloud.Errorf(cloud.KindDenied, "no"), true, true},
		"not understood":            {cloud.Errorf(cloud.KindInvalid, "no"), true, true},
		"no such set":               {cloud.Errorf(cloud.KindNotFound, "no"), true, true},
		"too many requests":         {cloud.Errorf(cloud.KindThrottled, "no"), true, true},
		"conflict":                  {cloud.Errorf(cloud.KindConflict, "no"), false, true},
		"denied after a restart":    {cloud.Errorf(cloud.KindDenied, "no"), false, false},
		"not found after a restart": {cloud.Errorf(cloud.KindNotFound, "no"), false, false},
		"no answer":                 {errors.New("the connection was lost"), true, false},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		sky := newSky(clouds.New(t.Context(), clouds.Options{}))
		sky.fails = func(string, string) (before, after error) { return tc.err, nil }
		s := newSet("set")
		p.api, p.prepared["token"] = sky, tc.first
		o := v1alpha1.CloudOperation{Token: "token", Kind: v1alpha1.CloudOperationDelete, Machines: []string{"m-old"}}
		view := &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Operations: []v1alpha1.CloudOperation{o}}
		turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineDeleting)}
		turn.Operation = "token"
		p.world.Sets["set"], p.machineTurns = view, []*machine.Turn{turn}
		p.sendOne(t.Context(), s, view, o)
		if got := len(view.Operations) == 0 && turn.Operation == ""; got != tc.withdrawn {
			t.Errorf("%s: %+v, %q", name, view.Operations, turn.Operation)
		}
		if !s.changing.isDelayed(p.Now) {
			t.Errorf("%s: it is asked again at once", name)
		}
	}
}

// What can't be sent at once is withdrawn if it was ordered in this pass, and is sent later else. An addition that the cloud refuses delays no other operation.
func TestSend(t *testing.T) {
	add := v1alpha1.CloudOperation{Token: "added", Kind: v1alpha1.CloudOperationAdd, State: `{"set":"set","add":1}`}
	image := v1alpha1.CloudOperation{Token: "image", Kind: v1alpha1.CloudOperationSetImage, State: `{"set":"set","image":"b"}`}
	for _, first := range []bool{false, true} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		world := clouds.New(t.Context(), clouds.Options{})
		if err := world.Create(t.Context(), clouds.Set{Name: "set", Image: "a", Capacity: 1}); err != nil {
			t.Fatal(err)
		}
		sky := newSky(world)
		sky.fails = func(string, string) (before, after error) { return errors.New("the connection was lost"), nil }
		p.api, p.memo.sets["set"], p.prepared["image"] = sky, newSet("set"), first
		view := &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Operations: []v1alpha1.CloudOperation{add, image}}
		p.world.Sets["set"] = view
		p.send(t.Context())
		if len(sky.calls) != 2 || !p.memo.sets["set"].changing.isDelayed(p.Now) {
			t.Errorf("ordered now %v: called %v, %v", first, sky.calls, sky.times)
		}
		p.prepared["image"] = first
		if p.send(t.Context()); len(sky.calls) != 2 || (view.Operation("image") == nil) != first || view.Operation("added") == nil {
			t.Errorf("ordered now %v, later: called %v, %+v", first, sky.calls, view.Operations)
		}
	}
}

// That an image was put back is said once the cloud has done it, and once only, whatever process sees it; and not when the cloud refuses.
func TestPutBack(t *testing.T) {
	for name, tc := range map[string]struct {
		refused, failed bool
	}{"done": {}, "refused": {refused: true}, "failed": {failed: true}} {
		t.Run(name, func(t *testing.T) {
			world := clouds.New(t.Context(), clouds.Options{})
			if err := world.Create(t.Context(), clouds.Set{Name: "set", Image: "images/two", Capacity: 1}); err != nil {
				t.Fatal(err)
			}
			sky := newSky(world)
			// Each pass is that of a process of its own.
			next := func(s v1alpha1.NodeRolloutStatus) *pass {
				t.Helper()
				p := passOf(t, s)
				p.replacement.ScaleSets, p.prepared = []string{"set"}, map[string]bool{}
				p.options.Clouds = func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) { return sky, nil }
				p.look(t.Context())
				p.gather()
				judged(t, p)
				p.recordRollbacks(t.Context())
				return p
			}
			write := func(p *pass) {
				t.Helper()
				if err := p.write(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			says := func(p *pass, operations int, rolledBack string, happened ...string) {
				t.Helper()
				var said []string
				for _, e := range p.Pending {
					said = append(said, e.Message)
				}
				p.fillStatus()
				if s := p.rollout.Status.ScaleSets[0]; len(s.Operations) != operations || s.RolledBack != rolledBack || cmp.Diff(happened, said) != "" {
					t.Errorf("%+v, %q", s, said)
				}
			}
			p := next(v1alpha1.NodeRolloutStatus{ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "set", Image: "images/two", PreviousImage: "images/one"}}})
			p.prepare(t.Context(), &machine.Batch{CloudOperation: v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationSetImage, Image: "images/one", From: "images/two"}, Set: p.world.Sets["set"]})
			write(p)
			says(p, 1, "")

			sky.fails = func(call, _ string) (before, after error) {
				if tc.refused && call == "Send" {
					return cloud.Errorf(cloud.KindConflict, "another request was faster"), nil
				}
				if tc.failed && call == "Poll" {
					return cloud.Errorf(cloud.KindFailed, "no"), nil
				}
				return nil, nil
			}
			p = next(p.rollout.Status)
			write(p)
			p.send(t.Context())
			if tc.refused {
				says(p, 0, "")
				return
			}
			says(p, 1, "")

			p = next(p.rollout.Status)
			write(p)
			if tc.failed {
				says(p, 0, "")
				return
			}
			says(p, 0, "images/two", "Scale set "+"set has image images/one again: more turns have failed with images/two than the strategy allows")
			p = next(p.rollout.Status)
			write(p)
			says(p, 0, "images/two")
		})
	}
}

// An image is complete once all nodes have it that are not ignored, and stays so until turns fail with it.
func TestCompleteImages(t *testing.T) {
	nodeState := func(state v1alpha1.UnitState, change ...func(*machine.NodeState)) func(*pass) {
		return func(p *pass) {
			s := &machine.NodeState{Set: p.world.Sets["set"], Machine: &cloud.Machine{}, Counted: true, Unit: rollout.Unit{State: state}}
			for _, how := range change {
				how(s)
			}
			p.nodes = append(p.nodes, s)
		}
	}
	updated, outdated, failed := nodeState(v1alpha1.UnitUpdated), nodeState(v1alpha1.UnitOutdated), nodeState(v1alpha1.UnitFailed)
	turn := func(change func(*machine.Turn)) func(*pass) {
		return func(p *pass) {
			turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineSoaking)}
			change(turn)
			p.machineTurns = append(p.machineTurns, turn)
		}
	}
	for name, tc := range map[string]struct {
		with           []func(*pass)
		want, complete bool // where it was complete before
	}{
		"nothing":        {nil, false, true},
		"all":            {[]func(*pass){updated, updated}, true, true},
		"one outdated":   {[]func(*pass){updated, outdated}, false, true},
		"one has failed": {[]func(*pass){updated, failed}, false, false},
		"of another set": {[]func(*pass){updated, nodeState(v1alpha1.UnitOutdated, func(s *machine.NodeState) { s.Set = &machine.Set{Set: cloud.Set{Name: "other"}} })}, true, true},
		"ignored": {[]func(*pass){
			updated,
			nodeState(v1alpha1.UnitOutdated, func(s *machine.NodeState) { s.Counted = false }),
			nodeState(v1alpha1.UnitOutdated, func(s *machine.NodeState) { s.Unit.OptedOut = true }),
			nodeState(v1alpha1.UnitOutdated, func(s *machine.NodeState) { s.Machine.Protected = true }),
			nodeState(v1alpha1.UnitOutdated, func(s *machine.NodeState) { s.Machine.Aside = "it is in standby" }),
			nodeState(v1alpha1.UnitFailed, func(s *machine.NodeState) { s.Unit.Skipped = true }),
		}, true, true},
		"only such":       {[]func(*pass){nodeState(v1alpha1.UnitUpdated, func(s *machine.NodeState) { s.Unit.OptedOut = true })}, false, true},
		"a turn goes on":  {[]func(*pass){updated, turn(func(*machine.Turn) {})}, false, true},
		"a turn is over":  {[]func(*pass){updated, turn(func(t *machine.Turn) { t.Over = true })}, true, true},
		"another's turn":  {[]func(*pass){updated, turn(func(t *machine.Turn) { t.ScaleSet = "other" })}, true, true},
		"it is not known": {[]func(*pass){updated, func(p *pass) { p.world.Sets["set"].Known = false }}, false, true},
	} {
		for _, before := range []bool{false, true} {
			p := passOf(t, v1alpha1.NodeRolloutStatus{ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "set", Image: "two", Model: "2", Complete: before}}})
			p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set", Image: "two", Model: "2"}, Known: true}
			for _, how := range tc.with {
				how(p)
			}
			want := tc.want
			if before {
				want = tc.complete
			}
			if p.fillStatus(); p.rollout.Status.ScaleSets[0].Complete != want {
				t.Errorf("%s, %v before: %+v", name, before, p.rollout.Status.ScaleSets)
			}
		}
	}
}

// The strategy's rollback is that of scale sets, too. It is no new attempt.
func TestStrategyRollsBack(t *testing.T) {
	r := &v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{}}}
	before, err := resolve(r, nil)
	if err != nil || before.replacement.Rollback {
		t.Fatal(before.replacement, err)
	}
	r.Spec.Strategy = &v1alpha1.Strategy{Rollback: true}
	after, err := resolve(r, nil)
	if err != nil || !after.replacement.Rollback || r.Spec.Replacement.Rollback || after.spec != before.spec {
		t.Error(after.replacement, err)
	}
}

// Images are put back where turns have failed for what machines are made of now, and nowhere else.
func TestRollBack(t *testing.T) {
	failure := &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "no"}
	status := func(name, before string) v1alpha1.ScaleSetStatus {
		return v1alpha1.ScaleSetStatus{Name: name, Image: "two", Model: "2", PreviousImage: before}
	}
	p := passOf(t, v1alpha1.NodeRolloutStatus{ScaleSets: []v1alpha1.ScaleSetStatus{
		status("by-turn", "one"), status("by-node", "one"), status("unknown", ""), status("changed-since", "one"), status("well", "one"), status("skipped", "one"),
		{Name: "put-back", Image: "two", Model: "2", RolledBack: "three"},
	}})
	p.replacement.Rollback = true
	turn := func(set, attempt string, skipped bool) {
		f := *failure
		f.Skipped = skipped
		turn := turnIn(v1alpha1.MachineDiscarding)
		turn.ScaleSet, turn.Attempt, turn.Failed = set, attempt, &f
		p.machineTurns = append(p.machineTurns, &machine.Turn{MachineTurn: turn})
	}
	for i := range p.rollout.Status.ScaleSets {
		name := p.rollout.Status.ScaleSets[i].Name
		p.world.Sets[name] = &machine.Set{Set: cloud.Set{Name: name, Image: "two", Model: "2"}, Known: true}
	}
	now := p.attempt(p.world.Sets["by-turn"], nil)
	turn("by-turn", now, false)
	turn("unknown", now, false)
	turn("changed-since", "another", false)
	turn("skipped", now, true)
	turn("put-back", now, false)
	p.nodes = []*machine.NodeState{{Set: p.world.Sets["by-node"], Unit: rollout.Unit{State: v1alpha1.UnitFailed}}, {Set: p.world.Sets["well"], Unit: rollout.Unit{State: v1alpha1.UnitUpdated}}}
	for range 2 {
		p.orders = nil
		p.Decision.Halted = "halted"
		p.rollBack()
		var got []string
		for _, o := range p.orders {
			got = append(got, o.Set.Name+" "+o.Image)
		}
		if diff := cmp.Diff([]string{"by-turn one", "by-node one"}, got); diff != "" {
			t.Error(diff)
		}
		if want := "halted; it can't be rolled back: no image is known that all nodes of scale set unknown had before, " +
			"no image is known that all nodes of scale set put-back had before"; p.Decision.Halted != want {
			t.Errorf("got %s", p.Decision.Halted)
		}
	}
	p.orders, p.rollout.Spec.Strategy = nil, &v1alpha1.Strategy{Paused: true}
	if p.rollBack(); len(p.orders) > 0 {
		t.Errorf("one that is paused orders %+v", p.orders)
	}
	p.rollout.Spec.Strategy.Paused = false
	if p.rollBack(); len(p.orders) != 2 {
		t.Errorf("one that is paused no more orders %+v", p.orders)
	}
	p.orders, p.rules.DetectOnly = nil, true
	if p.rollBack(); len(p.orders) > 0 {
		t.Errorf("one that only detects orders %+v", p.orders)
	}
}

// While nothing may begin, a rollout takes over no node from Ducklett.
func TestAdoptNothingYet(t *testing.T) {
	for name, stop := range map[string]func(*pass){
		"paused": func(p *pass) { p.rollout.Spec.Strategy = &v1alpha1.Strategy{Paused: true} },
		"none at once": func(p *pass) {
			p.rollout.Spec.Strategy = &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(0))}
		},
		"refused": func(p *pass) { p.problem = errors.New("an older one replaces machines of the same scale set") },
	} {
		n := nodeNamed("old", func(n *corev1.Node) {
			n.Annotations[v1alpha1.AnnotationDucklettStatus] = v1alpha1.DucklettUpgradeDrainStarted
		})
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, n)
		p.world.Attempt = p.attempt
		stop(p)
		p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: []cloud.Machine{{ID: "m-old", ProviderID: "sky://old"}, {ID: "m-new", UpToDate: true}}}
		if err := p.adopt(t.Context()); err != nil || len(p.machineTurns) > 0 {
			t.Errorf("%s: %v, %+v", name, err, p.machineTurns)
		}
		p.rollout.Spec.Strategy, p.problem = nil, nil
		if err := p.adopt(t.Context()); err != nil || len(p.machineTurns) != 1 {
			t.Errorf("not %s: %v, %+v", name, err, p.machineTurns)
		}
	}
}

// A set counts as deleted once the cloud has said so for a while, and one answer that it is gone ends nothing.
func TestSetThatIsGone(t *testing.T) {
	turn := turnIn(v1alpha1.MachineAdding)
	turn.Node, turn.NodeUID, turn.Machine, turn.Replacement, turn.ReplacementNode, turn.DeletesFirst = "", "", "", "", "", true
	operation := v1alpha1.CloudOperation{Token: "token", Kind: v1alpha1.CloudOperationDelete, Machines: []string{"m-old"}, Sent: true}
	p := passOf(t, v1alpha1.NodeRolloutStatus{
		Turns: []v1alpha1.MachineTurn{turn}, ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "set", Operations: []v1alpha1.CloudOperation{operation}}},
	})
	world := clouds.New(t.Context(), clouds.Options{})
	sky := newSky(world)
	sky.fails = func(string, string) (before, after error) {
		return cloud.Errorf(cloud.KindNotFound, "no such set"), nil
	}
	s := newSet("set")
	p.memo.sets["set"], p.api = s, sky
	for _, after := range []time.Duration{0, goneAfter - time.Second, 2 * goneAfter} {
		p.Now = noon.Add(after)
		gone := after > goneAfter
		p.lookAt(t.Context(), s)
		p.lookAt(t.Context(), s) // At once, which changes nothing.
		if s.Known != gone || s.Deleted != gone || s.looking.reason != v1alpha1.ReasonScaleSetNotFound {
			t.Errorf("after %s: %+v", after, s)
		}
		p.gather()
		if judged(t, p); p.machineTurns[0].Over != gone || (len(p.world.Sets["set"].Operations) == 0) != gone {
			t.Errorf("after %s: its turn is over: %v, %+v", after, p.machineTurns[0].Over, p.world.Sets["set"].Operations)
		}
	}
	sky.fails = nil
	if err := world.Create(t.Context(), clouds.Set{Name: "set", Image: "a", Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	p.Now = p.Now.Add(time.Hour)
	if p.lookAt(t.Context(), s); s.Deleted || len(s.Machines) != 1 {
		t.Errorf("it is there again: %+v", s)
	}
}

// No turn is written down, and none goes on, without the finalizer.
func TestWriteKeeps(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{turnIn(v1alpha1.MachineSoaking)}})
	p.machineTurns = []*machine.Turn{{MachineTurn: p.rollout.Status.Turns[0]}}
	if err := p.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &v1alpha1.NodeRollout{}
	if err := p.Client.Get(t.Context(), p.Key, r); err != nil || !slices.Contains(r.Finalizers, v1alpha1.FinalizerReplacement) {
		t.Errorf("%v, %v", r.Finalizers, err)
	}
}

// A set is looked at once more before machines of it are deleted.
func TestPrepareOfDeletes(t *testing.T) {
	for name, fails := range map[string]func(string, string) (before, after error){
		"not there": nil,
		"protected": nil,
		"no answer": func(string, string) (before, after error) { return errors.New("down"), nil },
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		world, id := clouds.New(t.Context(), clouds.Options{}), "m-old"
		if err := world.Create(t.Context(), clouds.Set{Name: "set", Image: "a", Capacity: 1}); err != nil {
			t.Fatal(err)
		}
		if name == "protected" { // Since the set was looked at.
			id = world.Machines("set")[0].ID
			if err := world.EditMachine("set", id, func(m *clouds.Machine) { m.Protected = true }); err != nil {
				t.Fatal(err)
			}
		}
		sky := newSky(world)
		sky.fails, p.api = fails, sky
		s := newSet("set")
		s.Known, s.LookedAt = true, noon.Add(-lookJust)
		s.Machines = []cloud.Machine{{ID: id, State: cloud.Running}}
		p.memo.sets["set"] = s
		for range 3 {
			p.prepare(t.Context(), &machine.Batch{
				CloudOperation: v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationDelete, Machines: []string{id}}, Set: &machine.Set{Set: cloud.Set{Name: "set"}, Known: true},
			})
		}
		want := []string{"Describe", "Machines"}
		if fails != nil {
			want = want[:1]
		}
		if diff := cmp.Diff(want, sky.calls); diff != "" || !s.stale || s.looking.failures > 0 != (fails != nil) {
			t.Errorf("%s: %s, %+v", name, diff, s)
		}
		if got := p.Wake.Sub(noon); got < time.Second {
			t.Errorf("%s: it comes back after %s", name, got)
		}
	}
}

// suspending is a set that can be told not to move machines about, and notes what it was told.
type suspending struct {
	cloud.Cloud
	told  *[]bool
	fails error
}

func (s suspending) ScaleSet(string) cloud.ScaleSet { return suspender{told: s.told, fails: s.fails} }

type suspender struct {
	cloud.ScaleSet
	told  *[]bool
	fails error
}

func (s suspender) Suspend(_ context.Context, on bool) error {
	if s.told != nil {
		*s.told = append(*s.told, on)
	}
	return s.fails
}

// A rollout that only detects lets a set move machines about again that an operator before this one has kept from it, and keeps none from it.
func TestSuspend(t *testing.T) {
	for name, tc := range map[string]struct {
		detects, turn bool
		before        *bool
		want          []bool
	}{
		"a turn":                        {turn: true, want: []bool{true}},
		"no turn":                       {want: []bool{false}},
		"no turn, as is known":          {before: ptr.To(false)},
		"only detects":                  {detects: true, want: []bool{false}},
		"only detects, as is known":     {detects: true, before: ptr.To(false)},
		"only detects, after its turns": {detects: true, before: ptr.To(true), want: []bool{false}},
		"only detects, a turn":          {detects: true, turn: true, want: []bool{false}},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		var told []bool
		p.api, p.rules.DetectOnly = suspending{told: &told}, tc.detects
		p.memo.sets["set"] = newSet("set")
		p.memo.sets["set"].Known, p.memo.sets["set"].suspended = true, tc.before
		if tc.turn {
			p.machineTurns = []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineDiscarding)}}
		}
		for range 2 {
			p.suspend(t.Context())
		}
		if diff := cmp.Diff(tc.want, told); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A set that can't be told that it may move machines about again keeps a NodeRollout that is being deleted, and the condition says so. Where it is not to be
// told that, there is nothing to be said.
func TestUnresumed(t *testing.T) {
	for name, tc := range map[string]struct {
		ending bool
		after  func(*pass)
		want   string
	}{
		"being deleted": {ending: true, want: "the balancing of zones in scale set set can't be suspended or resumed: resuming it, no right"}, //nolint:dupword // The set is called set.
		"going on":      {want: "the balancing of zones in scale set set can't be suspended or resumed: resuming it, no right"},               //nolint:dupword // The set is called set.
		"told then":     {ending: true, after: func(p *pass) { p.api = suspending{} }},
		"gone then":     {ending: true, after: func(p *pass) { p.memo.sets["set"].Deleted = true }},
		"a turn then":   {after: func(p *pass) { p.machineTurns = []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineAdding)}} }},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		s := newSet("set")
		s.Known, s.suspended, p.memo.sets["set"] = true, ptr.To(true), s
		p.api = suspending{fails: cloud.Errorf(cloud.KindDenied, "resuming it, no right")}
		if err := p.editFinalizer(t.Context(), controllerutil.AddFinalizer); err != nil {
			t.Fatal(err)
		}
		if p.rules.Ending = tc.ending; tc.ending {
			p.rollout.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		p.suspend(t.Context())
		if tc.after != nil {
			tc.after(p)
			p.Now = p.Now.Add(lookBusy)
			p.suspend(t.Context())
		}
		note := p.countProgress().Note
		if said := strings.Contains(note, "or resumed"); said != (tc.want != "") || !strings.Contains(note, tc.want) {
			t.Errorf("%s: %s", name, note)
		}
		if err := p.removeFinalizer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stays := len(p.stored.GetFinalizers()) > 0; stays != (!tc.ending || tc.want != "") {
			t.Errorf("%s: its finalizer stays: %v", name, stays)
		}
	}
}

// A NodeRollout goes once nothing of it is left, also one that can't be carried out.
func TestLeave(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pass)
		stays  bool
	}{
		"nothing is left":  {change: func(*pass) {}},
		"it can't be done": {change: func(p *pass) { p.ready, p.world = false, nil }},
		"a turn":           {func(p *pass) { p.rollout.Status.Turns = make([]v1alpha1.MachineTurn, 1) }, true},
		"a turn, it can't": {func(p *pass) { p.ready, p.world, p.rollout.Status.Turns = false, nil, make([]v1alpha1.MachineTurn, 1) }, true},
		"an operation": {func(p *pass) {
			p.rollout.Status.ScaleSets = []v1alpha1.ScaleSetStatus{{Operations: make([]v1alpha1.CloudOperation, 1)}}
		}, true},
		"a claim, it can't": {func(p *pass) {
			p.ready, p.world, p.Seen.Nodes["old"].Claims = false, nil, []v1alpha1.Claim{{Rollout: p.Holder, UID: p.rollout.UID}}
		}, true},
		"suspended":           {func(p *pass) { p.memo.sets["set"].suspended = ptr.To(true) }, true},
		"suspended, and gone": {change: func(p *pass) { p.memo.sets["set"].suspended, p.memo.sets["set"].Deleted = ptr.To(true), true }},
		"perhaps suspended":   {func(p *pass) { p.memo.sets["set"].suspended = nil }, true},
		"no cloud that does it": {change: func(p *pass) {
			p.memo.sets["set"].suspended, p.replacement.Provider = nil, v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{}}
		}},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"))
		p.rollout.DeletionTimestamp = &metav1.Time{Time: noon}
		p.memo.sets["set"] = newSet("set")
		p.memo.sets["set"].suspended = ptr.To(false)
		if err := p.editFinalizer(t.Context(), controllerutil.AddFinalizer); err != nil {
			t.Fatal(err)
		}
		tc.change(p)
		if err := p.removeFinalizer(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := &v1alpha1.NodeRollout{}
		if err := p.Client.Get(t.Context(), p.Key, r); err != nil || len(r.Finalizers) > 0 != tc.stays {
			t.Errorf("%s: %v, %v", name, r.Finalizers, err)
		}
	}
}

// A Node that is Ready is not deleted, whatever the cloud says of its machine.
func TestDeleteNode(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false, corev1.ConditionUnknown: false, "": false} {
		n := nodeNamed("old", func(n *corev1.Node) {
			if status != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			}
		})
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, n)
		turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineDeleting)}
		if err := p.deleteNode(t.Context(), turn, p.world.Nodes["old"]); err != nil {
			t.Fatal(err)
		}
		err := p.Client.Get(t.Context(), types.NamespacedName{Name: "old"}, &corev1.Node{})
		if there := err == nil; there != want || strings.Contains(turn.Message, "is Ready") != want {
			t.Errorf("%q: %v, %s", status, err, turn.Message)
		}
	}
}

// A Node that went before another one came is counted from what was written down last; and what was evicted from it is recorded on the one that comes.
func TestAbsentNodes(t *testing.T) {
	turn := turnIn(v1alpha1.MachineAdding)
	turn.Node, turn.NodeUID, turn.Machine, turn.DeletesFirst = "", "", "", true
	turn.Absent = &v1alpha1.AbsentNode{Name: "old", Labels: map[string]string{"zone": "a"}, Evicted: []string{"ReplicaSet/shop/cart"}}
	p := passOf(t, v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{turn}}, nodeNamed("new"))
	count := func(want ...string) {
		t.Helper()
		nodes, err := (&Controller{Engine: p.Engine}).absent(t.Context())
		var names []string
		for _, n := range nodes {
			names = append(names, n.Name)
			claims, claimsErr := v1alpha1.ParseClaims(n.Annotations)
			evicted, evictedErr := v1alpha1.ParseEvicted(n.Annotations)
			if claimsErr != nil || evictedErr != nil || len(claims) != 1 || claims[0].Rollout != "NodeRollout/pool" || len(evicted) != 1 || n.Labels["zone"] != "a" {
				t.Errorf("%+v", n)
			}
		}
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("absent %v, %v, not %v", names, err, want)
		}
	}
	count("old")
	p.Fleet = fleet.New(p.Clock, p.Client, nil)
	if err := p.recordEvicted(t.Context(), machine.AbsentNodes(p.Holder, p.UID, p.rollout.Status.Turns)[0], p.world.Nodes["new"]); err != nil {
		t.Fatal(err)
	}
	replacement := &corev1.Node{}
	if err := p.Client.Get(t.Context(), types.NamespacedName{Name: "new"}, replacement); err != nil || replacement.Annotations[v1alpha1.AnnotationEvicted] != `["ReplicaSet/shop/cart"]` {
		t.Errorf("%v, %v", replacement.Annotations, err)
	}
	p.rollout.Status.Turns = nil
	if _, err := p.WriteStatus(t.Context(), p.stored, &p.rollout.Status); err != nil {
		t.Fatal(err)
	}
	count()
}

// A node that is cordoned was schedulable before: its drain begins anew.
func TestCordonBeginsAnew(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"))
	n := p.world.Nodes["old"]
	if err := p.Client.Get(t.Context(), types.NamespacedName{Name: "old"}, n.Node); err != nil {
		t.Fatal(err)
	}
	p.rules.Drains = false
	turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineDraining)}
	n.Claim = ptr.To(p.claimOf(turn))
	n.Claim.Cordoned = &metav1.Time{Time: noon.Add(-time.Hour)}
	if err := p.cordon(t.Context(), turn, n); err != nil {
		t.Fatal(err)
	}
	written := &corev1.Node{}
	if err := p.Client.Get(t.Context(), types.NamespacedName{Name: "old"}, written); err != nil {
		t.Fatal(err)
	}
	if claims, err := v1alpha1.ParseClaims(written.Annotations); err != nil || len(claims) != 1 || !claims[0].Cordoned.Equal(&metav1.Time{Time: noon}) {
		t.Errorf("%+v, %v", claims, err)
	}
}

// A claim of another rollout that is not a mere result keeps this one from the node.
func TestForeign(t *testing.T) {
	for name, tc := range map[string]struct {
		claims []v1alpha1.Claim
		want   bool
	}{
		"none":              {},
		"own":               {claims: []v1alpha1.Claim{{Rollout: "NodeRollout/pool", UID: "rollout"}}},
		"another's":         {[]v1alpha1.Claim{{Rollout: "NodeRollout/x", UID: "x"}}, true},
		"another's skipped": {claims: []v1alpha1.Claim{{Rollout: "NodeRollout/x", UID: "x", Failed: &v1alpha1.ClaimFailure{Skipped: true}}}},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"))
		p.Seen.Nodes["old"].Claims = tc.claims
		if n := p.nodeOf(p.Seen.Objects[0]); n.Foreign != tc.want {
			t.Errorf("%s: %v", name, n.Foreign)
		}
	}
}

// What a rollout asks of changed nodes keeps its waves back, too.
func TestWavesHeedHealth(t *testing.T) {
	for broken, want := range map[bool]v1alpha1.WaveState{true: v1alpha1.WaveUnhealthy, false: v1alpha1.WaveProgressing} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("new"), nodeNamed("old"))
		p.rollout.Spec.Strategy = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1))}}}
		p.rollout.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"broken"}}}
		for _, n := range p.Seen.Nodes {
			n.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		if broken {
			p.Seen.Nodes["new"].Taints = []corev1.Taint{{Key: "broken"}}
		}
		p.nodes = []*machine.NodeState{
			{Node: p.world.Nodes["new"], Counted: true, Unit: rollout.Unit{Node: "new", State: v1alpha1.UnitUpdated}},
			{Node: p.world.Nodes["old"], Counted: true, Unit: rollout.Unit{Node: "old", State: v1alpha1.UnitOutdated}},
		}
		p.Turns = p.units()
		p.Decide(p.Seen.Fleet)
		if got := p.Decision; got.Wave == nil || got.Wave.State != want || (len(got.Start) > 0) == broken {
			t.Errorf("broken %v: wave %+v, starting %v", broken, got.Wave, got.Start)
		}
	}
}

// Waves, and who has approved them, count for all that machines are made of. What an operator before has called by the image alone stays until that changes,
// and while it can't be told whether it has, nothing begins.
func TestWavesBeginAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		model     string
		denied    bool
		wave      int32
		starts    int
		of        string
		waitingBy v1alpha1.Reason
	}{
		"nothing new":        {model: "1", wave: 2, starts: 2, of: "two"},
		"another model":      {model: "2", wave: 1, starts: 1, of: "two@", waitingBy: v1alpha1.ReasonWavePending},
		"one is not known":   {model: "1", denied: true, wave: 2, of: "two", waitingBy: v1alpha1.ReasonCloudDenied},
		"neither is the one": {model: "2", denied: true, wave: 1, of: "two@", waitingBy: v1alpha1.ReasonCloudDenied},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{
			Revision: "two", TurnSeconds: 60, Wave: &v1alpha1.WaveStatus{Name: "remainder", Number: 2, Of: 2, Revision: "two", State: v1alpha1.WaveProgressing},
			ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "other", Image: "images/two", Model: "7", Machines: 2}, {Name: "set", Image: "images/two", Model: "1", Machines: 2}},
		})
		p.rollout.Annotations = map[string]string{v1alpha1.AnnotationApprove: "canary@two"}
		p.rollout.Spec.Strategy = &v1alpha1.Strategy{
			MaxConcurrent: ptr.To(intstr.FromInt32(3)), Waves: []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}},
		}
		if err := p.parse(); err != nil {
			t.Fatal(err)
		}
		p.selector = labels.Everything()
		set, other := newSet("set"), newSet("other")
		set.update(cloud.Set{Image: "images/two", ImageName: "two", Model: tc.model, Capacity: 2}, nil, nil, noon)
		if !tc.denied {
			other.update(cloud.Set{Image: "images/two", ImageName: "two", Model: "7"}, nil, nil, noon)
		}
		if tc.denied {
			other.looking.record(cloud.Errorf(cloud.KindDenied, "no rights"), noon)
		}
		for _, name := range []string{"a", "b"} {
			set.Machines = append(set.Machines, cloud.Machine{ID: name, ProviderID: "sky://" + name, State: cloud.Running})
			p.Seen.Objects = append(p.Seen.Objects, nodeNamed(name))
			p.Seen.Nodes[name] = &rollout.Node{Name: name, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
		}
		p.memo.sets["set"], p.memo.sets["other"] = set, other
		p.gather()
		judged(t, p)
		p.Turns = p.units()
		p.Decide(p.Seen.Fleet)
		if w := p.Decision.Wave; w == nil || w.Number != tc.wave || len(p.Decision.Start) != tc.starts || !strings.HasPrefix(w.Revision, tc.of) {
			t.Errorf("%s: %v start, wave %+v", name, p.Decision.Start, w)
		}
		if waiting := p.Decision.Waiting; tc.waitingBy != "" && (len(waiting) == 0 || waiting[0].Reason != tc.waitingBy) {
			t.Errorf("%s: %+v", name, waiting)
		}
		// What it was told by is never written without it.
		p.fillStatus()
		s, changed := p.rollout.Status, tc.model != "1"
		if s.ScaleSets[1].Model != tc.model || (s.Revision != "two") != changed || (s.TurnSeconds == 0) != changed {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A machine that has a part in a turn begins none of its own.
func TestBeginOncePerMachine(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("again"))
	set := &machine.Set{Set: cloud.Set{Name: "set", Capacity: 3}, Known: true, Machines: []cloud.Machine{{ID: "m-old"}}}
	p.world.Sets["set"] = set
	p.machineTurns = []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineSoaking)}}
	p.nodes = []*machine.NodeState{{Node: p.world.Nodes["again"], Set: set, Machine: &set.Machines[0], Unit: rollout.Unit{Node: "again"}}}
	p.Decision.Start = []string{"again"}
	p.begin(t.Context(), p.units())
	if len(p.machineTurns) != 1 || len(p.Decision.Waiting) != 1 || p.Decision.Waiting[0].Reason != v1alpha1.ReasonMachineUnknown {
		t.Errorf("%d turns, %+v", len(p.machineTurns), p.Decision.Waiting)
	}
}

// A turn whose machine is being added for too long is told to have failed, once, although it waits on.
func TestOverdueIsTold(t *testing.T) {
	turn := turnIn(v1alpha1.MachineAdding)
	turn.Replacement, turn.ReplacementNode, turn.Operation = "", "", "token"
	operation := v1alpha1.CloudOperation{Token: "token", Kind: v1alpha1.CloudOperationAdd, Count: 1, Since: metav1.Time{Time: noon.Add(-time.Hour)}, Sent: true}
	p := passOf(t, v1alpha1.NodeRolloutStatus{
		Turns: []v1alpha1.MachineTurn{turn}, ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "set", Operations: []v1alpha1.CloudOperation{operation}}},
	}, nodeNamed("old"))
	s := newSet("set")
	s.Known, s.LookedAt = true, noon
	p.memo.sets["set"] = s
	p.gather()
	for range 2 {
		judged(t, p)
		p.recordProgress(p.machineTurns[0], &p.before.Turns[0])
		if len(p.Pending) != 2 || p.Pending[0].Reason != "NodeUpdateFailed" || p.Pending[1].Reason != "Failed" || p.machineTurns[0].Unit.State != v1alpha1.UnitFailed || p.machineTurns[0].Phase != v1alpha1.MachineAdding {
			t.Errorf("%+v, %+v", p.Pending, p.machineTurns[0])
		}
		p.fillStatus()
		p.before = p.rollout.Status
	}
}

// The zone balancing of a deleted set can't be resumed: the rollout forgets the set.
func TestForgetsADeletedSet(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	s := newSet("set")
	s.suspended, p.memo.sets["set"] = ptr.To(true), s
	for _, absent := range []bool{false, true} {
		s.Deleted = absent
		if names := p.setNames(); (len(names) == 0) != absent {
			t.Errorf("absent %v: %v", absent, names)
		}
	}
}

// A rollout does not resume the zone balancing of a set in which another rollout has turns.
func TestSuspendedByAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		set      string
		provider v1alpha1.CloudProvider
		want     []bool
	}{
		"in this set":   {set: "set", provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}},
		"in another":    {set: "another", provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}, want: []bool{false}},
		"another cloud": {set: "set", provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: "shop"}}, want: []bool{false}},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		turn := turnIn(v1alpha1.MachineJoining)
		turn.ScaleSet = tc.set
		another := &v1alpha1.NodeRollout{
			ObjectMeta: metav1.ObjectMeta{Name: "another"},
			Spec:       v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{Provider: tc.provider}},
			Status:     v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{turn}},
		}
		var told []bool
		s := newSet("set")
		s.Known, p.memo.sets["set"], p.api = true, s, suspending{told: &told}
		if err := errors.Join(p.Client.Create(t.Context(), another), p.readOthers(t.Context())); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.suspend(t.Context())
		}
		if diff := cmp.Diff(tc.want, told); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// The other's turns may have ended in the same instant.
		p.others = nil
		if p.suspend(t.Context()); len(told) != 1 || told[0] {
			t.Errorf("%s: then it was told %v", name, told)
		}
		// A rollout that is deleted does not wait for the other.
		p.others, s.suspended, p.rollout.DeletionTimestamp = []*v1alpha1.NodeRollout{another}, nil, &metav1.Time{Time: noon}
		if p.suspend(t.Context()); p.maybeSuspended(s) {
			t.Errorf("%s: it is kept", name)
		}
	}
}

// Ducklett's marks stay on a node while no turn may begin for it.
func TestMarksOfDucklettStay(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pass)
		stay   bool
	}{
		"nothing was added": {func(p *pass) { p.world.Sets["set"].Machines = p.world.Sets["set"].Machines[:1] }, false},
		"too many turns":    {func(p *pass) { p.machineTurns = slices.Repeat([]*machine.Turn{{}}, v1alpha1.MaxMachineTurns) }, true},
		"being deleted":     {func(p *pass) { p.world.Ending, p.rules.Ending = true, true }, true},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old", func(n *corev1.Node) {
			n.Annotations[v1alpha1.AnnotationDucklettStatus] = v1alpha1.DucklettUpgradeDrainStarted
			n.Annotations[v1alpha1.AnnotationDucklettImage], n.Annotations[v1alpha1.AnnotationDucklettDrain] = "two", "1790000000"
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDucklett, Value: "1790000000", Effect: corev1.TaintEffectNoSchedule}}
		}))
		p.world.Attempt = p.attempt
		p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: []cloud.Machine{{ID: "m-old", ProviderID: "sky://old"}, {ID: "m-new", UpToDate: true}}}
		tc.change(p)
		before := len(p.machineTurns)
		if err := p.adopt(t.Context()); err != nil || len(p.machineTurns) != before {
			t.Errorf("%s: %v, %d turns", name, err, len(p.machineTurns))
		}
		n := &corev1.Node{}
		if err := p.Client.Get(t.Context(), types.NamespacedName{Name: "old"}, n); err != nil || machine.LeftByDucklett(n) != tc.stay {
			t.Errorf("%s: %v, %v", name, err, n.Annotations)
		}
	}
}

// A node that must be released begins no turn before: its turn would keep it cordoned.
func TestReleasedBeforeItsTurnBegins(t *testing.T) {
	for step, want := range map[machine.Step]int{machine.StepNone: 1, machine.StepRelease: 0} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"))
		set := &machine.Set{Set: cloud.Set{Name: "set", Capacity: 3}, Known: true, Machines: []cloud.Machine{{ID: "m-old"}}}
		p.world.Surge, p.world.Attempt, p.Decision.Start = rollout.Amount{N: 1}, p.attempt, []string{"old"}
		p.nodes = []*machine.NodeState{{Node: p.world.Nodes["old"], Set: set, Machine: &set.Machines[0], Step: step, Unit: rollout.Unit{Node: "old"}}}
		if p.begin(t.Context(), p.units()); len(p.machineTurns) != want || len(p.nodes) != 1-want {
			t.Errorf("%q: %d turns, %d nodes", step, len(p.machineTurns), len(p.nodes))
		}
	}
}

// What a turn has done is counted only after its status is written: after a conflict the next pass counts it.
func TestCountsOnceAfterAConflict(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{turnIn(v1alpha1.MachineJoining)}})
	p.machineTurns = []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineDiscarding)}}
	p.machineTurns[0].Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "no", Time: metav1.Time{Time: noon}}
	p.fillStatus()
	fresh := p.stored.DeepCopy()
	fresh.SetAnnotations(map[string]string{"changed": "meanwhile"})
	if err := p.Client.Update(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if err := p.writeStatus(t.Context()); err == nil || len(p.Pending) > 0 {
		t.Errorf("%v, %+v", err, p.Pending)
	}
	if err := p.Client.Get(t.Context(), p.Key, p.stored); err != nil {
		t.Fatal(err)
	}
	if err := p.writeStatus(t.Context()); err != nil || len(p.Pending) != 2 {
		t.Errorf("%v, %+v", err, p.Pending)
	}
}

// A pass that can't read the other rollouts judges nothing: it reports nothing, and keeps the finalizer.
func TestNotJudgedIsNotReported(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{turnIn(v1alpha1.MachineJoining)}})
	p.options.Clouds = func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) {
		return newSky(clouds.New(t.Context(), clouds.Options{})), nil
	}
	p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // The fake client is one.
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	})
	if err := p.carryOut(t.Context()); err == nil || !p.unwritten {
		t.Errorf("%v, unwritten %v", err, p.unwritten)
	}
}

// guarded is a cloud that does not say whether a machine is protected.
type guarded struct{ cloud.Cloud }

func (g guarded) ScaleSet(string) cloud.ScaleSet { return guard{} }

type guard struct{ cloud.ScaleSet }

func (guard) Protected(context.Context, string) (bool, error) {
	return false, cloud.Errorf(cloud.KindDenied, "no right")
}

// A turn whose protection can't be read waits with a reason: it takes no slot from others.
func TestProtectionThatCantBeRead(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	p.api, p.memo.sets["set"] = guarded{}, newSet("set")
	p.world.Sets["set"] = &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: []cloud.Machine{{ID: "m-old"}}}
	turn := &machine.Turn{MachineTurn: turnIn(v1alpha1.MachineClaiming), Claimable: true}
	p.machineTurns = []*machine.Turn{turn}
	p.checkProtection(t.Context())
	if turn.Claimable || turn.Unit.Reason != v1alpha1.ReasonCloudDenied || turn.Unit.Message != "no right" {
		t.Errorf("%+v", turn)
	}
}

type protecting struct{ cloud.Cloud }

func (protecting) ScaleSet(string) cloud.ScaleSet { return protector{} }

type protector struct{ cloud.ScaleSet }

func (protector) Protected(context.Context, string) (bool, error) { return true, nil }

// No turn begins for a protected machine: the machine that it adds would take the surge of other nodes.
func TestProtectedMachineBeginsNoTurn(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	p.api, p.memo.sets["set"] = protecting{}, newSet("set")
	set := &machine.Set{Set: cloud.Set{Name: "set"}, Known: true, Machines: []cloud.Machine{{ID: "m-old"}}}
	p.world.Sets["set"], p.world.Surge = set, rollout.Amount{N: 1}
	state := &machine.NodeState{Node: &machine.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}}, Set: set, Machine: &set.Machines[0]}
	p.nodes = []*machine.NodeState{state}
	p.begin(t.Context(), []*unit{{state: state}})
	if len(p.machineTurns) > 0 || len(p.Decision.Waiting) != 1 || p.Decision.Waiting[0].Reason != v1alpha1.ReasonMachineProtected {
		t.Errorf("%d turns, %+v", len(p.machineTurns), p.Decision.Waiting)
	}
}

// With several sets that can't be read, the message is the same in each pass.
func TestMessageOfSeveralUnreadSets(t *testing.T) {
	messages := map[string]bool{}
	for range 30 {
		p := passOf(t, v1alpha1.NodeRolloutStatus{})
		for _, name := range []string{"a", "b", "c", "d"} {
			p.memo.sets[name] = newSet(name)
			p.memo.sets[name].looking.record(errors.New("down"), noon)
		}
		p.gather()
		messages[p.unreadableMessage] = true
	}
	if len(messages) != 1 {
		t.Errorf("%v", messages)
	}
}

// Etcd is asked once before turns begin, and where it is not well none begins. Elsewhere it is not asked.
func TestEtcdIsAskedBeforeTurnsBegin(t *testing.T) {
	for name, tc := range map[string]struct {
		none, inTurn, workers, external bool
		sick                            string
		asked                           int
		waits                           bool
	}{
		"well": {asked: 1}, "sick": {sick: "member x is sick", asked: 1, waits: true},
		"none may start": {none: true}, "a turn is under way": {inTurn: true}, "workers": {workers: true}, "etcd is elsewhere": {external: true},
	} {
		p := passOf(t, v1alpha1.NodeRolloutStatus{}, nodeNamed("old"))
		of := &plane{closed: tc.sick}
		p.options.Plane, p.rules.ControlPlane = of, !tc.workers
		if tc.external {
			p.replacement.ControlPlane = &v1alpha1.ControlPlane{Etcd: v1alpha1.EtcdExternal}
		}
		set := &machine.Set{Set: cloud.Set{Name: "set", Capacity: 3}, Known: true, Machines: []cloud.Machine{{ID: "m-1"}}}
		p.world.Surge, p.world.Attempt, p.Decision.Start = rollout.Amount{N: 1}, p.attempt, []string{"old"}
		p.nodes = []*machine.NodeState{{Node: p.world.Nodes["old"], Set: set, Machine: &set.Machines[0], Unit: rollout.Unit{Node: "old"}}}
		if tc.inTurn {
			p.machineTurns = []*machine.Turn{{MachineTurn: turnIn(v1alpha1.MachineSoaking)}}
		}
		chosen := p.units()
		if tc.none {
			chosen = nil
		}
		p.begin(t.Context(), chosen)
		waits := len(p.Decision.Waiting) == 1 && p.Decision.Waiting[0].Reason == v1alpha1.ReasonEtcdUnhealthy && p.Decision.Waiting[0].Message == tc.sick
		if of.asked != tc.asked || waits != tc.waits {
			t.Errorf("%s: asked %d times, %+v", name, of.asked, p.Decision.Waiting)
		}
	}
}
