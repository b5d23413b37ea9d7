// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
)

// agentName begins the user agent of agents.
const agentName = "moult-agent/"

// The release that hosts run at first, and the one that they are offered.
const (
	oldRelease = "1.19.5"
	newRelease = "1.20.0"
)

func osImage(release string) string { return "Bottlerocket OS " + release + " (aws-k8s-1.37)" }

// simulatedHost is what an agent sees of a host. No action takes time.
type simulatedHost struct {
	// stopAgent ends the agent.
	stopAgent             context.CancelCauseFunc
	boot, running, next   string
	checks, orders, boots atomic.Int64
}

var errReboot = errors.New("the host reboots")

func (h *simulatedHost) Version(context.Context) (string, error) { return h.running, nil }

func (h *simulatedHost) BootID() (string, error) { return h.boot, nil }

// Check offers the new release.
func (h *simulatedHost) Check(context.Context) (host.Offer, error) {
	h.checks.Add(1)
	if h.running == newRelease {
		return host.Offer{}, nil
	}
	return host.Offer{Available: true, Version: newRelease}, nil
}

// Prepare has nothing to do.
func (h *simulatedHost) Prepare(context.Context, string) error { return nil }

// Perform makes the new release the next one.
func (h *simulatedHost) Perform(context.Context, string) error {
	h.next = newRelease
	return nil
}

func (h *simulatedHost) Rollback(context.Context) error { return nil }

// Revert makes the running release the next one.
func (h *simulatedHost) Revert(context.Context) error {
	h.next = h.running
	return nil
}

func (h *simulatedHost) Reboot(ctx context.Context) error {
	h.orders.Add(1)
	h.stopAgent(errReboot)
	<-ctx.Done()
	return ctx.Err()
}

// machine is a host and its agent, which is started again at each boot.
type machine struct {
	node   string
	host   *simulatedHost
	config *rest.Config
	dialer *connrotation.Dialer
	raw    kubernetes.Interface
	tally  *nodeTally
	// away is how long a reboot takes, and interval the time between two checks.
	away, interval time.Duration
}

// run runs the agent until the context ends.
func (m *machine) run(ctx context.Context) error {
	for ctx.Err() == nil {
		a, err := agent.New(agent.Options{
			NodeName: m.node, Config: rest.CopyConfig(m.config), CheckInterval: m.interval,
			Host: func(v1alpha1.HostProtocol, string) (host.Host, error) { return m.host, nil },
		})
		if err != nil {
			return err
		}
		agentCtx, stop := context.WithCancelCause(ctx)
		m.host.stopAgent = stop
		err = a.Run(agentCtx)
		ordered := errors.Is(context.Cause(agentCtx), errReboot)
		stop(nil)
		// The connections end with the agent.
		m.dialer.CloseAll()
		if !ordered && ctx.Err() == nil {
			return fmt.Errorf("the agent of %s has ended (%w)", m.node, err)
		}
		if err == nil && ctx.Err() == nil {
			m.tally.mark(m.node, stepReboot)
			err = m.reboot(ctx)
			m.tally.mark(m.node, stepBooted)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// reboot returns when the kubelet has reported the new boot.
func (m *machine) reboot(ctx context.Context) error {
	select {
	case <-time.After(m.away):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h := m.host
	h.boots.Add(1)
	h.boot, h.running = string(uuid.NewUUID()), h.next
	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q,"osImage":%q}}}`, h.boot, osImage(h.running))
	_, err := m.raw.CoreV1().Nodes().Patch(ctx, m.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// fleet is all machines.
type fleet struct {
	machines []*machine
	// halt stops them, and err is why one has stopped.
	halt func()
	err  func() error
}

// newFleet is a machine for each node, which does not run yet.
func (b *bench) newFleet(nodes []corev1.Node, tally *nodeTally) *fleet {
	f := &fleet{halt: func() {}}
	for i := range nodes {
		m := &machine{
			node: nodes[i].Name, raw: b.raw, tally: tally, config: b.cluster.Config(), away: seconds(b.rebootSeconds), interval: seconds(b.checkSeconds),
			// Agents share no connections, as they would be on as many machines.
			dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second}).DialContext),
			host:   &simulatedHost{boot: nodes[i].Status.NodeInfo.BootID, running: oldRelease, next: oldRelease},
		}
		m.config.UserAgent, m.config.Dial = agentName+"scale", m.dialer.DialContext
		f.machines = append(f.machines, m)
	}
	return f
}

// start starts all machines. They outlive the stage.
func (f *fleet) start(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, m := range f.machines {
		running.Go(func() {
			if err := m.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	f.halt, f.err = func() { cancel(nil); running.Wait() }, func() error { return context.Cause(ctx) }
}

// checks is how often all hosts were checked.
func (f *fleet) checks() (n int64) {
	for _, m := range f.machines {
		n += m.host.checks.Load()
	}
	return n
}
