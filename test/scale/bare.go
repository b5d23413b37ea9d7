// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// onlooker knows by watches what there is on each node: the Node itself, pods and Jobs.
type onlooker struct {
	mu      sync.Mutex
	objects map[string]map[types.UID]client.Object // by node
	where   map[types.UID]string
	changed map[string]chan struct{} // by node, closed at its next change
}

func newOnlooker() *onlooker {
	return &onlooker{objects: map[string]map[types.UID]client.Object{}, where: map[types.UID]string{}, changed: map[string]chan struct{}{}}
}

func (l *onlooker) see(kind watch.EventType, object any) {
	now := object.(client.Object)
	node := now.GetName()
	switch o := now.(type) {
	case *corev1.Pod:
		node = o.Spec.NodeName
	case *batchv1.Job:
		node = o.Labels[upgradev1.LabelNode]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects[l.where[now.GetUID()]], now.GetUID())
	if l.objects[node] == nil {
		l.objects[node] = map[types.UID]client.Object{}
	}
	if kind != watch.Deleted {
		l.objects[node][now.GetUID()], l.where[now.GetUID()] = now, node
	}
	if wake := l.changed[node]; wake != nil {
		close(wake)
		delete(l.changed, node)
	}
}

// until returns when what there is on a node is as it should be.
func (l *onlooker) until(ctx context.Context, node string, is func([]client.Object) (bool, error)) error {
	for {
		l.mu.Lock()
		objects := slices.Collect(maps.Values(l.objects[node]))
		wake := l.changed[node]
		if wake == nil {
			wake = make(chan struct{})
			l.changed[node] = wake
		}
		l.mu.Unlock()
		if done, err := is(objects); done || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return fmt.Errorf("waiting for node %s, %w", node, context.Cause(ctx))
		}
	}
}

// untilNode returns when a Node is there, and as it should be.
func (l *onlooker) untilNode(ctx context.Context, node string, is func(*corev1.Node) bool) error {
	return l.until(ctx, node, func(objects []client.Object) (bool, error) {
		return slices.ContainsFunc(objects, func(o client.Object) bool {
			n, ok := o.(*corev1.Node)
			return ok && is(n)
		}), nil
	})
}

// bareTurns calls turn for each node, so many at once, and says how long that took. There are pods to evict.
func (b *bench) bareTurns(ctx context.Context, atOnce int, turn func(ctx context.Context, l *onlooker, i int) error) (time.Duration, error) {
	if err := b.deployForNodes(ctx); err != nil {
		return 0, err
	}
	l := newOnlooker()
	ctx, stop, err := b.follow(ctx,
		watched{begin: b.raw.CoreV1().Nodes().Watch, list: &corev1.NodeList{}, see: l.see},
		watched{begin: b.raw.CoreV1().Pods(workloads).Watch, list: &corev1.PodList{}, namespace: workloads, see: l.see})
	if err != nil {
		return 0, err
	}
	defer stop()
	return each(ctx, b.size, atOnce, func(ctx context.Context, i int) error { return turn(ctx, l, i) })
}

// cordon cordons a node, or uncordons it.
func (b *bench) cordon(ctx context.Context, node string, cordoned bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := b.raw.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// drain cordons a node, evicts its pods, and returns when they are gone.
func (b *bench) drain(ctx context.Context, l *onlooker, node string) error {
	if err := b.cordon(ctx, node, true); err != nil {
		return err
	}
	evicted := map[string]bool{}
	return l.until(ctx, node, func(objects []client.Object) (bool, error) {
		left := false
		for _, o := range objects {
			pod, ok := o.(*corev1.Pod)
			left = left || ok
			if !ok || evicted[pod.Name] {
				continue
			}
			evicted[pod.Name] = true
			err := b.raw.CoreV1().Pods(workloads).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: workloads}})
			if err := ignore(err, apierrors.IsNotFound); err != nil {
				return false, fmt.Errorf("evicting pod %s, %w", pod.Name, err)
			}
		}
		return !left, nil
	})
}
