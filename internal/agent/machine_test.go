// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"moult.dev/moult/internal/agent/host"
)

// machine is a host that does what it is told, counts how often, and fails where it is told to.
type machine struct {
	mu      sync.Mutex
	unnamed bool
	// runs, offers and next are versions; an empty one is none.
	runs, offers, prepared, next string
	needsReboot                  bool
	boots                        int
	calls                        map[string]int
	// fails has calls end with an error, as long as it is there.
	fails map[string]error
	// hold keeps a call from ending until it is closed, or the call is cancelled.
	hold map[string]chan struct{}
	// done is called at the end of each call that succeeded, after its effect, if it is not nil.
	done func(name string)
	// goDown is called in the place of the reboot, if it is not nil.
	goDown func()
	// rebooted gets a value whenever the machine has rebooted, for whoever ends the agent's process.
	rebooted chan struct{}
}

var _ host.Host = (*machine)(nil)

func newMachine(runs, offers string) *machine {
	return &machine{runs: runs, offers: offers, boots: 1, fails: map[string]error{}, hold: map[string]chan struct{}{}, rebooted: make(chan struct{}, 10)}
}

// call counts.
func (m *machine) call(ctx context.Context, name string) error {
	m.mu.Lock()
	if m.calls == nil {
		m.calls = map[string]int{}
	}
	m.calls[name]++
	hold, err := m.hold[name], m.fails[name]
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hold:
		}
	}
	return errors.Join(err, ctx.Err())
}

// tell tells of the end of a call.
func (m *machine) tell(name string) {
	m.mu.Lock()
	done := m.done
	m.mu.Unlock()
	if done != nil {
		done(name)
	}
}

// count is how often a call was made.
func (m *machine) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[name]
}

// booted is how often it was.
func (m *machine) booted() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// set changes the machine.
func (m *machine) set(change func(m *machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *machine) Version(ctx context.Context) (string, error) {
	err := m.call(ctx, "version")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unnamed {
		return "", err
	}
	return m.runs, err
}

func (m *machine) BootID() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("boot-%d", m.boots), m.fails["boot"]
}

func (m *machine) Check(ctx context.Context) (host.Offer, error) {
	defer m.tell("check")
	err := m.call(ctx, "check")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unnamed {
		return host.Offer{Available: m.needsReboot}, err
	}
	if m.offers == "" || m.offers == m.runs {
		return host.Offer{}, err
	}
	return host.Offer{Available: true, Version: m.offers}, err
}

func (m *machine) Prepare(ctx context.Context, version string) error {
	defer m.tell("prepare")
	err := m.call(ctx, "prepare")
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && version != "" && version != m.offers {
		return host.ErrOther
	}
	if err == nil {
		m.prepared = m.offers
	}
	return err
}

func (m *machine) Perform(ctx context.Context, version string) error {
	defer m.tell("perform")
	err := m.call(ctx, "perform")
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && version != "" && version != m.prepared {
		return host.ErrOther
	}
	if err == nil {
		m.next = m.prepared
	}
	return err
}

func (m *machine) Rollback(ctx context.Context) error { return m.call(ctx, "rollback") }

func (m *machine) Revert(ctx context.Context) error {
	err := m.call(ctx, "revert")
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.next = ""
	}
	return err
}

func (m *machine) Reboot(ctx context.Context) error {
	if err := m.call(ctx, "reboot"); err != nil {
		return err
	}
	m.mu.Lock()
	goDown := m.goDown
	m.mu.Unlock()
	if goDown != nil {
		goDown()
		return nil
	}
	m.reset()
	<-ctx.Done()
	return ctx.Err()
}

// reset reboots the machine, with its processes.
func (m *machine) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots++
	if m.next != "" {
		m.runs, m.next = m.next, ""
	}
	m.needsReboot = false
	m.rebooted <- struct{}{}
}
