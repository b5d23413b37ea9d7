// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/turn"
)

// apply does what was decided. A request that fails does not delay other pods.
func (p *pass) apply(ctx context.Context) error {
	a := &p.Actions
	remove := func(pod *corev1.Pod) error { return p.deletePod(ctx, pod) }
	return errors.Join(
		p.batch(edsv1.ConditionPodsCleanupDone, a.Clean, remove),
		turn.Each(a.Superseded, remove),
		p.batch(edsv1.ConditionPodDeletion, a.Replace, remove),
		turn.Each(a.Relabel, func(pod *corev1.Pod) error { return p.relabel(ctx, pod) }),
		p.createPods(ctx),
		p.deleteIdleRevisions(ctx),
	)
}

// batch deletes several pods at once. The condition shows when.
func (p *pass) batch(condition string, pods []*corev1.Pod, remove func(*corev1.Pod) error) error {
	if len(pods) > 0 {
		p.Batches[condition] = p.now
	}
	return turn.Each(pods, remove)
}

// deletePod deletes a pod, if it is the one that was decided about.
func (p *pass) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := p.pods.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // A conflict means that another pod has this name now.
		return fmt.Errorf("deleting pod %s, %w", pod.Name, err)
	}
	log.FromContext(ctx).V(1).Info("pod deleted", "pod", pod.Name, "node", daemonset.NodeOf(pod))
	return nil
}

// refusedPause is the time before a refused pod is tried again.
const refusedPause = 5 * time.Second

// createPods creates the pods that were decided. If the API server refuses one pod, it may refuse all. So the first pod is created alone,
// and the others only if the first succeeds. The next pass begins with the pods that were not refused.
func (p *pass) createPods(ctx context.Context) error {
	create := slices.DeleteFunc(slices.Clone(p.Actions.Create), func(s *daemonset.NodeState) bool {
		return !s.Refused.At.IsZero() && !p.HasPassed(s.Refused.At.Add(refusedPause))
	})
	one := func(s *daemonset.NodeState) error { return p.createPod(ctx, s) }
	first := create[:min(1, len(create))]
	err := turn.Each(first, one)
	if err != nil {
		create = first
	} else {
		err = turn.Each(create[len(first):], one)
	}
	for _, s := range create {
		if s.Refused.At.IsZero() {
			p.Batches[edsv1.ConditionPodCreation] = p.now
			if s.Outdated != nil {
				p.Batches[edsv1.ConditionPodDeletion] = p.now // The replacement begins with the new pod.
			}
		}
	}
	clear(p.Refused)
	for _, s := range p.States {
		if !s.Refused.At.IsZero() {
			p.Refused[s.Node.Name] = s.Refused
		}
	}
	return err
}

// createPod creates a node's pod, and notes whether it was refused.
func (p *pass) createPod(ctx context.Context, s *daemonset.NodeState) error {
	pod := daemonset.NewPod(s.Want, p.key.Name, s.Node, s.Overrides, daemonset.PodOptions{NodeName: p.options.NodeName, Canary: s.Canary})
	if err := p.pods.Create(ctx, pod); err != nil {
		err = fmt.Errorf("creating a pod for node %s, %w", s.Node.Name, err)
		s.Refused = daemonset.Refusal{At: p.now, Message: err.Error()}
		return err
	}
	s.Refused = daemonset.Refusal{}
	log.FromContext(ctx).V(1).Info("pod created", "pod", pod.Name, "node", s.Node.Name, "revision", s.Want.Name)
	return nil
}

// relabel sets the canary's label on a pod, or removes it if the pod has it. It must be the pod that was decided about.
func (p *pass) relabel(ctx context.Context, pod *corev1.Pod) error {
	value := `"` + edsv1.True + `"`
	if daemonset.IsLabelledCanary(pod) {
		value = "null"
	}
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%s}}}`, pod.UID, edsv1.LabelReplicaSetCanary, value)
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	err := p.pods.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("labelling pod %s, %w", pod.Name, err)
	}
	return nil
}
