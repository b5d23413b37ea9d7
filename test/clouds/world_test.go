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
	wait(t, "a task", func() (done bool) {
		done, err = task.Done()
		return done
	})
	return err
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
