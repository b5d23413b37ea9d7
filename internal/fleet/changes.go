// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	budgets, err := from.GetInformer(ctx, &v1alpha1.NodeDisruptionBudget{})
	if err != nil {
		return fmt.Errorf("watching budgets, %w", err)
	}
	if shared, ok := nodes.(toolscache.SharedInformer); ok {
		f.store = shared.GetStore()
	}
	_, errNodes := nodes.AddEventHandler(f.whenChanged(func(old, now any) bool {
		a, okA := old.(*corev1.Node)
		b, okB := now.(*corev1.Node)
		return !okA || !okB || NodeChanged(a, b)
	}))
	_, errBudgets := budgets.AddEventHandler(f.whenChanged(func(old, now any) bool {
		a, okA := old.(*v1alpha1.NodeDisruptionBudget)
		b, okB := now.(*v1alpha1.NodeDisruptionBudget)
		return !okA || !okB || SpecChanged(a, b)
	}))
	if err := errors.Join(errNodes, errBudgets); err != nil {
		return fmt.Errorf("watching nodes and budgets, %w", err)
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

// SpecChanged reports whether an object has another spec, or is another object of the same name. A deletion counts too: the
// API server then raises the generation.
func SpecChanged(a, b client.Object) bool {
	return a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration()
}
