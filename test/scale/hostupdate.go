// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	times   *turnTimes
	tally   *nodeTally
	rollout *v1alpha1.NodeRollout
}

func setupHosts(ctx context.Context, b *bench) (*setup, error) {
	times := newTurnTimes(stepBooted, stepClaimed, stepCordoned, stepReboot, stepBooted, stepReleased)
	r := &hostRun{bench: b, times: times, tally: newNodeTally(b.concurrency, b.concurrency, times)}
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
	zones := []string{"zone-a", "zone-b", "zone-c"}
	_, err := each(ctx, b.size, writers, func(ctx context.Context, i int) error {
		return b.cluster.AddNode(ctx, cluster.NodeOptions{
			Name: fmt.Sprintf("host-%04d", i+1), Zone: zones[i%len(zones)], OSImage: osImage(oldRelease),
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
	r.fleet = b.newFleet(r.nodes, times)
	if err := b.deployForNodes(ctx); err != nil {
		return nil, err
	}
	return &setup{bare: r.bare, subjects: []*subject{r.subject()}, stop: r.fleet.halt}, nil
}

// bare cordons, drains, reboots and uncordons every node, as many at once as the concurrency. No agent runs.
func (r *hostRun) bare(ctx context.Context) (time.Duration, error) {
	took, err := each(ctx, r.size, r.concurrency, func(ctx context.Context, i int) error {
		m := r.fleet.machines[i]
		err := m.patch(ctx, `{"spec":{"unschedulable":true}}`)
		if err == nil {
			err = m.drain(ctx)
		}
		if err == nil {
			err = m.reboot(ctx)
		}
		return errors.Join(err, m.patch(ctx, `{"spec":{"unschedulable":false}}`))
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
	update.ideal, update.compared = inRounds(r.size, r.concurrency, r.rebootSeconds), true
	update.check = func(p *phase, _ *result) {
		p.figure("nodes unavailable at once", float64(r.tally.mostUnavailable))
		r.times.report(p, r.concurrency)
	}
	s := &subject{
		name: "hosts", namespace: namespace, object: r.rollout, watches: []watched{r.tally.watch(r.bench)}, progress: r.tally.progress,
		meters: []*meter{operatorMeter(), {name: "agents", process: "/proc/self", agent: agentName}},
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
	}
	if r.idle > 0 {
		var before int64
		s.stages = append(s.stages, &stage{
			name: stageIdle, units: r.size,
			before: func(context.Context) error { before = r.fleet.checks(); return nil },
			check:  func(_ *phase, result *result) { r.checkIdle(result, r.fleet.checks()-before) },
		})
	}
	return s
}

// pass is a stage in which every Node reaches a state of the protocol.
func (r *hostRun) pass(name, state string, start func(context.Context) error) *stage {
	return &stage{name: name, units: r.size, start: start, done: func(ctx context.Context, _ *phase) (bool, error) {
		if r.tally.at(state) < r.size || name == stageUpdate && r.tally.released() < r.size {
			return false, r.fleet.err()
		}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(r.rollout), r.rollout)
		is := &r.rollout.Status
		return name == stageFind || is.ObservedGeneration == r.rollout.Generation && is.Counts != nil && int(is.Counts.Updated) == r.size &&
			int(is.Counts.Total) == r.size && meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady), err
	}}
}

// checkIdle checks that agents have checked their hosts.
func (r *hostRun) checkIdle(result *result, checks int64) {
	if r.idle > 2*seconds(r.checkSeconds) && checks < int64(r.size) {
		result.wrong("only %d checks of %d agents when idle", checks, r.size)
	}
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
		running, boot := hosts[n.Name].running, hosts[n.Name].boot
		switch {
		case running != newRelease:
			return "has a host that runs " + running
		case n.Annotations[v1alpha1.AnnotationHostVersion] != running:
			return "says that its host runs " + n.Annotations[v1alpha1.AnnotationHostVersion]
		case n.Status.NodeInfo.BootID != boot || n.Status.NodeInfo.OSImage != osImage(running):
			return "has boot " + n.Status.NodeInfo.BootID + " and image " + n.Status.NodeInfo.OSImage
		case n.Labels[hostProtocol.Update] != v1alpha1.HostUpdateFalse:
			return "has " + n.Labels[hostProtocol.Update] + " in its label for updates"
		case n.Annotations[v1alpha1.AnnotationHostError] != "":
			return "has an error: " + n.Annotations[v1alpha1.AnnotationHostError]
		}
		return ""
	})
}
