// SPDX-License-Identifier: Apache-2.0

package clouds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/test/clouds"
)

// nodes are Hosts that only keep account.
type nodes struct {
	mu      sync.Mutex
	running map[string]int
	sick    []string
	fail    bool
}

func (n *nodes) Start(_ context.Context, m clouds.Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail {
		return errors.New("no host")
	}
	if n.running == nil {
		n.running = map[string]int{}
	}
	n.running[m.NodeName]++
	if m.Sick {
		n.sick = append(n.sick, m.NodeName)
	}
	return nil
}

func (n *nodes) Stop(_ context.Context, m clouds.Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.running, m.NodeName)
	return nil
}

func (n *nodes) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for name := range n.running {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// world is one with a set "s" of three machines in two zones.
func world(t *testing.T, o clouds.Options) *clouds.World {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := clouds.New(ctx, o)
	t.Cleanup(func() {
		cancel()
		w.Wait()
	})
	set := clouds.Set{Name: "s", Image: "a", Capacity: 3, Min: 1, Max: 6, Zones: []string{"z1", "z2"}, Labels: map[string]string{"l": "v"}}
	if err := w.Create(ctx, set); err != nil {
		t.Fatal(err)
	}
	return w
}

// wait waits until a condition holds.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// finish waits until a task is done, and returns its error.
func finish(t *testing.T, task *clouds.Task) (err error) {
	t.Helper()
	wait(t, "task "+task.ID, func() (done bool) {
		done, err = task.Done()
		return done
	})
	return err
}

// told is a set's machines in short.
func told(w *clouds.World) []string {
	var all []string
	for _, m := range w.Machines("s") {
		all = append(all, fmt.Sprintf("%s %s %s%d %s", m.ID, m.Zone, m.Image, m.Model, m.State))
	}
	return all
}

func TestWorld(t *testing.T) {
	refused := func(want error) func(*testing.T, *clouds.Task, error) {
		return func(t *testing.T, task *clouds.Task, err error) {
			t.Helper()
			if task != nil || !errors.Is(err, want) {
				t.Errorf("task %v and error %v, want the error %v", task, err, want)
			}
		}
	}
	ends := func(want error) func(*testing.T, *clouds.Task, error) {
		return func(t *testing.T, task *clouds.Task, err error) {
			t.Helper()
			if err != nil || task == nil {
				t.Fatalf("task %v and error %v, want a task", task, err)
			}
			if err := finish(t, task); !errors.Is(err, want) {
				t.Errorf("the task ended with %v, want %v", err, want)
			}
		}
	}
	add := func(zone string, ids []string, n int) func(*clouds.World) (*clouds.Task, error) {
		return func(w *clouds.World) (*clouds.Task, error) {
			_, task, err := w.Add("s", zone, ids, n)
			return task, err
		}
	}
	remove := func(decrement bool, ids ...string) func(*clouds.World) (*clouds.Task, error) {
		return func(w *clouds.World) (*clouds.Task, error) { return w.Delete("s", ids, decrement) }
	}
	scale := func(n int) func(*clouds.World) (*clouds.Task, error) {
		return func(w *clouds.World) (*clouds.Task, error) { return w.Scale("s", n) }
	}
	start := []string{"0 z1 a1 Running", "1 z2 a1 Running", "2 z1 a1 Running"}
	tests := map[string]struct {
		fault    clouds.Fault
		do       func(*clouds.World) (*clouds.Task, error)
		end      func(*testing.T, *clouds.Task, error)
		want     []string
		capacity int
		version  int
	}{
		"added where there is most room":  {do: add("", nil, 2), end: ends(nil), want: append(slices.Clip(start), "3 z2 a1 Running", "4 z1 a1 Running"), capacity: 5, version: 2},
		"added by name in a zone":         {do: add("z1", []string{"x"}, 1), end: ends(nil), want: append(slices.Clip(start), "x z1 a1 Running"), capacity: 4, version: 2},
		"a name twice":                    {do: add("", []string{"2"}, 1), end: refused(clouds.ErrExists), want: start, capacity: 3, version: 1},
		"two of a name":                   {do: add("", []string{"x", "x"}, 2), end: refused(clouds.ErrExists), want: start, capacity: 3, version: 1},
		"a zone that is none":             {do: add("z3", nil, 1), end: refused(clouds.ErrInvalid), want: start, capacity: 3, version: 1},
		"above the maximum":               {do: add("", nil, 4), end: refused(clouds.ErrFull), want: start, capacity: 3, version: 1},
		"no quota":                        {fault: clouds.Fault{Kind: clouds.Quota}, do: add("", nil, 1), end: refused(clouds.ErrQuota), want: start, capacity: 3, version: 1},
		"quota of another call":           {fault: clouds.Fault{Kind: clouds.Quota, Call: "Heal"}, do: add("", nil, 1), end: ends(nil), want: append(slices.Clip(start), "3 z2 a1 Running"), capacity: 4, version: 2},
		"no quota for another set":        {fault: clouds.Fault{Kind: clouds.Quota, Set: "o"}, do: add("", nil, 1), end: ends(nil), want: append(slices.Clip(start), "3 z2 a1 Running"), capacity: 4, version: 2},
		"an addition fails":               {fault: clouds.Fault{Kind: clouds.OperationFails}, do: add("", nil, 1), end: ends(clouds.ErrFailed), want: append(slices.Clip(start), "3 z2 a1 Failed"), capacity: 4, version: 2},
		"deleted":                         {do: remove(true, "1", "1"), end: ends(nil), want: []string{start[0], start[2]}, capacity: 2, version: 2},
		"deleted and made anew":           {do: remove(false, "1"), end: ends(nil), want: []string{start[0], start[2], "3 z2 a1 Running"}, capacity: 3, version: 2},
		"one that is not there":           {do: remove(true, "1", "7"), end: refused(clouds.ErrNotFound), want: start, capacity: 3, version: 1},
		"below the minimum":               {do: remove(true, "0", "1", "2"), end: refused(clouds.ErrMin), want: start, capacity: 3, version: 1},
		"all, and made anew":              {do: remove(false, "0", "1", "2"), end: ends(nil), want: []string{"3 z1 a1 Running", "4 z2 a1 Running", "5 z1 a1 Running"}, capacity: 3, version: 2},
		"a deletion fails":                {fault: clouds.Fault{Kind: clouds.OperationFails}, do: remove(true, "1"), end: ends(clouds.ErrFailed), want: start, capacity: 3, version: 2},
		"a deletion fails without change": {fault: clouds.Fault{Kind: clouds.OperationFails}, do: remove(false, "1"), end: ends(clouds.ErrFailed), want: start, capacity: 3, version: 2},
		"scaled up":                       {do: scale(4), end: ends(nil), want: append(slices.Clip(start), "3 z2 a1 Running"), capacity: 4, version: 2},
		"scaled down":                     {do: scale(1), end: ends(nil), want: []string{start[2]}, capacity: 1, version: 2},
		"scaled to what it is":            {do: scale(3), end: ends(nil), want: start, capacity: 3, version: 1},
		"scaled too far up":               {do: scale(7), end: refused(clouds.ErrFull), want: start, capacity: 3, version: 1},
		"scaled too far down":             {do: scale(0), end: refused(clouds.ErrMin), want: start, capacity: 3, version: 1},
		"dies":                            {do: func(w *clouds.World) (*clouds.Task, error) { return nil, w.Kill("s", "0", true) }, want: start[1:], capacity: 2, version: 2},
		"dies and is made anew":           {do: func(w *clouds.World) (*clouds.Task, error) { return nil, w.Kill("s", "0", false) }, want: append(slices.Clip(start[1:]), "3 z1 a1 Running"), capacity: 3, version: 1},
		"scaled down past a protected one": {do: func(w *clouds.World) (*clouds.Task, error) {
			if err := w.EditMachine("s", "0", func(m *clouds.Machine) { m.Protected = true }); err != nil {
				return nil, err
			}
			return w.Scale("s", 1)
		}, end: ends(nil), want: start[:1], capacity: 1, version: 2},
		"capacity and tag in one": {do: func(w *clouds.World) (*clouds.Task, error) {
			return w.EditTask("s", func(s *clouds.Set) error {
				s.Capacity, s.Tags = 4, map[string]string{"token": "x"}
				return nil
			})
		}, end: ends(nil), want: append(slices.Clip(start), "3 z2 a1 Running"), capacity: 4, version: 3},
		"image, then added": {do: func(w *clouds.World) (*clouds.Task, error) {
			if err := w.Edit("s", func(s *clouds.Set) error { s.Image = "b"; return nil }); err != nil {
				return nil, err
			}
			return add("", nil, 1)(w)
		}, end: ends(nil), want: append(slices.Clip(start), "3 z2 b2 Running"), capacity: 4, version: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := world(t, clouds.Options{})
			if test.fault.Kind != "" {
				w.Fault(test.fault)
			}
			task, err := test.do(w)
			if test.end != nil {
				test.end(t, task, err)
			} else if err != nil {
				t.Fatal(err)
			}
			wait(t, "the machines", func() bool { return cmp.Equal(test.want, told(w)) || t.Failed() })
			set, _ := w.Set("s")
			if set.Capacity != test.capacity || set.Version != test.version {
				t.Errorf("capacity %d and version %d, want %d and %d", set.Capacity, set.Version, test.capacity, test.version)
			}
			if diff := cmp.Diff(test.want, told(w)); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEditAllOrNothing(t *testing.T) {
	w := world(t, clouds.Options{})
	before, _ := w.Set("s")
	want := errors.New("no")
	if err := w.Edit("s", func(s *clouds.Set) error {
		s.Image, s.Labels["l"] = "b", "w"
		return want
	}); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if err := w.Edit("s", func(s *clouds.Set) error { s.Image, s.Capacity = "b", 7; return nil }); !errors.Is(err, clouds.ErrFull) {
		t.Errorf("error %v, want %v", err, clouds.ErrFull)
	}
	if err := w.Edit("s", func(*clouds.Set) error { return nil }); err != nil {
		t.Error(err)
	}
	after, _ := w.Set("s")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the set has changed (-before +after):\n%s", diff)
	}
}

func TestHosts(t *testing.T) {
	hosts := &nodes{}
	w := world(t, clouds.Options{Hosts: hosts})
	if diff := cmp.Diff([]string{"s-0", "s-1", "s-2"}, hosts.names()); diff != "" {
		t.Errorf("hosts of the first machines (-want +got):\n%s", diff)
	}
	w.Fault(clouds.Fault{Kind: clouds.NeverJoins, Times: 1})
	w.Fault(clouds.Fault{Kind: clouds.JoinsSick, Times: 1})
	added, task, err := w.Add("s", "", nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	if added[0].State != clouds.Creating || added[0].ProviderID != "test:///s/3" || added[0].Labels["l"] != "v" {
		t.Errorf("added %+v", added[0])
	}
	if err := finish(t, task); err != nil {
		t.Fatal(err)
	}
	deleted, err := w.Delete("s", []string{"0", "1"}, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Delete("s", []string{"0"}, true)
	if err != nil && !errors.Is(err, clouds.ErrNotFound) {
		t.Fatal(err)
	}
	if err := finish(t, deleted); err != nil {
		t.Fatal(err)
	}
	if again != nil {
		if err := finish(t, again); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Delete("s", []string{"0"}, true); !errors.Is(err, clouds.ErrNotFound) {
		t.Errorf("deleted what is gone: %v", err)
	}
	wait(t, "hosts", func() bool { return cmp.Equal([]string{"s-2", "s-4"}, hosts.names()) })
	if diff := cmp.Diff([]string{"s-4"}, hosts.sick); diff != "" {
		t.Errorf("sick (-want +got):\n%s", diff)
	}
	if set, _ := w.Set("s"); set.Capacity != 3 {
		t.Errorf("capacity %d, want 3", set.Capacity)
	}
	var gone []string
	for _, m := range w.Gone("s") {
		gone = append(gone, m.ID)
	}
	slices.Sort(gone)
	if diff := cmp.Diff([]string{"0", "1"}, gone); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
}

func TestHostFails(t *testing.T) {
	hosts := &nodes{}
	w := world(t, clouds.Options{Hosts: hosts})
	hosts.mu.Lock()
	hosts.fail = true
	hosts.mu.Unlock()
	if _, _, err := w.Add("s", "", nil, 1); err != nil {
		t.Fatal(err)
	}
	wait(t, "failure", func() bool { return w.Machines("s")[3].State == clouds.Failed })
	if got := w.Machines("s")[3].Message; got != "no host" {
		t.Errorf("message %q", got)
	}
}

// TestRandomCalls calls anything at any time. When all tasks are done each set has as many machines as its capacity says, within its bounds, and
// there is a host for each machine.
func TestRandomCalls(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			hosts := &nodes{}
			w := world(t, clouds.Options{Hosts: hosts, CreateTime: time.Millisecond, DeleteTime: time.Millisecond})
			var tasks []*clouds.Task
			again := map[string]bool{}
			pick := func() string {
				all := w.Machines("s")
				if len(all) == 0 {
					return ""
				}
				return all[r.IntN(len(all))].ID
			}
			allowed := []error{clouds.ErrExists, clouds.ErrFull, clouds.ErrMin, clouds.ErrQuota, clouds.ErrNotFound}
			for range 300 {
				var task *clouds.Task
				var err error
				switch r.IntN(9) {
				case 0:
					_, task, err = w.Add("s", []string{"", "z1", "z2"}[r.IntN(3)], nil, 1+r.IntN(2))
				case 1:
					// The name is one that is there still, or is gone by now and free again.
					name := pick()
					_, task, err = w.Add("s", "", []string{name}, 1)
					again[name] = again[name] || err == nil
				case 2, 3:
					task, err = w.Delete("s", []string{pick(), pick()}[:1+r.IntN(2)], r.IntN(3) > 0)
				case 4:
					task, err = w.Scale("s", r.IntN(8))
				case 5:
					if set, _ := w.Set("s"); set.Capacity > set.Min {
						err = w.Kill("s", pick(), r.IntN(2) == 0)
					}
				case 6:
					task, err = w.EditTask("s", func(s *clouds.Set) error {
						s.Image = fmt.Sprint(r.IntN(3))
						s.Capacity += r.IntN(2)
						return nil
					})
				case 7:
					w.Fault(clouds.Fault{
						Kind:  []clouds.FaultKind{clouds.Quota, clouds.Slow, clouds.OperationFails, clouds.NeverJoins, clouds.JoinsSick}[r.IntN(5)],
						Call:  []string{"", "Add", "Delete"}[r.IntN(3)],
						Times: 1,
					})
				case 8:
					time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				}
				if err != nil && !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }) {
					t.Fatal(err)
				}
				if task != nil {
					tasks = append(tasks, task)
				}
				stay := 0
				for _, m := range w.Machines("s") {
					if m.State != clouds.Deleting {
						stay++
					}
				}
				if set, _ := w.Set("s"); stay != set.Capacity || stay > set.Max {
					t.Fatalf("%d machines stay of a capacity of %d", stay, set.Capacity)
				}
			}
			for _, task := range tasks {
				if err := finish(t, task); err != nil && !errors.Is(err, clouds.ErrFailed) {
					t.Fatal(err)
				}
			}
			wait(t, "what was killed", func() bool {
				return !slices.ContainsFunc(w.Machines("s"), func(m clouds.Machine) bool { return m.State == clouds.Deleting || m.State == clouds.Creating })
			})
			set, _ := w.Set("s")
			all := w.Machines("s")
			if len(all) != set.Capacity || len(all) < set.Min || len(all) > set.Max {
				t.Errorf("%d machines, capacity %d", len(all), set.Capacity)
			}
			ids := map[string]bool{}
			for _, m := range append(all, w.Gone("s")...) {
				if ids[m.ID] && !again[m.ID] {
					t.Errorf("%s was made twice", m.ID)
				}
				ids[m.ID] = true
			}
			for _, name := range hosts.names() {
				if !slices.ContainsFunc(all, func(m clouds.Machine) bool { return m.NodeName == name }) {
					t.Errorf("host %s has no machine", name)
				}
			}
		})
	}
}

// TestEnds shows that nothing goes on after the context.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := clouds.New(ctx, clouds.Options{CreateTime: time.Hour, DeleteTime: time.Hour})
	if err := w.Create(ctx, clouds.Set{Name: "s", Capacity: 3}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Add("s", "", nil, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Delete("s", []string{"0"}, true); err != nil {
		t.Fatal(err)
	}
	cancel()
	w.Wait()
}
