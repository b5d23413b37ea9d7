// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Strategy is how fast and in which order a rollout goes. Percentages are of the nodes that the rollout selects, without
// those that opted out.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rollback) || !self.rollback || has(self.maxFailures) || (has(self.waves) && size(self.waves) > 0)",message="rollback needs maxFailures or waves, which say when",fieldPath=".rollback"
type Strategy struct {
	// maxConcurrent is how many nodes may be in a turn at once: a count, or a percentage such as "10%", which is rounded
	// down but is at least 1 node; 0 and "0%" start nothing. Default: for a Plan spec.concurrency, otherwise 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// order is the order in which nodes are started: by the first entry, then by the second, and so on. Empty: a random order that
	// stays the same for one revision. The node that the operator runs on is always last. Order does not wait for earlier nodes to
	// finish; waves do.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Order []Order `json:"order,omitempty"`

	// waves divide the rollout. The first is the canary. A wave begins when the previous one is updated, has soaked and is
	// approved. Nodes in no wave follow after the last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(w, !has(w.name) || self.exists_one(v, has(v.name) && v.name == w.name))",message="the names of waves must differ"
	Waves []Wave `json:"waves,omitempty"`

	// soak is how long a node keeps its slot after it has been changed and is healthy. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Soak *metav1.Duration `json:"soak,omitempty"`

	// maxFailures is how many nodes may fail before the rollout starts no further node: a count, or a percentage that is rounded
	// down. Up to the limit a failed node frees its slot. Absent: no limit, but a failed node keeps its slot. A failure in the
	// first of several waves always halts the rollout.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// rollback returns nodes to the last complete revision when maxFailures, or a failure in the first of waves, has halted the rollout.
	// Default false: nodes stay as they are. Set back to false, nodes are brought to the failed revision again.
	// +optional
	Rollback bool `json:"rollback,omitempty"`

	// retries repeats failed turns automatically. Absent: never.
	// +optional
	Retries *Retries `json:"retries,omitempty"`

	// turnTimeout is how long a turn may take, from the claim until the node is changed and healthy. After that the turn
	// fails, and its change is stopped. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be positive"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	TurnTimeout *metav1.Duration `json:"turnTimeout,omitempty"`

	// windows are the times when nodes may be started: while any window is open. Absent: always. Turns in progress continue
	// after the windows close.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// paused starts no further node. Turns in progress continue. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// taintOutdated puts the taint KIND.outdated.moult.dev/NAME:PreferNoSchedule on outdated nodes. Evicted pods then
	// prefer updated nodes and move only once. Default false.
	// +optional
	TaintOutdated bool `json:"taintOutdated,omitempty"`
}

// OrderBy is what nodes are ordered by.
//
// +kubebuilder:validation:Enum=Zone;Label;OldestFirst;NewestFirst;ControlPlaneFirst;ControlPlaneLast;FewestEvictionsFirst
type OrderBy string

// The criteria by which nodes are ordered.
const (
	// OrderZone starts zone after zone, by name (label topology.kubernetes.io/zone); nodes without a zone are last.
	OrderZone OrderBy = "Zone"
	// OrderLabel orders nodes by the values of a label.
	OrderLabel OrderBy = "Label"
	// OrderOldestFirst starts the nodes first that have been in the cluster longest.
	OrderOldestFirst OrderBy = "OldestFirst"
	// OrderNewestFirst starts the nodes first that joined the cluster last.
	OrderNewestFirst OrderBy = "NewestFirst"
	// OrderControlPlaneFirst starts nodes with the label node-role.kubernetes.io/control-plane, or master, before all
	// others.
	OrderControlPlaneFirst OrderBy = "ControlPlaneFirst"
	// OrderControlPlaneLast starts them after all others.
	OrderControlPlaneLast OrderBy = "ControlPlaneLast"
	// OrderFewestEvictionsFirst starts the nodes first whose drain would evict the fewest pods.
	OrderFewestEvictionsFirst OrderBy = "FewestEvictionsFirst"
)

// Order is one criterion.
//
// +kubebuilder:validation:XValidation:rule="self.by == 'Label' ? has(self.key) : !has(self.key) && !has(self.values)",message="key must be given for by: Label, and key and values left out otherwise"
type Order struct {
	// by is what is compared.
	// +required
	By OrderBy `json:"by,omitempty"`
	// key is the key of the label, for by: Label.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`
	// values of the label, in order; nodes with another value are last. Empty: in alphabetical order, nodes without the
	// label last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Values []string `json:"values,omitempty"`
}

// Approval says whether a person must approve a wave before the rollout continues.
//
// +kubebuilder:validation:Enum=Auto;Manual
type Approval string

// Whether a person must approve a wave.
const (
	ApprovalAuto   Approval = "Auto"
	ApprovalManual Approval = "Manual"
)

// Wave is a part of a rollout that is finished before the next begins.
//
// +kubebuilder:validation:XValidation:rule="has(self.size) || has(self.nodeSelector)",message="size or nodeSelector must be given"
type Wave struct {
	// name of the wave. Default: its number, such as "wave-1".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// size is how many nodes the wave has, not counting those of earlier waves: a count, or a percentage of all the
	// rollout's nodes, rounded up. Absent: all that nodeSelector selects.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$') && self != '0%'",message="must be a count of 1 or more, or a percentage from 1% to 100%"
	Size *intstr.IntOrString `json:"size,omitempty"`
	// nodeSelector limits the wave to these nodes. Absent: any.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// soak is how long all nodes of the wave must have been updated and healthy before the next begins. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Soak *metav1.Duration `json:"soak,omitempty"`
	// approval Manual blocks the next wave until a person approves this one after its soak. To approve use `kubectl moult
	// approve`, which writes status.approval. The annotation moult.dev/approve approves too, without a name. Default Auto.
	// +optional
	Approval Approval `json:"approval,omitempty"`
}

// Retries says how often a failed turn is tried again, and when.
type Retries struct {
	// limit is how often. The count starts again after a change of the rollout.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Limit int32 `json:"limit,omitempty"`
	// backoff is the wait before the first retry; it doubles for each further retry. Default 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Backoff *metav1.Duration `json:"backoff,omitempty"`
	// maxBackoff is the longest wait. Default 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
}

// Window opens by a cron schedule, for a duration.
type Window struct {
	// schedule is when it opens: five fields of cron (minute, hour, day, month, weekday), or @hourly, @daily,
	// @weekly, @monthly or @yearly. An opening that summer time skips occurs at the change. One that it repeats occurs once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|([^ \\t=@]+[ \\t]+){4}[^ \\t=@]+)$')",message="must be five fields of cron, such as '0 22 * * 1-5', or @hourly, @daily, @weekly, @monthly or @yearly; the time zone goes in timeZone"
	Schedule string `json:"schedule,omitempty"`
	// duration is how long the window stays open. A change to or from summer time does not change it.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be 1m or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Duration metav1.Duration `json:"duration"`
	// timeZone of the schedule, an IANA name such as "Europe/Berlin". Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// WaveState is the state of a rollout's current wave.
//
// +kubebuilder:validation:Enum=Progressing;Soaking;Unhealthy;WaitingForApproval;Halted;Complete
type WaveState string

// The states of a wave.
const (
	// WaveProgressing: nodes of the wave are outdated, or are being updated.
	WaveProgressing WaveState = "Progressing"
	// WaveSoaking: all are updated and healthy, and the wave soaks.
	WaveSoaking WaveState = "Soaking"
	// WaveUnhealthy: all are updated, and not all are healthy. The soak starts again when all are.
	WaveUnhealthy WaveState = "Unhealthy"
	// WaveWaitingForApproval: it has soaked, and a person must approve it.
	WaveWaitingForApproval WaveState = "WaitingForApproval"
	// WaveHalted: nodes of the wave have failed, so the next does not begin.
	WaveHalted WaveState = "Halted"
	// WaveComplete: it is the last wave, and all its nodes are updated.
	WaveComplete WaveState = "Complete"
)

// WaveStatus is the progress of a rollout with waves. It also records which waves are complete.
type WaveStatus struct {
	// name of the current wave.
	// +required
	Name string `json:"name"`
	// number of the current wave, from 1.
	// +required
	Number int32 `json:"number"`
	// of is how many waves there are, including the last one for nodes in no other wave.
	// +required
	Of int32 `json:"of"`
	// revision is the target revision of these waves. With another revision the rollout begins at the first wave again.
	// +required
	Revision string `json:"revision"`
	// state of the current wave.
	// +required
	State WaveState `json:"state,omitempty"`
	// since is when it entered this state.
	// +required
	Since metav1.Time `json:"since"`
	// message says what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// nodes is how many nodes the wave has, and Updated how many of them have the revision.
	// +required
	Nodes int32 `json:"nodes"`
	// updated is how many of the wave's nodes have the revision.
	// +required
	Updated int32 `json:"updated"`
	// approveWith is what approves this wave when it needs approval: the value of status.approval.of, or of the annotation
	// moult.dev/approve.
	// +optional
	ApproveWith string `json:"approveWith,omitempty"`
	// template identifies what is done to nodes at the revision, if a wave needs approval: the Jobs of a Plan, or how a NodeRollout
	// drains and changes nodes. With another template the rollout returns to the first wave that needs approval.
	// +optional
	Template string `json:"template,omitempty"`
}

// WaveApproval is a person's approval of one wave at one revision and template. It is in the status so that RBAC can grant approving apart from
// editing: approvers may patch the subresource status. The policy in config/approval admits an approval only from users with the verb
// approve on the rollout, only in their own name, and lets users with no other right to the status change nothing else there.
type WaveApproval struct {
	// of is the approved wave, revision and template: the value of status.wave.approveWith.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Of string `json:"of,omitempty"`
	// by is the user who approved, by the name that the API server knows. The policy in config/approval proves it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
}
