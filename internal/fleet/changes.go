// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"moult.dev/moult/api/v1alpha1"
)

// changes notifies listeners when something that affects a budget may have changed.
type changes struct {
	mu        sync.RWMutex
	listeners []func()
}

// OnChange calls f whenever a budget, what a budget counts, or a gate has changed. f must return at once.
func (c *changes) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, f)
}

// Changed notifies all listeners.
func (c *changes) Changed() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, f := range c.listeners {
		f()
	}
}

// Watch notifies the listeners of changes in the cache.
func (f *Fleet) Watch(ctx context.Context, from cache.Informers) error {
	nodes, err := from.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes, %w", err)
	}
	if _, err := nodes.AddEventHandler(f.whenChanged(nodeChanged)); err != nil {
		return fmt.Errorf("watching nodes, %w", err)
	}
	if shared, ok := nodes.(toolscache.SharedInformer); ok {
		f.store = shared.GetStore()
	}
	budgets, err := from.GetInformer(ctx, &v1alpha1.NodeDisruptionBudget{})
	if err != nil {
		return fmt.Errorf("watching budgets, %w", err)
	}
	if _, err := budgets.AddEventHandler(f.whenChanged(budgetChanged)); err != nil {
		return fmt.Errorf("watching budgets, %w", err)
	}
	return nil
}

func (f *Fleet) whenChanged(changed func(old, now any) bool) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.Changed() },
		DeleteFunc: func(any) { f.Changed() },
		UpdateFunc: func(old, now any) {
			if changed(old, now) {
				f.Changed()
			}
		},
	}
}

// nodeChanged reports whether the relevant fields of a Node differ.
func nodeChanged(old, now any) bool {
	a, okA := old.(*corev1.Node)
	b, okB := now.(*corev1.Node)
	return !okA || !okB || NodeChanged(a, b)
}

// NodeChanged reports whether the fields of a trimmed Node that decisions need differ.
func NodeChanged(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable || a.Spec.ProviderID != b.Spec.ProviderID || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		a.Status.NodeInfo.BootID != b.Status.NodeInfo.BootID || a.Status.NodeInfo.OSImage != b.Status.NodeInfo.OSImage ||
		!slices.Equal(a.Spec.Taints, b.Spec.Taints) || !slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, sameCondition)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime) && a.LastHeartbeatTime.Equal(&b.LastHeartbeatTime)
}

func budgetChanged(old, now any) bool {
	a, okA := old.(*v1alpha1.NodeDisruptionBudget)
	b, okB := now.(*v1alpha1.NodeDisruptionBudget)
	return !okA || !okB || a.UID != b.UID || a.Generation != b.Generation || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
}
