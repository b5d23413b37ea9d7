// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"moult.dev/moult/api/v1alpha1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=plans,singular=plan,scope=Namespaced,categories=moult
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.upgrade.image`
// +kubebuilder:printcolumn:name="Channel",type=string,JSONPath=`.spec.channel`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=='Complete')].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.message!='')].message`
// +kubebuilder:printcolumn:name="Applying",type=string,JSONPath=`.status.applying`,priority=10
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Plan runs a Job on each selected node that does not have its latest hash, a limited number at a time.
type Plan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlanSpec   `json:"spec,omitempty"`
	Status PlanStatus `json:"status,omitempty"`
}

// PlanList is a list of Plans.
//
// +kubebuilder:object:root=true
type PlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Plan `json:"items"`
}

// PlanSpec says what to run on which nodes.
type PlanSpec struct {
	// Concurrency is how many nodes may be in a turn at once; a failed node keeps its slot. 0, the default, starts none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be 0 or more: how many nodes may be upgraded at once (0 starts none)"
	Concurrency int64 `json:"concurrency,omitempty"`

	// JobActiveDeadlineSecs is how long a Job may run, in seconds. Absent or negative: the controller's default
	// (SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS); 0: no deadline. The controller's maximum, if it has one, still applies.
	// +optional
	JobActiveDeadlineSecs *int64 `json:"jobActiveDeadlineSecs,omitempty"`

	// NodeSelector selects the nodes. Absent: none; {}: all. A node without the label kubernetes.io/hostname is never selected.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist: a label selector has no Gt and Lt"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? (has(e.values) && size(e.values) > 0) : (!(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// ServiceAccountName is the service account of the Job's pod. Default: the namespace's default. Part of the hash.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Channel is a URL that answers GET with 302 and a Location whose last path element is the version. It is polled every
	// SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL. Version, when set, wins.
	// +optional
	Channel string `json:"channel,omitempty"`

	// Version is the target version; each "+" becomes "-". It must be valid as a label value and as an image tag.
	// +optional
	Version string `json:"version,omitempty"`

	// AllowDowngrade lets the channel resolve to a lower version than before. Default false: a lower version is refused,
	// and the condition LatestResolved says so. Addition to system-upgrade-controller's fields.
	// +optional
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`

	// Secrets are mounted into every container of the Job's pod, read-only.
	// +optional
	Secrets []SecretSpec `json:"secrets,omitempty"`

	// Tolerations of the Job's pod, in addition to that of node.kubernetes.io/unschedulable:NoSchedule.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Exclusive keeps every other Plan away from a node while this Plan has claimed it. A Plan with cordon or drain is
	// always exclusive.
	// +optional
	Exclusive bool `json:"exclusive,omitempty"`

	// Window is the time when nodes may be started. Absent: always. Turns in progress continue after the window closes.
	// +optional
	Window *TimeWindowSpec `json:"window,omitempty"`

	// Prepare is an init container that runs before cordon and drain.
	// +optional
	Prepare *ContainerSpec `json:"prepare,omitempty"`

	// Upgrade is the container that changes the node.
	Upgrade *ContainerSpec `json:"upgrade"`

	// Cordon makes the node unschedulable before the change and schedulable after it, unless it was unschedulable before.
	// Drain, when set, includes it.
	// +optional
	Cordon bool `json:"cordon,omitempty"`

	// Drain cordons the node and evicts its pods before the change. Absent: no drain.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`

	// ImagePullSecrets of the Job's pod.
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// PostCompleteDelay is how long a node keeps its slot after its Job has succeeded, such as "90s". Default: none.
	// +optional
	PostCompleteDelay *metav1.Duration `json:"postCompleteDelay,omitempty"`

	// PriorityClassName of the Job's pod.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// PostCompleteLabels are put on a node when its Job has succeeded. In values $(LATEST_VERSION) and $(LATEST_HASH) are
	// replaced; $$(…) means a literal $(…).
	// +optional
	PostCompleteLabels map[string]string `json:"postCompleteLabels,omitempty"`

	// Strategy is how fast and in which order nodes are updated, in addition to concurrency and window. With a strategy a
	// node must also be healthy after its Job to count as updated. Addition to system-upgrade-controller's fields.
	// +optional
	Strategy *v1alpha1.Strategy `json:"strategy,omitempty"`
}

// ContainerSpec describes the prepare or upgrade container.
type ContainerSpec struct {
	// Image; one with neither tag nor digest gets the resolved version as tag. Empty: the Plan is resolved, and its Jobs are refused.
	Image string `json:"image"`
	// Command replaces the image's entrypoint.
	// +optional
	Command []string `json:"command,omitempty"`
	// Args replace the image's arguments.
	// +optional
	Args []string `json:"args,omitempty"`
	// Env holds environment variables, set after SYSTEM_UPGRADE_NODE_NAME, _POD_NAME and _POD_UID and before
	// SYSTEM_UPGRADE_PLAN_NAME, _PLAN_LATEST_HASH and _PLAN_LATEST_VERSION.
	// +optional
	Env []corev1.EnvVar `json:"envs,omitempty"`
	// EnvFrom holds sources of further environment variables.
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Volumes are paths of the host to mount, in addition to / at /host.
	// +optional
	Volumes []VolumeSpec `json:"volumes,omitempty"`
	// SecurityContext of the container. Default: for upgrade privileged (SYSTEM_UPGRADE_JOB_PRIVILEGED) with CAP_SYS_BOOT,
	// for prepare none.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
}

// VolumeSpec mounts a path of the host.
type VolumeSpec struct {
	// Name of the volume in the pod.
	Name string `json:"name"`
	// Source is the path on the host.
	Source string `json:"source"`
	// Destination is the path in the container.
	Destination string `json:"destination"`
}

// DrainSpec holds the options of the drain, those of kubectl drain.
//
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeout) || has(self.timeout)",message="onTimeout needs timeout"
type DrainSpec struct {
	// Timeout is how long the drain may take. A string is a duration such as "5m"; a number counts nanoseconds.
	// Default: none.
	// +optional
	Timeout *intstr.IntOrString `json:"timeout,omitempty"`
	// GracePeriod is how many seconds each pod gets to end. Absent or negative: the pod's own
	// terminationGracePeriodSeconds.
	// +optional
	GracePeriod *int32 `json:"gracePeriod,omitempty"`
	// DeleteLocalData is the old name of DeleteEmptydirData. Set one of them only.
	// +optional
	DeleteLocalData *bool `json:"deleteLocalData,omitempty"`
	// DeleteEmptydirData also evicts pods with emptyDir volumes. Default true.
	// +optional
	DeleteEmptydirData *bool `json:"deleteEmptydirData,omitempty"`
	// IgnoreDaemonSets leaves pods of DaemonSets where they are. Default true.
	// +optional
	IgnoreDaemonSets *bool `json:"ignoreDaemonSets,omitempty"`
	// Force also evicts pods without a controller. Default false: they stop the drain.
	// +optional
	Force bool `json:"force,omitempty"`
	// DisableEviction deletes pods instead of evicting them, and so ignores every PodDisruptionBudget. Default false.
	// +optional
	DisableEviction bool `json:"disableEviction,omitempty"`
	// SkipWaitForDeleteTimeout, if positive, does not wait for pods that have been terminating for more seconds than this.
	// +optional
	SkipWaitForDeleteTimeout int `json:"skipWaitForDeleteTimeout,omitempty"`
	// PodSelector limits the drain to these pods. Default: all, but never pods with the label upgrade.cattle.io/controller.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// OnTimeout says what happens when the timeout is over. Halt, the default, fails the node's turn, without another attempt. Skip
	// gives the node back as it was, and the rollout goes on without it. Force deletes the pods that are left, past every
	// PodDisruptionBudget, and goes on. For these two the timeout must be less than the deadline of the Job. Counts for nothing where kubectl drains. Addition to system-upgrade-controller's fields.
	// +optional
	OnTimeout DrainOnTimeout `json:"onTimeout,omitempty"`
	// WaitForVolumeDetach waits, within the timeout, until the volumes of evicted pods are detached from the node. Default
	// false. Counts for nothing where kubectl drains. Addition to system-upgrade-controller's fields.
	// +optional
	WaitForVolumeDetach bool `json:"waitForVolumeDetach,omitempty"`
	// ExcludeFromLoadBalancers labels the node node.kubernetes.io/exclude-from-external-load-balancers before the drain, unless it
	// has that label already, and takes it back afterwards. Default true. Counts for nothing where kubectl drains. Addition to
	// system-upgrade-controller's fields.
	// +optional
	ExcludeFromLoadBalancers *bool `json:"excludeFromLoadBalancers,omitempty"`
}

// DrainOnTimeout says what happens when a drain times out.
//
// +kubebuilder:validation:Enum=Halt;Skip;Force
type DrainOnTimeout string

// SecretSpec mounts a Secret of the Plan's namespace.
type SecretSpec struct {
	// Name of the Secret.
	Name string `json:"name"`
	// Path to mount it at: absolute, or relative to /run/system-upgrade/secrets. Empty: the Secret's name.
	Path string `json:"path"`
	// IgnoreUpdates excludes the Secret from the hash, and allows it to be absent. Default false: a change of the Secret
	// makes every node outdated.
	// +optional
	IgnoreUpdates bool `json:"ignoreUpdates,omitempty"`
	// DefaultMode is the mode of its files.
	// +optional
	DefaultMode *int32 `json:"defaultMode,omitempty"`
}

// Day is a day of the week, in lower case ("su", "sun" or "sunday"), or its number with Sunday as "0".
type Day string

// TimeWindowSpec is a daily window. If startTime is later than endTime, it runs over midnight, and days applies to the
// current day on both sides of midnight.
//
// +kubebuilder:validation:XValidation:rule="has(self.days)",message="must name at least one day of the week, or the window never opens",fieldPath=".days"
type TimeWindowSpec struct {
	// Days on which the window opens, at least one.
	// +optional
	// +kubebuilder:validation:MaxItems=28
	// +kubebuilder:validation:XValidation:rule="size(self) > 0 && self.all(d, d in ['0','su','sun','sunday','1','mo','mon','monday','2','tu','tue','tuesday','3','we','wed','wednesday','4','th','thu','thursday','5','fr','fri','friday','6','sa','sat','saturday'])",message="must name at least one day of the week, each as 0 (Sunday) to 6, or as su, sun, sunday and so on, in lower case"
	Days []Day `json:"days,omitempty"`
	// StartTime of the window, such as "22:00", "22:00:30", "10:00pm", "22" or "10pm".
	// +optional
	StartTime string `json:"startTime,omitempty"`
	// EndTime of the window; its second is included.
	// +optional
	EndTime string `json:"endTime,omitempty"`
	// TimeZone is an IANA name such as "Europe/Berlin". Default UTC.
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// PlanStatus is the state of a Plan. Conditions, latestVersion, latestHash and applying are system-upgrade-controller's.
type PlanStatus struct {
	// Conditions: Validated, LatestResolved and Complete; and Ready, Reconciling and Stalled, as kstatus defines them.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// LatestVersion is what spec.version or the channel resolved to.
	// +optional
	LatestVersion string `json:"latestVersion,omitempty"`
	// LatestHash identifies version, service account, secrets and the fields of the digest annotation. A node is up to date
	// if its label plan.upgrade.cattle.io/NAME has this value.
	// +optional
	LatestHash string `json:"latestHash,omitempty"`
	// Applying lists the hostnames of the nodes that hold a slot now; empty when the Plan is complete.
	// +optional
	Applying []string `json:"applying,omitempty"`

	// ObservedGeneration is the metadata.generation that this status reflects.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastComplete is the revision that all nodes had when the Plan was last complete. A rollback returns to it.
	// +optional
	LastComplete *PlanRevision `json:"lastComplete,omitempty"`
	// RolledBack is the failed revision from which nodes are brought back to lastComplete. latestVersion and latestHash are those of
	// lastComplete then.
	// +optional
	RolledBack *PlanRevision `json:"rolledBack,omitempty"`
	// Counts of the selected nodes by state.
	// +optional
	Counts *v1alpha1.UnitCounts `json:"counts,omitempty"`
	// Wave is the progress of the waves, if the strategy has any.
	// +optional
	Wave *v1alpha1.WaveStatus `json:"wave,omitempty"`
	// Approval is the last approval of a wave that names a person.
	// +optional
	Approval *v1alpha1.WaveApproval `json:"approval,omitempty"`
	// TurnSeconds is the average duration of this revision's turns, in seconds; an estimate for the remaining ones.
	// +optional
	TurnSeconds int32 `json:"turnSeconds,omitempty"`
	// History describes the last revisions that were rolled out, newest first, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []v1alpha1.Run `json:"history,omitempty"`
	// Updating lists nodes in a turn, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Updating []v1alpha1.UnitStatus `json:"updating,omitempty"`
	// Failed lists failed nodes, oldest first, at most 20.
	// +optional
	// +listType=atomic
	Failed []v1alpha1.UnitStatus `json:"failed,omitempty"`
	// Waiting lists the nodes that come next with the reason why they wait, at most 20.
	// +optional
	// +listType=atomic
	Waiting []v1alpha1.UnitStatus `json:"waiting,omitempty"`
}

// PlanRevision identifies what a Plan brings nodes to.
type PlanRevision struct {
	// Version is the resolved version.
	Version string `json:"version"`
	// Hash is the value of the node label.
	Hash string `json:"hash"`
	// Template identifies the Plan's Jobs.
	Template string `json:"template"`
}
