// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/events"
)

// atOnce is how many requests one ExtendedDaemonSet makes at a time.
const atOnce = 32

// apply does what was decided. What fails for one pod keeps no other waiting.
func (p *pass) apply(ctx context.Context) error {
	err := errors.Join(
		each(p.plan.extra, func(pod *corev1.Pod) error { return p.remove(ctx, pod) }),
		each(p.plan.done, func(pod *corev1.Pod) error { return p.remove(ctx, pod) }),
		each(p.plan.next, func(pod *corev1.Pod) error { return p.remove(ctx, pod) }),
		p.make(ctx),
		each(p.plan.label, func(pod *corev1.Pod) error { return p.label(ctx, pod, `"`+edsv1.True+`"`) }),
		each(p.plan.unlabel, func(pod *corev1.Pod) error { return p.label(ctx, pod, "null") }),
		p.prune(ctx),
	)
	return err
}

// each does the same to all, several at once, and returns the first error.
func each[T any](all []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, one := range all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}

// unseen is for what is written of pods: they are in caches of their own, see Caches. The client's cache, which has those of
// Jobs alone, never shows them, so that whoever lists pods there must not wait until it does.
const unseen = client.DisableReadYourWritesConsistency

// remove deletes a pod, if it is the one that was decided about.
func (p *pass) remove(ctx context.Context, pod *corev1.Pod) error {
	p.expected.deletes(p.key, pod)
	err := p.client.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.Preconditions{UID: &pod.UID}, unseen)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return nil // Another pod has its name by now: it has gone.
	case err != nil:
		p.expected.keeps(p.key, pod)
		return fmt.Errorf("deleting pod %s, %w", pod.Name, err)
	}
	log.FromContext(ctx).V(1).Info("pod deleted", "pod", pod.Name, "node", daemon.NodeOf(pod))
	return nil
}

// make creates the pods that were decided upon. Where the API server refuses one it is likely to refuse all: the first of them
// tries, and with its success twice as many, and so on.
func (p *pass) make(ctx context.Context) error {
	left := p.plan.create
	for size := 1; len(left) > 0; size = min(2*size, 4*atOnce) {
		batch := left[:min(size, len(left))]
		left = left[len(batch):]
		var mu sync.Mutex
		var refused error
		_ = each(batch, func(s *spot) error {
			if err := p.create(ctx, s); err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused = err
			}
			return nil
		})
		if refused != nil {
			p.refused = refused.Error()
			p.happened = append(p.happened, events.PodCreateFailed(p.eds, p.refused))
			return refused
		}
	}
	return nil
}

func (p *pass) create(ctx context.Context, s *spot) error {
	pod := daemon.NewPod(s.want, p.key.Name, s.node, s.overrides, daemon.PodOptions{NodeName: p.options.NodeName, Canary: s.canary})
	err := p.client.Create(ctx, pod, unseen)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // The cache will show it.
	case err != nil:
		return fmt.Errorf("creating a pod for node %s, %w", s.node.Name, err)
	}
	p.expected.created(p.key, pod, s.node.Name, p.now)
	log.FromContext(ctx).V(1).Info("pod created", "pod", pod.Name, "node", s.node.Name, "revision", s.want.Name)
	return nil
}

// label sets the canary's label on a pod, or removes it.
func (p *pass) label(ctx context.Context, pod *corev1.Pod, value string) error {
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}}}`, pod.UID, edsv1.LabelReplicaSetCanary, value)
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err := p.client.Patch(ctx, target, client.RawPatch(mergePatch, body), unseen)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("labelling pod %s, %w", pod.Name, err)
	}
	return nil
}
