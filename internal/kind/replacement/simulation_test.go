// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/test/tier"
)

// vm is a machine of the simulated cloud.
type vm struct {
	cloud.Machine
	model   int
	until   time.Time // when it gets out of Creating or Deleting
	never   bool      // its node never joins
	ordered bool      // by the rollout
}

// task is what the simulated cloud remembers of an operation.
type task struct {
	added []string
	done  time.Time
}

// simulation is a cloud, a cluster, and a controller that is killed now and then.
type simulation struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	now  time.Time

	model, capacity, max int
	machines             []*vm
	tasks                map[string]*task
	next                 int

	nodes  map[string]*corev1.Node
	pods   map[string]bool    // nodes where pods run that must be drained
	away   map[types.UID]bool // nodes that were to be replaced and have left the control plane
	claims map[string]*v1alpha1.Claim
	// members are the machines, of a control plane, that are members of etcd, and owed those that died as replacements: they leave it as well, and their Nodes go.
	members, owed map[string]bool

	status     []v1alpha1.MachineTurn
	operations []v1alpha1.CloudOperation

	missing       map[string]time.Time
	ended         map[string]Ended // those that this look has shown
	prepared      map[string]bool  // operations of this pass
	drained, left map[string]bool

	rules         Rules
	optedOut      map[string]bool
	faults        float64 // how often something goes wrong
	restored      bool    // machines were deleted before others came
	base          int
	slack         int     // how many machines have gone by themselves
	outside       int     // by how many others have changed the capacity
	kills         float64 // how often the process is killed
	exact         bool    // each machine must be replaced once
	nevers        float64 // how often a machine that was ordered never joins
	hangs         float64 // how often an operation takes long
	handed        int     // how many machines turns were given before their operation was over
	heals         bool    // the only disturbance is that machines die, and the cloud makes others, after so many seconds at most
	images        bool    // but for other images
	slow          int
	healing       []time.Time // when others are made
	shrinks       bool        // the only disturbance is that others delete machines, and the capacity with them, which takes so many seconds at most
	failedMachine bool        // a machine failed before the rollout, and has no Node
	edits         bool        // surge is changed meanwhile, to what is not more than at first
	lingers       int
	taken         int     // how many of these had a part in a turn: that one may have asked for another in their place
	busy          float64 // how often the cloud has no time for a deletion
	ordered       int
	strikes       int // how many replacements die while nodes are leaving, and struck how many have
	struck        int
	// seen is the set as it was looked at last. When the next look shows it partly, there is no other until forgotten.
	seen      *Set
	partly    bool
	forgotten time.Time
	log       []string
	// observe is called with what is decided, before that is done.
	observe func(*World, []*Turn, []rollout.Unit, rollout.Decision)
}

type crash struct{}

func (s *simulation) chance(p float64) bool { return s.r.Float64() < p }

// point is an instant at which the process may be killed.
func (s *simulation) point() {
	if s.chance(s.kills) {
		panic(crash{})
	}
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%s ", s.now.Format("15:04:05"))+fmt.Sprintf(format, args...))
}

func (s *simulation) wrong(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.log[max(0, len(s.log)-80):], "\n"))
	s.t.FailNow()
}

func (s *simulation) add(n int, zone string, ordered bool) (ids []string) {
	for range n {
		s.next++
		id := fmt.Sprintf("m%d", s.next)
		m := &vm{
			Machine: cloud.Machine{ID: id, ProviderID: "sim://" + id, Zone: zone, State: cloud.Creating, Created: s.now}, model: s.model,
			until: s.now.Add(time.Duration(5+s.r.IntN(20)) * time.Second), ordered: ordered,
		}
		if s.rules.ControlPlane {
			m.NodeName = "n-" + id
		}
		m.never = ordered && s.chance(max(s.faults, s.nevers))
		s.machines = append(s.machines, m)
		ids = append(ids, id)
	}
	s.capacity += n
	return ids
}

func (s *simulation) machine(id string) *vm {
	for _, m := range s.machines {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func (s *simulation) live() (n int) {
	for _, m := range s.machines {
		if m.State != cloud.Deleting {
			n++
		}
	}
	return n
}

// tick lets the cloud and the cluster go on.
func (s *simulation) tick() {
	s.now = s.now.Add(time.Duration(1+s.r.IntN(5)) * time.Second)
	s.machines = slices.DeleteFunc(s.machines, func(m *vm) bool {
		if s.now.Before(m.until) {
			return false
		}
		if m.State == cloud.Creating {
			m.State = cloud.Running
			s.members[m.ID] = s.rules.ControlPlane
			if !m.never {
				name := "n-" + m.ID
				s.nodes[name] = &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{
						Name: name, UID: types.UID("uid-" + m.ID), Annotations: map[string]string{}, CreationTimestamp: metav1.NewTime(s.now),
					},
					Spec: corev1.NodeSpec{ProviderID: m.ProviderID},
				}
			}
		}
		return m.State == cloud.Deleting
	})
	s.healing = slices.DeleteFunc(s.healing, func(at time.Time) bool {
		if s.now.Before(at) {
			return false
		}
		s.capacity-- // It is one of those that were to be there.
		s.note("the cloud makes %s", s.add(1, "a", false)[0])
		return true
	})
	for name, n := range s.nodes {
		s.pods[name] = s.pods[name] || !n.Spec.Unschedulable
	}
}

// disturb lets others do what they do.
func (s *simulation) disturb() {
	pick := func() *vm {
		if len(s.machines) == 0 {
			return nil
		}
		return s.machines[s.r.IntN(len(s.machines))]
	}
	kind := s.r.IntN(12)
	switch {
	case s.heals && s.images && s.chance(0.5):
		kind = 0
	case s.heals:
		kind = 2
	case s.shrinks:
		kind = 4
	}
	m := pick()
	if m != nil && s.kills > 0 && (s.heals || s.shrinks) && slices.ContainsFunc(s.operations, func(o v1alpha1.CloudOperation) bool {
		return s.tasks[o.Token] == nil && slices.Contains(o.Machines, m.ID)
	}) {
		return // If the process is killed now no one can tell whether it has gone by itself, or because it was asked for.
	}
	switch kind {
	case 0:
		s.model = 2 + s.r.IntN(3)
		s.note("the image is %d", s.model)
	case 1:
		s.model = 1
		s.note("the image is as at first")
	case 2:
		if m != nil && m.State != cloud.Deleting {
			s.slack++
			m.State, m.until = cloud.Deleting, s.now
			s.dies(m.ID)
			if s.slow > 0 {
				s.healing = append(s.healing, s.now.Add(time.Duration(s.r.IntN(s.slow))*time.Second))
				s.note("%s dies, and another will be made", m.ID)
			} else if s.capacity--; s.heals || s.chance(0.5) {
				s.add(1, m.Zone, false)
				s.note("%s dies, and another is made", m.ID)
			} else {
				s.outside--
				s.note("%s dies", m.ID)
			}
		}
	case 3:
		s.add(1, "", false)
		s.outside++
		s.note("an autoscaler adds one")
	case 4:
		if m != nil && m.State == cloud.Running && s.capacity > 1 {
			m.State, m.until = cloud.Deleting, s.now.Add(5*time.Second)
			adding := Set{Operations: s.operations}
			if slices.ContainsFunc(s.status, func(t v1alpha1.MachineTurn) bool { return t.Machine == m.ID || t.Replacement == m.ID }) || adding.maybeAdded(&m.Machine, nil) {
				s.taken++
			}
			if s.lingers > 0 {
				m.until = s.now.Add(time.Duration(s.r.IntN(s.lingers)) * time.Second)
			}
			s.dies(m.ID)
			s.capacity--
			s.outside--
			s.slack++
			s.note("an autoscaler takes %s", m.ID)
		}
	case 5:
		if m != nil {
			name := "n-" + m.ID
			if s.optedOut[name] = !s.optedOut[name]; s.optedOut[name] {
				s.note("%s opts out", name)
			}
		}
	case 6:
		if m != nil && m.State == cloud.Deleting {
			delete(s.nodes, "n-"+m.ID)
			delete(s.claims, "n-"+m.ID)
		}
	case 7:
		if m != nil {
			if c := s.claims["n-"+m.ID]; c != nil {
				delete(s.claims, "n-"+m.ID)
				s.note("a person takes the claim on n-%s away", m.ID)
			}
		}
	case 8, 9:
		if m := s.held(); m != nil {
			s.nodes["n-"+m.ID].Spec.Unschedulable = false
			s.note("a person uncordons n-%s", m.ID)
		}
	case 10:
		if m := s.held(); m != nil {
			name := "n-" + m.ID
			s.next++
			s.nodes[name] = &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("uid-%s-%d", m.ID, s.next)), Annotations: map[string]string{}},
				Spec:       corev1.NodeSpec{ProviderID: m.ProviderID},
			}
			delete(s.claims, name)
			s.pods[name] = true
			s.note("%s is registered again", name)
		}
	case 11:
		s.partly, s.forgotten = true, s.now.Add(time.Duration(s.r.IntN(60))*time.Second)
		s.note("the cloud forgets a machine, and is not to be asked then")
	}
}

// dies notes a machine that goes by itself. If it is a replacement, and the turn has seen its node, the turn takes its member out of etcd.
func (s *simulation) dies(id string) {
	for i := range s.status {
		t := &s.status[i]
		s.owed[id] = s.owed[id] || t.Replacement == id && t.ReplacementNode != "" && t.Phase != v1alpha1.MachineSoaking
	}
}

// held is a machine whose node the rollout has claimed; any that runs where there is none.
func (s *simulation) held() (held *vm) {
	for _, m := range s.machines {
		if s.nodes["n-"+m.ID] == nil || m.State != cloud.Running {
			continue
		}
		if held = m; s.claims["n-"+m.ID] != nil {
			return m
		}
	}
	return held
}

// send is the cloud's end of an operation: done once, however often it is asked for.
func (s *simulation) send(o v1alpha1.CloudOperation) {
	if s.tasks[o.Token] != nil {
		return
	}
	k := &task{done: s.now.Add(time.Duration(s.r.IntN(15)) * time.Second)}
	if s.hangs > 0 && o.Kind == v1alpha1.CloudOperationAdd && s.chance(s.hangs) {
		k.done = s.now.Add(time.Duration(s.r.IntN(150)) * time.Second) // Not so long that what is made in place of a machine is not known as that any more.
	}
	s.tasks[o.Token] = k
	switch o.Kind {
	case v1alpha1.CloudOperationAdd:
		k.added = s.add(int(o.Count), o.State, true)
		s.ordered += len(k.added)
	case v1alpha1.CloudOperationDelete:
		for _, id := range o.Machines {
			if m := s.machine(id); m != nil && m.State != cloud.Deleting {
				if n := s.nodes["n-"+id]; n != nil && (!n.Spec.Unschedulable || s.pods[n.Name]) {
					s.wrong("machine %s is deleted, and its node is not empty", id)
				}
				if s.members[id] && s.nodes["n-"+id] != nil {
					s.wrong("machine %s is deleted, and its member is in etcd", id)
				}
				s.owed[id] = true // One without a node may have become a member just now.
				m.State, m.until = cloud.Deleting, k.done
				s.capacity--
			}
		}
	case v1alpha1.CloudOperationSetImage:
	}
}

// look looks at the set, or remembers how it was when the cloud can't be asked.
func (s *simulation) look() *Set {
	if s.seen != nil && s.now.Before(s.forgotten) && !s.partly {
		set := *s.seen
		set.Operations, set.Ended = slices.Clone(s.operations), nil
		return &set
	}
	set := &Set{
		Set:        cloud.Set{Name: "set", Image: fmt.Sprint(s.model), ImageName: fmt.Sprint(s.model), Model: fmt.Sprint(s.model), Capacity: s.capacity, Max: s.max, Zones: []string{"a", "b"}},
		Known:      true,
		LookedAt:   s.now,
		Operations: slices.Clone(s.operations),
		Ended:      s.ended,
	}
	for i, m := range s.machines {
		if s.partly && i == int(s.forgotten.Unix())%len(s.machines) {
			continue
		}
		seen := m.Machine
		seen.UpToDate = m.model == s.model
		set.Machines = append(set.Machines, seen)
	}
	var ours []string
	for i := range s.status {
		ours = append(ours, s.status[i].Replacement, s.status[i].Machine)
	}
	s.missing = StillMissing(s.missing, set.Machines, ours, s.now)
	set.Missing = s.missing
	s.seen, s.partly = set, false
	again := *set
	return &again
}

// world is what the controller sees.
func (s *simulation) world() *World {
	set := s.look()
	w := &World{
		Rules: s.rules, Now: s.now, Revision: fmt.Sprint(s.model), Sets: map[string]*Set{"set": set}, Nodes: map[string]*Node{},
		Unhealthy: func(name string) (string, time.Time) {
			if m := s.machine(strings.TrimPrefix(name, "n-")); m == nil || m.State != cloud.Running {
				return "not ready", time.Time{}
			}
			return "", time.Time{}
		},
		Unstable: func(*Turn, string) (string, time.Time) { return "", time.Time{} },
		SoakEnd:  func(_ string, since time.Time) time.Time { return since.Add(5 * time.Second) },
		Attempt:  func(set *Set, _ *Node) string { return set.Model },
		Rank:     func(uid types.UID) uint64 { return rollout.Rank(uid, "r", "1") },
		Drained:  s.drained, Left: s.left,
	}
	for name, n := range s.nodes {
		w.Nodes[name] = &Node{
			Node: n, Claim: s.claims[name], Selected: true, OptedOut: s.optedOut[name], Marked: n.Spec.Unschedulable && n.Annotations["by"] != "",
			NoScaleDown: n.Annotations["shield"] != "", MayDisableScaleDown: n.Annotations["shield"] == "",
		}
	}
	return w
}

// reconcile is one pass of the controller, unless it is killed in it.
func (s *simulation) reconcile() {
	defer func() {
		if err := recover(); err != nil {
			if _, killed := err.(crash); !killed {
				panic(err)
			}
			s.note("killed")
			s.start()
		}
	}()
	s.ended, s.prepared = map[string]Ended{}, map[string]bool{}
	for i := range s.operations {
		o := &s.operations[i]
		k := s.tasks[o.Token]
		if !o.Sent || k == nil || s.now.Before(k.done) {
			continue
		}
		gone := func(id string) bool { return s.machine(id) == nil && slices.Contains(o.Machines, id) }
		s.ended[o.Token] = Ended{OK: true, Added: slices.DeleteFunc(slices.Clone(k.added), gone)}
		if o.Kind == v1alpha1.CloudOperationAdd {
			s.handed += len(o.Machines)
		}
	}
	w := s.world()
	set := w.Sets["set"]
	set.Added = map[string][]string{}
	for _, o := range s.operations {
		if k := s.tasks[o.Token]; k != nil && o.Sent && (s.hangs > 0 || s.chance(0.5)) {
			set.Added[o.Token] = k.added
		}
	}
	var turns []*Turn
	for i := range s.status {
		turns = append(turns, &Turn{MachineTurn: s.status[i]})
	}
	turns = w.Judge(turns)
	for _, t := range turns {
		s.advance(w, t)
	}
	turns = s.decide(w, turns)
	for _, b := range w.Batches(turns) {
		if s.now.Sub(set.LookedAt) > 15*time.Second || !s.there(&b) {
			continue
		}
		b.Token, b.State, b.Since = fmt.Sprintf("t%d", s.r.Uint32()), b.Zone, *nodeturn.Stamp(s.now)
		s.check(w, &b)
		b.RecordOrder()
		s.prepared[b.Token] = true
	}
	s.point()
	if s.chance(s.faults / 2) {
		s.note("the status has changed meanwhile")
		return
	}
	s.write(turns, set)
	s.point()
	for _, t := range turns {
		if !t.Over {
			s.apply(w, t)
		}
	}
	s.sendAll(w, set, turns)
	s.write(turns, set)
	for _, t := range turns {
		if t.Absent != nil && (t.Over || w.ReplacementNode(t) != nil && w.oldNode(t) == nil) {
			s.wrong("turn %s has a Node again, and still counts one that is absent: %+v", t.Turn, t.MachineTurn)
		}
	}
}

// advance takes a step after which a turn may go on in the same pass, as the controller does.
func (s *simulation) advance(w *World, t *Turn) {
	drains, deletes := t.Step == StepDrain, t.Step == StepDeleteNode && !t.DeletesFirst && !t.OnReplacement
	if t.Over || !drains && !deletes {
		return
	}
	s.apply(w, t)
	switch {
	case deletes:
		delete(w.Nodes, t.Node)
	case !s.drained[t.Key(t.OnReplacement)]:
		t.Step = StepNone
		return
	}
	w.JudgeTurn(t)
}

// there reports whether machines that will be deleted are there at this moment.
func (s *simulation) there(b *Batch) bool {
	return !slices.ContainsFunc(b.Machines, func(id string) bool { m := s.machine(id); return m == nil || m.State == cloud.Deleting })
}

// check looks at what is about to be asked for.
func (s *simulation) check(w *World, b *Batch) {
	for i, t := range b.Turns {
		s.note("%s for turn %s (%s)", b.Kind, t.Turn, t.Phase)
		if b.Kind == v1alpha1.CloudOperationAdd {
			continue
		}
		if name := "n-" + b.Machines[i]; s.nodes[name] != nil && s.pods[name] {
			s.wrong("machine %s is deleted, and pods run on its node", b.Machines[i])
		}
		n := w.oldNode(t)
		if t.Phase == v1alpha1.MachineDeleting && n != nil && (n.Claim == nil || !n.Spec.Unschedulable) && s.slack == 0 {
			s.wrong("machine %s is deleted, and its node is not claimed and cordoned", b.Machines[i])
		}
		if m := s.machine(t.Replacement); t.Phase == v1alpha1.MachineDeleting && !t.DeletesFirst && (m == nil || m.State != cloud.Running) && s.slack == 0 {
			s.wrong("machine %s is deleted, and its replacement is not there", b.Machines[i])
		}
	}
}

// write writes the status.
func (s *simulation) write(turns []*Turn, set *Set) {
	s.status = nil
	for _, t := range turns {
		if !t.Over {
			s.status = append(s.status, t.MachineTurn)
		}
	}
	s.operations = slices.Clone(set.Operations)
}

// decide claims nodes, and begins turns.
func (s *simulation) decide(w *World, turns []*Turn) []*Turn {
	var units []rollout.Unit
	inTurn := map[string]bool{}
	for _, t := range turns {
		if t.Over {
			continue
		}
		units = append(units, t.Unit)
		if n := w.oldNode(t); n != nil {
			inTurn[n.Name] = true
		}
		if n := w.ReplacementNode(t); n != nil {
			inTurn[n.Name] = true
		}
	}
	rooms := w.Rooms(turns)
	states := map[string]*NodeState{}
	for name, n := range w.Nodes {
		if inTurn[name] {
			continue
		}
		p := w.JudgeNode(n, rooms)
		if p.Step == StepRelease {
			s.release(name)
		}
		if p.Counted {
			units = append(units, p.Unit)
			states[name] = p
		}
	}
	slices.SortFunc(units, func(a, b rollout.Unit) int { return strings.Compare(a.Node, b.Node) })
	if s.rules.Ending {
		return turns
	}
	d := rollout.Decide(rollout.Strategy{UID: "r", MaxConcurrent: 2}, units, rollout.Fleet{}, s.now)
	if s.observe != nil {
		s.observe(w, turns, units, d)
	}
	for _, name := range d.Start {
		for _, t := range turns {
			if !t.Claimable || t.Unit.Node != name {
				continue
			}
			if m := s.machine(t.Replacement); !t.DeletesFirst && (m == nil || m.State != cloud.Running || s.nodes["n-"+m.ID] == nil) {
				s.wrong("node %s is claimed, and its replacement is not ready", name)
			}
			s.point()
			s.claims[t.Node] = &v1alpha1.Claim{UID: "r", Turn: t.Turn, Attempt: t.Attempt, Since: *nodeturn.Stamp(s.now), Failures: t.Failures, Machine: t.Machine}
			s.note("%s is claimed", t.Node)
			t.Phase, t.Step = v1alpha1.MachineDraining, StepNone
		}
		if p, room := states[name], w.Room(w.Sets["set"], turns); p != nil && room.N > 0 {
			t := w.Begin(p, fmt.Sprintf("%s-%d", name, s.r.Uint32()), room.DeletesFirst)
			s.restored = s.restored || t.DeletesFirst
			turns = append(turns, t)
		}
	}
	return turns
}

// release gives a node back.
func (s *simulation) release(name string) {
	s.point()
	delete(s.claims, name)
	s.releaseNode(name)
	delete(s.nodes[name].Annotations, "shield")
}

func (s *simulation) releaseNode(name string) {
	n := s.nodes[name]
	if n == nil {
		return
	}
	if m := s.machine(strings.TrimPrefix(name, "n-")); m != nil && m.State == cloud.Running && s.away[n.UID] {
		s.wrong("Node %s is released, and has left the control plane", name)
	}
	if n.Annotations["by"] != "" {
		n.Spec.Unschedulable = false
		delete(n.Annotations, "by")
	}
}

func (s *simulation) cordon(n *Node) {
	c := *n.Claim
	at := *nodeturn.Stamp(s.now)
	c.Cordoned = &at
	s.claims[n.Name] = &c
	s.nodes[n.Name].Spec.Unschedulable = true
	s.nodes[n.Name].Annotations["by"] = "r"
}

// apply takes a turn its next step.
func (s *simulation) apply(w *World, t *Turn) {
	old, replacement := w.oldNode(t), w.ReplacementNode(t)
	if t.Step == StepNone {
		return
	}
	s.point()
	n := old
	if t.OnReplacement {
		n = replacement
	}
	switch t.Step {
	case StepCordon:
		s.cordon(n)
		delete(s.drained, t.Key(t.OnReplacement))
	case StepClaim:
		id := t.Machine
		if t.OnReplacement {
			id = t.Replacement
		}
		s.claims[n.Name] = &v1alpha1.Claim{UID: "r", Turn: t.Turn, Attempt: t.Attempt, Since: *nodeturn.Stamp(s.now), Failures: t.Failures, Machine: id}
	case StepDrain:
		switch {
		case !t.OnReplacement && s.chance(s.faults/4) && !w.Bound(t) && t.Operation == "":
			c := *n.Claim
			c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonDrainRefused, Time: *nodeturn.Stamp(s.now)}
			c.Failures++
			s.claims[n.Name] = &c
			s.releaseNode(n.Name)
			s.note("the drain of %s fails", n.Name)
		case s.chance(0.5):
			s.drained[t.Key(t.OnReplacement)], s.pods[n.Name] = true, false
		}
	case StepLeave:
		name := t.Node
		if t.OnReplacement {
			name, _ = w.ReplacementNodeName(t)
		} else if !s.mayLeave(t) || s.strikes > 0 && s.chance(0.5) {
			return
		}
		s.left[w.LeftKey(t, t.OnReplacement)] = true
		delete(s.members, strings.TrimPrefix(name, "n-"))
		if !t.OnReplacement && old != nil {
			s.away[old.UID] = true
		}
	case StepDeleteNode:
		name := t.Node
		if t.OnReplacement {
			name = t.ReplacementNode
		}
		if m := s.machine(strings.TrimPrefix(name, "n-")); m != nil {
			s.wrong("Node %s is deleted, and its machine is there: %+v", name, m.Machine)
		}
		if !t.OnReplacement && t.mustRestore() && replacement == nil && (t.Absent == nil || t.Absent.Name != name) {
			s.wrong("Node %s is deleted before another one has come, and what budgets count of it is not written down: %+v", name, t.Absent)
		}
		delete(s.nodes, name)
		delete(s.claims, name)
	case StepFail:
		s.claims[old.Name] = &v1alpha1.Claim{UID: "r", Turn: t.Turn, Attempt: t.Attempt, Since: t.Since, Failed: t.Failed, Failures: t.Failures + 1}
		s.releaseNode(old.Name)
		s.note("turn of %s has failed: %s", old.Name, t.Failed.Message)
	case StepRelease:
		s.release(old.Name)
	case StepNone, StepAdd, StepDelete, StepWait:
	}
}

// mayLeave reports whether etcd can do without a turn's node: as many members are left as survive a failure, or as there were before its replacement came.
func (s *simulation) mayLeave(t *Turn) bool {
	own := s.machine(t.Machine)
	if own == nil || own.State != cloud.Running || !s.members[own.ID] {
		return true
	}
	before, after := 0, 0
	for _, m := range s.machines {
		if m.State == cloud.Running && s.members[m.ID] {
			before++
			after++
		}
	}
	after--
	if r := s.machine(t.Replacement); r != nil && s.members[r.ID] {
		before--
	}
	return after >= min(3, before)
}

// strike lets the replacement die of a turn whose node is leaving the control plane.
func (s *simulation) strike() {
	for i := range s.status {
		t := &s.status[i]
		m := s.machine(t.Replacement)
		if t.Phase != v1alpha1.MachineLeaving || t.DeletesFirst || m == nil || m.State != cloud.Running || s.chance(0.5) {
			continue
		}
		s.strikes--
		s.struck++
		if s.kills > 0 {
			s.slack++ // A process that is killed then can't tell which of both has happened.
		}
		m.State, m.until = cloud.Deleting, s.now
		s.dies(m.ID)
		if s.capacity--; s.chance(0.5) {
			s.add(1, m.Zone, false)
			s.note("%s dies in %s, and another is made", m.ID, t.Turn)
		} else {
			s.note("%s dies in %s", m.ID, t.Turn)
		}
		return
	}
}

// sendAll sends what is written down; some answers are lost, and some things are refused.
func (s *simulation) sendAll(w *World, set *Set, turns []*Turn) {
	for _, o := range slices.Clone(set.Operations) {
		if o.Sent || slices.ContainsFunc(turns, func(t *Turn) bool { return t.HoldsOperation && t.Operation == o.Token }) {
			continue
		}
		s.point()
		switch {
		case s.prepared[o.Token] && o.Kind == v1alpha1.CloudOperationDelete && s.chance(s.busy):
			s.note("%s is throttled", o.Token)
			w.RemoveRefused(set, o.Token, turns, false, "too many requests")
			continue
		case s.tasks[o.Token] == nil && o.Kind == v1alpha1.CloudOperationAdd && s.max > 0 && s.capacity+int(o.Count) > s.max:
			w.RemoveRefused(set, o.Token, turns, true, "it is full")
			continue
		case s.tasks[o.Token] == nil && s.chance(s.faults/2):
			s.note("%s is refused", o.Token)
			w.RemoveRefused(set, o.Token, turns, s.chance(0.5), "it is refused")
			continue
		case s.chance(s.faults / 2):
			continue // The request is lost.
		}
		s.send(o)
		s.point()
		if s.chance(s.faults / 2) {
			continue // The answer is lost.
		}
		set.Operation(o.Token).Sent = true
	}
	for _, t := range turns {
		s.restored = s.restored || t.DeletesFirst
	}
}

// start is a process that knows nothing yet.
func (s *simulation) start() {
	s.seen = nil
	s.missing, s.drained, s.left = nil, map[string]bool{}, map[string]bool{}
}

// quiet reports whether nothing is left to be done.
func (s *simulation) quiet() bool {
	if len(s.status)+len(s.operations)+len(s.claims)+len(s.healing) > 0 {
		return false
	}
	for _, m := range s.machines {
		if m.ID == "failed" {
			continue
		}
		if m.State != cloud.Running || m.model != s.model && !s.optedOut["n-"+m.ID] && !s.rules.Ending && !m.never {
			return false
		}
	}
	return true
}

func (s *simulation) run(surge int, disturbances int, ends bool) {
	s.start()
	s.base = 3 + s.r.IntN(5)
	if s.model = 1; s.max > 0 {
		s.max = s.base
	}
	s.add(s.base, "a", false)
	for range 12 {
		s.tick()
	}
	if s.failedMachine {
		s.base++
		s.capacity++
		s.machines = append(s.machines, &vm{Machine: cloud.Machine{ID: "failed", ProviderID: "sim://failed", State: cloud.Failed, Created: s.now.Add(-time.Hour)}, model: 1})
	}
	s.model = 2
	s.rules.Surge = rollout.Amount{N: surge}
	for i := range 2500 {
		if i == 400 {
			s.faults, s.kills, s.nevers, s.busy, s.hangs = 0, 0, 0, 0, min(s.hangs, 0.01) // From here on everything goes well.
		}
		if disturbances > 0 && i < 400 && s.chance(0.04) {
			disturbances--
			s.disturb()
		}
		if s.strikes > 0 {
			s.strike()
		}
		if s.edits && i < 400 && s.chance(0.05) {
			if s.rules.Surge.N = s.r.IntN(surge + 1); s.rules.ControlPlane {
				s.rules.Surge.N = max(1, s.rules.Surge.N) // Without any etcd may have to wait for ever.
			}
			s.note("surge is %d", s.rules.Surge.N)
		}
		if ends && i == 60 {
			s.rules.Ending = true
		}
		s.tick()
		s.reconcile()
		if most := s.base + max(0, s.outside) + surge + s.slack; s.live() > most {
			s.wrong("there are %d machines, and at most %d there may be", s.live(), most)
		}
		if least := s.base - s.slack - s.struck; surge > 0 && !s.edits && !s.restored && s.live()-min(0, s.outside) < least {
			s.wrong("there are %d machines, and at least %d there must be", s.live(), least)
		}
		if (i > 400 || disturbances == 0 && i > 60) && s.quiet() {
			break
		}
	}
	s.end()
}

// end checks what is left in the end.
func (s *simulation) end() {
	if !s.quiet() {
		s.wrong("it does not come to an end: turns %+v, operations %+v, claims %+v", s.status, s.operations, s.claims)
	}
	least, most := -s.slack, s.slack
	switch {
	case s.heals:
		least, most = 0, 0
	case s.shrinks:
		least, most = 0, s.taken
	}
	if d := s.capacity - s.base - s.outside; d < least || d > most {
		s.wrong("the capacity is %d in the end, was %d at first, and others changed it by %d", s.capacity, s.base, s.outside)
	}
	if s.live() != s.capacity {
		s.wrong("there are %d machines in the end, and the capacity is %d", s.live(), s.capacity)
	}
	if m := s.machine("failed"); s.failedMachine && (m == nil || m.State != cloud.Failed) {
		s.wrong("the machine without a Node, which no one added, is gone: %+v", m)
	}
	for name, n := range s.nodes {
		if n.Spec.Unschedulable || len(n.Annotations) > 0 {
			s.wrong("Node %s is left as %v, unschedulable %v", name, n.Annotations, n.Spec.Unschedulable)
		}
	}
	for id := range s.owed {
		if s.owed[id] && s.members[id] {
			s.wrong("machine %s is gone, and its member is in etcd", id)
		}
		if s.owed[id] && s.nodes["n-"+id] != nil {
			s.wrong("machine %s is gone, and its Node is there", id)
		}
	}
	if s.exact && s.ordered != s.base {
		s.wrong("%d machines were added for %d", s.ordered, s.base)
	}
}

// number reads an environment variable. It returns 0 if that is not set.
func number(t *testing.T, name string) (n uint64) {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("reading $%s: %v", name, err)
	}
	return n
}

func newSimulation(t *testing.T, seed uint64, faults float64) *simulation {
	return &simulation{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), seed: seed, now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), tasks: map[string]*task{}, nodes: map[string]*corev1.Node{}, pods: map[string]bool{}, away: map[types.UID]bool{},
		members: map[string]bool{}, owed: map[string]bool{}, claims: map[string]*v1alpha1.Claim{}, optedOut: map[string]bool{}, faults: faults, kills: faults / 4,
		rules: Rules{
			OnFull: v1alpha1.OnFullWait, Timeout: time.Minute, Drains: true, Strategy: &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 1000, Backoff: &metav1.Duration{Duration: 10 * time.Second}}},
		},
	}
}

// Whatever is killed when, and whatever the cloud refuses: no more machines than surge allows, none leaked, none too few, no node left cordoned.
//
// MOULT_SEEDS=n runs n seeds of each row. MOULT_SEED=n runs that seed alone.
func TestSimulation(t *testing.T) {
	first, seeds := uint64(0), uint64(20)
	if tier.All {
		seeds = 300
	}
	if n := number(t, "MOULT_SEEDS"); n > 0 {
		seeds = n
	}
	if n := number(t, "MOULT_SEED"); n > 0 {
		first, seeds = n, 1
	}
	for _, tc := range []struct {
		name         string
		surge        int
		onFull       v1alpha1.OnFull
		max          bool
		faults       float64
		disturbances int
		ends, plane  bool
		kills        float64
		exact        bool
		heals        bool
		images       bool
		slow         int
		lingers      int
		nevers, busy float64
		hangs        float64
		keeps        time.Duration
		strikes      int
		edits        bool
		failed       bool
	}{
		{name: "undisturbed", surge: 1, exact: true},
		{name: "killed", surge: 2, kills: 0.1, exact: true},
		{name: "killed without surge", surge: 0, kills: 0.1, exact: true},
		{name: "killed and refused", surge: 1, faults: 0.1},
		{name: "more at once", surge: 2, faults: 0.1},
		{name: "without surge", surge: 0, faults: 0.1},
		{name: "control plane", surge: 1, faults: 0.1, plane: true},
		{name: "full", surge: 1, faults: 0.1, max: true, onFull: v1alpha1.OnFullDeleteFirst},
		{name: "deleted", surge: 2, faults: 0.1, ends: true},
		{name: "disturbed", surge: 2, faults: 0.05, disturbances: 6},
		{name: "disturbed without surge", surge: 0, faults: 0.05, disturbances: 6},
		{name: "disturbed control plane", surge: 1, faults: 0.05, disturbances: 6, plane: true},
		{name: "disturbed control plane, deleted", surge: 1, faults: 0.05, disturbances: 6, plane: true, ends: true},
		{name: "struck control plane", surge: 1, plane: true, strikes: 3},
		{name: "struck control plane, killed", surge: 1, plane: true, strikes: 3, kills: 0.05, nevers: 0.2},
		{name: "struck control plane, deleted", surge: 1, faults: 0.05, plane: true, strikes: 3, ends: true},
		{name: "healed", surge: 2, disturbances: 6, heals: true, nevers: 0.3, busy: 0.8},
		{name: "healed and killed", surge: 2, disturbances: 6, heals: true, kills: 0.05},
		{name: "healed and killed without surge", surge: 0, disturbances: 6, heals: true, kills: 0.05},
		{name: "healed slowly, killed", surge: 2, disturbances: 6, heals: true, slow: 300, kills: 0.05},
		{name: "deleted by others, killed", surge: 2, disturbances: 4, lingers: 200, kills: 0.05},
		{name: "healed, other images", surge: 2, disturbances: 10, heals: true, images: true, nevers: 0.2},
		{name: "healed slowly, other images", surge: 1, disturbances: 10, heals: true, images: true, slow: 100, keeps: time.Minute, nevers: 0.2},
		{name: "healed slowly", surge: 2, disturbances: 6, heals: true, slow: 300},
		{name: "healed slowly without surge", surge: 0, disturbances: 6, heals: true, slow: 300},
		{name: "deleted by others", surge: 2, disturbances: 4, lingers: 200},
		{name: "deleted by others, without surge", surge: 0, disturbances: 4, lingers: 200},
		{name: "deleted by others, kept", surge: 2, disturbances: 4, lingers: 200, nevers: 0.3, keeps: time.Minute},
		{name: "healed, and kept", surge: 2, disturbances: 6, heals: true, nevers: 0.3, busy: 0.8, keeps: time.Minute},
		{name: "control plane, kept", surge: 1, faults: 0.05, nevers: 0.3, plane: true, keeps: time.Minute},
		{name: "hanging", surge: 3, kills: 0.05, exact: true, hangs: 0.5},
		{name: "hanging without surge", surge: 0, kills: 0.05, exact: true, hangs: 0.5},
		{name: "hanging and refused", surge: 3, faults: 0.1, hangs: 0.5, nevers: 0.2},
		{name: "hanging, disturbed control plane", surge: 2, faults: 0.05, disturbances: 6, plane: true, hangs: 0.5},
		{name: "hanging and healed", surge: 3, disturbances: 6, heals: true, nevers: 0.2, busy: 0.5, hangs: 0.5},
		{name: "a failed machine without a Node", surge: 1, kills: 0.05, faults: 0.05, failed: true},
		{name: "edited", surge: 3, faults: 0.1, edits: true},
		{name: "edited and killed", surge: 3, kills: 0.1, exact: true, edits: true},
		{name: "edited control plane", surge: 2, faults: 0.05, disturbances: 6, plane: true, edits: true},
		{name: "edited and healed", surge: 2, disturbances: 6, heals: true, kills: 0.05, edits: true},
		{name: "disturbed and deleted", surge: 1, faults: 0.05, disturbances: 6, ends: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			handed, struck := 0, 0
			for i := range seeds {
				s := newSimulation(t, first+i, tc.faults)
				s.rules.ControlPlane, s.exact = tc.plane, tc.exact
				s.kills, s.nevers, s.heals, s.busy, s.rules.KeepFailed = max(s.kills, tc.kills), tc.nevers, tc.heals, tc.busy, tc.keeps
				s.failedMachine = tc.failed
				s.hangs, s.strikes, s.slow, s.lingers, s.shrinks, s.images, s.edits = tc.hangs, tc.strikes, tc.slow, tc.lingers, tc.lingers > 0, tc.images, tc.edits
				if tc.onFull != "" {
					s.rules.OnFull = tc.onFull
				}
				if tc.max {
					s.max = 1 // As many as there are.
				}
				s.run(tc.surge, tc.disturbances, tc.ends)
				handed += s.handed
				struck += s.struck
			}
			if handed == 0 && tc.hangs > 0 && seeds > 1 {
				t.Errorf("%d machines were given to turns before their operation was over", handed)
			}
			if (struck > 0) != (tc.strikes > 0) && seeds > 1 {
				t.Errorf("%d replacements died while nodes were leaving", struck)
			}
		})
	}
}
