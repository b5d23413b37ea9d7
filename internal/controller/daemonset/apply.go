// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// atOnce is how many requests one ExtendedDaemonSet makes at a time.
const atOnce = 32

// done counts the pods that a pass has created, deleted to be replaced, and cleaned up, without what the API server has refused.
type done struct{ created, replaced, cleaned atomic.Int32 }

// apply does what was decided. A request that fails does not delay other pods, unless it is slow to fail: see slow.
func (p *pass) apply(ctx context.Context) error {
	a := &p.Actions
	return errors.Join(
		p.each(a.Clean, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, &p.done.cleaned) }),
		p.each(a.Superseded, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, nil) }),
		p.each(a.Replace, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, &p.done.replaced) }),
		p.each(a.Label, func(pod *corev1.Pod) error { return p.labelCanary(ctx, pod, `"`+edsv1.True+`"`) }),
		p.each(a.Unlabel, func(pod *corev1.Pod) error { return p.labelCanary(ctx, pod, "null") }),
		p.each(a.Excuse, func(pod *corev1.Pod) error { return p.excuseRestarts(ctx, pod) }),
		p.createPods(ctx),
		p.deleteIdleRevisions(ctx),
	)
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

// deletePod deletes a pod, if it is the one that was decided about, and counts it.
func (p *pass) deletePod(ctx context.Context, pod *corev1.Pod, count *atomic.Int32) error {
	p.memory.note(p.key, func(r *requested) { r.deleted[pod.UID] = true })
	err := p.client.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.Preconditions{UID: &pod.UID}, unseen)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // With a conflict another pod has its name by now.
		p.memory.note(p.key, func(r *requested) { delete(r.deleted, pod.UID) })
		return fmt.Errorf("deleting pod %s, %w", pod.Name, err)
	}
	if count != nil {
		count.Add(1)
	}
	log.FromContext(ctx).V(1).Info("pod deleted", "pod", pod.Name, "node", daemonset.NodeOf(pod))
	return nil
}

// maxRefused is how many batches of pods may be refused in a row before a pass creates no more.
const maxRefused = 3

// refusedPause is for how long a pod that was refused is not tried again.
const refusedPause = 5 * time.Second

// createPods creates the pods that were decided upon. Where the API server refuses one it may refuse all. So the first pod is created
// alone, and each success doubles the next batch. After a refusal one pod alone tries again.
func (p *pass) createPods(ctx context.Context) error {
	var left []*daemonset.NodeState
	for _, s := range p.Actions.Create {
		if again := s.Refused.Add(refusedPause); !s.Refused.IsZero() && p.now.Before(again) {
			p.WakeAt(again)
		} else {
			left = append(left, s)
		}
	}
	inARow := 0
	var first error
	for size := 1; len(left) > 0 && inARow < maxRefused && !p.slowed.Load(); {
		batch := left[:min(size, len(left))]
		left = left[len(batch):]
		created := p.done.created.Load()
		refused := each(batch, func(s *daemonset.NodeState) error {
			return p.timed(func() error { return p.createPod(ctx, s) })
		})
		switch {
		case refused == nil:
			size, inARow = min(2*size, 4*atOnce), 0
		case p.done.created.Load() > created:
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

// createPod creates a node's pod, and remembers whether it was refused.
func (p *pass) createPod(ctx context.Context, s *daemonset.NodeState) error {
	err := p.create(ctx, s)
	s.Refused = time.Time{}
	if err != nil {
		s.Refused = p.now
		p.memory.note(p.key, func(r *requested) { r.refused[s.Node.Name] = daemonset.Refusal{At: p.now, Message: err.Error()} })
	}
	return err
}

// names is how many names a pod may have on its node: each but the first is for when something else has those before it.
const names = 8

func (p *pass) create(ctx context.Context, s *daemonset.NodeState) error {
	for attempt := range names {
		o := daemonset.PodOptions{NodeName: p.options.NodeName, Canary: s.Canary, Attempt: attempt}
		pod := daemonset.NewPod(s.Want, p.key.Name, s.Node, s.Overrides, o)
		if s.Outdated != nil && s.Outdated.Name == pod.Name {
			continue // It was of this revision once: somebody has changed its labels or annotations.
		}
		err := p.client.Create(ctx, pod, unseen)
		if apierrors.IsAlreadyExists(err) {
			exists, err := p.podExists(ctx, s, pod.Name)
			if exists || err != nil {
				return err // The cache will show it.
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("creating a pod for node %s, %w", s.Node.Name, err)
		}
		p.done.created.Add(1)
		if s.Outdated != nil {
			p.done.replaced.Add(1) // The replacement begins with the new pod.
		}
		p.memory.note(p.key, func(r *requested) { r.created[pod.UID] = creation{s.Node.Name, p.now} })
		log.FromContext(ctx).V(1).Info("pod created", "pod", pod.Name, "node", s.Node.Name, "revision", s.Want.Name)
		return nil
	}
	return fmt.Errorf("creating a pod for node %s, %d pods have the names that it might have", s.Node.Name, names)
}

// podExists reports whether the pod of this name is the one that the node should have, or is gone by now. One without its labels is
// another's.
func (p *pass) podExists(ctx context.Context, s *daemonset.NodeState, name string) (bool, error) {
	var pod corev1.Pod
	err := p.live.Get(ctx, client.ObjectKey{Namespace: p.key.Namespace, Name: name}, &pod)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading pod %s, %w", name, err)
	}
	return pod.Labels[edsv1.LabelName] == p.key.Name && daemonset.ReplicaSetOf(&pod) == s.Want.Name, nil
}

// labelCanary sets the canary's label on a pod, or removes it.
func (p *pass) labelCanary(ctx context.Context, pod *corev1.Pod, value string) error {
	return p.patchPod(ctx, pod, fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}}}`, pod.UID, edsv1.LabelReplicaSetCanary, value))
}

// excuseRestarts writes on a pod which of its restarts do not count.
func (p *pass) excuseRestarts(ctx context.Context, pod *corev1.Pod) error {
	const body = `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`
	return p.patchPod(ctx, pod, fmt.Appendf(nil, body, pod.UID, edsv1.AnnotationExcusedRestarts, daemonset.Excuse(pod)))
}

// patchPod patches a pod, if it is the one that was decided about.
func (p *pass) patchPod(ctx context.Context, pod *corev1.Pod, body []byte) error {
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err := p.client.Patch(ctx, target, client.RawPatch(mergePatch, body), unseen)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patching pod %s, %w", pod.Name, err)
	}
	return nil
}
