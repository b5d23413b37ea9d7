// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/clouds"
)

// chaosHosts are simulated nodes that look, when they are switched off, at what that hits.
type chaosHosts struct {
	clouds.Hosts
	chaos *replaceChaos
}

// Start lets a Node join. Its machine is not switched off before it has; one that was to go by then leaves its Node to the cloud controller.
func (h *chaosHosts) Start(ctx context.Context, m clouds.Machine) error {
	err := h.Hosts.Start(context.WithoutCancel(ctx), m)
	if ctx.Err() != nil {
		h.chaos.mu.Lock()
		defer h.chaos.mu.Unlock()
		h.chaos.tooLate[m.ID] = true
	}
	return err
}

// Stop switches the machine off.
func (h *chaosHosts) Stop(ctx context.Context, m clouds.Machine) error {
	c := h.chaos
	lost, strict, early := c.stopped(m)
	if !lost {
		if err := c.checkDrained(ctx, m); err != nil {
			return err
		}
		if set, ok := c.world.Set(c.set); ok && strict && set.Model == m.Model {
			c.problem("machine %s was deleted, though it is up to date", m.ID)
		}
	}
	if err := h.Hosts.Stop(ctx, m); err != nil {
		return err
	}
	if lost || early {
		c.goingOn.Go(func() {
			if err := c.forget(ctx, m.NodeName); err != nil && ctx.Err() == nil {
				c.problem("%v", err)
			}
		})
	}
	return nil
}

// checkDrained checks that nothing serves any more on the node of a machine.
func (c *replaceChaos) checkDrained(ctx context.Context, m clouds.Machine) error {
	pods, err := c.podsOn(ctx, m.NodeName)
	if err != nil {
		return err
	}
	for i := range pods {
		if bottlerocket.Serves(&pods[i]) {
			c.problem("machine %s was deleted with pod %s on its node %s", m.ID, pods[i].Name, m.NodeName)
		}
	}
	return nil
}

func (c *replaceChaos) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods on %s, %w", node, err)
	}
	return pods.Items, nil
}

// forget removes the Node of a machine that is gone, and the pods on it, as the cloud controller and the pod garbage collector do after a while.
func (c *replaceChaos) forget(ctx context.Context, name string) error {
	c.mu.Lock()
	wait := time.Duration(c.disturbances.IntN(4000)) * time.Millisecond
	c.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil
	}
	err := c.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Node of a machine that is gone, %w", err)
	}
	pods, err := c.podsOn(ctx, name)
	if err != nil {
		return err
	}
	for i := range pods {
		err := c.client.Delete(ctx, &pods[i], &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting a pod of a machine that is gone, %w", err)
		}
	}
	return nil
}
