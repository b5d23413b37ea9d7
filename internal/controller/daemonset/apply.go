// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// atOnce is how many requests one ExtendedDaemonSet makes at a time.
const atOnce = 32

// done counts the pods that a pass has created, deleted to be replaced, and cleaned up, without what the API server has refused.
type done struct{ created, replaced, cleaned atomic.Int32 }

// apply does what was decided. A request that fails does not delay other pods.
func (p *pass) apply(ctx context.Context) error {
	a := &p.Actions
	return errors.Join(
		each(a.Clean, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, &p.done.cleaned) }),
		each(a.Superseded, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, nil) }),
		each(a.Replace, func(pod *corev1.Pod) error { return p.deletePod(ctx, pod, &p.done.replaced) }),
		each(a.Label, func(pod *corev1.Pod) error { return p.labelCanary(ctx, pod, `"`+edsv1.True+`"`) }),
		each(a.Unlabel, func(pod *corev1.Pod) error { return p.labelCanary(ctx, pod, "null") }),
		p.createPods(ctx),
		p.deleteIdleRevisions(ctx),
	)
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

// unseen is for writes of pods. They are in caches of their own, see Caches. The client's cache has only the pods of Jobs, so that lists of
// those must not wait for these writes.
const unseen = client.DisableReadYourWritesConsistency

// deletePod deletes a pod, if it is the one that was decided about, and counts it.
func (p *pass) deletePod(ctx context.Context, pod *corev1.Pod, count *atomic.Int32) error {
	p.memory.note(p.key, func(r *daemonset.InFlight) { r.Deleted[pod.UID] = true })
	err := p.client.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.Preconditions{UID: &pod.UID}, unseen)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // With a conflict another pod has its name by now.
		p.memory.note(p.key, func(r *daemonset.InFlight) { delete(r.Deleted, pod.UID) })
		return fmt.Errorf("deleting pod %s, %w", pod.Name, err)
	}
	if count != nil {
		count.Add(1)
	}
	log.FromContext(ctx).V(1).Info("pod deleted", "pod", pod.Name, "node", daemonset.NodeOf(pod))
	return nil
}

// refusedPause is for how long a pod that was refused is not tried again.
const refusedPause = 5 * time.Second

// createPods creates the pods that were decided upon. Where the API server refuses one it may refuse all. So the first pod is created
// alone, and each success doubles the next batch. After a batch of which it refuses all the pass creates no more. The next pass begins with
// the pods that were not refused.
func (p *pass) createPods(ctx context.Context) error {
	var left []*daemonset.NodeState
	for _, s := range p.Actions.Create {
		if again := s.Refused.Add(refusedPause); !s.Refused.IsZero() && p.now.Before(again) {
			p.WakeAt(again)
		} else {
			left = append(left, s)
		}
	}
	var first error
	for size := 1; len(left) > 0; size = min(2*size, 4*atOnce) {
		batch := left[:min(size, len(left))]
		left = left[len(batch):]
		before := p.done.created.Load()
		if err := each(batch, func(s *daemonset.NodeState) error { return p.createPod(ctx, s) }); err != nil {
			first, size = cmp.Or(first, err), 1
			if p.done.created.Load() == before {
				break
			}
		}
	}
	return first
}

// createPod creates a node's pod, and remembers whether it was refused.
func (p *pass) createPod(ctx context.Context, s *daemonset.NodeState) error {
	pod := daemonset.NewPod(s.Want, p.key.Name, s.Node, s.Overrides, daemonset.PodOptions{NodeName: p.options.NodeName, Canary: s.Canary})
	if err := p.client.Create(ctx, pod, unseen); err != nil {
		err = fmt.Errorf("creating a pod for node %s, %w", s.Node.Name, err)
		s.Refused = p.now
		p.memory.note(p.key, func(r *daemonset.InFlight) {
			r.Refused[s.Node.Name] = daemonset.Refusal{At: p.now, Message: err.Error()}
		})
		return err
	}
	s.Refused = time.Time{}
	p.done.created.Add(1)
	if s.Outdated != nil {
		p.done.replaced.Add(1) // The replacement begins with the new pod.
	}
	p.memory.note(p.key, func(r *daemonset.InFlight) { r.Created[s.Node.Name] = daemonset.Creation{UID: pod.UID, At: p.now} })
	log.FromContext(ctx).V(1).Info("pod created", "pod", pod.Name, "node", s.Node.Name, "revision", s.Want.Name)
	return nil
}

// labelCanary sets the canary's label on a pod, or removes it, if it is the pod that was decided about.
func (p *pass) labelCanary(ctx context.Context, pod *corev1.Pod, value string) error {
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}}}`, pod.UID, edsv1.LabelReplicaSetCanary, value)
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err := p.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body), unseen)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("labelling pod %s, %w", pod.Name, err)
	}
	return nil
}
