// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"moult.dev/moult/internal/agent/host"
)

// machine is a host that does what it is told, counts how often, and fails where it is told to.
type machine struct {
	name string
	// posts is held while its kubelet posts, mu while it does something.
	posts, mu sync.Mutex
	// runs and offers are versions.
	runs, offers string
	prepared     string
	next         string
	// previous is what ran before. ill is the version with which the node is not ready.
	previous, ill string
	boots         int
	calls         map[string]int
	// fails has calls end with an error, as long as it is there.
	fails  map[string]error
	isDown bool
	// down gets a value when the machine goes down.
	down chan struct{}
}

var _ host.Host = (*machine)(nil)

func newMachine(name, runs, offers string) *machine {
	return &machine{name: name, runs: runs, offers: offers, boots: 1, calls: map[string]int{}, fails: map[string]error{}, down: make(chan struct{}, 10)}
}

// call counts, and says how the call ends.
func (m *machine) call(name string) error {
	m.calls[name]++
	return m.fails[name]
}

func (m *machine) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[name]
}

// set changes the machine.
func (m *machine) set(change func(m *machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *machine) bootID() string { return fmt.Sprintf("%s-boot-%d", m.name, m.boots) }

func (m *machine) Version(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs, m.call("version")
}

func (m *machine) BootID() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID(), nil
}

func (m *machine) Check(context.Context) (host.Offer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("check"); err != nil || m.offers == "" || m.offers == m.runs {
		return host.Offer{}, err
	}
	return host.Offer{Available: true, Version: m.offers}, nil
}

func (m *machine) Prepare(_ context.Context, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("prepare"); err != nil {
		return err
	}
	if version != "" && version != m.offers {
		return host.ErrOther
	}
	m.prepared = m.offers
	return nil
}

func (m *machine) Perform(_ context.Context, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("perform"); err != nil {
		return err
	}
	if m.prepared == "" || version != "" && version != m.prepared {
		return errors.New("nothing is prepared")
	}
	m.next = m.prepared
	return nil
}

func (m *machine) Rollback(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = m.previous
	return m.call("rollback")
}

func (m *machine) Revert(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = ""
	return m.call("revert")
}

func (m *machine) Reboot(ctx context.Context) error {
	m.mu.Lock()
	err := m.call("reboot")
	m.mu.Unlock()
	if err != nil {
		return err
	}
	m.down <- struct{}{}
	<-ctx.Done() // It goes down with the machine.
	return ctx.Err()
}

// marked is what the machine would boot into, if that is not what it runs.
func (m *machine) marked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// boot is what the machine does when it comes up again.
func (m *machine) boot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isDown = false
	m.boots++
	if m.next != "" {
		m.previous, m.runs = m.runs, m.next
	}
	m.prepared, m.next = "", ""
}
