// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
)

// atOnce is how many requests one ExtendedDaemonSet makes at a time.
const atOnce = 32

// deeds are how many pods a pass has created, deleted to be replaced, and cleaned up. What the API server refuses does not count:
// it changes nothing, and so nothing is written of it.
type deeds struct{ created, replaced, cleaned atomic.Int32 }

func noted(n *atomic.Int32, err error) error {
	if err == nil {
		n.Add(1)
	}
	return err
}

// apply does what was decided. What fails for one pod keeps no other waiting, unless it takes its time to fail: see slow.
func (p *pass) apply(ctx context.Context) error {
	err := errors.Join(
		p.each(p.plan.extra, func(pod *corev1.Pod) error { return noted(&p.deeds.cleaned, p.remove(ctx, pod)) }),
		p.each(p.plan.done, func(pod *corev1.Pod) error { return p.remove(ctx, pod) }),
		p.each(p.plan.next, func(pod *corev1.Pod) error { return noted(&p.deeds.replaced, p.remove(ctx, pod)) }),
		p.each(p.plan.label, func(pod *corev1.Pod) error { return p.label(ctx, pod, `"`+edsv1.True+`"`) }),
		p.each(p.plan.unlabel, func(pod *corev1.Pod) error { return p.label(ctx, pod, "null") }),
		p.each(p.plan.excuse, func(pod *corev1.Pod) error { return p.noteExcuse(ctx, pod) }),
		p.make(ctx),
		p.prune(ctx),
	)
	return err
}

// slow is how long a request that fails may have taken. After one that took longer, as where an admission webhook does not answer, a pass
// makes no further requests for pods: each might take as long, and other ExtendedDaemonSets wait for the thread. The error brings it back.
const slow = 5 * time.Second

// each does the same to all pods, as long as no request of the pass was slow to fail.
func (p *pass) each(pods []*corev1.Pod, do func(*corev1.Pod) error) error {
	return each(pods, func(pod *corev1.Pod) error { return p.timed(func() error { return do(pod) }) })
}

// timed makes a request, unless one was slow to fail before.
func (p *pass) timed(request func() error) error {
	if p.slowed.Load() {
		return nil
	}
	began := p.clock.Now()
	err := request()
	if err != nil && p.clock.Since(began) >= slow {
		p.slowed.Store(true)
	}
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

// borne is how many batches of pods may be refused in a row before a pass leaves it at that.
const borne = 3

// make creates the pods that were decided upon. Where the API server refuses one it may refuse all: the first of them tries, and
// with its success twice as many, and so on. After a refusal one alone tries again; what is refused comes last in the next pass.
func (p *pass) make(ctx context.Context) error {
	left := p.rested(p.plan.create)
	inARow := 0
	var first error
	for size := 1; len(left) > 0 && inARow < borne && !p.slowed.Load(); {
		batch := left[:min(size, len(left))]
		left = left[len(batch):]
		var mu sync.Mutex
		var refused error
		made := 0
		_ = each(batch, func(s *spot) error {
			return p.timed(func() error {
				err := p.create(ctx, s)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused = err
					p.refusals.refuse(p.key, s.node.Name, err.Error(), p.now)
				} else {
					made++
				}
				return err
			})
		})
		switch {
		case refused == nil:
			size, inARow = min(2*size, 4*atOnce), 0
		case made > 0:
			size, inARow = 1, 0
		default:
			size, inARow = 1, inARow+1
		}
		if first == nil {
			first = refused
		}
	}
	return first
}

// names is how many names a pod may have on its node: each but the first is for when something else has those before it.
const names = 8

func (p *pass) create(ctx context.Context, s *spot) error {
	for attempt := range names {
		o := daemon.PodOptions{NodeName: p.options.NodeName, Canary: s.canary, Attempt: attempt}
		pod := daemon.NewPod(s.want, p.key.Name, s.node, s.overrides, o)
		if s.old != nil && s.old.pod.Name == pod.Name {
			continue // It was of this revision once, and is not any more: somebody has changed what it says of itself.
		}
		err := p.client.Create(ctx, pod, unseen)
		if apierrors.IsAlreadyExists(err) {
			ours, err := p.has(ctx, s, pod.Name)
			if ours || err != nil {
				return err // The cache will show it.
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("creating a pod for node %s, %w", s.node.Name, err)
		}
		p.deeds.created.Add(1)
		if s.old != nil {
			p.deeds.replaced.Add(1) // It is begun with the new pod.
		}
		p.expected.created(p.key, pod, s.node.Name, p.now)
		log.FromContext(ctx).V(1).Info("pod created", "pod", pod.Name, "node", s.node.Name, "revision", s.want.Name)
		return nil
	}
	return fmt.Errorf("creating a pod for node %s, %d pods have the names that it might have", s.node.Name, names)
}

// has reports whether the pod of this name is the one that the spot should have, or is gone by now. One whose labels somebody has
// taken away is left to them.
func (p *pass) has(ctx context.Context, s *spot, name string) (bool, error) {
	var pod corev1.Pod
	err := p.live.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: name}, &pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading pod %s, %w", name, err)
	}
	return pod.Labels[edsv1.LabelName] == p.key.Name && ofSet(&pod) == s.want.Name, nil
}

// label sets the canary's label on a pod, or removes it.
func (p *pass) label(ctx context.Context, pod *corev1.Pod, value string) error {
	return p.mark(ctx, pod, fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}}}`, pod.UID, edsv1.LabelReplicaSetCanary, value))
}

// noteExcuse writes on a pod which of its restarts don't count.
func (p *pass) noteExcuse(ctx context.Context, pod *corev1.Pod) error {
	return p.mark(ctx, pod, fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, edsv1.AnnotationExcusedRestarts, daemon.Excuse(pod)))
}

// mark patches a pod, if it is the one that was decided about.
func (p *pass) mark(ctx context.Context, pod *corev1.Pod, body []byte) error {
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err := p.client.Patch(ctx, target, client.RawPatch(mergePatch, body), unseen)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("marking pod %s, %w", pod.Name, err)
	}
	return nil
}
