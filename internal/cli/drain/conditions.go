// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

// conditionInterval bounds how often the node's condition is written with what holds its drain.
const conditionInterval = 10 * time.Second

// sayBegun writes in the node's conditions that the drain begins. A drain goes on when conditions cannot be written.
func (p *progress) sayBegun(ctx context.Context) {
	p.setConditions(ctx,
		node.Condition{Type: corev1.NodeMaintenanceInProgress, True: true, Message: "the node is in maintenance"},
		node.Condition{Type: corev1.NodeDrainInProgress, True: true, Message: p.left},
		node.Condition{Type: corev1.NodeDrained, Message: "the drain goes on"},
	)
}

// sayLeft writes what is left, if that is new, and not too often.
func (p *progress) sayLeft(ctx context.Context, left string) {
	now := p.clock.Now()
	if left == p.left || !p.leftAt.IsZero() && now.Sub(p.leftAt) < conditionInterval {
		return
	}
	p.left, p.leftAt = left, now
	p.setConditions(ctx, node.Condition{Type: corev1.NodeDrainInProgress, True: true, Message: left})
}

// sayDrained writes that the node is drained.
func (p *progress) sayDrained(ctx context.Context) {
	p.setConditions(ctx,
		node.Condition{Type: corev1.NodeDrainInProgress, Message: "the drain is over"},
		node.Condition{Type: corev1.NodeDrained, True: true, Message: "the node is drained"},
	)
}

func (p *progress) setConditions(ctx context.Context, conditions ...node.Condition) {
	if p.quiet || !p.dryRun.None() {
		return
	}
	var n corev1.Node
	err := p.api.Get(ctx, client.ObjectKey{Name: p.name}, &n)
	if err == nil {
		err = node.SetConditions(ctx, p.api, &n, p.holder, p.clock.Now(), conditions...)
	}
	if ctx.Err() == nil {
		p.warn(err)
	}
}

// newWorkloads are the workloads whose pods go, and that are not recorded yet. They count as recorded then.
func (p *progress) newWorkloads(r *drain.Result) []node.Workload {
	var workloads []node.Workload
	for _, o := range r.In(drain.Evicted) {
		w, ok := node.WorkloadOf(o.Pod.Namespace, o.Owner)
		if ok && !p.recorded[w] {
			p.recorded[w] = true
			workloads = append(workloads, w)
		}
	}
	return workloads
}

// record adds workloads to the node's record of evictions. It writes nothing if the record names them all.
func (p *progress) record(ctx context.Context, workloads []node.Workload) {
	if !p.dryRun.None() || len(workloads) == 0 {
		return
	}
	var n corev1.Node
	err := p.api.Get(ctx, client.ObjectKey{Name: p.name}, &n)
	if err == nil {
		err = node.RecordEvicted(ctx, p.api, &n, workloads...)
	}
	if err != nil {
		fmt.Fprintf(p.ErrOut, "Warning: %v\n", err)
	}
}
