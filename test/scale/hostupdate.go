// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// hostProtocol is the protocol of the nodes.
var hostProtocol = v1alpha1.HostProtocols[0]

// hostRun is the measurement of a NodeRollout over hosts with agents.
type hostRun struct {
	*bench
	nodes   []corev1.Node
	fleet   *fleet
	tally   *nodeTally
	rollout *v1alpha1.NodeRollout
}

func setupHosts(ctx context.Context, b *bench) (*setup, error) {
	r := &hostRun{bench: b}
	r.tally = newNodeTally(b.concurrency, b.concurrency, stepBooted, stepClaimed, stepCordoned, stepReboot, stepBooted, stepReleased)
	r.tally.state = func(n *corev1.Node) string {
		return n.Annotations[hostProtocol.Wanted] + " " + n.Annotations[hostProtocol.State] + " " + n.Annotations[hostProtocol.Update]
	}
	r.rollout = &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "hosts"},
		Spec: v1alpha1.NodeRolloutSpec{
			Strategy:   &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt(b.concurrency))},
			HostUpdate: &v1alpha1.HostUpdate{DetectOnly: true},
		},
	}
	say("adding %d hosts", b.size)
	_, err := each(ctx, b.size, writers, func(ctx context.Context, i int) error {
		return b.cluster.AddNode(ctx, cluster.NodeOptions{
			Name: fmt.Sprintf("host-%04d", i+1), OSImage: osImage(oldRelease),
			Labels: map[string]string{hostProtocol.InterfaceLabel: v1alpha1.InterfaceUpdateAPI},
		})
	})
	if err != nil {
		return nil, err
	}
	if err := b.untilReady(ctx); err != nil {
		return nil, err
	}
	if r.nodes, err = b.nodes(ctx); err != nil {
		return nil, err
	}
	r.fleet = b.newFleet(r.nodes, r.tally)
	b.stops = append(b.stops, func() { r.fleet.halt() })
	return &setup{bare: r.bare, ideal: r.ideal(), subjects: []*subject{r.subject()}}, nil
}

func (r *hostRun) ideal() time.Duration { return inRounds(r.size, r.concurrency, r.rebootSeconds) }

// bare drains, reboots and uncordons every host, as many at once as the concurrency. No agent runs.
func (r *hostRun) bare(ctx context.Context) (time.Duration, error) {
	took, err := r.bareTurns(ctx, r.concurrency, func(ctx context.Context, l *onlooker, i int) error {
		m := r.fleet.machines[i]
		if err := r.drain(ctx, l, m.node); err != nil {
			return err
		}
		if err := m.reboot(ctx); err != nil {
			return err
		}
		if err := l.untilNode(ctx, m.node, func(n *corev1.Node) bool { return isReady(n) && n.Status.NodeInfo.BootID == m.host.boot }); err != nil {
			return err
		}
		return r.cordon(ctx, m.node, false)
	})
	for _, m := range r.fleet.machines {
		m.host.boots.Store(0)
	}
	return took, err
}

func (r *hostRun) subject() *subject {
	update := r.pass(stageUpdate, "stabilize ready false", func(ctx context.Context) error {
		return r.client.Patch(ctx, r.rollout, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hostUpdate":{"detectOnly":false}}}`)))
	})
	update.ideal, update.compared = r.ideal(), true
	checks := int64(0)
	update.check = func(p *phase, _ *result) {
		checks = r.fleet.checks()
		p.figure("nodes unavailable at once", float64(r.tally.mostUnavailable))
		r.tally.report(p, r.concurrency)
	}
	return &subject{
		name: "hosts", prepare: r.deployForNodes, objects: []client.Object{r.rollout},
		watches: []watched{r.tally.watch(r.bench)}, progress: r.tally.progress,
		meters: []*meter{controllerMeter(nil), {name: "agents", pid: os.Getpid(), agent: agentName}},
		stages: []*stage{
			{
				name: "start", units: r.size,
				start: func(ctx context.Context) error { r.fleet.start(ctx); return nil },
				done: func(_ context.Context, p *phase) (bool, error) {
					_, err := p.read()
					return p.Programs[1].Watches >= r.size, errors.Join(err, r.fleet.err())
				},
			},
			r.pass(stageFind, "stabilize ready true", func(ctx context.Context) error { return r.create(ctx, r.rollout) }),
			update,
		},
		check: r.check,
		checkIdle: func(_ *phase, result *result) {
			if n := r.fleet.checks() - checks; r.idle > 2*seconds(r.checkSeconds) && n < int64(r.size) {
				result.wrong("only %d checks of %d agents when idle", n, r.size)
			}
		},
	}
}

// pass is a stage in which every Node reaches a state of the protocol.
func (r *hostRun) pass(name, state string, start func(context.Context) error) *stage {
	return &stage{name: name, units: r.size, start: start, done: func(ctx context.Context, _ *phase) (bool, error) {
		if r.tally.at(state) < r.size || name == stageUpdate && r.tally.released() < r.size {
			return false, r.fleet.err()
		}
		updated, err := r.updated(ctx, r.rollout)
		return name == stageFind || updated, err
	}}
}

func (r *hostRun) check(ctx context.Context, result *result) error {
	r.fleet.halt()
	result.add(r.tally.verify(names(r.nodes), nodeState{claims: 1, cordons: 1})...)
	hosts := map[string]*simulatedHost{}
	for _, m := range r.fleet.machines {
		hosts[m.node] = m.host
		if orders, boots := m.host.orders.Load(), m.host.boots.Load(); orders != 1 || boots != 1 {
			result.wrong("the host of %s was ordered to reboot %d times, and booted %d times", m.node, orders, boots)
		}
	}
	return r.checkNodes(ctx, result, func(n *corev1.Node) string {
		h, info := hosts[n.Name], &n.Status.NodeInfo
		is := []string{h.running, n.Annotations[v1alpha1.AnnotationHostVersion], info.OSImage, info.BootID, n.Labels[hostProtocol.Update]}
		should := []string{newRelease, newRelease, osImage(newRelease), h.boot, v1alpha1.HostUpdateFalse}
		if failed := n.Annotations[v1alpha1.AnnotationHostError]; failed != "" || !slices.Equal(is, should) {
			return fmt.Sprintf("is %q, and should be %q (%s)", is, should, failed)
		}
		return ""
	})
}
