// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/view"
)

// drained is what a drain would do on one node.
type drained struct {
	Node string `json:"node"`
	// Evict are the pods that would go, as namespace/name, in their order.
	Evict []string `json:"evict"`
	// Refused are the pods that the rollout's options give no leave to take: they stop the drain.
	Refused []refused `json:"refused,omitempty"`
	// Held are the pods that may go, but whose PodDisruptionBudget lets none go now.
	Held []heldPod `json:"held,omitempty"`
	// Stays is how many pods stay where they are, such as those of DaemonSets.
	Stays int `json:"stays"`
	// Error says why the pods can't be told.
	Error string `json:"error,omitempty"`
}

// refused is a pod that stops the drain.
type refused struct {
	Pod     string       `json:"pod"`
	Reason  drain.Reason `json:"reason"`
	Message string       `json:"message"`
	// Field is the one of the rollout that would give leave; empty where none does.
	Field string `json:"field,omitempty"`
}

// heldPod is a pod that a PodDisruptionBudget holds.
type heldPod struct {
	Pod     string `json:"pod"`
	Budget  string `json:"budget"`
	Message string `json:"message"`
}

// chunk bounds how many pods one answer to a list holds.
const chunk = 500

// drains looks at the pods of the first nodes that are to be started.
func (c *command) drains(ctx context.Context, s *subject, steps []view.Step) ([]drained, error) {
	options, field, err := drainOptions(s)
	if err != nil {
		return nil, err
	}
	limit := len(steps)
	if !c.all {
		limit = min(limit, c.limit)
	}
	var budgets []policyv1.PodDisruptionBudget
	if limit > 0 && !options.DisableEviction {
		list, err := c.policy.PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			fmt.Fprintln(c.ErrOut, "PodDisruptionBudgets can't be listed: which of them would hold a drain is not known.")
		} else {
			budgets = list.Items
		}
	}
	sets := map[types.NamespacedName]error{}
	all := make([]drained, 0, limit)
	for _, step := range steps[:limit] {
		d := drained{Node: step.Node, Evict: []string{}}
		pods, err := c.pods(ctx, step.Node)
		if err != nil {
			d.Error = err.Error()
			all = append(all, d)
			continue
		}
		facts := drain.Facts{Now: c.clock.Now(), DaemonSets: c.daemonSets(ctx, pods, sets)}
		d.judge(drain.Filter(pods, facts, options), field, budgets)
		all = append(all, d)
	}
	return all, nil
}

// judge sorts what the filter says.
func (d *drained) judge(verdicts []drain.Verdict, field func(drain.Reason) string, budgets []policyv1.PodDisruptionBudget) {
	for i := range verdicts {
		v := &verdicts[i]
		name := v.Pod.Namespace + "/" + v.Pod.Name
		switch v.Action {
		case drain.Skip:
			d.Stays++
		case drain.Block:
			d.Refused = append(d.Refused, refused{Pod: name, Reason: v.Reason, Message: v.Message, Field: field(v.Reason)})
		case drain.Evict:
			d.Evict = append(d.Evict, name)
			if held, ok := holds(v.Pod, budgets); ok {
				d.Held = append(d.Held, held)
			}
		}
	}
}

// fieldOfPlan is the field of a Plan that gives leave to take such a pod.
func fieldOfPlan(r drain.Reason) string {
	switch r {
	case drain.ReasonUnmanaged, drain.ReasonDaemonSetUnread:
		return "spec.drain.force: true"
	case drain.ReasonLocalStorage:
		return "spec.drain.deleteEmptydirData: true"
	case drain.ReasonDaemonSet:
		return "spec.drain.ignoreDaemonSets: true"
	}
	return ""
}

// fieldOfHosts is that of a NodeRollout.
func fieldOfHosts(r drain.Reason) string {
	switch r {
	case drain.ReasonUnmanaged, drain.ReasonDaemonSetUnread:
		return "spec.drain.force: true"
	case drain.ReasonLocalStorage:
		return "spec.drain.deleteEmptyDirData: true"
	}
	return ""
}

// holds says which PodDisruptionBudget would refuse the eviction of a pod now, as the API server decides it.
func holds(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) (heldPod, bool) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return heldPod{}, false // These go without being asked about.
	}
	held := heldPod{Pod: pod.Namespace + "/" + pod.Name}
	var of []*policyv1.PodDisruptionBudget
	for i := range budgets {
		b := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			of = append(of, b)
		}
	}
	switch {
	case len(of) == 0:
		return held, false
	case len(of) > 1:
		held.Budget = of[0].Name + ", " + of[1].Name
		held.Message = "more than one PodDisruptionBudget selects it, which the API server never lets go"
		return held, true
	}
	b := of[0]
	held.Budget = b.Name
	if b.Status.DisruptionsAllowed > 0 || !ready(pod) && freesUnready(b) {
		return held, false
	}
	held.Message = fmt.Sprintf("it allows no disruption now: %d of %d desired pods are healthy", b.Status.CurrentHealthy, b.Status.DesiredHealthy)
	return held, true
}

// freesUnready reports whether the budget lets pods go that are not ready.
func freesUnready(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// pods are those of a node.
func (c *command) pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	where := fields.OneTermEqualSelector(drain.NodeNameField, node).String()
	for next := ""; ; {
		list, err := c.src.Core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: where, Limit: chunk, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of node %s, %w", node, err)
		}
		pods = append(pods, list.Items...)
		if next = list.Continue; next == "" {
			return pods, nil
		}
	}
}

// daemonSets reads the DaemonSets of pods, each once, and says why those can't be read that can't.
func (c *command) daemonSets(ctx context.Context, pods []corev1.Pod, known map[types.NamespacedName]error) map[types.NamespacedName]error {
	failed := map[types.NamespacedName]error{}
	for i := range pods {
		owner := metav1.GetControllerOfNoCopy(&pods[i])
		if owner == nil || owner.Kind != "DaemonSet" {
			continue
		}
		name := types.NamespacedName{Namespace: pods[i].Namespace, Name: owner.Name}
		err, looked := known[name]
		if !looked {
			_, err = c.apps.DaemonSets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
			known[name] = err
		}
		if err != nil {
			failed[name] = err
		}
	}
	return failed
}

// countEvictions counts of each node the pods that a drain with the defaults would evict; none where pods can't be listed.
func (c *command) countEvictions(ctx context.Context) map[string]int {
	options, _ := planDrainOptions(&upgradev1.DrainSpec{})
	count := map[string]int{}
	for next := ""; ; {
		list, err := c.src.Core.Pods("").List(ctx, metav1.ListOptions{Limit: chunk, Continue: next})
		if err != nil {
			fmt.Fprintln(c.ErrOut, "Pods can't be listed: which node has the fewest to evict is not known.")
			return nil
		}
		for _, v := range drain.Filter(list.Items, drain.Facts{Now: c.clock.Now()}, options) {
			if v.Pod.Spec.NodeName != "" && v.Action == drain.Evict {
				count[v.Pod.Spec.NodeName]++
			}
		}
		if next = list.Continue; next == "" {
			return count
		}
	}
}

// drainOptions are those of a rollout's drains, and which field gives leave to take a pod that they refuse.
func drainOptions(s *subject) (options drain.Options, field func(drain.Reason) string, err error) {
	if s.hosts != nil {
		options, err = hostDrainOptions(s.hosts.Spec.Drain)
		return options, fieldOfHosts, err
	}
	options, err = planDrainOptions(s.plan.Spec.Drain)
	return options, fieldOfPlan, err
}

// drainSelector selects all pods that this selects but for those of the operator.
func drainSelector(of *metav1.LabelSelector) (labels.Selector, error) {
	apart, err := labels.NewRequirement(upgradev1.LabelController, selection.DoesNotExist, nil)
	if err != nil {
		return nil, err
	}
	selector := labels.NewSelector().Add(*apart)
	if of == nil {
		return selector, nil
	}
	own, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return nil, fmt.Errorf("spec.drain.podSelector: %w", err)
	}
	requirements, selectable := own.Requirements()
	if !selectable {
		return labels.Nothing(), nil
	}
	return selector.Add(requirements...), nil
}

// hostDrainOptions are a NodeRollout's.
func hostDrainOptions(d *v1alpha1.NodeDrain) (drain.Options, error) {
	if d == nil {
		d = &v1alpha1.NodeDrain{}
	}
	selector, err := drainSelector(d.PodSelector)
	if err != nil {
		return drain.Options{}, err
	}
	return drain.Options{
		PodSelector:        selector,
		Force:              d.Force,
		IgnoreDaemonSets:   true,
		DeleteEmptyDirData: ptr.Deref(d.DeleteEmptyDirData, true),
		DisableEviction:    d.DisableEviction,
		SkipWaitForDelete:  time.Duration(ptr.Deref(d.SkipWaitForDeleteSeconds, 0)) * time.Second,
	}, nil
}

// planDrainOptions are a Plan's, as its Jobs drain.
func planDrainOptions(d *upgradev1.DrainSpec) (drain.Options, error) {
	selector, err := drainSelector(d.PodSelector)
	if err != nil {
		return drain.Options{}, err
	}
	return drain.Options{
		PodSelector:        selector,
		Force:              d.Force,
		IgnoreDaemonSets:   ptr.Deref(d.IgnoreDaemonSets, true),
		DeleteEmptyDirData: ptr.Deref(d.DeleteLocalData, true) && ptr.Deref(d.DeleteEmptydirData, true),
		DisableEviction:    d.DisableEviction,
		SkipWaitForDelete:  time.Duration(d.SkipWaitForDeleteTimeout) * time.Second,
	}, nil
}
