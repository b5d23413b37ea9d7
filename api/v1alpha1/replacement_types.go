// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Replacement is how machines are replaced: a machine is added to the scale set, the old node is drained, and its machine
// is deleted.
type Replacement struct {
	// provider is the cloud whose scale sets the machines are in. Only its credentials can be changed; for anything else
	// make another NodeRollout.
	// +required
	Provider CloudProvider `json:"provider"`
	// scaleSets limits the rollout to machines of these scale sets, by name. Empty: the scale sets of the selected nodes. A
	// node whose machine is in none of them is not changed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	ScaleSets []string `json:"scaleSets,omitempty"`
	// imageMatch says how an outdated machine is detected. ScaleSetModel: the cloud compares it with the scale set's model for new
	// machines. OSImage: its node's status.nodeInfo.osImage differs from the name of the scale set's image. Default ScaleSetModel.
	// +optional
	// +kubebuilder:default=ScaleSetModel
	ImageMatch ImageMatch `json:"imageMatch,omitempty"`
	// surge is how many extra machines each scale set may have at once: a count up to 100, or a percentage of its machines, rounded
	// up. With 0 a machine is deleted before its replacement is added. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a count from 0 to 100, or a percentage from 0% to 100%"
	Surge *intstr.IntOrString `json:"surge,omitempty"`
	// onFull says what happens when a scale set is at its maximum, or the cloud lacks capacity or quota for one more
	// machine. Wait: no replacement begins until there is room. DeleteFirst: a machine is deleted before its replacement is
	// added, unless the rollout's own extra machines fill the scale set. Default Wait.
	// +optional
	// +kubebuilder:default=Wait
	OnFull OnFull `json:"onFull,omitempty"`
	// replacementReady says when a replacement node is ready, so that the old node may be drained.
	// +optional
	ReplacementReady *ReplacementReady `json:"replacementReady,omitempty"`
	// keepFailedFor is how long a replacement whose node was not ready in time is kept for inspection. It uses up surge. A
	// control plane node is drained and leaves etcd first. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	KeepFailedFor *metav1.Duration `json:"keepFailedFor,omitempty"`
	// controlPlane is set if the nodes are control plane nodes, and says how they leave it. Default: they are not.
	// +optional
	ControlPlane *ControlPlane `json:"controlPlane,omitempty"`
	// kubernetesVersionFromImage writes the Kubernetes version of the scale set's image into ConfigMap kube-system/kubeadm-config before
	// the first machine of the image is added. The version is the third of exactly five parts of the image's name, separated by
	// hyphens. Default false.
	// +optional
	KubernetesVersionFromImage bool `json:"kubernetesVersionFromImage,omitempty"`
	// detectOnly shows which machines are outdated, and replaces none. Default false.
	// +optional
	DetectOnly bool `json:"detectOnly,omitempty"`
	// rollback is the same as strategy.rollback: it restores the scale set's last complete image when the failure limit has halted the
	// rollout, and replaces machines with the failed image. Default false.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
	// excludeFromLoadBalancers is how an old node is excluded from external load balancers before its drain.
	// +optional
	ExcludeFromLoadBalancers *LoadBalancerExclusion `json:"excludeFromLoadBalancers,omitempty"`
	// checkPeriod is how often the operator reads the scale sets from the cloud while nothing is in progress. Default 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	CheckPeriod *metav1.Duration `json:"checkPeriod,omitempty"`
}

// ImageMatch says how an outdated machine is detected.
//
// +kubebuilder:validation:Enum=ScaleSetModel;OSImage
type ImageMatch string

// The ways to detect outdated machines.
const (
	ImageMatchScaleSetModel ImageMatch = "ScaleSetModel"
	ImageMatchOSImage       ImageMatch = "OSImage"
)

// OnFull says what happens when no machine can be added.
//
// +kubebuilder:validation:Enum=Wait;DeleteFirst
type OnFull string

// The values of OnFull: what happens when no machine can be added.
const (
	OnFullWait        OnFull = "Wait"
	OnFullDeleteFirst OnFull = "DeleteFirst"
)

// CloudProvider is a cloud and the settings to use it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.azure) ? 1 : 0) + (has(self.aws) ? 1 : 0) + (has(self.gcp) ? 1 : 0) == 1",message="exactly one of azure, aws and gcp must be given"
// +kubebuilder:validation:XValidation:rule="has(self.azure) == has(oldSelf.azure) && has(self.aws) == has(oldSelf.aws) && has(self.gcp) == has(oldSelf.gcp)",message="the cloud can't be changed"
type CloudProvider struct {
	// azure is for virtual machine scale sets.
	// +optional
	Azure *AzureProvider `json:"azure,omitempty"`
	// aws is for EC2 Auto Scaling groups.
	// +optional
	AWS *AWSProvider `json:"aws,omitempty"`
	// gcp is for managed instance groups of Compute Engine.
	// +optional
	GCP *GCPProvider `json:"gcp,omitempty"`
}

// AzureProvider says where virtual machine scale sets are, and by whose rights they are changed. Where they are can't be changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.subscriptionID) == has(oldSelf.subscriptionID) && (!has(self.subscriptionID) || self.subscriptionID == oldSelf.subscriptionID)",message="subscriptionID can't be changed"
// +kubebuilder:validation:XValidation:rule="has(self.resourceGroup) == has(oldSelf.resourceGroup) && (!has(self.resourceGroup) || self.resourceGroup == oldSelf.resourceGroup)",message="resourceGroup can't be changed"
type AzureProvider struct {
	// subscriptionID of the scale sets. Default: the operator's environment variable ARM_SUBSCRIPTION_ID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F-]{36}$`
	SubscriptionID string `json:"subscriptionID,omitempty"`
	// resourceGroup of the scale sets. Default: the operator's environment variable ARM_RESOURCE_GROUP.
	// +optional
	// +kubebuilder:validation:MaxLength=90
	ResourceGroup string `json:"resourceGroup,omitempty"`
	// credential selects one of the operator's credentials. Auto tries the others, in this order: Environment, Workload
	// (workload identity), Managed (the identity of the machine). Default Auto.
	// +optional
	// +kubebuilder:default=Auto
	Credential AzureCredential `json:"credential,omitempty"`
	// clientID selects one of several managed or workload identities. Default: the only one, or the environment variable
	// AZURE_CLIENT_ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClientID string `json:"clientID,omitempty"`
}

// AzureCredential is a source of credentials for Azure.
//
// +kubebuilder:validation:Enum=Auto;Environment;Workload;Managed
type AzureCredential string

// The credentials for Azure.
const (
	AzureCredentialAuto        AzureCredential = "Auto"
	AzureCredentialEnvironment AzureCredential = "Environment"
	AzureCredentialWorkload    AzureCredential = "Workload"
	AzureCredentialManaged     AzureCredential = "Managed"
)

// AWSProvider says where Auto Scaling groups are, and which role changes them. The operator uses the default credential
// chain of the AWS SDK: environment, web identity (IRSA), EKS Pod Identity, the machine's instance profile. The region
// can't be changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.region) == has(oldSelf.region) && (!has(self.region) || self.region == oldSelf.region)",message="region can't be changed"
type AWSProvider struct {
	// region of the groups. Default: the region of the environment or of the machine.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^[a-z]{2,}(-[a-z0-9]+)+$`
	// +kubebuilder:validation:MaxLength=32
	Region string `json:"region,omitempty"`
	// roleARN is a role to assume. Default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`
	// +kubebuilder:validation:MaxLength=2048
	RoleARN string `json:"roleARN,omitempty"`
}

// GCPProvider says where managed instance groups are, and which account changes them. The operator uses application default
// credentials: GOOGLE_APPLICATION_CREDENTIALS, workload identity, the machine's service account. Project and locations
// can't be changed.
//
// +kubebuilder:validation:XValidation:rule="self.project == oldSelf.project",message="project can't be changed"
// +kubebuilder:validation:XValidation:rule="has(self.locations) == has(oldSelf.locations) && (!has(self.locations) || self.locations == oldSelf.locations)",message="locations can't be changed"
type GCPProvider struct {
	// project of the groups.
	// +required
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`
	Project string `json:"project"`
	// locations are the zones and regions in which groups of scaleSets are searched. Groups of existing nodes are found
	// without them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[a-z]+-[a-z]+[0-9]+(-(ai[0-9]+)?[a-z])?$`
	// +kubebuilder:validation:items:MaxLength=63
	Locations []string `json:"locations,omitempty"`
	// serviceAccount is the email address of a service account to impersonate. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// ReplacementReady says when a replacement node is ready. It must be Ready, meet spec.health and gates.nodes of budgets, and have no
// startup taints: those that the cluster sets on unusable nodes, node.cloudprovider.kubernetes.io/uninitialized, and those with the
// prefixes readiness.k8s.io and startup-taint.cluster-autoscaler.kubernetes.io.
type ReplacementReady struct {
	// timeout is how long a replacement may take from its request until it is ready, and to recover if it becomes unready before the
	// old node is gone. After that it is deleted, and the turn fails. Default 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// startupTaints are keys of further startup taints.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	StartupTaints []string `json:"startupTaints,omitempty"`
}

// ControlPlane is how nodes leave the control plane before their machines are deleted. Regardless of the strategy,
// replacement never breaks etcd quorum, even if one more member fails. It waits until every member is healthy and none is a
// learner.
type ControlPlane struct {
	// etcd is where etcd runs. Stacked: a member on each node, as with kubeadm; it is removed before the machine is deleted. External: on
	// other machines, and the operator does not change it. Default Stacked.
	// +optional
	// +kubebuilder:default=Stacked
	Etcd EtcdTopology `json:"etcd,omitempty"`
}

// EtcdTopology says where etcd runs.
//
// +kubebuilder:validation:Enum=Stacked;External
type EtcdTopology string

// Where etcd runs.
const (
	EtcdStacked  EtcdTopology = "Stacked"
	EtcdExternal EtcdTopology = "External"
)

// AbsentNode is what budgets need to know of a deleted Node.
type AbsentNode struct {
	// name of the Node.
	// +required
	Name string `json:"name"`
	// labels of the Node, by which budgets select it and find its domain.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// evicted are the controllers of pods that were evicted from it, each as "Kind/namespace/name", at most 100. They are
	// recorded on the replacement Node when it exists.
	// +optional
	// +listType=atomic
	Evicted []string `json:"evicted,omitempty"`
}

// MaxMachineTurns limits how many machines of a rollout are replaced at once, and so the lists of its status.
const MaxMachineTurns = 100

// FinalizerReplacement keeps a NodeRollout with a replacement until its cloud operations have ended. Added machines are
// deleted unless their turn is complete.
const FinalizerReplacement = GroupName + "/replacement"

// ScaleSetStatus is the state of a scale set.
type ScaleSetStatus struct {
	// name of the scale set.
	// +required
	Name string `json:"name"`
	// image is the image of new machines, as the cloud names it.
	// +optional
	Image string `json:"image,omitempty"`
	// model identifies the complete model of new machines.
	// +optional
	Model string `json:"model,omitempty"`
	// complete is true after all participating nodes of the scale set have had this image with no turn in progress, until a
	// turn fails with it.
	// +optional
	Complete bool `json:"complete,omitempty"`
	// previousImage is the last complete image before this one; a rollback restores it.
	// +optional
	PreviousImage string `json:"previousImage,omitempty"`
	// rolledBack is the failed image that a rollback replaced.
	// +optional
	RolledBack string `json:"rolledBack,omitempty"`
	// capacity is the desired number of machines in the cloud.
	// +optional
	Capacity int32 `json:"capacity"`
	// machines is how many machines exist.
	// +optional
	Machines int32 `json:"machines"`
	// outdated is how many machines are outdated.
	// +optional
	Outdated int32 `json:"outdated"`
	// operations are those in progress in the cloud. Each is recorded here before it is sent.
	// +optional
	// +listType=map
	// +listMapKey=token
	// +kubebuilder:validation:MaxItems=32
	Operations []CloudOperation `json:"operations,omitempty"`
	// reason says why the scale set can't be read or changed.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the reason began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// CloudOperation is a request to a cloud, sent or about to be sent.
type CloudOperation struct {
	// token identifies the operation, in the cloud too if it supports that, so that it never runs twice.
	// +required
	Token string `json:"token"`
	// kind of the operation: Add, Delete or SetImage.
	// +required
	Kind CloudOperationKind `json:"kind"`
	// count is how many machines are added.
	// +optional
	Count int32 `json:"count,omitempty"`
	// machines are the machines to delete. For an addition they are the new machines that turns have already received.
	// +optional
	// +listType=atomic
	Machines []string `json:"machines,omitempty"`
	// image is the new image.
	// +optional
	Image string `json:"image,omitempty"`
	// from is the image before.
	// +optional
	From string `json:"from,omitempty"`
	// state is what the provider needs to send the operation, to poll it, and to resume it after a restart.
	// +optional
	State string `json:"state,omitempty"`
	// since is when it was recorded. It is sent afterwards.
	// +required
	Since metav1.Time `json:"since"`
	// sent is true after the cloud has accepted it.
	// +optional
	Sent bool `json:"sent,omitempty"`
}

// CloudOperationKind is the kind of a request to a cloud.
type CloudOperationKind string

// The kinds of requests to a cloud.
const (
	CloudOperationAdd      CloudOperationKind = "Add"
	CloudOperationDelete   CloudOperationKind = "Delete"
	CloudOperationSetImage CloudOperationKind = "SetImage"
)

// MachineTurn is the turn of a machine: its replacement and its progress. While the node is disrupted, its Node also has a
// claim.
type MachineTurn struct {
	// turn identifies the turn; the claim has it too.
	// +required
	Turn string `json:"turn"`
	// node is the old node. Empty after it is gone, and for a machine that never had one.
	// +optional
	Node string `json:"node,omitempty"`
	// nodeUID is that Node's uid.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// scaleSet of the machine.
	// +required
	ScaleSet string `json:"scaleSet"`
	// machine is the old machine, as the cloud names it.
	// +optional
	Machine string `json:"machine,omitempty"`
	// zone of the machine.
	// +optional
	Zone string `json:"zone,omitempty"`
	// revision for which the turn began.
	// +required
	Revision string `json:"revision"`
	// attempt identifies the state of the rollout for which the turn began.
	// +optional
	Attempt string `json:"attempt,omitempty"`
	// failures is how many earlier turns of the node have failed.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// phase of the turn.
	// +required
	Phase MachinePhase `json:"phase"`
	// since is when the turn began.
	// +required
	Since metav1.Time `json:"since"`
	// phaseSince is when this phase began.
	// +required
	PhaseSince metav1.Time `json:"phaseSince"`
	// deletesFirst is true for a turn without surge.
	// +optional
	DeletesFirst bool `json:"deletesFirst,omitempty"`
	// ordered is true after the deletion of the machine was recorded. If the machine disappears later, this deletion may be
	// the cause.
	// +optional
	Ordered bool `json:"ordered,omitempty"`
	// operation is the token of the operation in its scale set that the turn waits for.
	// +optional
	Operation string `json:"operation,omitempty"`
	// replacement is the replacement machine, when it is known.
	// +optional
	Replacement string `json:"replacement,omitempty"`
	// replacementNode is the Node of the replacement machine, when it is known.
	// +optional
	ReplacementNode string `json:"replacementNode,omitempty"`
	// replacementProviderID is the spec.providerID of that Node.
	// +optional
	ReplacementProviderID string `json:"replacementProviderID,omitempty"`
	// absent is the old Node if it was deleted before its replacement exists. Budgets count it as unavailable until then.
	// +optional
	Absent *AbsentNode `json:"absent,omitempty"`
	// bound is true for a turn that needs another replacement and can't be cancelled: its node may have left the control
	// plane.
	// +optional
	Bound bool `json:"bound,omitempty"`
	// unreadySince is when the replacement stopped being ready. It has replacementReady.timeout to be ready again.
	// +optional
	UnreadySince *metav1.Time `json:"unreadySince,omitempty"`
	// failed says why the turn failed, while its machine is cleaned up.
	// +optional
	Failed *ClaimFailure `json:"failed,omitempty"`
	// message says what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
}

// UnitName is the name of the turn's unit: the old node, after its deletion the replacement node, or MachineUnit if there
// is no node.
func (t *MachineTurn) UnitName() string {
	machine := MachineUnit(t.ScaleSet, cmp.Or(t.Replacement, t.Machine, t.Turn))
	if t.Phase == MachineSoaking {
		return cmp.Or(t.ReplacementNode, t.Node, machine)
	}
	return cmp.Or(t.Node, t.ReplacementNode, machine)
}

// MachineUnit names the unit of a machine without a node.
func MachineUnit(scaleSet, machine string) string { return scaleSet + "/" + machine }

// MachinePhase is the progress of a turn.
type MachinePhase string

// The phases of a turn, in order. With surge: Adding, Joining, Claiming, Draining, Leaving, Deleting, Soaking. Without: Claiming, Draining, Leaving, Deleting,
// Adding, Joining, Soaking.
const (
	// MachineAdding: the replacement machine is requested.
	MachineAdding MachinePhase = "Adding"
	// MachineJoining: the replacement machine exists, and its node is not ready yet.
	MachineJoining MachinePhase = "Joining"
	// MachineClaiming: the replacement is ready, and the old node waits for its claim.
	MachineClaiming MachinePhase = "Claiming"
	// MachineDraining: the old node is cordoned and drained.
	MachineDraining MachinePhase = "Draining"
	// MachineLeaving: the old node leaves the control plane.
	MachineLeaving MachinePhase = "Leaving"
	// MachineDeleting: the old machine is deleted, and then its Node.
	MachineDeleting MachinePhase = "Deleting"
	// MachineSoaking: the machine is replaced, and the turn only keeps its slot.
	MachineSoaking MachinePhase = "Soaking"
	// MachineDiscarding: the replacement is drained and deleted, because it failed or is no longer needed.
	MachineDiscarding MachinePhase = "Discarding"
)
