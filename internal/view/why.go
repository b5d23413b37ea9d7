// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Why is everything that explains why one node is updated or not.
type Why struct {
	Node Facts `json:"node"`
	// Rollouts are those that select the node or have a claim on it, by namespace and name.
	Rollouts []Part `json:"rollouts"`
	// Others are all other rollouts, and why they do not select the node.
	Others []Other `json:"others,omitempty"`
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
	// Evicted are evicted workloads that are not known to be available again. EvictedError says why they can't be read.
	Evicted      []string `json:"evicted,omitempty"`
	EvictedError string   `json:"evictedError,omitempty"`
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
type Check struct {
	Name string `json:"name"`
	// Reason why the node may not start; empty if it may.
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Other is a rollout that does not select the node.
type Other struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Message says why not.
	Message string `json:"message"`
}

// maxAhead bounds Part.Ahead.
const maxAhead = 20

// operator is the name of the check for reasons that only the operator knows.
const operator = "operator"

// Why explains one node. It returns false if there is no such node.
func (c *Cluster) Why(name string) (Why, bool) {
	f := c.named[name]
	if f == nil {
		return Why{}, false
	}
	w := Why{Node: facts(f), Rollouts: []Part{}, Budgets: []Budget{}}
	w.Node.Machines = c.machinesOf(name)
	for i := range c.plans {
		p := &c.plans[i]
		if why := unselected(p, f); why != "" {
			w.Others = append(w.Others, Other{Kind: "Plan", Namespace: p.Namespace, Name: p.Name, Message: why})
			continue
		}
		w.Rollouts = append(w.Rollouts, c.part(p, name))
	}
	for i := range c.daemons.Sets {
		eds := &c.daemons.Sets[i]
		d := c.daemonSet(eds)
		if why := d.unselected(f); why != "" {
			w.Others = append(w.Others, Other{Kind: KindDaemonSet, Namespace: eds.Namespace, Name: eds.Name, Message: why})
			continue
		}
		w.Rollouts = append(w.Rollouts, d.part(name))
	}
	c.whyNodeRollouts(&w, f)
	slices.SortFunc(w.Rollouts, func(a, b Part) int { return a.Rollout.compare(&b.Rollout) })
	slices.SortFunc(w.Others, func(a, b Other) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Kind, a.Kind))
	})
	w.Budgets = c.budgetsNamed(c.selecting([]Node{{Node: name}}))
	return w, true
}

// unselected says why a Plan does not select the node, or "".
func unselected(p *upgradev1.Plan, f *fact) string {
	if held(f.claims, p.UID) != nil {
		return ""
	}
	if _, ok := f.node.Labels[corev1.LabelHostname]; !ok {
		return "the node has no label " + corev1.LabelHostname
	}
	if p.Spec.NodeSelector == nil {
		return "it has no spec.nodeSelector, and so selects no node"
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return "its spec.nodeSelector is not valid: " + err.Error()
	}
	if selector.Matches(labels.Set(f.node.Labels)) {
		return ""
	}
	return asksFor(selector, f)
}

// asksFor names the selector requirements that the node does not meet.
func asksFor(selector labels.Selector, f *fact) string {
	var missing []string
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if !requirements[i].Matches(labels.Set(f.node.Labels)) {
			missing = append(missing, requirements[i].String())
		}
	}
	return "its spec.nodeSelector asks for " + strings.Join(missing, ", ")
}

// part is the node's part in a Plan that selects it, or has a claim on it.
func (c *Cluster) part(p *upgradev1.Plan, name string) Part {
	u := c.observe(p, name, false)
	part := newPart(u.rollout(), u.asked, name)
	if u.decided {
		c.explain(&part, u.strategy, u.asked, name, recordedIn(p)[name])
	}
	return part
}

// newPart is the node's part in a rollout, without its checks.
func newPart(r Rollout, units []rollout.Unit, name string) Part {
	part := Part{Rollout: r, Unit: Node{Node: name, State: v1alpha1.UnitOutdated}}
	part.Rollout.Nodes = nil
	part.OptedOut = slices.ContainsFunc(units, func(u rollout.Unit) bool { return u.Node == name && u.OptedOut })
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == name }); i >= 0 {
		part.Unit = r.Nodes[i]
	}
	return part
}

// explain adds the result of every check to a node's part. status is the node's entry in the rollout's status.
func (c *Cluster) explain(part *Part, s rollout.Strategy, asked []rollout.Unit, name string, status entry) {
	e := rollout.Explain(s, asked, c.fleet, c.now, name)
	part.Wave, part.Place, part.Ahead = e.Wave, e.Place, e.Ahead[:min(len(e.Ahead), maxAhead)]
	if e.Place > 0 {
		part.Asking = e.Asking
		part.Note = c.evictionsNote(&s, name)
	}
	for _, v := range e.Verdicts {
		part.Checks = append(part.Checks, Check{Name: v.Check, Reason: v.Reason, Message: v.Message})
	}
	// Only the operator knows some reasons, and writes them into the status.
	if status.state == v1alpha1.UnitOutdated && e.Place > 0 && onlyOperatorKnows(status.Reason, part.Checks) {
		part.Checks = append(part.Checks, Check{Name: operator, Reason: status.Reason, Message: status.Message})
	}
}

// evictionsNote says that the order depends on how many pods a drain would evict, but they were not counted.
func (c *Cluster) evictionsNote(s *rollout.Strategy, name string) string {
	counts := func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst }
	if _, counted := c.fleet.Evictions[name]; counted || !slices.ContainsFunc(s.Order, counts) {
		return ""
	}
	return "its place is by the other criteria only: the pods that drains would evict are not counted here"
}

// onlyOperatorKnows reports whether only the operator can find this reason, and no check has given it.
func onlyOperatorKnows(r v1alpha1.Reason, checks []Check) bool {
	known := slices.Contains(watched, r) || machineReason(r) || r == v1alpha1.ReasonJobRefused || r == v1alpha1.ReasonClaimLost
	return known && !slices.ContainsFunc(checks, func(c Check) bool { return c.Reason == r })
}

// Waits reports whether a check keeps the node from starting.
func (p *Part) Waits() bool {
	return slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Reason != "" })
}

// facts are the node's own state.
func facts(f *fact) Facts {
	n := f.node
	all := Facts{
		Name: n.Name, Ready: f.ready, Unschedulable: n.Spec.Unschedulable, Claims: f.claims, Host: hostOf(n), ProviderID: n.Spec.ProviderID, Deleting: n.DeletionTimestamp,
	}
	if f.err != nil {
		all.ClaimError = f.err.Error()
	}
	if all.Unschedulable {
		all.CordonedBy = n.Annotations[v1alpha1.AnnotationCordonedBy]
	}
	if _, all.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]; all.Excluded {
		all.ExcludedBy = n.Annotations[v1alpha1.AnnotationExcludedBy]
	}
	if value := n.Annotations[v1alpha1.AnnotationEvicted]; value != "" {
		if err := json.Unmarshal([]byte(value), &all.Evicted); err != nil {
			all.Evicted, all.EvictedError = nil, "reading annotation "+v1alpha1.AnnotationEvicted+", "+err.Error()
		}
	}
	all.ReadyMessage = "its kubelet has never reported"
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		switch {
		case c.Type == corev1.NodeReady:
			all.ReadyMessage = ""
			all.ReadySince = known(c.LastTransitionTime.Time)
			if !f.ready {
				all.ReadyMessage = c.Message
			}
		case c.Status != corev1.ConditionFalse:
			all.Conditions = append(all.Conditions, Condition{
				Type: string(c.Type), Status: string(c.Status), Message: cmp.Or(c.Message, c.Reason), Since: known(c.LastTransitionTime.Time),
			})
		}
	}
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; t.Key != corev1.TaintNodeUnschedulable {
			all.Taints = append(all.Taints, t.ToString())
		}
	}
	return all
}
