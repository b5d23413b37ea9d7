// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Why is everything that explains why one node is updated or not.
type Why struct {
	Node Facts `json:"node"`
	// Rollouts are those that select the node or have a claim on it, by namespace and name.
	Rollouts []Part `json:"rollouts"`
	// Others are all other rollouts, and why they do not select the node.
	Others []Remark `json:"others,omitempty"`
	// Budgets are those that select the node, sorted by name.
	Budgets []Budget `json:"budgets"`
}

// Facts are the node's own state.
type Facts struct {
	Name string `json:"name"`
	// Ready is the Ready condition, and ReadySince is its last transition. ReadyMessage is its message while not ready.
	Ready        bool         `json:"ready"`
	ReadySince   *metav1.Time `json:"readySince,omitempty"`
	ReadyMessage string       `json:"readyMessage,omitempty"`
	// Unschedulable is true if the node is cordoned. CordonedBy is the rollout that did it; empty for a person or another tool.
	Unschedulable bool   `json:"unschedulable,omitempty"`
	CordonedBy    string `json:"cordonedBy,omitempty"`
	// Excluded is true if the node is excluded from external load balancers. ExcludedBy is the rollout that did it.
	Excluded   bool   `json:"excludedFromLoadBalancers,omitempty"`
	ExcludedBy string `json:"excludedBy,omitempty"`
	// Claims on it, or why they can't be read.
	Claims     []v1alpha1.Claim `json:"claims,omitempty"`
	ClaimError string           `json:"claimError,omitempty"`
	// Evicted are evicted workloads that are not known to be available again.
	Evicted []string `json:"evicted,omitempty"`
	// Conditions beside Ready that are not False.
	Conditions []Condition `json:"conditions,omitempty"`
	// Taints that keep pods away, without the cordon's taint.
	Taints []string `json:"taints,omitempty"`
	// Host is the state of the node's host; absent if no label names the host's interface.
	Host *Host `json:"host,omitempty"`
	// ProviderID is what the cloud calls its machine.
	ProviderID string `json:"providerID,omitempty"`
	// Machines are the NodeRollout turns that involve its machine.
	Machines []Machine `json:"machines,omitempty"`
	// Deleting is the Node's deletion timestamp.
	Deleting *metav1.Time `json:"deleting,omitempty"`
}

// Condition is one condition of a node.
type Condition struct {
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message,omitempty"`
}

// Part is the node's part in one rollout.
type Part struct {
	// Rollout is the rollout as a whole; without its nodes.
	Rollout Rollout `json:"rollout"`
	// Unit is the node's unit in the rollout.
	Unit Node `json:"unit"`
	// OptedOut is true when the node's label keeps the rollout away.
	OptedOut bool `json:"optedOut,omitempty"`
	// Replaces is true if the rollout replaces machines.
	Replaces bool `json:"replaces,omitempty"`
	// Pods are an ExtendedDaemonSet's pods on the node, the up-to-date pod first.
	Pods []Pod `json:"pods,omitempty"`
	// Wave is the name of the node's wave, while the node waits to start and there are waves.
	Wave string `json:"wave,omitempty"`
	// Place is the node's place among the nodes that wait to start, from 1; 0 if it does not wait. Asking is how many wait.
	Place  int `json:"place,omitempty"`
	Asking int `json:"asking,omitempty"`
	// Ahead are the first nodes that come before it.
	Ahead []string `json:"ahead,omitempty"`
	// Note says why Place may be wrong.
	Note string `json:"note,omitempty"`
	// Checks are all checks that the node must pass to start.
	Checks []Check `json:"checks,omitempty"`
}

// Pod is a daemon's pod.
type Pod struct {
	Name string `json:"name"`
	// Revision is the pod's ExtendedDaemonSetReplicaSet; empty if the pod has none.
	Revision string `json:"revision,omitempty"`
	// UpToDate is true if the node should have this pod.
	UpToDate bool `json:"upToDate,omitempty"`
	// Ready is the Ready condition. Since is when the pod became ready, or else when it was created.
	Ready bool         `json:"ready,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
	// Deleted is when the deletion of the pod began.
	Deleted  *metav1.Time `json:"deleted,omitempty"`
	Restarts int32        `json:"restarts,omitempty"`
	// Message says what is wrong with it.
	Message string `json:"message,omitempty"`
}

// Check is one rule and its result for a node.
type Check = rollout.Verdict

// Remark is a message about one rollout or budget.
type Remark struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Message   string `json:"message"`
}

// maxAhead bounds Part.Ahead.
const maxAhead = 20

// The checks that the engine does not make. The check operator is for reasons that only the operator knows.
const (
	checkOperator = "operator"
	checkCreation = "creation"
	checkCanary   = "canary"
)

// Why explains one node. It returns false if there is no such node.
func (c *Cluster) Why(name string) (Why, bool) {
	n := c.nodeByName[name]
	if n == nil {
		return Why{}, false
	}
	w := Why{Node: c.facts(n), Rollouts: []Part{}, Budgets: c.budgetsNamed(c.budgetsOf([]Node{{Node: name}}))}
	for _, j := range c.judge(name) {
		if why := j.unselected(n); why != "" {
			w.Others = append(w.Others, Remark{j.Kind, j.Namespace, j.Name, why})
			continue
		}
		part := Part{Rollout: j.Rollout, Unit: Node{Node: name, State: v1alpha1.UnitOutdated}}
		part.Rollout.Nodes = nil
		if i := indexOf(j.Nodes, name); i >= 0 {
			part.Unit = j.Nodes[i]
		}
		j.explain(&part)
		w.Rollouts = append(w.Rollouts, part)
	}
	return w, true
}

// unjudged says that the rollout does not judge the node, and why, if that is known.
func (p *Part) unjudged(why string) {
	p.Unit.State, p.Unit.Message = Untold, "the rollout has not judged the node: "+cmp.Or(why, "its status does not list the node")
}

// addChecks adds the result of every check, and the node's place in the order. It adds nothing if the node does not wait to start.
func (p *Part) addChecks(e rollout.Explanation) {
	if e.Place == 0 {
		return
	}
	p.Wave, p.Place, p.Asking, p.Ahead = e.Wave, e.Place, e.Asking, e.Ahead[:min(len(e.Ahead), maxAhead)]
	p.Checks = append(p.Checks, e.Verdicts...)
}

// Waits reports whether a check keeps the node from starting.
func (p *Part) Waits() bool {
	return slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Reason != "" })
}

// facts are the node's own state.
func (c *Cluster) facts(n *corev1.Node) Facts {
	known := c.fleet.Nodes[n.Name]
	all := Facts{
		Name: n.Name, Ready: IsNodeReady(n), Unschedulable: n.Spec.Unschedulable, Claims: known.Claims,
		Host: hostOf(n), ProviderID: n.Spec.ProviderID, Machines: c.machinesOf(n.Name), Deleting: n.DeletionTimestamp,
	}
	evicted, evictedErr := v1alpha1.ParseEvicted(n.Annotations)
	if known.ClaimError != "" { // It does not say what is wrong.
		_, err := v1alpha1.ParseClaims(n.Annotations)
		all.ClaimError = cmp.Or(err, evictedErr).Error()
	}
	if all.Unschedulable {
		all.CordonedBy = n.Annotations[v1alpha1.AnnotationCordonedBy]
		if i := slices.IndexFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.Uncordon }); i >= 0 { // Not all that cordon set the mark.
			all.CordonedBy = cmp.Or(all.CordonedBy, known.Claims[i].Rollout)
		}
	}
	if _, all.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]; all.Excluded {
		all.ExcludedBy = n.Annotations[v1alpha1.AnnotationExcludedBy]
	}
	for _, w := range evicted {
		all.Evicted = append(all.Evicted, w.String())
	}
	if evictedErr != nil {
		all.Evicted = []string{"unknown: " + evictedErr.Error()}
	}
	all.ReadyMessage = "its kubelet has never reported"
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			all.ReadyMessage = ""
			all.ReadySince = timeOrNil(c.LastTransitionTime.Time)
			if !all.Ready {
				all.ReadyMessage = c.Message
			}
		case c.Status != corev1.ConditionFalse:
			all.Conditions = append(all.Conditions, Condition{
				Type: string(c.Type), Status: string(c.Status), Message: cmp.Or(c.Message, c.Reason), Since: timeOrNil(c.LastTransitionTime.Time),
			})
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Key != corev1.TaintNodeUnschedulable {
			all.Taints = append(all.Taints, t.ToString())
		}
	}
	return all
}
