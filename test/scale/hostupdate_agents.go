// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
)

// agentName is what the agents' requests begin their user agent with.
const agentName = "moult-agent/"

var byAgents = asker{line: `"userAgent":"` + agentName}

// machine is a node's host and its agent, which is begun anew with each boot.
type machine struct {
	node   string
	host   *playedHost
	config *rest.Config
	raw    kubernetes.Interface
	away   time.Duration
	// again begins the agent anew, with another time between checks.
	again chan time.Duration
	cable cable
}

// run keeps the machine going until the context ends. What should not happen is an error.
func (m *machine) run(ctx context.Context) error {
	interval := checkInterval
	for {
		ended, stop, err := m.begin(ctx, interval)
		end := func() error {
			stop()
			err := <-ended
			m.cable.cut()
			if err != nil {
				return fmt.Errorf("ending the agent of %s, %w", m.node, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("starting the agent of %s, %w", m.node, err)
		}
		select {
		case err := <-ended:
			stop()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the agent of %s has ended by itself: %w", m.node, cmp.Or(err, errors.New("without an error")))
		case interval = <-m.again:
			if err := end(); err != nil {
				return err
			}
		case <-m.host.ordered:
			// A host that goes down takes its processes and their connections with it.
			if err := end(); err != nil {
				return err
			}
			if err := m.reboot(ctx); err != nil {
				return ignore(err, func(error) bool { return ctx.Err() != nil })
			}
		}
	}
}

// begin starts the agent's process, so to say.
func (m *machine) begin(ctx context.Context, interval time.Duration) (<-chan error, context.CancelFunc, error) {
	config := rest.CopyConfig(m.config)
	// Each has connections of its own, as they come from as many machines.
	config.Dial = m.cable.dial
	a, err := agent.New(agent.Options{
		NodeName: m.node, Config: config, CheckInterval: interval, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Host: func(v1alpha1.HostProtocol, string) (host.Host, error) { return m.host, nil },
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return ended, stop, nil
}

// reboot returns when the kubelet has told of the new boot.
func (m *machine) reboot(ctx context.Context) error {
	select {
	case <-time.After(m.away):
	case <-ctx.Done():
		return ctx.Err()
	}
	boot, image := m.host.start()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]string{"bootID": boot, "osImage": image}}})
	if err != nil {
		return err
	}
	if _, err := m.raw.CoreV1().Nodes().Patch(ctx, m.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("telling of the boot of %s, %w", m.node, err)
	}
	return nil
}

// cable is what a machine's connections go through.
type cable struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn, nil
}

// cut ends all of them.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close() // It may have ended by itself.
	}
	c.conns = nil
}

// fleet is all machines.
type fleet struct {
	machines []*machine
	stop     context.CancelFunc
	// failed has a value when something went wrong.
	failed chan error
	done   sync.WaitGroup
}

// newFleet is a machine for each node, which none has begun yet.
func (b *bench) newFleet(nodes []corev1.Node, tokens map[string]string) *fleet {
	f := &fleet{failed: make(chan error, len(nodes))}
	for i := range nodes {
		n := &nodes[i]
		config := rest.AnonymousClientConfig(b.cluster.Config())
		config.UserAgent, config.BearerToken = agentName+"scale", tokens[n.Name]
		f.machines = append(f.machines, &machine{
			node: n.Name, host: newPlayedHost(n.Status.NodeInfo.BootID), config: config, raw: b.raw, away: b.hosts.away(), again: make(chan time.Duration),
		})
	}
	return f
}

// start switches all machines on.
func (f *fleet) start(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	for _, m := range f.machines {
		f.done.Go(func() {
			if err := m.run(ctx); err != nil {
				f.failed <- err
			}
		})
	}
}

// halt switches all machines off, and returns when they are.
func (f *fleet) halt() {
	if f.stop != nil {
		f.stop()
	}
	f.done.Wait()
	for _, m := range f.machines {
		m.cable.cut()
	}
}

// again begins all agents anew.
func (f *fleet) again(ctx context.Context, interval time.Duration) error {
	for _, m := range f.machines {
		select {
		case m.again <- interval:
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// checks is how often hosts were asked for updates, in all, and by the agent that did so least.
func (f *fleet) checks(before []hostCounts) (all, least int) {
	for i, m := range f.machines {
		n := m.host.counted().checks
		if before != nil {
			n -= before[i].checks
		}
		all += n
		if i == 0 || n < least {
			least = n
		}
	}
	return all, least
}

func (f *fleet) counted() []hostCounts {
	counts := make([]hostCounts, 0, len(f.machines))
	for _, m := range f.machines {
		counts = append(counts, m.host.counted())
	}
	return counts
}
