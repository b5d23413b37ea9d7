// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=noderollouts,singular=noderollout,scope=Cluster,shortName=nr,categories=moult
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.counts.total`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.counts.updated`
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=`.status.counts.updating`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.counts.failed`
// +kubebuilder:printcolumn:name="Wave",type=string,JSONPath=`.status.wave.name`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=='Ready')].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it is part of labels and taints"

// NodeRollout brings nodes to another operating system, by updating it or by replacing their machines, a few nodes at a time.
type NodeRollout struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what people want.
	// +required
	Spec NodeRolloutSpec `json:"spec"`
	// status is what the operator reports.
	// +optional
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

// NodeRolloutSpec says which nodes are updated, to what, and how.
//
// +kubebuilder:validation:XValidation:rule="has(self.hostUpdate) != has(self.replacement)",message="exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"
// +kubebuilder:validation:XValidation:rule="has(self.hostUpdate) == has(oldSelf.hostUpdate)",message="hostUpdate and replacement can't take each other's place: make another NodeRollout"
// +kubebuilder:validation:XValidation:rule="!has(self.hostUpdate) || !has(self.hostUpdate.labelNodes) || !self.hostUpdate.labelNodes || ((!has(self.nodeSelector.matchLabels) || !['bottlerocket.aws/updater-interface-version', 'thar.amazonaws.com/platform-version', 'moult.dev/updater-interface-version'].exists(k, k in self.nodeSelector.matchLabels)) && (!has(self.nodeSelector.matchExpressions) || !self.nodeSelector.matchExpressions.exists(e, e.key in ['bottlerocket.aws/updater-interface-version', 'thar.amazonaws.com/platform-version', 'moult.dev/updater-interface-version'] && e.operator in ['In', 'Exists'])))",message="hostUpdate.labelNodes labels nodes without an interface label, and this nodeSelector requires one: select the nodes by other labels"
type NodeRolloutSpec struct {
	// nodeSelector selects the nodes; {} selects all. Only hosts with an interface label are updated, and only machines of scale sets
	// are replaced. A node with the label noderollout.moult.dev/NAME=disabled is not touched.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// strategy is how fast and in which order nodes are updated. Default: one node at a time.
	// +optional
	Strategy *Strategy `json:"strategy,omitempty"`

	// drain is how a node is drained before it is disrupted. Default: every pod is evicted except those of DaemonSets,
	// mirrors of static pods, and pods of the operator. A pod without a controller stops the drain.
	// +optional
	Drain *NodeDrain `json:"drain,omitempty"`

	// health is what a changed node needs to count as updated, in addition to Ready and to gates.nodes of budgets. Until
	// then it stays cordoned.
	// +optional
	Health *NodeHealth `json:"health,omitempty"`

	// hostUpdate updates and reboots hosts by the agent that runs on each.
	// +optional
	HostUpdate *HostUpdate `json:"hostUpdate,omitempty"`

	// replacement replaces machines through the scale sets of their cloud.
	// +optional
	Replacement *Replacement `json:"replacement,omitempty"`
}

// NodeDrain is how a node is drained. The node is always cordoned first.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeout) || has(self.timeout)",message="onTimeout needs timeout"
type NodeDrain struct {
	// disabled only cordons the node. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// timeout is how long the drain may take. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be positive"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// onTimeout says what happens after the timeout. Halt fails the turn. Skip releases the node, and the rollout continues
	// without it. Force deletes the remaining pods and ignores every PodDisruptionBudget. Default Halt.
	// +optional
	OnTimeout DrainOnTimeout `json:"onTimeout,omitempty"`
	// force also evicts pods without a controller. Default false.
	// +optional
	Force bool `json:"force,omitempty"`
	// deleteEmptyDirData also evicts pods with emptyDir volumes, whose content is lost. Default true.
	// +optional
	// +kubebuilder:default=true
	DeleteEmptyDirData *bool `json:"deleteEmptyDirData,omitempty"`
	// gracePeriodSeconds is how long each pod gets to end. Default: the pod's own terminationGracePeriodSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
	// disableEviction deletes pods instead of evicting them, and so ignores every PodDisruptionBudget. Default false.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
	// skipWaitForDeleteSeconds is how long to wait for a pod after the end of its grace period. Default: no limit; but 30
	// if the turn deletes the machine and its node has not been ready for a minute.
	// +optional
	// +kubebuilder:validation:Minimum=1
	SkipWaitForDeleteSeconds *int32 `json:"skipWaitForDeleteSeconds,omitempty"`
	// podSelector limits the drain to these pods. Default: all.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// waitForVolumeDetach waits, within the timeout, until the volumes of evicted pods are detached from the node. Default false.
	// +optional
	WaitForVolumeDetach bool `json:"waitForVolumeDetach,omitempty"`
}

// DrainOnTimeout says what happens when a drain times out.
//
// +kubebuilder:validation:Enum=Halt;Skip;Force
type DrainOnTimeout string

// LoadBalancerExclusion is how a node is excluded from external load balancers.
type LoadBalancerExclusion struct {
	// disabled does not set the label. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// wait is the time between the label and the drain, for the load balancers to react. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Wait *metav1.Duration `json:"wait,omitempty"`
}

// NodeHealth is what a changed node needs to count as updated.
type NodeHealth struct {
	NodesGate `json:",inline"`

	// minReadySeconds is how many seconds the node must have been ready. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// pods that must be stable on the node. Each entry is checked separately.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Pods []StablePods `json:"pods,omitempty"`
}

// StablePods are pods on a changed node that must be ready, and must not have restarted for some time. If no pod is
// selected, there is nothing to wait for.
type StablePods struct {
	// namespace of the pods. Empty: all.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// selector selects the pods.
	// +required
	Selector metav1.LabelSelector `json:"selector"`
	// seconds for which none of their containers may have restarted, counted from the change at the earliest. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	Seconds int32 `json:"seconds,omitempty"`
}

// HostUpdate is how hosts update themselves.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minimumAge) || !has(self.version) || size(self.version) == 0",message="minimumAge is for the newest version, and can't be set together with version"
type HostUpdate struct {
	// version to bring hosts to, such as "1.20.3". A host that offers another version waits. Empty: the newest version that
	// each host offers.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^(v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?)?$`
	Version string `json:"version,omitempty"`
	// detectOnly shows which hosts have an update, and changes none. Default false.
	// +optional
	DetectOnly bool `json:"detectOnly,omitempty"`
	// labelNodes adds the interface label to selected Nodes that run Bottlerocket or Thar, by status.nodeInfo.osImage. The label starts
	// the agent on the node. Existing labels are never changed. Default false: label the Nodes yourself.
	// +optional
	LabelNodes bool `json:"labelNodes,omitempty"`
	// minimumAge is how long a version must have been known before a host is updated to it. It counts from when any
	// selected host first offered it (status.releases). Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MinimumAge *metav1.Duration `json:"minimumAge,omitempty"`
	// rebootTimeout is how long a host may take from the reboot order until its node is ready and its agent answers. After
	// that the turn fails. Default 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	RebootTimeout *metav1.Duration `json:"rebootTimeout,omitempty"`
	// excludeFromLoadBalancers is how the node is excluded from external load balancers, from before the drain until it is schedulable
	// again. Default: by the label node.kubernetes.io/exclude-from-external-load-balancers, without a wait.
	// +optional
	ExcludeFromLoadBalancers *LoadBalancerExclusion `json:"excludeFromLoadBalancers,omitempty"`
	// hooks are annotations of the Node that your programs set before and after the reboot.
	// +optional
	Hooks *RebootHooks `json:"hooks,omitempty"`
}

// RebootHooks are keys of annotations of the Node that must have the value "true". While the rollout waits for them, the Node has the
// label moult.dev/before-reboot=true or moult.dev/after-reboot=true, by which a DaemonSet can start what sets them. The operator removes
// both afterwards.
type RebootHooks struct {
	// beforeReboot must be set before the node is cordoned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.indexOf('/') <= 253 && self.matches('(?i)^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$')",message="must be the key of an annotation, such as storage.example.com/replicas-moved"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(([^/]*[.])?moult[.]dev|bottlerocket[.]aws|thar[.]amazonaws[.]com)/')",message="keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: use a key of another domain, such as storage.example.com/replicas-moved"
	BeforeReboot []string `json:"beforeReboot,omitempty"`
	// afterReboot must be set after the host runs the target version, before the node is uncordoned.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.indexOf('/') <= 253 && self.matches('(?i)^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$')",message="must be the key of an annotation, such as storage.example.com/replicas-moved"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^(([^/]*[.])?moult[.]dev|bottlerocket[.]aws|thar[.]amazonaws[.]com)/')",message="keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: use a key of another domain, such as storage.example.com/replicas-moved"
	AfterReboot []string `json:"afterReboot,omitempty"`
}

// LabelNodeRollout is the label that opts a Node out of a NodeRollout, with the value LabelNodeRolloutDisabled.
func LabelNodeRollout(name string) string { return "noderollout." + GroupName + "/" + name }

// LabelNodeRolloutDisabled is the value of LabelNodeRollout.
const LabelNodeRolloutDisabled = "disabled"

// MaxListedReleases limits the lists of versions in a status.
const MaxListedReleases = 10

// NodeRolloutStatus is the state of a NodeRollout.
type NodeRolloutStatus struct {
	// conditions are Ready, Reconciling and Stalled, as kstatus defines them. Progressing is True while nodes are in a turn; otherwise its
	// reason says why none is. Paused is spec.strategy.paused. AgentsBounded is False while no policy bounds the agents.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the metadata.generation that this status reflects.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revision is the target of the rollout: the version of hosts, "reboot-" and a number for hosts without versions, or the image of
	// machines with an identifier of their model.
	// +optional
	Revision string `json:"revision,omitempty"`
	// lastComplete is the version that all hosts ran when the rollout was last complete. A rollback returns to it.
	// +optional
	LastComplete string `json:"lastComplete,omitempty"`
	// rolledBack is the failed version from which hosts are brought back to lastComplete.
	// +optional
	RolledBack string `json:"rolledBack,omitempty"`
	// counts of the selected nodes by state.
	// +optional
	Counts *UnitCounts `json:"counts,omitempty"`
	// wave is the progress of the waves, if the strategy has any.
	// +optional
	Wave *WaveStatus `json:"wave,omitempty"`
	// approval is the last approval of a wave that names a person.
	// +optional
	Approval *WaveApproval `json:"approval,omitempty"`
	// turnSeconds is the average duration of this revision's turns, in seconds; an estimate for the remaining ones.
	// +optional
	TurnSeconds int32 `json:"turnSeconds,omitempty"`
	// releases are the versions that hosts offer, newest first, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=version
	Releases []HostRelease `json:"releases,omitempty"`
	// versions says how many nodes run which version, the most frequent first, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=version
	Versions []HostVersion `json:"versions,omitempty"`
	// scaleSets are the scale sets whose machines are replaced.
	// +optional
	// +listType=map
	// +listMapKey=name
	ScaleSets []ScaleSetStatus `json:"scaleSets,omitempty"`
	// turns are the machines that are being replaced, at most 100.
	// +optional
	// +listType=atomic
	Turns []MachineTurn `json:"turns,omitempty"`
	// history describes the last revisions that were rolled out, newest first, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []Run `json:"history,omitempty"`
	// updating lists nodes in a turn, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Updating []UnitStatus `json:"updating,omitempty"`
	// failed lists failed nodes, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Failed []UnitStatus `json:"failed,omitempty"`
	// waiting lists the nodes that come next with the reason why they wait, at most 20.
	// +optional
	// +listType=atomic
	Waiting []UnitStatus `json:"waiting,omitempty"`
}

// HostRelease is a version that hosts offer.
type HostRelease struct {
	// version is its name.
	// +required
	Version string `json:"version"`
	// since is when one of the hosts first offered it.
	// +required
	Since metav1.Time `json:"since"`
}

// HostVersion is a version that hosts run.
type HostVersion struct {
	// version is its name.
	// +required
	Version string `json:"version"`
	// nodes is how many run it.
	// +required
	Nodes int32 `json:"nodes"`
}
