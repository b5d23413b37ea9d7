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
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
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
	// ordered has a value when the host should reboot.
	ordered                       chan struct{}
	boot, running, prepared, next string
	checks, orders, boots         atomic.Int64
}

var _ host.Host = (*simulatedHost)(nil)

// Version is the release that runs.
func (h *simulatedHost) Version(context.Context) (string, error) { return h.running, nil }

// BootID is that of this boot.
func (h *simulatedHost) BootID() (string, error) { return h.boot, nil }

// Check offers the new release.
func (h *simulatedHost) Check(context.Context) (host.Offer, error) {
	h.checks.Add(1)
	if h.running == newRelease {
		return host.Offer{}, nil
	}
	return host.Offer{Available: true, Version: newRelease}, nil
}

// Prepare prepares a release.
func (h *simulatedHost) Prepare(_ context.Context, version string) error {
	h.prepared = version
	return nil
}

// Perform makes the prepared release the next one.
func (h *simulatedHost) Perform(context.Context, string) error {
	h.next = h.prepared
	return nil
}

// Revert makes the running release the next one.
func (h *simulatedHost) Revert(context.Context) error {
	h.next = h.running
	return nil
}

// Reboot returns when the agent ends.
func (h *simulatedHost) Reboot(ctx context.Context) error {
	h.orders.Add(1)
	select {
	case h.ordered <- struct{}{}:
	default: // It was told already.
	}
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
	times  *turnTimes
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
		agentCtx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- a.Run(agentCtx) }()
		select {
		case err = <-ended:
			if ctx.Err() == nil {
				err = fmt.Errorf("the agent of %s has ended (%w)", m.node, err)
			}
		case <-m.host.ordered:
			stop()
			err = <-ended
		}
		stop()
		// The connections end with the agent.
		m.dialer.CloseAll()
		if err == nil && ctx.Err() == nil {
			m.times.mark(m.node, stepReboot)
			err = m.reboot(ctx)
			m.times.mark(m.node, stepBooted)
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
	h.boot, h.running, h.prepared = string(uuid.NewUUID()), h.next, ""
	return m.patch(ctx, fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":%q,"osImage":%q}}}`, h.boot, osImage(h.running)), "status")
}

func (m *machine) patch(ctx context.Context, patch string, part ...string) error {
	_, err := m.raw.CoreV1().Nodes().Patch(ctx, m.node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, part...)
	return err
}

// drain evicts the pods of the node, and returns when they are gone.
func (m *machine) drain(ctx context.Context) error {
	pods, o := m.raw.CoreV1().Pods(metav1.NamespaceAll), metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.node}
	list, err := pods.List(ctx, o)
	if err != nil {
		return err
	}
	o.ResourceVersion = list.ResourceVersion
	changes, err := pods.Watch(ctx, o)
	if err != nil {
		return err
	}
	defer changes.Stop()
	if _, err := each(ctx, len(list.Items), writers, func(ctx context.Context, i int) error {
		pod := metav1.ObjectMeta{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}
		return m.raw.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: pod})
	}); err != nil {
		return err
	}
	for left := len(list.Items); left > 0; {
		if change, ok := <-changes.ResultChan(); !ok {
			return errors.New("the watch of pods has ended")
		} else if change.Type == watch.Deleted {
			left--
		}
	}
	return nil
}

// fleet is all machines.
type fleet struct {
	machines []*machine
	stop     context.CancelFunc
	failed   chan error
	running  sync.WaitGroup
}

// newFleet is a machine for each node, which does not run yet.
func (b *bench) newFleet(nodes []corev1.Node, times *turnTimes) *fleet {
	f := &fleet{stop: func() {}, failed: make(chan error, len(nodes))}
	for i := range nodes {
		m := &machine{
			node: nodes[i].Name, raw: b.raw, times: times, config: b.cluster.Config(), away: seconds(b.rebootSeconds), interval: seconds(b.checkSeconds),
			// Agents share no connections, as they would be on as many machines.
			dialer: connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second}).DialContext),
			host:   &simulatedHost{ordered: make(chan struct{}, 1), boot: nodes[i].Status.NodeInfo.BootID, running: oldRelease, next: oldRelease},
		}
		m.config.UserAgent, m.config.Dial = agentName+"scale", m.dialer.DialContext
		f.machines = append(f.machines, m)
	}
	return f
}

// start starts all machines.
func (f *fleet) start(ctx context.Context) {
	// They outlive the stage.
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, m := range f.machines {
		f.running.Go(func() {
			if err := m.run(ctx); err != nil {
				f.failed <- err
			}
		})
	}
}

// halt stops all machines.
func (f *fleet) halt() {
	f.stop()
	f.running.Wait()
}

// err is why a machine has stopped.
func (f *fleet) err() error {
	select {
	case err := <-f.failed:
		return err
	default:
		return nil
	}
}

// checks is how often all hosts were checked.
func (f *fleet) checks() (n int64) {
	for _, m := range f.machines {
		n += m.host.checks.Load()
	}
	return n
}
