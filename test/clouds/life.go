// SPDX-License-Identifier: Apache-2.0

package clouds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// slowness is how many times longer what the fault Slow has hit takes.
const slowness = 10

// Task is something that goes on in a World.
type Task struct {
	world   *World
	pending int
	err     error
}

// Done reports whether a task has ended, and the error that it has ended with.
func (t *Task) Done() (bool, error) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	if t.pending > 0 {
		return false, nil
	}
	return true, t.err
}

// run is the life of a machine, until it is to go.
func (w *World) run(alive context.Context, m *machine, started chan<- error) {
	err := context.Canceled
	if w.begin(alive, m) {
		err = w.start(alive, m)
	}
	if started != nil {
		started <- err
	}
	<-alive.Done()
}

// begin brings a machine up to where it runs, or has failed, and reports false for one that is to go before that.
func (w *World) begin(alive context.Context, m *machine) bool {
	w.mu.Lock()
	wait := w.options.CreateTime
	if m.slow {
		wait *= slowness
	}
	if m.State == Running {
		wait = 0
	}
	w.mu.Unlock()
	if !pause(alive, wait) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.State == Deleting {
		return false
	}
	m.State = Running
	if m.fails {
		m.State, m.Message = Failed, fmt.Sprintf("creating machine %s, %v", m.ID, ErrFailed)
		m.adding.err = fmt.Errorf("creating machine %s, %w", m.ID, ErrFailed)
	}
	m.added()
	return true
}

// added ends its part of the task that it came by.
func (m *machine) added() {
	if m.adding != nil {
		m.adding.pending--
		m.adding = nil
	}
}

// start starts the host of a machine.
func (w *World) start(alive context.Context, m *machine) error {
	w.mu.Lock()
	c, skip := m.clone(), w.options.Hosts == nil || m.never || m.State == Failed
	w.mu.Unlock()
	if skip {
		return nil
	}
	err := w.options.Hosts.Start(alive, c)
	if err == nil || alive.Err() != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("Start", m.Set+" "+m.ID, err.Error())
	if m.State == Running {
		m.State, m.Message = Failed, err.Error()
	}
	return err
}

// leave takes a machine away that is to go, unless all ends.
func (w *World) leave(ctx context.Context, m *machine) {
	w.mu.Lock()
	wait, c := m.delete, m.clone()
	m.added() // it will not come any more; what deletes it says how that goes
	w.mu.Unlock()
	if !pause(ctx, wait) {
		return
	}
	if w.options.Hosts != nil {
		if err := w.options.Hosts.Stop(ctx, c); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.note("Stop", m.Set+" "+m.ID, err.Error())
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sets[m.Set]
	s.machines = slices.DeleteFunc(s.machines, func(o *machine) bool { return o == m })
	s.gone = append(s.gone, m.clone())
	for _, t := range m.leave {
		t.pending--
	}
}

// pause waits, and reports whether it has waited for all of it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(cmp.Or(d, time.Nanosecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
