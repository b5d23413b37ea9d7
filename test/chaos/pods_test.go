// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/node"
)

const (
	// annotationHang keeps a simulated pod running.
	annotationHang = "test.moult.dev/hang"
	// mark is what `moult cordon` leaves on the node when it runs for the Plan.
	mark = "Plan/" + namespace + "/" + planName
)

// play is what runs in a pod before its change, which simulated pods do not: it cordons the node. Only then may the
// pod come to its end.
func (c *chaos) play(ctx context.Context, pod *corev1.Pod) {
	for ctx.Err() == nil {
		err := c.cordon(ctx, pod)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			c.t.Logf("cordoning node %s, again: %v", pod.Spec.NodeName, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *chaos) cordon(ctx context.Context, pod *corev1.Pod) error {
	var n corev1.Node
	if err := c.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &n); err != nil {
		return err
	}
	if _, err := node.Cordon(ctx, c.client, &n, mark); err != nil {
		return err
	}
	patch := []byte(`{"metadata":{"annotations":{"` + annotationHang + `":null}}}`)
	return c.client.Patch(ctx, pod.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))
}
