// SPDX-License-Identifier: Apache-2.0

// Package nodeturn describes one node's turn in a rollout, for the code that judges Plans and host updates. It does no I/O: package turn does.
package nodeturn

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Step is what a turn does next. These are the steps that all mechanisms have; each adds its own.
type Step string

const (
	// StepNone: the turn waits, or there is none.
	StepNone Step = ""
	// StepAdopt: claim a node on which a predecessor has started the change.
	StepAdopt Step = "adopt"
	// StepFail: record in the claim why the turn failed.
	StepFail Step = "fail"
	// StepSoak: record in the claim that the node is changed and healthy, and release the node to the scheduler.
	StepSoak Step = "soak"
	// StepFinish: the node is updated; label and release it.
	StepFinish Step = "finish"
	// StepRelease: release the node. The rollout does not want the change any more.
	StepRelease Step = "release"
	// StepUnmark: remove the mark of a cordon that a person has lifted.
	StepUnmark Step = "unmark"
	// StepTaint: add the taint of outdated nodes.
	StepTaint Step = "taint"
	// StepUntaint: remove that taint.
	StepUntaint Step = "untaint"
)

// Turn is one node's part in a rollout: the node, the rollout's claim on it, its state, and its next step. A mechanism embeds it
// and adds its own observations, such as a Job or what a host reports.
type Turn struct {
	Node  *corev1.Node
	Claim *v1alpha1.Claim // of this rollout, or nil
	// Claims are those of all rollouts on the node.
	Claims []v1alpha1.Claim
	Unit   rollout.Unit
	Step   Step
	// Counted is true if the rollout selects the node. It is always false while a Plan is not Ready; otherwise a node that is not counted
	// must only be released.
	Counted bool
	// Unreadable is true when the node's claims can't be decoded.
	Unreadable bool
	// Failure is why the turn fails, for StepFail.
	Failure v1alpha1.ClaimFailure
	// Message says what the turn waits for, and Trouble why its step could not be taken.
	Message, Trouble string
	// SoakEnd is when the node will have soaked, for StepSoak.
	SoakEnd time.Time
	// Wake is when the clock alone changes the step, or zero.
	Wake time.Time
	// Began is when the turn began, if there is no claim of it.
	Began time.Time
}

// Start returns when the turn began.
func (t *Turn) Start() time.Time {
	if t.Claim != nil {
		return t.Claim.Since.Time
	}
	return t.Began
}

// Base returns the turn, also for a type that embeds Turn.
func (t *Turn) Base() *Turn { return t }

// Any is a turn of any mechanism: Turn, or a type that embeds it.
type Any interface{ Base() *Turn }

// ReadClaims sets Claims and Unreadable, and sets Claim to a copy of the rollout's own claim.
func (t *Turn) ReadClaims(known *rollout.Node, uid types.UID) {
	if known == nil {
		return
	}
	t.Claims, t.Unreadable = known.Claims, known.ClaimError != ""
	if i := slices.IndexFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.UID == uid }); i >= 0 {
		own := known.Claims[i]
		t.Claim = &own
	}
}

// DrainMessage returns what the holder's drain waits for, from the node's condition DrainInProgress; "" if no such drain is in progress.
func (t *Turn) DrainMessage(holder string) string {
	for i := range t.Node.Status.Conditions {
		c := &t.Node.Status.Conditions[i]
		if text, ok := strings.CutPrefix(c.Message, holder+": "); ok && c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue {
			return text
		}
	}
	return ""
}

// Unmark sets StepUnmark if a person has lifted the cordon of a turn, and the turn needs no other step. So a later cordon is that person's, and the
// node serves load balancers again.
func (t *Turn) Unmark() {
	_, marked := t.Node.Annotations[v1alpha1.AnnotationCordonedBy]
	excluded := t.Claim != nil && t.Node.Annotations[v1alpha1.AnnotationExcludedBy] == t.Claim.Rollout
	if t.Step == StepNone && (marked || excluded) && !t.Node.Spec.Unschedulable {
		t.Step = StepUnmark
	}
}

// WakeAt requests a reconcile at this time. A zero time requests nothing.
func (t *Turn) WakeAt(when time.Time) {
	t.Wake = rollout.Earlier(t.Wake, when)
}

// Ready reports whether the node is ready, and since when it is so or not. since is zero if the kubelet has not reported yet.
func Ready(n *corev1.Node) (ready bool, since time.Time) {
	if c := rollout.NodeCondition(n.Status.Conditions, corev1.NodeReady); c != nil {
		return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
	}
	return false, time.Time{}
}

// Fail makes the turn fail.
func (t *Turn) Fail(reason v1alpha1.Reason, message string, at time.Time) {
	t.FailWith(v1alpha1.ClaimFailure{Reason: reason, Message: Short(message), Time: metav1.Time{Time: at}})
}

// FailWith makes the turn fail with this failure.
func (t *Turn) FailWith(f v1alpha1.ClaimFailure) {
	t.Step, t.Failure = StepFail, f
	t.Unit.State, t.Unit.Reason, t.Unit.Message, t.Unit.Since, t.Unit.Skipped = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped
}

// ShowFailure copies the failure in the claim to the unit. The turn waits for a retry or for a person.
func (t *Turn) ShowFailure(s *v1alpha1.Strategy) {
	f := t.Claim.Failed
	t.Unit.State, t.Unit.Reason, t.Unit.Message, t.Unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
	t.Unit.Skipped = f.Skipped
	t.Unit.RetryAt = RetryAt(s, t.Claim)
}

// RetryAt returns when a failed turn is retried automatically, or zero.
func RetryAt(s *v1alpha1.Strategy, c *v1alpha1.Claim) time.Time {
	if s == nil || c.Failed.Skipped {
		return time.Time{}
	}
	return rollout.RetryAt(s.Retries, c.Failures, c.Failed.Time.Time)
}

// Expire fails a turn that takes longer than the strategy's turnTimeout. The failure includes waitedFor, which may be empty.
func (t *Turn) Expire(s *v1alpha1.Strategy, waitedFor string, now time.Time) {
	if s == nil || s.TurnTimeout == nil || t.Step == StepFail {
		return
	}
	deadline := t.Claim.Since.Add(s.TurnTimeout.Duration)
	if now.Before(deadline) {
		t.WakeAt(deadline)
		return
	}
	message := fmt.Sprintf("the turn of Node %s took longer than turnTimeout, %s", t.Node.Name, s.TurnTimeout.Duration)
	if waitedFor != "" {
		message += "; " + waitedFor
	}
	t.Fail(v1alpha1.ReasonTurnTimeout, message, deadline)
}

// Tainted reports whether the node has the taint key:PreferNoSchedule.
func Tainted(n *corev1.Node, key string) bool {
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}
	return slices.ContainsFunc(n.Spec.Taints, func(c corev1.Taint) bool { return c.MatchTaint(&taint) })
}

// JudgeTaint sets the step that adds or removes the taint of outdated nodes by the strategy, if the turn has no other step.
func (t *Turn) JudgeTaint(s *v1alpha1.Strategy, key string) {
	if t.Step != StepNone {
		return
	}
	wanted := s != nil && s.TaintOutdated && t.Counted && !t.Unit.OptedOut && t.Unit.State != v1alpha1.UnitUpdated && t.Unit.State != v1alpha1.UnitSoaking
	switch has := Tainted(t.Node, key); {
	case wanted && !has:
		t.Step = StepTaint
	case !wanted && has:
		t.Step = StepUntaint
	}
}

// IsMarked reports whether the holder has cordoned the node, or keeps it from load balancers.
func IsMarked(n *corev1.Node, holder string) bool {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	return n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordonedBy] == holder ||
		excluded && n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
}

// SoakEnd returns when the soak of a node that changed at this time ends. Without a soak in the strategy it is this time.
func SoakEnd(f *rollout.Fleet, s *v1alpha1.Strategy, name string, since time.Time) time.Time {
	if s == nil || s.Soak == nil {
		return since
	}
	return f.SoakEnd(name, since, s.Soak.Duration)
}

// Digest returns a short hash of values that always marshal, such as strings and API types.
func Digest(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

// longest limits a message in a claim or a condition, in bytes.
const longest = 1024

// Short shortens a message to longest bytes.
func Short(message string) string { return rollout.Shorten(message, longest) }

// Units returns the units of these turns for rollout.Decide, and the number of nodes for the strategy.
func Units[T Any](turns []T) (units []rollout.Unit, total int) {
	units = make([]rollout.Unit, 0, len(turns))
	for _, t := range turns {
		b := t.Base()
		if b.Counted && (!b.Unit.OptedOut || b.Unit.State != v1alpha1.UnitOutdated) {
			total++
		}
		if b.Counted || b.Unit.HoldsSlot() {
			units = append(units, b.Unit)
		}
	}
	return units, total
}

// FailedStatus returns the status of a failed unit. wait is its entry in the decision, or nil.
func (t *Turn) FailedStatus(wait *rollout.Wait) v1alpha1.UnitStatus {
	s := v1alpha1.UnitStatus{Node: t.Unit.Node, Reason: t.Unit.Reason, Message: t.Unit.Message, Since: Stamp(t.Unit.Since)}
	if wait != nil && wait.Reason == t.Unit.Reason {
		s.Message = wait.Message // It also says when the next attempt starts.
	}
	return s
}

// TurnStatus returns the status of a turn in progress.
func (t *Turn) TurnStatus(phase v1alpha1.Phase, since time.Time, message string, wait *rollout.Wait) v1alpha1.UnitStatus {
	s := v1alpha1.UnitStatus{Node: t.Unit.Node, Phase: phase, Reason: t.Unit.Reason, Message: message, Since: Stamp(since)}
	if wait != nil {
		s.Reason, s.Message = wait.Reason, wait.Message
		if t.Claim != nil {
			s.Message = "its turn starts over: " + s.Message
		}
	}
	return s
}

// Stamp returns a time as the API stores it, in whole seconds.
func Stamp(t time.Time) *metav1.Time { return &metav1.Time{Time: t.UTC().Truncate(time.Second)} }

// Healthy returns the fleet that decides whether a changed node is healthy. It adds spec.health as one more budget.
func Healthy(f rollout.Fleet, h *v1alpha1.NodeHealth) rollout.Fleet {
	if h == nil {
		return f
	}
	own := rollout.Budget{Name: "spec.health", Health: rollout.NewHealth(h)}
	f.Budgets = append([]rollout.Budget{own}, f.Budgets...)
	return f
}

// NodeSelector returns the selector of a NodeRollout's nodes. The error says which selector in the spec is invalid.
func NodeSelector(spec *v1alpha1.NodeRolloutSpec) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(&spec.NodeSelector)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.nodeSelector is invalid, %w", err)
	}
	if spec.Drain != nil {
		if _, err := metav1.LabelSelectorAsSelector(spec.Drain.PodSelector); err != nil {
			return labels.Nothing(), fmt.Errorf("spec.drain.podSelector is invalid, %w", err)
		}
	}
	if spec.Health != nil {
		for i := range spec.Health.Pods {
			if _, err := metav1.LabelSelectorAsSelector(&spec.Health.Pods[i].Selector); err != nil {
				return labels.Nothing(), fmt.Errorf("spec.health.pods[%d].selector is invalid, %w", i, err)
			}
		}
	}
	return selector, nil
}

// template identifies what a NodeRollout does to nodes at its revision, for approvals: how it drains, its hooks, and what leaves load
// balancers and the control plane. It leaves out who is updated when, and what a changed node needs.
func template(spec *v1alpha1.NodeRolloutSpec) string {
	of := []any{spec.Drain}
	if h := spec.HostUpdate; h != nil {
		of = append(of, h.Hooks, h.ExcludeFromLoadBalancers)
	}
	if r := spec.Replacement; r != nil {
		of = append(of, r.ControlPlane, r.KubernetesVersionFromImage, r.ExcludeFromLoadBalancers)
	}
	return Digest(of...)
}

// Strategy returns the strategy of a NodeRollout for this number of nodes. ownNode is the node that the operator runs on.
func Strategy(r *v1alpha1.NodeRollout, revision, ownNode string, total int) rollout.Strategy {
	s := rollout.New(r.Spec.Strategy, 1, total)
	s.UID, s.Revision, s.OwnNode, s.Health = r.UID, revision, ownNode, rollout.NewHealth(r.Spec.Health)
	s.Drains = r.Spec.Drain == nil || !r.Spec.Drain.Disabled
	s.Template, s.Wave, s.Approved = template(&r.Spec), r.Status.Wave, rollout.Approvals(r.Annotations, r.Status.Approval)
	if machines := r.Spec.Replacement; machines != nil && machines.ControlPlane != nil {
		atOnce := 1
		if machines.ControlPlane.Etcd != v1alpha1.EtcdExternal {
			atOnce = max(1, total-3) // Three members stay, and tolerate the failure of one.
		}
		s.MaxConcurrent = min(s.MaxConcurrent, atOnce)
	}
	return s
}
