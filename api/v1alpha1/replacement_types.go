// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Replacement is how machines are replaced: another one is added to the scale set, the node is drained, and its machine is deleted.
type Replacement struct {
	// Provider is the cloud whose scale sets the machines are in. By whose rights it is used may be changed, and nothing else: make another NodeRollout.
	Provider CloudProvider `json:"provider"`
	// ScaleSets bounds the rollout to the machines of these, by name. Empty: those that the selected nodes belong to. A node whose machine is in
	// none of them is left alone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	ScaleSets []string `json:"scaleSets,omitempty"`
	// ImageMatch says how an outdated machine is told from others. ScaleSetModel: by what the cloud says of it and of what the scale set makes
	// new ones of. OSImage: by its node's status.nodeInfo.osImage, which must be the name of the scale set's image. Default ScaleSetModel.
	// +optional
	// +kubebuilder:default=ScaleSetModel
	ImageMatch ImageMatch `json:"imageMatch,omitempty"`
	// Surge is how many machines more than before each scale set may have at once, as a count or as a percentage of its machines, rounded up.
	// With 0 a machine is deleted before the one that takes its place is added. At most 100 at once in any case. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 100 : self.matches('^(100|[0-9]{1,2})%$')",message="must be a count from 0 to 100, or a percentage from 0% to 100%"
	Surge *intstr.IntOrString `json:"surge,omitempty"`
	// OnFull says what happens where a scale set is at its maximum, or the cloud has no room or quota for one more machine. Wait: nothing is
	// begun until there is. DeleteFirst: a machine is deleted before the one that takes its place is added. Default Wait.
	// +optional
	// +kubebuilder:default=Wait
	OnFull OnFull `json:"onFull,omitempty"`
	// ReplacementReady is what a new machine's node must be before another is drained for it.
	// +optional
	ReplacementReady *ReplacementReady `json:"replacementReady,omitempty"`
	// KeepFailedFor is for how long a new machine is kept, to be looked at, whose node has not become ready in time. It takes up surge.
	// One of a control plane is drained and leaves etcd before. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	KeepFailedFor *metav1.Duration `json:"keepFailedFor,omitempty"`
	// ControlPlane says that the nodes are those of the control plane, and how they leave it. Default: they are not.
	// +optional
	ControlPlane *ControlPlane `json:"controlPlane,omitempty"`
	// KubernetesVersionFromImage writes the Kubernetes version in the name of the scale set's image, the third of exactly five parts between
	// hyphens, into ConfigMap kube-system/kubeadm-config before the first machine is added that is made of it, and with controlPlane also when the
	// image was set back, or all machines are made of it. Default false.
	// +optional
	KubernetesVersionFromImage bool `json:"kubernetesVersionFromImage,omitempty"`
	// DetectOnly shows which machines are outdated, and touches none. Default false.
	// +optional
	DetectOnly bool `json:"detectOnly,omitempty"`
	// Rollback puts the last image back that all nodes of the scale set have had, once the strategy's failure limit has halted the rollout. Machines
	// that are of the failed one already are replaced then. Default false.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
	// ExcludeFromLoadBalancers is how a node that goes is kept from external load balancers, from before its drain.
	// +optional
	ExcludeFromLoadBalancers *LoadBalancerExclusion `json:"excludeFromLoadBalancers,omitempty"`
	// CheckPeriod is how often the cloud is asked about the scale sets while nothing is under way. Default 5m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	CheckPeriod *metav1.Duration `json:"checkPeriod,omitempty"`
}

// ImageMatch says how an outdated machine is told from others.
//
// +kubebuilder:validation:Enum=ScaleSetModel;OSImage
type ImageMatch string

// The ways to tell outdated machines.
const (
	ImageMatchScaleSetModel ImageMatch = "ScaleSetModel"
	ImageMatchOSImage       ImageMatch = "OSImage"
)

// OnFull says what happens where no machine can be added.
//
// +kubebuilder:validation:Enum=Wait;DeleteFirst
type OnFull string

// What happens where no machine can be added.
const (
	OnFullWait        OnFull = "Wait"
	OnFullDeleteFirst OnFull = "DeleteFirst"
)

// CloudProvider is a cloud, with what is needed to speak to it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.azure) ? 1 : 0) + (has(self.aws) ? 1 : 0) + (has(self.gcp) ? 1 : 0) == 1",message="exactly one of azure, aws and gcp must be given"
// +kubebuilder:validation:XValidation:rule="has(self.azure) == has(oldSelf.azure) && has(self.aws) == has(oldSelf.aws) && has(self.gcp) == has(oldSelf.gcp)",message="the cloud can't be changed"
type CloudProvider struct {
	// Azure is for virtual machine scale sets.
	// +optional
	Azure *AzureProvider `json:"azure,omitempty"`
	// AWS is for EC2 Auto Scaling groups.
	// +optional
	AWS *AWSProvider `json:"aws,omitempty"`
	// GCP is for managed instance groups of Compute Engine.
	// +optional
	GCP *GCPProvider `json:"gcp,omitempty"`
}

// AzureProvider says where virtual machine scale sets are, and by whose rights they are changed. Where they are can't be changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.subscriptionID) == has(oldSelf.subscriptionID) && (!has(self.subscriptionID) || self.subscriptionID == oldSelf.subscriptionID)",message="subscriptionID can't be changed"
// +kubebuilder:validation:XValidation:rule="has(self.resourceGroup) == has(oldSelf.resourceGroup) && (!has(self.resourceGroup) || self.resourceGroup == oldSelf.resourceGroup)",message="resourceGroup can't be changed"
type AzureProvider struct {
	// SubscriptionID of the scale sets. Default: the operator's environment variable ARM_SUBSCRIPTION_ID.
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F-]{36}$`
	SubscriptionID string `json:"subscriptionID,omitempty"`
	// ResourceGroup of the scale sets. Default: the operator's environment variable ARM_RESOURCE_GROUP.
	// +optional
	// +kubebuilder:validation:MaxLength=90
	ResourceGroup string `json:"resourceGroup,omitempty"`
	// Credential is which of the operator's credentials is used. Auto tries the others, in this order: Environment, Workload (workload identity), Managed
	// (the identity of the machine). Default Auto.
	// +optional
	// +kubebuilder:default=Auto
	Credential AzureCredential `json:"credential,omitempty"`
	// ClientID chooses one of several managed or workload identities. Default: the only one, or the environment variable AZURE_CLIENT_ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClientID string `json:"clientID,omitempty"`
}

// AzureCredential is one of the ways to prove to Azure who the operator is.
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

// AWSProvider says where Auto Scaling groups are, and by whose rights they are changed. The operator's own credentials are found as by every program
// with the AWS SDK: environment, web identity (IRSA), EKS Pod Identity, the machine's instance profile. The region can't be changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.region) == has(oldSelf.region) && (!has(self.region) || self.region == oldSelf.region)",message="region can't be changed"
type AWSProvider struct {
	// Region of the groups. Default: what the environment or the machine says.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z]{2,}(-[a-z0-9]+)+$`
	// +kubebuilder:validation:MaxLength=32
	Region string `json:"region,omitempty"`
	// RoleARN is a role to assume. Default: none.
	// +optional
	// +kubebuilder:validation:Pattern=`^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$`
	// +kubebuilder:validation:MaxLength=2048
	RoleARN string `json:"roleARN,omitempty"`
}

// GCPProvider says where managed instance groups are, and by whose rights they are changed. The operator's own credentials are the application default
// ones: GOOGLE_APPLICATION_CREDENTIALS, workload identity, the machine's service account. Where the groups are can't be changed.
//
// +kubebuilder:validation:XValidation:rule="self.project == oldSelf.project",message="project can't be changed"
// +kubebuilder:validation:XValidation:rule="has(self.locations) == has(oldSelf.locations) && (!has(self.locations) || self.locations == oldSelf.locations)",message="locations can't be changed"
type GCPProvider struct {
	// Project of the groups.
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`
	Project string `json:"project"`
	// Locations are the zones and regions to look for groups in that scaleSets names. A group that nodes belong to is found without.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^[a-z]+-[a-z]+[0-9]+(-(ai[0-9]+)?[a-z])?$`
	// +kubebuilder:validation:items:MaxLength=63
	Locations []string `json:"locations,omitempty"`
	// ServiceAccount is one to impersonate, by its email address. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// ReplacementReady is what the node of a new machine must be, beside Ready, and beside spec.health and gates.nodes of budgets: without the taints
// that a node has while it starts. These are node.kubernetes.io/not-ready and others that the cluster itself sets on nodes that can't be
// used, node.cloudprovider.kubernetes.io/uninitialized, and those below readiness.k8s.io and startup-taint.cluster-autoscaler.kubernetes.io.
type ReplacementReady struct {
	// Timeout is how long that may take from when the machine is asked for. Then it is deleted, and the turn fails. One that was ready, and is not any
	// more before the node that goes is gone, gets as long to be ready again. Default 15m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// StartupTaints are keys of further taints that must be gone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	StartupTaints []string `json:"startupTaints,omitempty"`
}

// ControlPlane is how nodes leave the control plane before their machines are deleted. Only as many go at once as leaves a quorum of etcd if one
// more member fails, whatever the strategy says, and only while every member is healthy and none is a learner.
type ControlPlane struct {
	// Etcd is where it runs. Stacked: a member on each node, as kubeadm makes it; the member is removed, after leadership was moved away, before
	// the machine is deleted, and the next node goes when the new one is a voter. External: elsewhere, and it is left alone. Default Stacked.
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

// AbsentNode is what budgets look at of a Node that is not there any more.
type AbsentNode struct {
	// Name of the Node.
	Name string `json:"name"`
	// Labels that it had, by which budgets select it and find its domain.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Evicted are the controllers of pods that were evicted from it, each as "Kind/namespace/name", at most 100. They are recorded on the Node that
	// takes the place once that is there.
	// +optional
	Evicted []string `json:"evicted,omitempty"`
}

// MaxMachineTurns bounds how many machines of a rollout are replaced at once, and so how long the lists of its status get.
const MaxMachineTurns = 100

// FinalizerReplacement keeps a NodeRollout with a replacement until what it has begun in the cloud is ended: machines that were added are removed
// again unless they have taken the place of others.
const FinalizerReplacement = GroupName + "/replacement"

// ScaleSetStatus says how a scale set stands.
type ScaleSetStatus struct {
	// Name of it.
	Name string `json:"name"`
	// Image is what new machines are made of, as the cloud names it.
	// +optional
	Image string `json:"image,omitempty"`
	// Model identifies all of what new machines are made of.
	// +optional
	Model string `json:"model,omitempty"`
	// Complete is true once all nodes of the scale set that take part have been of this image, with no turn under way, until a turn fails with it.
	// +optional
	Complete bool `json:"complete,omitempty"`
	// PreviousImage is the last one before that was complete; what a rollback puts back.
	// +optional
	PreviousImage string `json:"previousImage,omitempty"`
	// RolledBack is the image that was taken out of the scale set again because it had failed.
	// +optional
	RolledBack string `json:"rolledBack,omitempty"`
	// Capacity is how many machines it is to have, as the cloud says.
	// +optional
	Capacity int32 `json:"capacity"`
	// Machines is how many there are, and Outdated how many of them are to be replaced.
	// +optional
	Machines int32 `json:"machines"`
	// Outdated is how many are to be replaced.
	// +optional
	Outdated int32 `json:"outdated"`
	// Operations are those under way in the cloud: each is written here before it is sent.
	// +optional
	// +listType=map
	// +listMapKey=token
	// +kubebuilder:validation:MaxItems=32
	Operations []CloudOperation `json:"operations,omitempty"`
	// Reason and Message say why the scale set can't be looked at or changed, and Since since when.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// Message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when that began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// CloudOperation is something that a cloud was asked to do, or is about to be.
type CloudOperation struct {
	// Token identifies it, also to the cloud where that can be: it is never done twice.
	Token string `json:"token"`
	// Kind of it: Add, Delete or SetImage.
	Kind CloudOperationKind `json:"kind"`
	// Count is how many machines are added.
	// +optional
	Count int32 `json:"count,omitempty"`
	// Machines are those that are deleted; of an addition under way, those that turns have been given already.
	// +optional
	// +listType=atomic
	Machines []string `json:"machines,omitempty"`
	// Image is the one that is set, and From the one that is taken out for it.
	// +optional
	Image string `json:"image,omitempty"`
	// From is the image that is taken out.
	// +optional
	From string `json:"from,omitempty"`
	// State is what the provider needs to send it, to find out how it stands, and to take it up after a restart.
	// +optional
	State string `json:"state,omitempty"`
	// Since is when it was written down. It is sent afterwards.
	Since metav1.Time `json:"since"`
	// Sent is true once the cloud has taken it.
	// +optional
	Sent bool `json:"sent,omitempty"`
}

// CloudOperationKind is what a cloud is asked for.
type CloudOperationKind string

// What a cloud is asked for.
const (
	CloudOperationAdd      CloudOperationKind = "Add"
	CloudOperationDelete   CloudOperationKind = "Delete"
	CloudOperationSetImage CloudOperationKind = "SetImage"
)

// MachineTurn is the turn of a machine: the memory of what takes its place, and of how far that has come. Beside it, while the node is disrupted,
// stands the claim on its Node.
type MachineTurn struct {
	// Turn identifies it; it is also in the claim.
	Turn string `json:"turn"`
	// Node that goes. Empty once nothing is left of it, and for a machine that never had one.
	// +optional
	Node string `json:"node,omitempty"`
	// NodeUID is that Node's uid.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// ScaleSet of the machine.
	ScaleSet string `json:"scaleSet"`
	// Machine that goes, as the cloud names it.
	// +optional
	Machine string `json:"machine,omitempty"`
	// Zone that it is in.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Revision that the turn was begun for.
	Revision string `json:"revision"`
	// Attempt identifies the state of the rollout that it was begun for.
	// +optional
	Attempt string `json:"attempt,omitempty"`
	// Failures is how many turns of the node have failed before it.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// Phase it has come to.
	Phase MachinePhase `json:"phase"`
	// Since is when the turn began, and PhaseSince when this phase did.
	Since metav1.Time `json:"since"`
	// PhaseSince is when this phase began.
	PhaseSince metav1.Time `json:"phaseSince"`
	// DeletesFirst is true for a turn without surge.
	// +optional
	DeletesFirst bool `json:"deletesFirst,omitempty"`
	// Ordered is true once the machine's deletion was written down to be asked of the cloud: should it go then, that may be why.
	// +optional
	Ordered bool `json:"ordered,omitempty"`
	// Operation is the token of the operation in its scale set that the turn waits for.
	// +optional
	Operation string `json:"operation,omitempty"`
	// Replacement is the machine that takes the place, and ReplacementNode its Node, once they are known.
	// +optional
	Replacement string `json:"replacement,omitempty"`
	// ReplacementNode is its Node.
	// +optional
	ReplacementNode string `json:"replacementNode,omitempty"`
	// ReplacementProviderID is what its Node says that it is.
	// +optional
	ReplacementProviderID string `json:"replacementProviderID,omitempty"`
	// Absent is the Node that went before another one came. Budgets count it as unavailable until that one is there.
	// +optional
	Absent *AbsentNode `json:"absent,omitempty"`
	// Bound is true for a turn that looks for another replacement, and is never given up: its node may have left the control plane already.
	// +optional
	Bound bool `json:"bound,omitempty"`
	// UnreadySince is since when the replacement, which was ready, is not any more. It gets as long to be ready again as it had to become so.
	// +optional
	UnreadySince *metav1.Time `json:"unreadySince,omitempty"`
	// Failed says why the turn failed, while what it leaves behind is cleared away.
	// +optional
	Failed *ClaimFailure `json:"failed,omitempty"`
	// Message says what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
}

// UnitName is the name of the turn's unit: of the node that goes, once that is gone of the one that takes the place, and where there is neither that of
// MachineUnit.
func (t *MachineTurn) UnitName() string {
	switch {
	case t.Phase == MachineSoaking && t.ReplacementNode != "":
		return t.ReplacementNode
	case t.Node != "":
		return t.Node
	case t.ReplacementNode != "":
		return t.ReplacementNode
	}
	for _, id := range []string{t.Replacement, t.Machine} {
		if id != "" {
			return MachineUnit(t.ScaleSet, id)
		}
	}
	return MachineUnit(t.ScaleSet, t.Turn)
}

// MachineUnit names the unit of a machine that has no Node.
func MachineUnit(scaleSet, machine string) string { return scaleSet + "/" + machine }

// MachinePhase is how far a turn has come.
type MachinePhase string

// The phases of a turn, in order. With surge: Adding, Joining, Claiming, Draining, Leaving, Deleting, Soaking. Without: Claiming, Draining, Leaving, Deleting,
// Adding, Joining, Soaking.
const (
	// MachineAdding: the machine that takes the place is asked for.
	MachineAdding MachinePhase = "Adding"
	// MachineJoining: it is there, and its node is not ready yet.
	MachineJoining MachinePhase = "Joining"
	// MachineClaiming: the replacement is ready, and the node waits to be claimed.
	MachineClaiming MachinePhase = "Claiming"
	// MachineDraining: the node is cordoned and drained.
	MachineDraining MachinePhase = "Draining"
	// MachineLeaving: the node leaves the control plane.
	MachineLeaving MachinePhase = "Leaving"
	// MachineDeleting: the machine is deleted, and then its Node.
	MachineDeleting MachinePhase = "Deleting"
	// MachineSoaking: the replacement has taken the place, and only the slot is kept.
	MachineSoaking MachinePhase = "Soaking"
	// MachineDiscarding: the replacement is drained and deleted again, because it failed or nothing is left that it is for.
	MachineDiscarding MachinePhase = "Discarding"
)
