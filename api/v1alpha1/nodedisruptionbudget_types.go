// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodedisruptionbudgets,singular=nodedisruptionbudget,scope=Cluster,shortName=ndb
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matched`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailable`
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.allowed`
// +kubebuilder:printcolumn:name="Blocked by",type=string,JSONPath=`.status.blockedBy[*].gate`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=='Ready')].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// NodeDisruptionBudget is what the cluster allows, whichever rollouts ask: how many of the selected nodes may be unavailable
// at once for whatever cause, in which windows, and behind which health gates. When several select a node, all must allow.
//
// A node is unavailable when it is not ready, or not for minReadySeconds yet; when it is unschedulable; when a rollout has a
// claim on it; or when it is not healthy by gates.nodes; whoever made it so.
type NodeDisruptionBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeDisruptionBudgetSpec   `json:"spec,omitempty"`
	Status NodeDisruptionBudgetStatus `json:"status,omitempty"`
}

// NodeDisruptionBudgetList is a list of NodeDisruptionBudgets.
//
// +kubebuilder:object:root=true
type NodeDisruptionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeDisruptionBudget `json:"items"`
}

// NodeDisruptionBudgetSpec says what is allowed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxDomains) || has(self.topologyKey)",message="maxDomains needs topologyKey, the label that names a node's domain"
type NodeDisruptionBudgetSpec struct {
	// Selector selects the nodes. Absent or {}: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// MaxUnavailable is how many of the selected nodes may be unavailable at once: a count, or a percentage such as "10%",
	// which is rounded down but is at least 1 node; 0 and "0%" allow nothing. Absent: no limit by number.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// TopologyKey is the node label that names a node's domain, such as topology.kubernetes.io/zone. Nodes without it are one
	// domain of their own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	TopologyKey string `json:"topologyKey,omitempty"`

	// MaxDomains is in how many domains there may be unavailable nodes at once. Default 1, when topologyKey is given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxDomains *int32 `json:"maxDomains,omitempty"`

	// Windows are when nodes may be taken: while any of them is open. Absent: always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// Paused lets nobody take any of the selected nodes. What was started goes on. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// MinReadySeconds is for how long a node must have been ready to be available. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// Gates are what must be well before another node is taken.
	// +optional
	Gates *Gates `json:"gates,omitempty"`
}

// Gates are what must be well before another node is taken. All must be open.
type Gates struct {
	// Workloads closes while what was evicted is not available again.
	// +optional
	Workloads *WorkloadsGate `json:"workloads,omitempty"`
	// Pods closes while certain pods are there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Pods []PodsGate `json:"pods,omitempty"`
	// Alerts closes while Prometheus has alerts.
	// +optional
	Alerts *AlertsGate `json:"alerts,omitempty"`
	// Nodes says when a node is healthy, beside being ready.
	// +optional
	Nodes *NodesGate `json:"nodes,omitempty"`
}

// WorkloadsGate is closed while anything that drains have evicted is not available again, and while any Deployment,
// StatefulSet or DaemonSet that it selects has fewer available pods than it wants.
type WorkloadsGate struct {
	// Selector selects Deployments, StatefulSets and DaemonSets by their labels. Absent or {}: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// NamespaceSelector bounds that to namespaces with such labels. Absent or {}: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// PodsScope says where a pod must be to block.
//
// +kubebuilder:validation:Enum=Node;Cluster
type PodsScope string

// Where a pod must be to block.
const (
	// PodsOnNode: a pod blocks the node that it is on.
	PodsOnNode PodsScope = "Node"
	// PodsInCluster: a pod blocks every node, wherever it is.
	PodsInCluster PodsScope = "Cluster"
)

// PodsGate is closed while there is a pod that it selects and that has not ended.
type PodsGate struct {
	// Selector selects pods by their labels.
	Selector metav1.LabelSelector `json:"selector"`
	// NamespaceSelector bounds that to namespaces with such labels. Absent or {}: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Scope is Node when a pod blocks the node that it is on, and Cluster when it blocks all. Default Node.
	// +optional
	Scope PodsScope `json:"scope,omitempty"`
}

// Unreachable says what an alerts gate does when Prometheus does not answer.
//
// +kubebuilder:validation:Enum=Closed;Open
type Unreachable string

// What an alerts gate does when Prometheus does not answer.
const (
	UnreachableClosed Unreachable = "Closed"
	UnreachableOpen   Unreachable = "Open"
)

// AlertsGate is closed while Prometheus has active alerts.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.allow) && has(self.deny))",message="allow and deny exclude each other"
type AlertsGate struct {
	// URL of Prometheus, such as http://prometheus.monitoring:9090.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != ''",message="must be an http or https URL"
	URL string `json:"url"`
	// Allow is a regular expression (RE2); alerts whose whole name it matches close nothing, all others do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Allow string `json:"allow,omitempty"`
	// Deny is a regular expression (RE2); only alerts whose whole name it matches close the gate.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Deny string `json:"deny,omitempty"`
	// FiringOnly leaves pending alerts out. Default false: both close the gate.
	// +optional
	FiringOnly bool `json:"firingOnly,omitempty"`
	// WhenUnreachable says what happens when Prometheus does not answer, or not with sense. Default Closed.
	// +optional
	WhenUnreachable Unreachable `json:"whenUnreachable,omitempty"`
	// IntervalSeconds is how often Prometheus is asked. Default 15.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// NodesGate says when a node is healthy, beside being ready. One that is not is unavailable.
type NodesGate struct {
	// Conditions that the node must have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Conditions []NodeConditionRequirement `json:"conditions,omitempty"`
	// AbsentTaints are keys of taints that the node must not have; one that ends in * stands for all that begin so, such as
	// readiness.k8s.io/*, but not for that of a cordon (node.kubernetes.io/unschedulable) nor for those that Moult puts on nodes
	// that are still to be updated (*.outdated.moult.dev/*): these count where they are named in full.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	AbsentTaints []string `json:"absentTaints,omitempty"`
}

// NodeConditionRequirement is a condition that a node must have.
type NodeConditionRequirement struct {
	// Type of the condition, such as NetworkUnavailable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Type string `json:"type"`
	// Status that it must have. A condition that is absent does not have it.
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
}

// NodeDisruptionBudgetStatus says how the budget stands.
type NodeDisruptionBudgetStatus struct {
	// ObservedGeneration is the metadata.generation that this status was made for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Matched is how many nodes are selected.
	// +kubebuilder:validation:Maximum=2147483647
	Matched int32 `json:"matched"`
	// Unavailable is how many of them are unavailable.
	// +kubebuilder:validation:Maximum=2147483647
	Unavailable int32 `json:"unavailable"`
	// Allowed is how many more may be taken now; absent when there is no limit by number and nothing blocks.
	// +optional
	// +kubebuilder:validation:Maximum=2147483647
	Allowed *int32 `json:"allowed,omitempty"`
	// Domains is in how many domains there are unavailable nodes, when topologyKey is given.
	// +optional
	// +kubebuilder:validation:Maximum=2147483647
	Domains int32 `json:"domains,omitempty"`
	// Holders are the unavailable nodes and why they are, at most 20.
	// +optional
	// +listType=atomic
	Holders []BudgetHolder `json:"holders,omitempty"`
	// BlockedBy is what blocks now, beside the number of unavailable nodes.
	// +optional
	// +listType=atomic
	BlockedBy []BudgetBlock `json:"blockedBy,omitempty"`
	// Conditions: Ready is True when the budget is understood and governs; Open says whether nodes may be taken now;
	// Reconciling and Stalled are there for tools that follow kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UnavailableCause is why a node is unavailable.
type UnavailableCause string

// Why a node is unavailable.
const (
	// CauseClaimed: a rollout has a claim on it.
	CauseClaimed UnavailableCause = "Claimed"
	// CauseUnschedulable: it is cordoned, and no rollout has a claim on it.
	CauseUnschedulable UnavailableCause = "Unschedulable"
	// CauseNotReady: it is not ready.
	CauseNotReady UnavailableCause = "NotReady"
	// CauseMinReadySeconds: it has been ready for too short a time.
	CauseMinReadySeconds UnavailableCause = "MinReadySeconds"
	// CauseUnhealthy: it lacks a condition, or has a taint, by gates.nodes.
	CauseUnhealthy UnavailableCause = "Unhealthy"
	// CauseUnreadable: the claims on it can't be read.
	CauseUnreadable UnavailableCause = "ClaimUnreadable"
)

// BudgetHolder is a node that uses up the budget.
type BudgetHolder struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Cause says why it is unavailable; where several hold, the first in the order above.
	Cause UnavailableCause `json:"cause"`
	// By is the rollout that has it, as "Kind/namespace/name".
	// +optional
	By string `json:"by,omitempty"`
	// Message says more.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is since when, where that is known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// BudgetBlock is what blocks a budget.
type BudgetBlock struct {
	// Gate is what blocks, the word that stands in units' reasons: BudgetPaused, OutsideBudgetWindow, WorkloadsUnavailable,
	// PodsBlock, AlertsActive, AlertsUnreachable, or BudgetInvalid.
	Gate Reason `json:"gate"`
	// Message says more.
	Message string `json:"message"`
	// Since is since when.
	Since metav1.Time `json:"since"`
}

// Types of conditions of a NodeDisruptionBudget.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	// ConditionOpen says whether nodes may be taken now.
	ConditionOpen = "Open"
)
