// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/view"
)

// drained is what a drain would do on one node.
type drained struct {
	Node string `json:"node"`
	// Evict are the pods to evict, as namespace/name, in order.
	Evict []string `json:"evict"`
	// Refused are the pods that the rollout's options do not allow to evict: they stop the drain.
	Refused []refused `json:"refused,omitempty"`
	// Held are the pods whose PodDisruptionBudget allows no eviction now.
	Held []heldPod `json:"held,omitempty"`
	// Stays is how many pods stay where they are, such as those of DaemonSets.
	Stays int `json:"stays"`
	// Error says why the pods are not known.
	Error string `json:"error,omitempty"`
}

// refused is a pod that stops the drain.
type refused struct {
	Pod     string       `json:"pod"`
	Reason  drain.Reason `json:"reason"`
	Message string       `json:"message"`
	// Field is the rollout's field that would allow the eviction; empty if none does.
	Field string `json:"field,omitempty"`
}

// heldPod is a pod that a PodDisruptionBudget holds.
type heldPod struct {
	Pod     string `json:"pod"`
	Budget  string `json:"budget"`
	Message string `json:"message"`
}

// The fields of a Plan and of a NodeRollout that allow to evict a pod.
var (
	fieldsOfPlan = map[drain.Reason]string{
		drain.ReasonUnmanaged: "spec.drain.force: true", drain.ReasonLocalStorage: "spec.drain.deleteEmptydirData: true",
		drain.ReasonDaemonSet: "spec.drain.ignoreDaemonSets: true",
	}
	fieldsOfNodeRollout = map[drain.Reason]string{
		drain.ReasonUnmanaged: "spec.drain.force: true", drain.ReasonLocalStorage: "spec.drain.deleteEmptyDirData: true",
	}
)

func (s *subject) drainOptions() (drain.Options, map[drain.Reason]string, error) {
	if r, ok := s.object.(*v1alpha1.NodeRollout); ok {
		options, err := drain.OptionsOf(r.Spec.Drain)
		return options, fieldsOfNodeRollout, err
	}
	options, err := drain.OptionsOfPlan(s.object.(*upgradev1.Plan).Spec.Drain)
	return options, fieldsOfPlan, err
}

// drains looks at the pods of the first nodes that start.
func (c *previewCommand) drains(ctx context.Context, s *subject, steps []view.Step) ([]drained, error) {
	options, fields, err := s.drainOptions()
	if err != nil {
		return nil, err
	}
	if !c.all {
		steps = steps[:min(len(steps), c.limit)]
	}
	var budgets []policyv1.PodDisruptionBudget
	if len(steps) > 0 && !options.DisableEviction {
		budgets, err = source.ReadIn[policyv1.PodDisruptionBudget](ctx, c.src, metav1.NamespaceAll, source.PodBudget, metav1.ListOptions{})
		if err != nil {
			fmt.Fprintln(c.ErrOut, "PodDisruptionBudgets can't be listed: which of them would hold a drain is not known.")
		}
	}
	all := make([]drained, len(steps))
	for i, step := range steps {
		d := &all[i]
		d.Node, d.Evict = step.Node, []string{}
		pods, err := c.src.ReadPods(ctx, "", source.OnNode(step.Node))
		if err != nil {
			d.Error = err.Error()
			continue
		}
		for _, v := range drain.Filter(pods, drain.Facts{Now: c.clock.Now()}, options) {
			name := v.Pod.Namespace + "/" + v.Pod.Name
			switch v.State {
			case drain.Skipped:
				d.Stays++
			case drain.Refused:
				d.Refused = append(d.Refused, refused{Pod: name, Reason: v.Reason, Message: v.Message, Field: fields[v.Reason]})
			default:
				d.Evict = append(d.Evict, name)
				if budget, message := drain.HeldBy(v.Pod, budgets); budget != "" {
					d.Held = append(d.Held, heldPod{name, budget, message})
				}
			}
		}
	}
	return all, nil
}

// countEvictions counts the pods that may be evicted from each node, as the operator does; nil if pods can't be listed.
func (c *previewCommand) countEvictions(ctx context.Context) map[string]int {
	count := map[string]int{}
	err := source.Each(ctx, c.src.Core.Pods(""), metav1.ListOptions{}, func(p *corev1.Pod) {
		if drain.MayEvict(p) {
			count[p.Spec.NodeName]++
		}
	})
	if err != nil {
		fmt.Fprintln(c.ErrOut, "Pods can't be listed: which node has the fewest to evict is not known.")
		return nil
	}
	return count
}
