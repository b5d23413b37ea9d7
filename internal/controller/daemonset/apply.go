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

// apply does what was decided, all at once, and cleans up afterwards. A request that fails does not delay other pods. The times of batches are
// for the conditions.
func (p *pass) apply(ctx context.Context) error {
	a := &p.Actions
	if len(a.Clean) > 0 {
		p.Batches[edsv1.ConditionPodsCleanupDone] = p.now
	}
	if len(a.Replace) > 0 {
		p.Batches[edsv1.ConditionPodDeletion] = p.now
	}
	remove := func(pod *corev1.Pod) error { return p.deletePod(ctx, pod) }
	all := []func() error{func() error { return p.createPods(ctx) }}
	for _, pod := range append(a.Superseded, a.Replace...) {
		all = append(all, func() error { return remove(pod) })
	}
	for _, pod := range a.Relabel {
		all = append(all, func() error { return p.relabel(ctx, pod) })
	}
	return errors.Join(atOnce(all), turn.Each(a.Clean, remove), p.deleteIdleRevisions(ctx))
}

// atOnce calls functions, several at a time. It returns one of their errors, which is a conflict only if all are.
func atOnce(all []func() error) error {
	return turn.Each(all, func(do func() error) error { return do() })
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

// createPods creates the pods that were decided. If the API server refuses one pod, it may refuse all. So a few are created first, or only one
// after a refusal, and the others only if these succeed. The next pass begins with the pods that were not refused.
func (p *pass) createPods(ctx context.Context) error {
	create := slices.DeleteFunc(slices.Clone(p.Actions.Create), func(s *daemonset.NodeState) bool {
		return !s.Refused.At.IsZero() && !p.HasPassed(s.Refused.At.Add(refusedPause))
	})
	few := 8
	if len(p.Refused) > 0 {
		few = 1
	}
	first := create[:min(few, len(create))]
	one := func(s *daemonset.NodeState) error { return p.createPod(ctx, s) }
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
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("%w: it lacks the label %s, so it is not one of the ExtendedDaemonSet: delete it", err, edsv1.LabelName)
		}
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
