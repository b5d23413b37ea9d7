// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

// fresh are the workloads whose pods go, and that are not recorded yet. They count as recorded then.
func (b *begun) fresh(r *drain.Result) []node.Workload {
	var fresh []node.Workload
	for _, o := range r.In(drain.Evicted) {
		w, ok := node.WorkloadOf(o.Pod.Namespace, o.Owner)
		if ok && !b.recorded[w] {
			b.recorded[w] = true
			fresh = append(fresh, w)
		}
	}
	return fresh
}

// record adds workloads to the node's record of evictions. It writes nothing if the record names them all.
func (d *draining) record(ctx context.Context, name string, workloads []node.Workload) {
	if d.dryRun != dryRunNone || len(workloads) == 0 {
		return
	}
	var n corev1.Node
	err := d.api.Get(ctx, client.ObjectKey{Name: name}, &n)
	if err == nil {
		err = node.RecordEvicted(ctx, d.api, &n, workloads...)
	}
	if err != nil {
		fmt.Fprintf(d.ErrOut, "Warning: %v\n", err)
	}
}
