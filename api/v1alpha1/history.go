// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxRuns bounds the history in a status.
const MaxRuns = 10

// RunResult is how a run ended.
//
// +kubebuilder:validation:Enum=Complete;Superseded
type RunResult string

// The results of a run.
const (
	// RunComplete: all nodes had the revision.
	RunComplete RunResult = "Complete"
	// RunSuperseded: another revision came first.
	RunSuperseded RunResult = "Superseded"
)

// RunState is what holds a run up.
//
// +kubebuilder:validation:Enum=Paused;AwaitsApproval;Failed;Halted
type RunState string

// What holds a run up.
const (
	// RunPaused: it is paused by spec.
	RunPaused RunState = "Paused"
	// RunAwaitsApproval: it waits for an approval.
	RunAwaitsApproval RunState = "AwaitsApproval"
	// RunFailed: a node has failed.
	RunFailed RunState = "Failed"
	// RunHalted: nothing more starts until a person acts.
	RunHalted RunState = "Halted"
)

// Run is the history of one rollout of one revision. It begins when a node is outdated, and ends when none is. Nodes that come later add to
// its counts, and do not begin it again.
type Run struct {
	// revision is the target.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Revision string `json:"revision,omitempty"`
	// createdBy is the client that wrote the spec last, by the name of its field manager, such as kubectl, helm or argocd-controller.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CreatedBy string `json:"createdBy,omitempty"`
	// approvedBy is the user who approved the last wave.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ApprovedBy string `json:"approvedBy,omitempty"`
	// createdAt is when the operator first saw an outdated node.
	// +required
	CreatedAt metav1.Time `json:"createdAt"`
	// startedAt is when the first node was taken.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// pausedAt is when it was last paused by spec.
	// +optional
	PausedAt *metav1.Time `json:"pausedAt,omitempty"`
	// approvalAt is when it last began to wait for an approval.
	// +optional
	ApprovalAt *metav1.Time `json:"approvalAt,omitempty"`
	// failedAt is when a node last failed while none had failed before.
	// +optional
	FailedAt *metav1.Time `json:"failedAt,omitempty"`
	// haltedAt is when it last halted: nothing more started until a person acted.
	// +optional
	HaltedAt *metav1.Time `json:"haltedAt,omitempty"`
	// ongoing says which of these hold now: paused since pausedAt, waiting for an approval since approvalAt, failed since failedAt, halted since
	// haltedAt. It is empty after the end.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	Ongoing []RunState `json:"ongoing,omitempty"`
	// endedAt is when it ended.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// result is how it ended.
	// +optional
	Result RunResult `json:"result,omitempty"`
	// total is how many nodes were selected when it was last looked at.
	// +optional
	Total int32 `json:"total,omitempty"`
	// updated is how many of them had the revision.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// failures counts failed nodes by reason, at most 5 reasons: the most that were failed at the same time.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=5
	Failures []RunFailure `json:"failures,omitempty"`
	// turns describes the turns of single nodes that ended well.
	// +optional
	Turns *RunTurns `json:"turns,omitempty"`
	// waits says what the rollout waited for while no node was in a turn, the longest first, at most 5.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=5
	Waits []RunWait `json:"waits,omitempty"`
	// waiting is what it waits for now.
	// +optional
	Waiting *RunWaiting `json:"waiting,omitempty"`
}

// RunFailure counts failed nodes.
type RunFailure struct {
	// reason of the failures.
	// +required
	Reason Reason `json:"reason"`
	// nodes is the most nodes that were failed so at the same time.
	// +required
	Nodes int32 `json:"nodes"`
}

// RunTurns describes how long turns took.
type RunTurns struct {
	// count is how many turns it describes.
	// +required
	Count int32 `json:"count"`
	// medianSeconds is the duration that half of the turns did not exceed, to a tenth of it.
	// +required
	MedianSeconds int32 `json:"medianSeconds"`
	// p95Seconds is the duration that 95 % of the turns did not exceed, to a tenth of it.
	// +required
	P95Seconds int32 `json:"p95Seconds"`
	// buckets counts turns by duration: bucket n holds those of at most 1.1 to the power of n seconds. It is kept while the run goes on.
	// +optional
	// +listType=map
	// +listMapKey=bucket
	// +kubebuilder:validation:MaxItems=128
	Buckets []RunBucket `json:"buckets,omitempty"`
}

// RunBucket counts turns of about one duration.
type RunBucket struct {
	// bucket is the power of 1.1 s.
	// +required
	Bucket int32 `json:"bucket"`
	// count of turns.
	// +required
	Count int32 `json:"count"`
}

// RunWait is what a rollout waited for, and how long in all.
type RunWait struct {
	// reason of the wait.
	// +required
	Reason Reason `json:"reason"`
	// seconds in all.
	// +required
	Seconds int64 `json:"seconds"`
}

// RunWaiting is a wait that goes on.
type RunWaiting struct {
	// reason of the wait.
	// +required
	Reason Reason `json:"reason"`
	// since is when it began.
	// +required
	Since metav1.Time `json:"since"`
}
