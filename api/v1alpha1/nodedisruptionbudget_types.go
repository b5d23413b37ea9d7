// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodedisruptionbudgets,singular=nodedisruptionbudget,scope=Cluster,shortName=ndb,categories=moult
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=`.spec.maxUnavailable`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matched`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailable`
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.allowed`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Open')].reason`
// +kubebuilder:printcolumn:name="Blocked by",type=string,JSONPath=`.status.blockedBy[*].gate`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=='Ready')].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// NodeDisruptionBudget limits the disruption of nodes by all rollouts together: how many of the selected nodes may be
// unavailable at once, in which windows, and behind which health gates. When several budgets select a node, all must allow
// its disruption.
//
// A node is unavailable for any of these causes: it is not ready, or for less than minReadySeconds; it is unschedulable; a
// rollout has a claim on it; or it is not healthy by gates.nodes. By spec.counts, a node whose daemon pod is being replaced
// counts too.
type NodeDisruptionBudget struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what people want. Absent: the budget only shows which nodes are unavailable.
	// +optional
	Spec NodeDisruptionBudgetSpec `json:"spec,omitempty"`
	// status is what the operator reports.
	// +optional
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

// NodeDisruptionBudgetSpec is the allowed disruption.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxDomains) || has(self.topologyKey)",message="maxDomains needs topologyKey, the label that names a node's domain"
type NodeDisruptionBudgetSpec struct {
	// selector selects the nodes. Absent or {}: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// maxUnavailable is how many of the selected nodes may be unavailable at once: a count, or a percentage such as "10%",
	// which is rounded down but is at least 1 node; 0 and "0%" allow nothing. Absent: no limit by number.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// counts says what uses up maxUnavailable and maxDomains. Nodes: unavailable nodes; rollouts that claim nodes wait for them.
	// DaemonPods: nodes on which an ExtendedDaemonSet replaces its pod; ExtendedDaemonSets wait for them. Default [Nodes].
	// +optional
	// +listType=set
	// +kubebuilder:default={Nodes}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Counts []BudgetCount `json:"counts,omitempty"`

	// topologyKey is the node label that names a node's domain, such as topology.kubernetes.io/zone. Nodes without it are one
	// domain of their own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	TopologyKey string `json:"topologyKey,omitempty"`

	// maxDomains is in how many domains nodes may be unavailable at once. Default 1 if topologyKey is set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxDomains *int32 `json:"maxDomains,omitempty"`

	// windows are the times when rollouts may claim nodes: while any window is open. Absent: always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// paused lets no rollout claim any of the selected nodes. Turns in progress continue. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// minReadySeconds is how long a node must have been ready to be available, in seconds. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// gates are health checks that must pass before a rollout claims another node.
	// +optional
	Gates *Gates `json:"gates,omitempty"`
}

// BudgetCount is what uses up a budget.
//
// +kubebuilder:validation:Enum=Nodes;DaemonPods
type BudgetCount string

// What uses up a budget.
const (
	// CountNodes: nodes that are unavailable.
	CountNodes BudgetCount = "Nodes"
	// CountDaemonPods: nodes on which an ExtendedDaemonSet replaces its pod.
	CountDaemonPods BudgetCount = "DaemonPods"
)

// Gates are health checks that must pass before a rollout claims another node. All must be open.
type Gates struct {
	// workloads closes while evicted workloads are not available again.
	// +optional
	Workloads *WorkloadsGate `json:"workloads,omitempty"`
	// pods closes while certain pods exist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Pods []PodsGate `json:"pods,omitempty"`
	// alerts closes while Prometheus has alerts.
	// +optional
	Alerts *AlertsGate `json:"alerts,omitempty"`
	// nodes says when a node is healthy, in addition to being ready.
	// +optional
	Nodes *NodesGate `json:"nodes,omitempty"`
}

// WorkloadsGate is closed while a workload whose pods a drain evicted is not available again, for an hour after that turn. It is also closed while a
// selected Deployment, StatefulSet, DaemonSet, ExtendedDaemonSet, Job with a PodDisruptionBudget of its own, or object of a named kind, has fewer
// available pods than desired.
type WorkloadsGate struct {
	// selector selects workloads by their labels. Absent or {}: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// namespaceSelector limits that to namespaces with these labels. Absent or {}: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// kinds are further kinds of workloads, such as custom resources whose controllers run pods. The operator needs the right
	// to list and watch them. Absent: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Kinds []WorkloadKind `json:"kinds,omitempty"`
}

// WorkloadKind is a kind of workloads.
type WorkloadKind struct {
	// apiVersion of the kind, such as postgresql.cnpg.io/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the objects, such as Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// desired is the path of the integer field with the desired number of pods. An object without the field closes the gate.
	// Default spec.replicas.
	// +optional
	// +kubebuilder:default="spec.replicas"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(spec|status)(\.[A-Za-z0-9_-]+)+$`
	Desired string `json:"desired,omitempty"`
	// ready is the path of the integer field with the number of ready pods. An object without the field has none. Default
	// status.readyReplicas.
	// +optional
	// +kubebuilder:default="status.readyReplicas"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(spec|status)(\.[A-Za-z0-9_-]+)+$`
	Ready string `json:"ready,omitempty"`
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

// PodsGate is closed while a pod that it selects exists and has not ended.
type PodsGate struct {
	// selector selects pods by their labels.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// namespaceSelector limits that to namespaces with these labels. Absent or {}: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// scope is Node when a pod blocks the node that it is on, and Cluster when it blocks all. Default Node.
	// +optional
	// +kubebuilder:default=Node
	Scope PodsScope `json:"scope,omitempty"`
}

// Unreachable says what an alerts gate does when Prometheus does not answer.
//
// +kubebuilder:validation:Enum=Closed;Open
type Unreachable string

// The values of WhenUnreachable: what an alerts gate does when Prometheus does not answer.
const (
	UnreachableClosed Unreachable = "Closed"
	UnreachableOpen   Unreachable = "Open"
)

// AlertsGate is closed while Prometheus has active alerts. Those whose names begin with Moult count only where deny names them.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.allow) && has(self.deny))",message="allow and deny exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || isURL(self.url) && url(self.url).getScheme() == 'https'",message="secretName needs an https URL: over http the credentials could be read on the way"
type AlertsGate struct {
	// url of Prometheus, such as http://prometheus.monitoring:9090.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != ''",message="must be an http or https URL"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[hH][tT][tT][pP]://[^/?#]*@')",message="must be an https URL to have credentials, which are better kept in a Secret: see secretName"
	URL string `json:"url"`
	// secretName names a Secret in the operator's own namespace, such as moult-prometheus, with credentials for an https URL. Its key url must have
	// the scheme, host and port of this URL: the credentials are sent there alone. Further keys: token, or username and password; and ca.crt, the
	// authorities that are trusted instead of the system's, in PEM. It is read again every minute. Absent: no credentials. While it can't be used
	// Prometheus does not answer. The operator's Role moult-prometheus lists the names that it may read.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	SecretName string `json:"secretName,omitempty"`
	// allow is a regular expression (RE2). Alerts whose whole name matches do not close the gate; all others do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Allow string `json:"allow,omitempty"`
	// deny is a regular expression (RE2). Only alerts whose whole name matches close the gate.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Deny string `json:"deny,omitempty"`
	// firingOnly ignores pending alerts. Default false: pending and firing alerts close the gate.
	// +optional
	FiringOnly bool `json:"firingOnly,omitempty"`
	// whenUnreachable says what happens when Prometheus does not answer, or its answer can't be understood. Default Closed.
	// +optional
	// +kubebuilder:default=Closed
	WhenUnreachable Unreachable `json:"whenUnreachable,omitempty"`
	// intervalSeconds is the time between two queries of Prometheus, in seconds. Default 15.
	// +optional
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
}

// NodesGate says when a node is healthy, in addition to being ready. An unhealthy node is unavailable.
type NodesGate struct {
	// conditions that the node must have.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Conditions []NodeConditionRequirement `json:"conditions,omitempty"`
	// absentTaints are keys of taints that the node must not have. A key that ends in * matches every key with this prefix, except the
	// taint of a cordon (node.kubernetes.io/unschedulable) and Moult's taints on outdated nodes. Empty: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self != 'node.kubernetes.io/unschedulable'",message="must not be the taint of a cordon: rollouts cordon nodes, and a cordoned node is unavailable anyway"
	AbsentTaints []string `json:"absentTaints,omitempty"`
}

// NodeConditionRequirement is a condition that a node must have.
type NodeConditionRequirement struct {
	// type of the condition, such as NetworkUnavailable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Type string `json:"type,omitempty"`
	// status that it must have. An absent condition does not match.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status,omitempty"`
}

// NodeDisruptionBudgetStatus is the state of the budget.
type NodeDisruptionBudgetStatus struct {
	// conditions are Ready, which is True when the budget is valid and in force; Open, which says whether nodes may be claimed now;
	// Progressing, which is True while rollouts use up the budget; Paused, which is spec.paused; and Reconciling and Stalled of kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the metadata.generation that this status reflects.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// matched is how many nodes are selected.
	// +required
	// +kubebuilder:validation:Maximum=2147483647
	Matched int32 `json:"matched"`
	// unavailable is how many of them are unavailable.
	// +required
	// +kubebuilder:validation:Maximum=2147483647
	Unavailable int32 `json:"unavailable"`
	// allowed is how many more nodes may be claimed now; absent when there is no limit by number and nothing blocks.
	// +optional
	// +kubebuilder:validation:Maximum=2147483647
	Allowed *int32 `json:"allowed,omitempty"`
	// domains is in how many domains nodes are unavailable, if topologyKey is set.
	// +optional
	// +kubebuilder:validation:Maximum=2147483647
	Domains int32 `json:"domains,omitempty"`
	// holders are the unavailable nodes with their causes, at most 20.
	// +optional
	// +listType=atomic
	Holders []BudgetHolder `json:"holders,omitempty"`
	// blockedBy lists what blocks now, other than the number of unavailable nodes.
	// +optional
	// +listType=atomic
	BlockedBy []BudgetBlock `json:"blockedBy,omitempty"`
}

// UnavailableCause is why a node is unavailable.
type UnavailableCause string

// Why a node is unavailable.
const (
	// CauseClaimed: a rollout has a claim on it.
	CauseClaimed UnavailableCause = "Claimed"
	// CauseBeingRemoved: it is being deleted, or Karpenter or the cluster autoscaler is removing it.
	CauseBeingRemoved UnavailableCause = "BeingRemoved"
	// CauseUnschedulable: it is cordoned, and no rollout has a claim on it.
	CauseUnschedulable UnavailableCause = "Unschedulable"
	// CauseNotReady: it is not ready.
	CauseNotReady UnavailableCause = "NotReady"
	// CauseMinReadySeconds: it has been ready for too short a time.
	CauseMinReadySeconds UnavailableCause = "MinReadySeconds"
	// CauseUnhealthy: it lacks a condition, or has a taint, by gates.nodes.
	CauseUnhealthy UnavailableCause = "Unhealthy"
	// CauseUnreadable: the claims on it, or its record of evictions, can't be read.
	CauseUnreadable UnavailableCause = "ClaimUnreadable"
	// CauseDaemonPod: an ExtendedDaemonSet replaces its pod on it, and spec.counts has DaemonPods.
	CauseDaemonPod UnavailableCause = "DaemonPodReplaced"
)

// BudgetHolder is a node that uses up the budget.
type BudgetHolder struct {
	// node is the node's name.
	// +required
	Node string `json:"node"`
	// cause says why it is unavailable: the first that applies of Claimed, BeingRemoved, Unschedulable, NotReady, MinReadySeconds,
	// Unhealthy, ClaimUnreadable, DaemonPodReplaced.
	// +required
	Cause UnavailableCause `json:"cause"`
	// by is the rollout that has claimed it, or replaces its pod, as "Kind/namespace/name".
	// +optional
	By string `json:"by,omitempty"`
	// message says more.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when it became unavailable, if known.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// BudgetBlock is what blocks a budget.
type BudgetBlock struct {
	// gate is what blocks, one of the reasons of units: BudgetPaused, OutsideBudgetWindow, WorkloadsUnavailable, PodsBlock,
	// AlertsActive, AlertsUnreachable, or BudgetInvalid.
	// +required
	Gate Reason `json:"gate"`
	// message says more.
	// +required
	Message string `json:"message"`
	// since is when it began to block.
	// +required
	Since metav1.Time `json:"since"`
}

// Types of conditions of a NodeDisruptionBudget, and of a NodeRollout.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	// ConditionOpen says whether nodes may be claimed now.
	ConditionOpen = "Open"
	// ConditionProgressing says whether rollouts change nodes now: this one, or any under this budget.
	ConditionProgressing = "Progressing"
	// ConditionPaused says whether the spec says paused.
	ConditionPaused = "Paused"
	// ConditionAgentsBounded of a NodeRollout is False while no policy bounds what the agents on hosts may write, and otherwise absent.
	ConditionAgentsBounded = "AgentsBounded"
)

// ReasonDefinitionIncomplete is a reason of Ready and Stalled of all kinds of rollouts: they are not carried out, because their
// CustomResourceDefinition lacks fields of the status.
const ReasonDefinitionIncomplete = "DefinitionIncomplete"
