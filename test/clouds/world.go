// SPDX-License-Identifier: Apache-2.0

// Package clouds is clouds for tests: scale sets in memory, whose machines come and go as in a real cloud, and on demand go wrong as there. The
// folders below put the wire of one cloud each in front of it, so that programs speak to it with that cloud's own SDK.
//
// A World holds the sets. Its Hosts make the Node of each machine come and go: simulated ones, real machines of package cluster, or none.
package clouds

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Hosts make the Node of a machine come and go.
type Hosts interface {
	// Start makes the machine join. It is called once the machine runs, may take its time, and is cancelled when the machine is deleted before.
	Start(ctx context.Context, m Machine) error
	// Stop switches the machine off, also one whose Start was cancelled or has failed. It never deletes the Node object.
	Stop(ctx context.Context, m Machine) error
}

// Options says what a World is like.
type Options struct {
	// Hosts make Nodes of machines. Default: there are no Nodes.
	Hosts Hosts
	// CreateTime is how long a machine is Creating, and DeleteTime how long it is Deleting, beside what Hosts take. Default 0.
	CreateTime, DeleteTime time.Duration
	// Identify says what a machine's Node is called. Default: "test:///SET/ID" and "SET-ID".
	Identify func(set, zone, id string) (providerID, nodeName string)
	// ID names the nth machine of a set, from 0, that has no name of its caller's. Default: the number.
	ID func(set string, n int) string
}

// World is an account of a cloud: scale sets and their machines. It is safe for concurrent use.
type World struct {
	options Options
	lives   sync.WaitGroup
	// live begins the life of a machine, which ends with the context of New. started receives how its host has started, where a person waits for that.
	live func(m *machine, started chan<- error)

	mu      sync.Mutex
	sets    map[string]*scaleSet
	order   []string
	faults  []*Fault
	calls   map[string]int
	journal []Call
}

type scaleSet struct {
	Set
	machines []*machine
	gone     []Machine
	made     int
}

// machine is a machine with its life.
type machine struct {
	Machine
	never  bool // its Node never joins
	slow   bool
	fails  bool // what is being done with it ends badly
	end    context.CancelFunc
	adding *Task
	leave  []*Task
	delete time.Duration
}

// New makes a world without sets. What goes on in it ends with the context.
func New(ctx context.Context, o Options) *World {
	if o.Identify == nil {
		o.Identify = func(set, _, id string) (string, string) { return "test:///" + set + "/" + id, set + "-" + id }
	}
	if o.ID == nil {
		o.ID = func(_ string, n int) string { return strconv.Itoa(n) }
	}
	w := &World{options: o, sets: map[string]*scaleSet{}, calls: map[string]int{}}
	w.live = func(m *machine, started chan<- error) {
		alive, end := context.WithCancel(ctx)
		m.end = end
		w.lives.Go(func() {
			defer end()
			w.run(alive, m, started)
			w.leave(ctx, m)
		})
	}
	return w
}

// Wait returns when all that went on has ended, after the context of New has.
func (w *World) Wait() { w.lives.Wait() }

// Create makes a set, with Capacity machines that run, and returns when Hosts have started them. Faults do not apply.
func (w *World) Create(ctx context.Context, s Set) error {
	w.mu.Lock()
	set := &scaleSet{Set: s.clone()}
	set.Model, set.Version = max(set.Model, 1), max(set.Version, 1)
	set.Tags, set.Settings = maps.Collect(maps.All(s.Tags)), maps.Collect(maps.All(s.Settings)) // never nil
	w.sets[s.Name] = set
	w.order = append(w.order, s.Name)
	started := make(chan error, s.Capacity)
	for range s.Capacity {
		m := w.machine(set, set.emptiest(), w.nextID(set))
		m.State = Running
		w.live(m, started)
	}
	w.mu.Unlock()
	for range s.Capacity {
		var err error
		select {
		case err = <-started:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("creating set %s, %w", s.Name, err)
		}
	}
	return nil
}

// Set returns a copy of a set.
func (w *World) Set(name string) (Set, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, ok := w.sets[name]
	if !ok {
		return Set{}, false
	}
	return set.clone(), true
}

// Sets returns copies of all sets, in the order of their creation.
func (w *World) Sets() []Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Set
	for _, name := range w.order {
		all = append(all, w.sets[name].clone())
	}
	return all
}

// Machines returns copies of the machines of a set, in the order of their creation: also those that come or go. There are none of an unknown set.
func (w *World) Machines(set string) []Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[set]; s != nil {
		return clones(s.machines)
	}
	return nil
}

// Gone returns the machines that a set once had, in the order of their end.
func (w *World) Gone(set string) []Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[set]; s != nil {
		return slices.Clone(s.gone)
	}
	return nil
}

// Edit changes a set, all or nothing: an error of change leaves it as it was, and is returned as it is. Version goes up if anything differs, and
// Model with Image unless change has set it. A change of Capacity is as by Scale.
func (w *World) Edit(name string, change func(*Set) error) error {
	_, err := w.EditTask(name, change)
	return err
}

// EditTask is Edit, and returns the task of a change of Capacity; where there was none it is done.
func (w *World) EditTask(name string, change func(*Set) error) (*Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, ok := w.sets[name]
	if !ok {
		return nil, fmt.Errorf("set %s, %w", name, ErrNotFound)
	}
	next := set.clone()
	if err := change(&next); err != nil {
		return nil, err
	}
	capacity := next.Capacity
	next.Name, next.Version, next.Capacity = set.Name, set.Version, set.Capacity
	if next.Image != set.Image && next.Model == set.Model {
		next.Model++
	}
	if capacity != set.Capacity {
		if err := w.mayScale(&next, capacity); err != nil {
			return nil, err
		}
	}
	if !next.same(&set.Set) {
		next.Version++
		w.note("Edit", name, "")
	}
	set.Set = next
	return w.scale(set, capacity), nil
}

// EditMachine changes a machine.
func (w *World) EditMachine(set, id string, change func(*Machine)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, m, err := w.find(set, id)
	if err != nil {
		return err
	}
	change(&m.Machine)
	return nil
}

// Add adds n machines to a set, in a zone or, where that is empty, in the emptiest ones, and returns them as they are at once: Creating. They have
// these ids, or new ones where none are given. The task is done when they run.
func (w *World) Add(set, zone string, ids []string, n int) ([]Machine, *Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sets[set]
	if !ok {
		return nil, nil, fmt.Errorf("set %s, %w", set, ErrNotFound)
	}
	if n < 1 || len(ids) > 0 && len(ids) != n || zone != "" && !slices.Contains(s.Zones, zone) {
		return nil, nil, fmt.Errorf("adding %d machines %q in zone %q, %w", n, ids, zone, ErrInvalid)
	}
	for i, id := range ids {
		if s.has(id) || slices.Contains(ids[:i], id) {
			return nil, nil, fmt.Errorf("machine %s, %w", id, ErrExists)
		}
	}
	if err := w.mayScale(&s.Set, s.Capacity+n); err != nil {
		return nil, nil, err
	}
	s.Capacity += n
	s.Version++
	task := w.add(s, zone, ids, n, "Add")
	return clones(s.machines[len(s.machines)-n:]), task, nil
}

// Delete deletes machines. The set's capacity goes down by as many, or else others are added in their places. One that is Deleting already is
// counted no second time. The task is done when all are gone.
func (w *World) Delete(set string, ids []string, decrement bool) (*Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sets[set]
	if !ok {
		return nil, fmt.Errorf("set %s, %w", set, ErrNotFound)
	}
	var going, joined []*machine
	for _, id := range ids {
		_, m, err := w.find(set, id)
		switch {
		case err != nil:
			return nil, err
		case m.State == Deleting:
			joined = append(joined, m)
		case !slices.Contains(going, m):
			going = append(going, m)
		}
	}
	if decrement && s.Capacity-len(going) < s.Min {
		return nil, fmt.Errorf("set %s has %d machines, %w", set, s.Capacity, ErrMin)
	}
	task := &Task{world: w}
	for _, m := range joined {
		m.leave = append(m.leave, task)
		task.pending++
	}
	if len(going) == 0 {
		return task, nil
	}
	s.Version++
	if decrement {
		s.Capacity -= len(going)
	}
	if !w.remove(s, going, task) {
		// The cloud has tried, and gives them back.
		if decrement {
			s.Capacity += len(going)
		}
	} else if !decrement {
		w.add(s, "", nil, len(going), "Heal")
	}
	return task, nil
}

// Scale gives a set another capacity, as an autoscaler does. Machines are added in the emptiest zones; the oldest are deleted, but none that is
// protected. The task is done when they run, or are gone.
func (w *World) Scale(set string, capacity int) (*Task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sets[set]
	if !ok {
		return nil, fmt.Errorf("set %s, %w", set, ErrNotFound)
	}
	if err := w.mayScale(&s.Set, capacity); err != nil {
		return nil, err
	}
	return w.scale(s, capacity), nil
}

// Kill ends a machine at once, as when it dies by itself. The set's capacity goes down, or else another one is added in its place.
func (w *World) Kill(set, id string, shrink bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, m, err := w.find(set, id)
	if err != nil {
		return err
	}
	if m.State == Deleting {
		return nil
	}
	w.note("Kill", set+" "+id, "")
	if shrink {
		s.Capacity--
		s.Version++
	}
	m.State, m.delete = Deleting, 0
	m.end()
	if !shrink {
		w.add(s, "", nil, 1, "Heal")
	}
	return nil
}

// mayScale says why a set can't have that many machines. Fewer than Min are no error where there were fewer before.
func (w *World) mayScale(s *Set, capacity int) error {
	switch {
	case s.Max > 0 && capacity > s.Max && capacity > s.Capacity:
		return fmt.Errorf("%d machines in set %s, whose maximum is %d, %w", capacity, s.Name, s.Max, ErrFull)
	case capacity < s.Min && capacity < s.Capacity:
		return fmt.Errorf("%d machines in set %s, whose minimum is %d, %w", capacity, s.Name, s.Min, ErrMin)
	case capacity > s.Capacity && w.fault("Add", s.Name, Quota):
		w.note("Add", s.Name, string(Quota))
		return fmt.Errorf("%d more machines in set %s, %w", capacity-s.Capacity, s.Name, ErrQuota)
	}
	return nil
}

// scale brings a set to a capacity that it may have.
func (w *World) scale(s *scaleSet, capacity int) *Task {
	more := capacity - s.Capacity
	s.Capacity = capacity
	if more != 0 {
		s.Version++
	}
	if more == 0 {
		return &Task{world: w}
	}
	if more > 0 {
		return w.add(s, "", nil, more, "Add")
	}
	var going []*machine
	for _, m := range s.machines {
		if len(going) < -more && m.State != Deleting && !m.Protected {
			going = append(going, m)
		}
	}
	// What is protected stays, and the set is as large as it stays.
	s.Capacity += -more - len(going)
	task := &Task{world: w}
	if !w.remove(s, going, task) {
		s.Capacity += len(going)
	}
	return task
}

// add adds machines to a set whose capacity has been raised, or stays above them.
func (w *World) add(s *scaleSet, zone string, ids []string, n int, call string) *Task {
	task := &Task{world: w}
	slow, fails := w.fault(call, s.Name, Slow), w.fault(call, s.Name, OperationFails)
	ids = slices.Clone(ids)
	for i := range n {
		if len(ids) == i {
			ids = append(ids, w.nextID(s))
		}
		m := w.machine(s, cmp.Or(zone, s.emptiest()), ids[i])
		m.slow, m.fails = slow, fails
		m.never = w.fault(call, s.Name, NeverJoins)
		m.Sick = !m.never && w.fault(call, s.Name, JoinsSick)
		m.adding = task
		task.pending++
		w.live(m, nil)
	}
	w.note(call, s.Name+" "+strings.Join(ids, " "), "")
	return task
}

// remove makes machines go, and reports whether they do.
func (w *World) remove(s *scaleSet, going []*machine, task *Task) bool {
	names := s.Name
	for _, m := range going {
		names += " " + m.ID
	}
	slow := w.fault("Delete", s.Name, Slow)
	if w.fault("Delete", s.Name, OperationFails) {
		task.err = fmt.Errorf("deleting machines, %w", ErrFailed)
		w.note("Delete", names, string(OperationFails))
		return false
	}
	for _, m := range going {
		m.State, m.delete = Deleting, w.options.DeleteTime
		if slow {
			m.delete *= slowness
		}
		m.leave = append(m.leave, task)
		task.pending++
		m.end()
	}
	w.note("Delete", names, "")
	return true
}

func clones(machines []*machine) []Machine {
	all := make([]Machine, 0, len(machines))
	for _, m := range machines {
		all = append(all, m.clone())
	}
	return all
}

func (w *World) nextID(s *scaleSet) string {
	for {
		id := w.options.ID(s.Name, s.made)
		s.made++
		if !s.has(id) {
			return id
		}
	}
}

// machine makes a machine of a set, and nothing lives in it yet.
func (w *World) machine(s *scaleSet, zone, id string) *machine {
	m := &machine{Machine: Machine{
		ID: id, Set: s.Name, Zone: zone, Image: s.Image, Model: s.Model, State: Creating, Created: time.Now(), Labels: maps.Clone(s.Labels),
	}}
	m.ProviderID, m.NodeName = w.options.Identify(s.Name, zone, id)
	s.machines = append(s.machines, m)
	return m
}

func (w *World) find(set, id string) (*scaleSet, *machine, error) {
	s, ok := w.sets[set]
	if !ok {
		return nil, nil, fmt.Errorf("set %s, %w", set, ErrNotFound)
	}
	for _, m := range s.machines {
		if m.ID == id {
			return s, m, nil
		}
	}
	return nil, nil, fmt.Errorf("machine %s of set %s, %w", id, set, ErrNotFound)
}

func (s *scaleSet) has(id string) bool {
	return slices.ContainsFunc(s.machines, func(m *machine) bool { return m.ID == id })
}

// emptiest is the zone with the fewest machines that stay, the first of several; none in a set without zones.
func (s *scaleSet) emptiest() string {
	count := map[string]int{}
	for _, m := range s.machines {
		if m.State != Deleting {
			count[m.Zone]++
		}
	}
	best := ""
	for i, zone := range s.Zones {
		if i == 0 || count[zone] < count[best] {
			best = zone
		}
	}
	return best
}
