// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Strategy is how fast and in which order a rollout goes. Percentages are of the nodes that the rollout selects, without
// those that opted out.
type Strategy struct {
	// MaxConcurrent is how many nodes may be in a turn at once: a count, or a percentage such as "10%", which is rounded
	// down but is at least 1 node; 0 and "0%" start nothing. Absent: what the rollout's own field says, which for a Plan is
	// spec.concurrency, and else 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// Order is in which order nodes go, among those that may: by the first entry, among equals by the second, and so on. What
	// is left equal is shuffled, the same way each time for one revision. The node that the operator itself runs on is always
	// the last. Order says who is taken first, not who must be done first: that is what waves are for.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Order []Order `json:"order,omitempty"`

	// Waves divide the rollout. The first is the canary. A wave begins when the one before it has been updated, has soaked and
	// is approved. Nodes that no wave takes follow after the last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(w, !has(w.name) || self.exists_one(v, has(v.name) && v.name == w.name))",message="the names of waves must differ"
	Waves []Wave `json:"waves,omitempty"`

	// Soak is how long a node keeps its slot after it has been changed and is healthy. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Soak *metav1.Duration `json:"soak,omitempty"`

	// MaxFailures is how many failed nodes the rollout bears: a count, or a percentage that is rounded down. With more nothing
	// new is started. 0 halts at the first. Up to that limit a failed node gives its slot to the next. Absent: there is no limit,
	// but a failed node keeps its slot. A failure in the first of several waves halts the rollout whatever stands here.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a count of 0 or more, or a percentage from 0% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// Retries lets failed turns be tried again by themselves. Absent: never.
	// +optional
	Retries *Retries `json:"retries,omitempty"`

	// TurnTimeout is how long a turn may take, from the claim until the node is changed and healthy; then it fails. What runs on
	// the node for it is stopped. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be positive"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	TurnTimeout *metav1.Duration `json:"turnTimeout,omitempty"`

	// Windows are when nodes may be started: while any of them is open. Absent: always. What was started goes on after they
	// have closed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []Window `json:"windows,omitempty"`

	// Paused starts nothing new. What was started goes on. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// TaintOutdated puts the taint KIND.outdated.moult.dev/NAME:PreferNoSchedule on nodes that are still to be updated, so that
	// pods that are evicted land on updated ones and move only once. Default false.
	// +optional
	TaintOutdated bool `json:"taintOutdated,omitempty"`
}

// OrderBy is what nodes are ordered by.
//
// +kubebuilder:validation:Enum=Zone;Label;OldestFirst;NewestFirst;ControlPlaneFirst;ControlPlaneLast;FewestEvictionsFirst
type OrderBy string

// What nodes are ordered by.
const (
	// OrderZone takes zone after zone, in the order of their names (label topology.kubernetes.io/zone); nodes without one come last.
	OrderZone OrderBy = "Zone"
	// OrderLabel goes by a label's values.
	OrderLabel OrderBy = "Label"
	// OrderOldestFirst takes the nodes that have been in the cluster longest first.
	OrderOldestFirst OrderBy = "OldestFirst"
	// OrderNewestFirst takes the nodes that joined last first.
	OrderNewestFirst OrderBy = "NewestFirst"
	// OrderControlPlaneFirst takes nodes with the label node-role.kubernetes.io/control-plane, or master, before all others.
	OrderControlPlaneFirst OrderBy = "ControlPlaneFirst"
	// OrderControlPlaneLast takes them after all others.
	OrderControlPlaneLast OrderBy = "ControlPlaneLast"
	// OrderFewestEvictionsFirst takes nodes first on which the fewest pods run that a drain would evict.
	OrderFewestEvictionsFirst OrderBy = "FewestEvictionsFirst"
)

// Order is one criterion.
//
// +kubebuilder:validation:XValidation:rule="self.by == 'Label' ? has(self.key) : !has(self.key) && !has(self.values)",message="key must be given for by: Label, and key and values left out otherwise"
type Order struct {
	// By is what is compared.
	By OrderBy `json:"by"`
	// Key is the label's, for by: Label.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key,omitempty"`
	// Values of the label in the order in which they come; nodes with none of them come last. Empty: by the value's name, nodes
	// without the label last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Values []string `json:"values,omitempty"`
}

// Approval says whether somebody must agree before a rollout goes on.
//
// +kubebuilder:validation:Enum=Auto;Manual
type Approval string

// Whether somebody must agree.
const (
	ApprovalAuto   Approval = "Auto"
	ApprovalManual Approval = "Manual"
)

// Wave is a part of a rollout that is finished before the next begins.
//
// +kubebuilder:validation:XValidation:rule="has(self.size) || has(self.nodeSelector)",message="size or nodeSelector must be given"
type Wave struct {
	// Name of the wave. Default: its number, such as "wave-1".
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// Size is how many nodes the wave takes of those that no earlier wave has: a count, or a percentage of all the rollout's
	// nodes, rounded up. Absent: all that nodeSelector selects.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$') && self != '0%'",message="must be a count of 1 or more, or a percentage from 1% to 100%"
	Size *intstr.IntOrString `json:"size,omitempty"`
	// NodeSelector bounds the wave to these nodes. Absent: any.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// Soak is how long all nodes of the wave must have been updated and healthy before the next begins. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Soak *metav1.Duration `json:"soak,omitempty"`
	// Approval Manual holds the next wave, after the soak, until somebody approves this one (`kubectl moult approve`, or the
	// annotation moult.dev/approve with the value that the status names). Default Auto.
	// +optional
	Approval Approval `json:"approval,omitempty"`
}

// Retries says how often a failed turn is tried again, and when.
type Retries struct {
	// Limit is how often. A retry counts anew after a change of the rollout.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Limit int32 `json:"limit"`
	// Backoff is how long to wait before the first retry; it doubles for each further one. Default 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Backoff *metav1.Duration `json:"backoff,omitempty"`
	// MaxBackoff bounds that. Default 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be 1s or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
}

// Window opens by a cron schedule, for a while.
type Window struct {
	// Schedule is when it opens: five fields of cron (minute, hour, day of the month, month of the year, day of the week), or @hourly, @daily,
	// @weekly, @monthly or @yearly. An opening that the clocks skip when they are put forward comes at the moment they are; one
	// that they repeat when they are put back comes once, the first time. A schedule whose hour is * opens every hour that passes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|([^ \\t=@]+[ \\t]+){4}[^ \\t=@]+)$')",message="must be five fields of cron, such as '0 22 * * 1-5', or @hourly, @daily, @weekly, @monthly or @yearly; the time zone goes in timeZone"
	Schedule string `json:"schedule"`
	// Duration is how long it stays open: so much time passes, whatever the clocks do.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be 1m or more"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Duration metav1.Duration `json:"duration"`
	// TimeZone of the schedule, an IANA name such as "Europe/Berlin". Default UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
}

// WaveState is how a rollout's current wave stands.
//
// +kubebuilder:validation:Enum=Progressing;Soaking;Unhealthy;WaitingForApproval;Halted;Complete
type WaveState string

// The states of a wave.
const (
	// WaveProgressing: nodes of the wave are to be updated, or are being updated.
	WaveProgressing WaveState = "Progressing"
	// WaveSoaking: all are updated and healthy, and the wave's soak goes on.
	WaveSoaking WaveState = "Soaking"
	// WaveUnhealthy: all are updated, and not all are healthy. The soak begins anew when they are.
	WaveUnhealthy WaveState = "Unhealthy"
	// WaveWaitingForApproval: it has soaked, and somebody must approve it.
	WaveWaitingForApproval WaveState = "WaitingForApproval"
	// WaveHalted: nodes of the wave have failed, so that the next does not begin.
	WaveHalted WaveState = "Halted"
	// WaveComplete: it is the last, and all of it is updated.
	WaveComplete WaveState = "Complete"
)

// WaveStatus says where a rollout with waves stands. It is also the memory of which waves have been passed.
type WaveStatus struct {
	// Name of the current wave.
	Name string `json:"name"`
	// Number of the current wave, from 1.
	Number int32 `json:"number"`
	// Of is how many waves there are, with the one of the nodes that are left over, if there are any.
	Of int32 `json:"of"`
	// Revision that the rollout was going to when this was written. With another it begins at the first wave again.
	Revision string `json:"revision"`
	// State of the current wave.
	State WaveState `json:"state"`
	// Since is when it came into this state.
	Since metav1.Time `json:"since"`
	// Message says what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// Nodes is how many nodes the wave has, and Updated how many of them have the revision.
	Nodes int32 `json:"nodes"`
	// Updated is how many of the wave's nodes have the revision.
	Updated int32 `json:"updated"`
	// ApproveWith is the value of the annotation moult.dev/approve that approves this wave, when it needs approval.
	// +optional
	ApproveWith string `json:"approveWith,omitempty"`
}
