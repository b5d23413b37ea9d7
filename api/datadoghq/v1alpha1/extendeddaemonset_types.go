// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"moult.dev/moult/api/v1alpha1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=extendeddaemonsets,singular=extendeddaemonset,shortName=eds,scope=Namespaced,categories=moult
// +kubebuilder:printcolumn:name="desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="up-to-date",type=integer,JSONPath=`.status.upToDate`
// +kubebuilder:printcolumn:name="available",type=integer,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="ignored unresponsive nodes",type=integer,JSONPath=`.status.ignoredUnresponsiveNodes`
// +kubebuilder:printcolumn:name="status",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="active rs",type=string,JSONPath=`.status.activeReplicaSet`
// +kubebuilder:printcolumn:name="canary rs",type=string,JSONPath=`.status.canary.replicaSet`
// +kubebuilder:printcolumn:name="age",type=date,JSONPath=`.metadata.creationTimestamp`

// ExtendedDaemonSet runs a pod on each node that it selects, and brings these pods to a new template a few at a time, after a
// canary on some of the nodes.
//
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: the pods have it as a label"
type ExtendedDaemonSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExtendedDaemonSetSpec   `json:"spec,omitempty"`
	Status ExtendedDaemonSetStatus `json:"status,omitempty"`
}

// ExtendedDaemonSetList is a list of ExtendedDaemonSets.
//
// +kubebuilder:object:root=true
type ExtendedDaemonSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedDaemonSet `json:"items"`
}

// ExtendedDaemonSetSpec says what to run, where, and how to change it.
type ExtendedDaemonSetSpec struct {
	// Selector selects nodes by their labels, not pods, as in ExtendedDaemonSet. Absent: all nodes that the template's
	// nodeSelector, affinity and tolerations allow.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Template of the pods. Its name is ignored. Its restartPolicy is Always, and activeDeadlineSeconds may not be set, as in apps/v1
	// DaemonSet. A change of it is a new revision.
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy in ['', 'Always']",message="must be Always or left out",fieldPath=".spec.restartPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.activeDeadlineSeconds)",message="must be left out: the pods run for good",fieldPath=".spec.activeDeadlineSeconds"
	Template corev1.PodTemplateSpec `json:"template"`

	// Strategy says how a new template is rolled out.
	Strategy ExtendedDaemonSetSpecStrategy `json:"strategy"`

	// MinReadySeconds is for how long a pod must have been ready to be available. Default 0. Addition to ExtendedDaemonSet's
	// fields, as in apps/v1 DaemonSet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// RevisionHistoryLimit is how many ExtendedDaemonSetReplicaSets without pods are kept, for rollbacks: those that were active last.
	// Default 10. Addition to ExtendedDaemonSet's fields, as in apps/v1 DaemonSet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// StrategyType says whether outdated pods are replaced.
//
// +kubebuilder:validation:Enum=RollingUpdate;OnDelete
type StrategyType string

// Whether outdated pods are replaced.
const (
	// StrategyRollingUpdate replaces them, so many at a time.
	StrategyRollingUpdate StrategyType = "RollingUpdate"
	// StrategyOnDelete replaces those that people delete.
	StrategyOnDelete StrategyType = "OnDelete"
)

// ExtendedDaemonSetSpecStrategy says how a new template is rolled out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.canary) || !has(self.waves) || self.waves.all(w, !has(w.name) || w.name != 'canary')",message="no wave may be called canary beside strategy.canary, which is a wave of that name",fieldPath=".waves"
type ExtendedDaemonSetSpecStrategy struct {
	// Type RollingUpdate, the default, replaces outdated pods; OnDelete waits until people delete them. The canary is the
	// same in both. Addition to ExtendedDaemonSet's fields, as in apps/v1 DaemonSet.
	// +optional
	Type StrategyType `json:"type,omitempty"`

	// RollingUpdate says how many pods are replaced at once, and how fast pods are created.
	// +optional
	RollingUpdate ExtendedDaemonSetSpecStrategyRollingUpdate `json:"rollingUpdate,omitempty,omitzero"`

	// Canary tests a new template on some nodes before all others get it. Absent: no canary.
	// +optional
	Canary *ExtendedDaemonSetSpecStrategyCanary `json:"canary,omitempty"`

	// ReconcileFrequency is the minimum time between two batches of pods that are replaced, such as "10s". Nothing else
	// waits for it. Absent: a pod is replaced as soon as the limits allow.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	ReconcileFrequency *metav1.Duration `json:"reconcileFrequency,omitempty"`

	// Order is the order in which outdated pods are replaced, by their nodes. Unavailable pods are replaced first. This
	// field and the following ones are additions to ExtendedDaemonSet's fields, as in the strategy of every rollout.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Order []v1alpha1.Order `json:"order,omitempty"`

	// Waves divide the rolling update. It begins after the canary, if there is one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(w, !has(w.name) || self.exists_one(v, has(v.name) && v.name == w.name))",message="the names of waves must differ"
	Waves []v1alpha1.Wave `json:"waves,omitempty"`

	// Soak is how long a replaced pod keeps its slot after it is available. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Soak *metav1.Duration `json:"soak,omitempty"`

	// MaxFailures is how many new pods may fail to start in the rolling update, a count or a percentage that is rounded
	// down. With more failures no further pod is replaced. Absent: no limit, but each failed pod keeps its slot.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// Windows are the times when outdated pods may be replaced. Absent: always. Missing pods are created at any time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []v1alpha1.Window `json:"windows,omitempty"`

	// Paused replaces no outdated pods, also of a canary; missing pods are still created, and a canary whose pods exist goes on. Default
	// false. The annotation extendeddaemonset.datadoghq.com/rolling-update-paused does the same, but not to canaries.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ExtendedDaemonSetSpecStrategyRollingUpdate says how many pods are replaced at once, and how fast pods are created.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || !(type(self.maxUnavailable) == int ? self.maxUnavailable == 0 : self.maxUnavailable == '0%') || (has(self.maxSurge) && !(type(self.maxSurge) == int ? self.maxSurge == 0 : self.maxSurge == '0%'))",message="must not be 0 unless maxSurge is more: no pod could ever be replaced",fieldPath=".maxUnavailable"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSurge) || (type(self.maxSurge) == int ? self.maxSurge == 0 : self.maxSurge == '0%') || !has(self.maxUnavailable) || (type(self.maxUnavailable) == int ? self.maxUnavailable == 0 : self.maxUnavailable == '0%')",message="must be 0 or left out with maxSurge: the old pod stays until the new one is available",fieldPath=".maxUnavailable"
type ExtendedDaemonSetSpecStrategyRollingUpdate struct {
	// MaxUnavailable is how many nodes may have no available pod because of the update: a count, or a percentage of the
	// nodes that is rounded up. Default 1, or 0 with maxSurge. Exactly one of maxUnavailable and maxSurge must be more than
	// 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// MaxSurge is on how many nodes the new pod may run together with the old one: a count, or a percentage of the nodes
	// that is rounded up. The old pod is deleted when the new one is available. If both need the same host port, the old
	// pod is deleted first, and the node still counts. Default 0. Addition to ExtendedDaemonSet's fields, as in apps/v1
	// DaemonSet.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// MaxPodSchedulerFailure is how many stuck pods are not counted as unavailable: a count, or a percentage of the nodes
	// that is rounded up. A pod is stuck if it is not scheduled for 10 minutes, or does not terminate. Default 0. Pods on
	// nodes that are not ready are never counted.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxPodSchedulerFailure *intstr.IntOrString `json:"maxPodSchedulerFailure,omitempty"`

	// MaxParallelPodCreation is how many pods may be in creation at once. Default 250.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="must be 1 or more"
	MaxParallelPodCreation *int32 `json:"maxParallelPodCreation,omitempty"`

	// SlowStartIntervalDuration is the interval after which slowStartAdditiveIncrease more pods may be in creation at once.
	// Default 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) > duration('0s')",message="must be a duration of more than 0s, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	SlowStartIntervalDuration *metav1.Duration `json:"slowStartIntervalDuration,omitempty"`

	// SlowStartAdditiveIncrease is how many pods may be in creation at once in the first interval, and how many more in each that
	// follows: a count, or a percentage of the nodes that is rounded up. Default 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$') && self != '0%'",message="must be a count of 1 or more, or a percentage from 1% to 100%"
	SlowStartAdditiveIncrease *intstr.IntOrString `json:"slowStartAdditiveIncrease,omitempty"`
}

// ValidationMode says how a canary is promoted.
//
// +kubebuilder:validation:Enum=auto;manual
type ValidationMode string

// How a canary is promoted.
const (
	// ValidationModeAuto promotes it when it has been healthy for its duration.
	ValidationModeAuto ValidationMode = "auto"
	// ValidationModeManual waits until a person validates it.
	ValidationModeManual ValidationMode = "manual"
)

// ExtendedDaemonSetSpecStrategyCanary is the test of a new template on some nodes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.autoPause) && has(self.autoPause.enabled) && !self.autoPause.enabled) || (has(self.autoFail) && has(self.autoFail.enabled) && !self.autoFail.enabled) || (has(self.autoFail) && has(self.autoFail.maxRestarts) ? self.autoFail.maxRestarts : 5) >= (has(self.autoPause) && has(self.autoPause.maxRestarts) ? self.autoPause.maxRestarts : 2)",message="must not be less than autoPause.maxRestarts: 5 and 2 where nothing is given",fieldPath=".autoFail.maxRestarts"
// +kubebuilder:validation:XValidation:rule="!has(self.autoFail) || !has(self.autoFail.canaryTimeout) || (has(self.autoFail.enabled) && !self.autoFail.enabled) || (has(self.validationMode) && self.validationMode == 'manual') || [self.autoFail.canaryTimeout, has(self.duration) ? self.duration : '10m'].exists(d, !d.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$')) || duration(self.autoFail.canaryTimeout) > (has(self.duration) ? duration(self.duration) : duration('10m'))",message="must be more than the canary's duration: 10m where none is given",fieldPath=".autoFail.canaryTimeout"
// +kubebuilder:validation:XValidation:rule="!(has(self.validationMode) && self.validationMode == 'manual') || !has(self.duration)",message="must be left out with validationMode manual: the canary continues until a person validates it",fieldPath=".duration"
// +kubebuilder:validation:XValidation:rule="!(has(self.validationMode) && self.validationMode == 'manual') || !has(self.noRestartsDuration)",message="must be left out with validationMode manual: the canary continues until a person validates it",fieldPath=".noRestartsDuration"
type ExtendedDaemonSetSpecStrategyCanary struct {
	// Replicas is how many nodes the canary runs on: a count, or a percentage of status.desired that is rounded up. Default
	// 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$') && self != '0%'",message="must be a count of 1 or more, or a percentage from 1% to 100%"
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`

	// Duration is how long all canary pods, and at least one, must have been ready. Default 10m; it may not be set with
	// validationMode manual.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Duration *metav1.Duration `json:"duration,omitempty"`

	// NodeSelector selects the nodes on which the canary may run, of those that the ExtendedDaemonSet selects. Absent: any.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// NodeAntiAffinityKeys are labels of nodes: the canary is spread over their values.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="must be the key of a label, such as topology.kubernetes.io/zone"
	NodeAntiAffinityKeys []string `json:"nodeAntiAffinityKeys,omitempty"`

	// AutoPause pauses the canary when its pods restart or can't start.
	// +optional
	AutoPause *ExtendedDaemonSetSpecStrategyCanaryAutoPause `json:"autoPause,omitempty"`

	// AutoFail ends the canary as failed when its pods restart too often, or it takes too long.
	// +optional
	AutoFail *ExtendedDaemonSetSpecStrategyCanaryAutoFail `json:"autoFail,omitempty"`

	// NoRestartsDuration is how long no canary pod may have restarted. Default 5m; it may not be set with validationMode
	// manual.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	NoRestartsDuration *metav1.Duration `json:"noRestartsDuration,omitempty"`

	// ValidationMode is auto or manual. Default: the controller's ($EDS_VALIDATION_MODE), and else auto.
	// +optional
	ValidationMode ValidationMode `json:"validationMode,omitempty"`
}

// ExtendedDaemonSetSpecStrategyCanaryAutoPause says when a canary is paused automatically.
type ExtendedDaemonSetSpecStrategyCanaryAutoPause struct {
	// Enabled turns it on. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// MaxRestarts is how many restarts of a canary pod are allowed. Default 2.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be 0 or more"
	MaxRestarts *int32 `json:"maxRestarts,omitempty"`

	// MaxSlowStartDuration is how long a pod may take to start, for any cause. Default: no limit for a pod in creation; a
	// pod that can't start pauses the canary at once.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxSlowStartDuration *metav1.Duration `json:"maxSlowStartDuration,omitempty"`
}

// ExtendedDaemonSetSpecStrategyCanaryAutoFail says when a canary fails automatically.
type ExtendedDaemonSetSpecStrategyCanaryAutoFail struct {
	// Enabled turns it on. Default true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// MaxRestarts is how many restarts of a canary pod are allowed. Default 5. It may not be less than
	// autoPause.maxRestarts if both are enabled.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0",message="must be 0 or more"
	MaxRestarts *int32 `json:"maxRestarts,omitempty"`

	// MaxRestartsDuration is for how long pods may go on restarting, from the first restart to the last. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxRestartsDuration *metav1.Duration `json:"maxRestartsDuration,omitempty"`

	// CanaryTimeout is how long a canary may take altogether. It must be more than its duration. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$') && duration(self) >= duration('0s')",message="must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	CanaryTimeout *metav1.Duration `json:"canaryTimeout,omitempty"`
}

// ExtendedDaemonSetStatus is the state of an ExtendedDaemonSet.
type ExtendedDaemonSetStatus struct {
	// Desired is how many nodes should have a pod.
	Desired int32 `json:"desired"`
	// Current is how many pods there are.
	Current int32 `json:"current"`
	// Ready is how many of them are ready.
	Ready int32 `json:"ready"`
	// Available is how many of them have been ready for minReadySeconds.
	Available int32 `json:"available"`
	// UpToDate is how many pods have the active revision; during a canary, how many have the canary's.
	UpToDate int32 `json:"upToDate"`
	// IgnoredUnresponsiveNodes is on how many nodes a pod is not scheduled, or does not terminate in time. maxPodSchedulerFailure says how many of
	// them are not counted as unavailable.
	IgnoredUnresponsiveNodes int32 `json:"ignoredUnresponsiveNodes"`

	// State is what it is doing: Running, RollingUpdate Paused, Rollout frozen, Canary, Canary Paused, Canary Failed.
	// +optional
	State State `json:"state,omitempty"`
	// ActiveReplicaSet is the ExtendedDaemonSetReplicaSet of all nodes except those of the canary.
	ActiveReplicaSet string `json:"activeReplicaSet"`
	// Canary is the running canary; absent if there is none.
	// +optional
	Canary *ExtendedDaemonSetStatusCanary `json:"canary,omitempty"`
	// Reason is why the canary is paused, or has failed.
	// +optional
	Reason StatusReason `json:"reason,omitempty"`
	// Conditions by type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// ObservedGeneration is the metadata.generation that this status reflects. This field and the following ones are
	// additions to ExtendedDaemonSet's fields.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Wave is the progress of the canary, or of the rolling update.
	// +optional
	Wave *v1alpha1.WaveStatus `json:"wave,omitempty"`
	// Approval is the last approval of a wave that names a person.
	// +optional
	Approval *v1alpha1.WaveApproval `json:"approval,omitempty"`
	// History describes the last revisions that were rolled out, newest first, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	History []v1alpha1.Run `json:"history,omitempty"`
	// Updating are the first nodes whose pods are being replaced.
	// +optional
	// +listType=atomic
	Updating []v1alpha1.UnitStatus `json:"updating,omitempty"`
	// Waiting are the first nodes whose outdated pods wait for replacement, with the reason.
	// +optional
	// +listType=atomic
	Waiting []v1alpha1.UnitStatus `json:"waiting,omitempty"`
}

// ExtendedDaemonSetStatusCanary is a running canary.
type ExtendedDaemonSetStatusCanary struct {
	// ReplicaSet is the name of its ExtendedDaemonSetReplicaSet.
	ReplicaSet string `json:"replicaSet"`
	// Nodes that it runs on.
	// +optional
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`
}
