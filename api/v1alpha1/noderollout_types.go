// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=noderollouts,singular=noderollout,scope=Cluster,shortName=nr
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.counts.total`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.counts.updated`
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=`.status.counts.updating`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.counts.failed`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=='Ready')].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it is part of labels and taints"

// NodeRollout brings nodes to another operating system, by updating it or by replacing their machines, a few nodes at a time.
type NodeRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeRolloutSpec   `json:"spec"`
	Status NodeRolloutStatus `json:"status,omitempty"`
}

// NodeRolloutList is a list of NodeRollouts.
//
// +kubebuilder:object:root=true
type NodeRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeRollout `json:"items"`
}

// NodeRolloutSpec says which nodes, to what, and how.
//
// +kubebuilder:validation:XValidation:rule="has(self.hostUpdate) != has(self.replacement)",message="exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"
// +kubebuilder:validation:XValidation:rule="has(self.hostUpdate) == has(oldSelf.hostUpdate)",message="hostUpdate and replacement can't take each other's place: make another NodeRollout"
// +kubebuilder:validation:XValidation:rule="!has(self.hostUpdate) || !has(self.hostUpdate.labelNodes) || !self.hostUpdate.labelNodes || ((!has(self.nodeSelector.matchLabels) || !['bottlerocket.aws/updater-interface-version', 'thar.amazonaws.com/platform-version', 'moult.dev/updater-interface-version'].exists(k, k in self.nodeSelector.matchLabels)) && (!has(self.nodeSelector.matchExpressions) || !self.nodeSelector.matchExpressions.exists(e, e.key in ['bottlerocket.aws/updater-interface-version', 'thar.amazonaws.com/platform-version', 'moult.dev/updater-interface-version'] && e.operator in ['In', 'Exists'])))",message="hostUpdate.labelNodes labels nodes without an interface label, and this nodeSelector requires one: select the nodes by other labels"
type NodeRolloutSpec struct {
	// NodeSelector selects the nodes; {} selects all. With hostUpdate, of the selected nodes only those are updated that have a label which
	// names the interface of their host, such as bottlerocket.aws/updater-interface-version; with replacement, only machines of scale sets.
	// A node with the label noderollout.moult.dev/NAME=disabled is not touched.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// Strategy is how fast, and in which order. Default: one node at a time.
	// +optional
	Strategy *Strategy `json:"strategy,omitempty"`

	// Drain is how a node is drained before it is disrupted. Default: every pod is evicted but those of DaemonSets, mirrors of static
	// pods, and pods of the operator; a pod that no controller would make again stops the drain.
	// +optional
	Drain *NodeDrain `json:"drain,omitempty"`

	// Health is what must hold, beside the node being Ready and beside gates.nodes of budgets, before a changed node counts as updated.
	// Until then it stays cordoned.
	// +optional
	Health *NodeHealth `json:"health,omitempty"`

	// HostUpdate lets hosts update themselves and reboot, by the agent that runs on each.
	// +optional
	HostUpdate *HostUpdate `json:"hostUpdate,omitempty"`

	// Replacement replaces machines through the scale sets of their cloud.
	// +optional
	Replacement *Replacement `json:"replacement,omitempty"`
}

// NodeDrain is how a node is drained. It is cordoned before, in any case.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeout) || has(self.timeout)",message="onTimeout needs timeout"
type NodeDrain struct {
	// Disabled only cordons the node. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Timeout is how long the drain may take. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be positive"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// OnTimeout says what happens when the time is over: Halt fails the turn, Skip gives the node back and goes on without it, Force
	// deletes the pods that are left past every PodDisruptionBudget. Default Halt.
	// +optional
	OnTimeout DrainOnTimeout `json:"onTimeout,omitempty"`
	// Force evicts pods too that no controller would make again. Default false.
	// +optional
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDirData evicts pods too that have emptyDir volumes, whose content is lost. Default true.
	// +optional
	// +kubebuilder:default=true
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`
	// GracePeriodSeconds is how long each pod gets to end. Default: what the pod says itself.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// DisableEviction deletes pods instead of evicting them, past every PodDisruptionBudget. Default false.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
	// SkipWaitForDeleteSeconds does not wait for pods that are still there so long after the end of their grace period. Default: wait; but 30
	// where the machine is to be deleted and its node has not been ready for a minute.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SkipWaitForDeleteSeconds *int32 `json:"skipWaitForDeleteSeconds,omitempty"`
	// PodSelector bounds the drain to these pods. Default: all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// WaitForVolumeDetach waits, within the timeout, until the volumes of evicted pods are detached from the node. Default false.
	// +optional
	WaitForVolumeDetach bool `json:"waitForVolumeDetach,omitempty"`
}

// DrainOnTimeout says what happens when a drain's time is over.
//
// +kubebuilder:validation:Enum=Halt;Skip;Force
type DrainOnTimeout string

// LoadBalancerExclusion is how a node is kept from external load balancers.
type LoadBalancerExclusion struct {
	// Disabled leaves the label alone. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// Wait is how long the load balancers get between the label and the drain. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Wait *metav1.Duration `json:"wait,omitempty"`
}

// NodeHealth is what must hold before a changed node counts as updated.
type NodeHealth struct {
	NodesGate `json:",inline"`

	// MinReadySeconds is for how many seconds the node must have been ready. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Pods that must be well on the node. Each entry is looked at for itself.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Pods []StablePods `json:"pods,omitempty"`
}

// StablePods are pods on a changed node that must be ready, and must not have restarted for a while. Where none are selected there is nothing
// to wait for.
type StablePods struct {
	// Namespace of the pods. Empty: all.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Selector selects them.
	Selector metav1.LabelSelector `json:"selector"`
	// Seconds for which none of their containers may have restarted, counted from the change at the earliest. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Seconds int32 `json:"seconds,omitempty"`
}

// HostUpdate is how hosts update themselves.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minimumAge) || !has(self.version) || size(self.version) == 0",message="minimumAge is for the newest version, and can't stand beside version"
type HostUpdate struct {
	// Version to bring hosts to, such as "1.20.3". A host that has another one to offer waits. Empty: the newest that each host
	// has to offer.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?)?$`
	Version string `json:"version,omitempty"`
	// DetectOnly shows which hosts have an update, and touches none. Default false.
	// +optional
	DetectOnly bool `json:"detectOnly,omitempty"`
	// LabelNodes adds the label that names the interface of the host to selected Nodes that have no such label, by status.nodeInfo.osImage:
	// bottlerocket.aws/updater-interface-version=2.0.0 for Bottlerocket 0.4.1 and newer, =1.0.0 for older Bottlerocket, and
	// thar.amazonaws.com/platform-version=1.0.0 for Thar. The label starts the agent of that interface there. A label that is there already is
	// never changed or removed, and other hosts get none. Default false: label the Nodes yourself.
	// +optional
	LabelNodes bool `json:"labelNodes,omitempty"`
	// MinimumAge is how long a version must have been known before a host is brought to it, from when any selected host first offered it
	// (status.releases). Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MinimumAge *metav1.Duration `json:"minimumAge,omitempty"`
	// RebootTimeout is how long a host may take from the order to reboot until its node is ready again and its agent answers. Then the turn
	// fails. Default 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	RebootTimeout *metav1.Duration `json:"rebootTimeout,omitempty"`
	// ExcludeFromLoadBalancers is how the node is kept from external load balancers, from before the drain until it is schedulable again, by the
	// label node.kubernetes.io/exclude-from-external-load-balancers. One that has the label already keeps it.
	// +optional
	ExcludeFromLoadBalancers *LoadBalancerExclusion `json:"excludeFromLoadBalancers,omitempty"`
	// Hooks are annotations of the Node that others must set before and after the reboot.
	// +optional
	Hooks *RebootHooks `json:"hooks,omitempty"`
}

// RebootHooks are keys of annotations of the Node that must have the value "true". While the rollout waits for those of one list the Node has
// the label moult.dev/before-reboot=true or moult.dev/after-reboot=true, by which a DaemonSet can start what sets them. Afterwards label and
// annotations are taken off, so that they are set anew the next time. Keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are refused.
type RebootHooks struct {
	// BeforeReboot must be set before the node is cordoned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.indexOf('/') <= 253 && self.matches('(?i)^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$')",message="must be the key of an annotation, such as storage.example.com/replicas-moved"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(([^/]*[.])?moult[.]dev|bottlerocket[.]aws|thar[.]amazonaws[.]com)/')",message="keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: take one of another domain, such as storage.example.com/replicas-moved"
	BeforeReboot []string `json:"beforeReboot,omitempty"`
	// AfterReboot must be set, once the host runs what it should, before the node is made schedulable.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.indexOf('/') <= 253 && self.matches('(?i)^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$')",message="must be the key of an annotation, such as storage.example.com/replicas-moved"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(([^/]*[.])?moult[.]dev|bottlerocket[.]aws|thar[.]amazonaws[.]com)/')",message="keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: take one of another domain, such as storage.example.com/replicas-moved"
	AfterReboot []string `json:"afterReboot,omitempty"`
}

// LabelNodeRollout is the label that keeps a NodeRollout away from a Node, with the value LabelNodeRolloutDisabled.
func LabelNodeRollout(name string) string { return "noderollout." + GroupName + "/" + name }

// LabelNodeRolloutDisabled is the value of LabelNodeRollout.
const LabelNodeRolloutDisabled = "disabled"

// MaxListedReleases bounds the lists of versions in a status.
const MaxListedReleases = 10

// NodeRolloutStatus says how a NodeRollout stands.
type NodeRolloutStatus struct {
	// Conditions: Ready, Reconciling and Stalled, for tools that follow kstatus.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the metadata.generation that this status was made for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision is what nodes are brought to: the version of spec.hostUpdate, or the newest that any of the hosts has to offer or runs; where
	// nothing newer is offered than what runs, and hosts have an older version to go back to, that one; for hosts without versions "reboot-" and how often they were all brought to it. With a replacement, the name of the image and what
	// identifies all that machines are made of, or the latter alone where scale sets have several images.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Counts of the selected nodes by state.
	// +optional
	Counts *UnitCounts `json:"counts,omitempty"`
	// Wave is where a rollout whose strategy has waves stands.
	// +optional
	Wave *WaveStatus `json:"wave,omitempty"`
	// TurnSeconds is how long the turns of this revision took on average, in seconds; an estimate of what is to come.
	// +optional
	TurnSeconds int32 `json:"turnSeconds,omitempty"`
	// Releases are the versions that hosts have to offer, newest first, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=version
	Releases []HostRelease `json:"releases,omitempty"`
	// Versions says how many nodes run which version, the most frequent first, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=version
	Versions []HostVersion `json:"versions,omitempty"`
	// ScaleSets are those that machines are replaced in.
	// +optional
	// +listType=map
	// +listMapKey=name
	ScaleSets []ScaleSetStatus `json:"scaleSets,omitempty"`
	// Turns are the machines that are being replaced, at most 100.
	// +optional
	// +listType=map
	// +listMapKey=turn
	Turns []MachineTurn `json:"turns,omitempty"`
	// Updating lists nodes in a turn, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Updating []UnitStatus `json:"updating,omitempty"`
	// Failed lists failed nodes, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Failed []UnitStatus `json:"failed,omitempty"`
	// Waiting lists the nodes that come next with the reason why they wait, at most 20.
	// +optional
	// +listType=atomic
	Waiting []UnitStatus `json:"waiting,omitempty"`
}

// HostRelease is a version that hosts have to offer.
type HostRelease struct {
	// Version is its name.
	Version string `json:"version"`
	// Since is when one of the hosts first offered it.
	Since metav1.Time `json:"since"`
}

// HostVersion is a version that hosts run.
type HostVersion struct {
	// Version is its name.
	Version string `json:"version"`
	// Nodes is how many run it.
	Nodes int32 `json:"nodes"`
}
