// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// Steps that only Plans have.
const (
	StepStop   nodeturn.Step = "stop"   // delete Jobs that are not wanted any more, and wait until they are gone
	StepCordon nodeturn.Step = "cordon" // cordon the node: the Job's pod waits for that
	StepDrain  nodeturn.Step = "drain"  // run one pass of the drain: the Job's pod waits until it is complete
	StepVerify nodeturn.Step = "verify" // record in the claim that the Job has succeeded, while the node is not healthy
)

// The containers that cordon or drain the node of a Job.
const (
	CordonContainer = "cordon"
	DrainContainer  = "drain"
)

// Unit is one node's part in the Plan.
type Unit struct {
	nodeturn.Turn
	Job       *batchv1.Job   // the claim's, or nil
	Pod       *corev1.Pod    // the newest of the Job's, or nil
	OtherJobs []*batchv1.Job // other Jobs of the Plan that still run on the node
	// Superseded are ended Jobs to delete: those of earlier turns that failed, and that of a failed turn once the Plan asks for another Job, or not for this node.
	Superseded []*batchv1.Job
	// Pending is true for a claim whose Job is not made yet.
	Pending bool

	end *batchv1.JobCondition // says how the Job ended; nil while it has not
	// unhealthy says why the node is not healthy although its Job has succeeded.
	unhealthy string
}

// Units judges every node that the Plan selects, or that still has a claim, Job or taint of the Plan. jobs and pods are the Plan's, by node.
func (w *World) Units(nodes []*corev1.Node, jobs map[string][]*batchv1.Job, pods map[string][]*corev1.Pod) []*Unit {
	all, backing := make([]*Unit, 0, len(nodes)), make([]Unit, len(nodes))
	for i, n := range nodes {
		_, hasHostname := n.Labels[corev1.LabelHostname]
		t := &backing[i]
		t.Turn = nodeturn.Turn{Node: n, Counted: w.Ready && hasHostname && w.Selector.Matches(labels.Set(n.Labels))}
		t.ReadClaims(w.Fleet.Nodes[n.Name], w.Plan.UID)
		if jobs := jobs[n.Name]; len(jobs) > 0 {
			t.findJobs(w, jobs, pods[n.Name])
		}
		if t.Counted || t.Claim != nil || len(t.OtherJobs) > 0 || t.hasUnrecordedJob() || nodeturn.Tainted(n, w.Taint) {
			w.judge(t)
			all = append(all, t)
		}
	}
	return all
}

// findJobs finds the turn's own Job and pod among those on the node.
func (t *Unit) findJobs(w *World, jobs []*batchv1.Job, pods []*corev1.Pod) {
	for _, j := range jobs {
		switch {
		case t.Claim != nil && turnOf(j) == t.Claim.Turn:
			t.Job = j
		case t.Claim == nil && w.isAdoptable(t.Node, j):
			if t.Job == nil || t.Job.CreationTimestamp.Before(&j.CreationTimestamp) {
				t.Job = j
			}
		case Finished(j) == nil:
			t.OtherJobs = append(t.OtherJobs, j)
		case t.Claim != nil && Finished(j).Type == batchv1.JobFailed:
			t.Superseded = append(t.Superseded, j)
		}
	}
	if t.Job == nil {
		return
	}
	t.end = Finished(t.Job)
	for _, p := range pods {
		if metav1.IsControlledBy(p, t.Job) && (t.Pod == nil || t.Pod.CreationTimestamp.Before(&p.CreationTimestamp)) {
			t.Pod = p
		}
	}
}

// Finished returns the condition that says how a Job ended, or nil while it has not.
func Finished(j *batchv1.Job) *batchv1.JobCondition {
	return rollout.Find(j.Status.Conditions, func(c *batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

// turnOf returns the turn that a Job belongs to. A Job of another controller names no turn, so its uid identifies the turn.
func turnOf(j *batchv1.Job) string {
	if id, ok := j.Annotations[v1alpha1.AnnotationTurn]; ok {
		return id
	}
	return "job/" + string(j.UID)
}

// isAdoptable reports whether the Plan takes over a Job that has no claim. The Job must be for the present hash, and not paused,
// and the node must lack that hash. Jobs of system-upgrade-controller qualify. Moult's own Jobs qualify only while they run: their
// claim was lost with the Node object, or a person removed it. Stopping such a Job midway would be worse.
func (w *World) isAdoptable(n *corev1.Node, j *batchv1.Job) bool {
	_, ours := j.Annotations[v1alpha1.AnnotationTurn]
	value := n.Labels[w.Label]
	return w.Ready && (!ours || Finished(j) == nil) && j.DeletionTimestamp == nil && metav1.IsControlledBy(j, w.Plan) &&
		j.Labels[w.Label] == w.Plan.Status.LatestHash && value != w.Plan.Status.LatestHash && value != upgradev1.LabelDisabled &&
		(j.Spec.Parallelism == nil || *j.Spec.Parallelism > 0)
}

// judge sets the unit's state and the next step.
func (w *World) judge(t *Unit) {
	value := t.Node.Labels[w.Label]
	optedOut := value == upgradev1.LabelDisabled
	updated := w.Ready && value != "" && value == w.Plan.Status.LatestHash && (t.Claim == nil || t.Claim.Revision == value || !MayHaveChanged(t.Claim))
	t.Unit = rollout.Unit{Node: t.Node.Name, State: v1alpha1.UnitUpdating, OptedOut: optedOut}
	if t.Claim == nil {
		w.judgeUnclaimed(t, updated)
	} else {
		w.judgeClaimed(t, updated || optedOut)
	}
	if hostname := t.Node.Labels[corev1.LabelHostname]; w.SharedHostnames[hostname] && t.Unit.State == v1alpha1.UnitOutdated && t.Unit.Reason == "" {
		t.Unit.Reason = v1alpha1.ReasonHostnameShared // The Job could run on the wrong node.
		t.Unit.Message = "another node has the same label " + corev1.LabelHostname + "=" + hostname + ", by which its Job would find it"
	}
	if w.Ready {
		t.JudgeTaint(w.Plan.Spec.Strategy, w.Taint)
	}
}

// MayHaveChanged reports whether a turn may have changed its node. The node's label says then only what it had before.
func MayHaveChanged(c *v1alpha1.Claim) bool {
	return c != nil && !Undrained(c) && (c.Failed == nil || c.Failed.Reason != v1alpha1.ReasonDrainTimeout && c.Failed.Reason != v1alpha1.ReasonDrainRefused)
}

// judgeClaimed judges a node in a turn. unwanted is true if the Plan does not want to change the node.
func (w *World) judgeClaimed(t *Unit, unwanted bool) {
	t.Unit.Since = t.Claim.Since.Time
	t.Unit.Claimed = !t.Claim.RecordsResult()
	switch {
	case t.isChanged() && (t.Claim.Failed == nil || !w.WantsNewAttempt(t)):
		t.finish(w)
	case !w.Ready && t.Claim.Failed != nil:
		t.ShowFailure(nil)
	case !w.Ready:
		if t.end != nil {
			t.jobFailed(w, t.end)
		}
	case !t.Counted || unwanted:
		t.Step = nodeturn.StepRelease
		switch {
		case t.isRunning():
			t.Step = StepStop
		case t.end != nil && t.end.Type == batchv1.JobFailed:
			t.Superseded = append(t.Superseded, t.Job)
		}
	case t.Claim.Failed != nil:
		t.failed(w)
	case t.Job != nil:
		t.judgeWithJob(w)
	case w.Job != nil:
		t.judgeWithoutJob(w)
	}
	if t.Unmark(); t.Step != nodeturn.StepNone {
		return
	}
	switch c := t.Claim; {
	case !w.Ready || !t.awaitsOperator(w):
	case c.Cordoned == nil:
		t.Step = StepCordon
	case c.Drains && c.Drained == nil:
		t.Step = StepDrain
	}
}

// awaitsOperator reports whether a container of the turn's Job waits until the operator has cordoned or drained the node. With a
// configured kubectl image these containers cordon and drain by themselves, as they do in Jobs of system-upgrade-controller.
func (t *Unit) awaitsOperator(w *World) bool {
	if t.Pod == nil || t.Claim.Failed != nil || t.end != nil || t.Job.DeletionTimestamp != nil || !w.Job.AwaitsOperator(t.Node) {
		return false
	}
	if _, ours := t.Job.Annotations[v1alpha1.AnnotationTurn]; !ours {
		return false
	}
	return slices.ContainsFunc(t.Pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return (s.Name == DrainContainer || s.Name == CordonContainer) && s.State.Running != nil
	})
}

// judgeUnclaimed judges a node that the Plan has no claim on.
func (w *World) judgeUnclaimed(t *Unit, updated bool) {
	switch {
	case t.Unreadable && updated:
		t.Unit.State = v1alpha1.UnitUpdated
	case t.Unreadable:
		// No rollout may change the node. The node holds a slot while a Job runs there, or while it is cordoned for the Plan.
		cordoned := t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == w.Holder
		t.Unit.State, t.Unit.InTurn = v1alpha1.UnitOutdated, t.isRunning() || cordoned
	case t.Job != nil && (t.Counted || t.hasUnrecordedJob()):
		t.Step = nodeturn.StepAdopt
	case !w.Ready && t.isRunning(): // It may be adopted once the Plan is ready.
	case !w.Ready:
		t.Unit.State = v1alpha1.UnitOutdated
	case len(t.OtherJobs) > 0:
		t.Step = StepStop
	case updated:
		t.Unit.State = v1alpha1.UnitUpdated
	default:
		w.MarkOutdated(t)
	}
}

// isChanged reports whether the turn's Job has succeeded. The claim records that before the Job is gone.
func (t *Unit) isChanged() bool {
	return t.Claim.Soaking != nil || t.Claim.Changed != nil || t.end != nil && t.end.Type == batchv1.JobComplete
}

// hasUnrecordedJob reports whether the turn's Job still runs or has succeeded. judgeUnclaimed then adopts the Job even if the Plan does not
// select the node any more. One that still runs there is then stopped.
func (t *Unit) hasUnrecordedJob() bool {
	return t.Job != nil && (t.end == nil || t.end.Type == batchv1.JobComplete)
}

// isRunning reports whether Jobs of the Plan still run on the node.
func (t *Unit) isRunning() bool {
	return len(t.OtherJobs) > 0 || t.Job != nil && t.end == nil
}

// MarkOutdated marks the unit as one that Decide may start.
func (w *World) MarkOutdated(t *Unit) {
	t.Unit.State = v1alpha1.UnitOutdated
	if t.Claim == nil {
		t.Unit.Rank = max(1, rollout.Rank(t.Node.UID, w.Plan.UID, w.Plan.Status.LatestHash))
	}
	if IsWindows(t.Node) && cordons(w.Plan) && w.Job != nil && w.Job.KubectlImageWindows == "" {
		t.Unit.Reason = v1alpha1.ReasonWindowsImageMissing
		t.Unit.Message = "a Windows node can't be cordoned or drained until SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image for it"
	}
}

// failed judges a turn that failed. The turn waits until the Plan asks for something else, or until a retry is due.
func (t *Unit) failed(w *World) {
	if !t.isRunning() && w.WantsNewAttempt(t) {
		if t.Job != nil && !w.isCurrent(t.Job) {
			t.Superseded = append(t.Superseded, t.Job)
		}
		w.MarkOutdated(t)
		return
	}
	t.ShowFailure(w.Plan.Spec.Strategy)
	if t.isRunning() {
		// The Job is being stopped, and nothing starts on the node before the Job is gone. A dead machine does not delay other nodes.
		t.Step = StepStop
		if at := t.Unit.RetryAt; !at.IsZero() && !at.After(w.Now) {
			t.Unit.RetryAt = w.Now.Add(podPatience)
		}
		t.Unit.Message += "; what runs on the node is being stopped"
	}
}

// judgeWithoutJob judges a claimed node that has no Job. Finished Jobs are kept for KeptSeconds. If the claim is younger, the Job was not created
// yet, or a person deleted it, and it is created. If the claim is older, the Job may have ended unseen. It is then not run again, unless
// the Plan has changed.
func (t *Unit) judgeWithoutJob(w *World) {
	kept := time.Duration(t.Claim.KeptSeconds) * time.Second
	switch {
	case len(t.OtherJobs) > 0:
		t.Step = StepStop
	case !w.WantsNewAttempt(t) && w.Now.Sub(t.Claim.Since.Time) > kept:
		t.Fail(v1alpha1.ReasonJobLost, fmt.Sprintf("the Job that was started on Node %s at %s is gone, and its result is unknown; it runs again only after a change of the Plan or a request to retry",
			t.Node.Name, t.Claim.Since.UTC().Format(time.RFC3339)), w.Now)
	default:
		w.MarkOutdated(t)
		t.Unit.InTurn, t.Pending = true, true
	}
}

// isCurrent reports whether the Job does what the Plan asks for now.
func (w *World) isCurrent(j *batchv1.Job) bool {
	template, ours := j.Annotations[v1alpha1.AnnotationTemplate]
	return j.Labels[w.Label] == w.Plan.Status.LatestHash && (!ours || template == w.templateDigest())
}

// judgeWithJob judges a turn whose Job runs, or has failed.
func (t *Unit) judgeWithJob(w *World) {
	current := w.isCurrent(t.Job)
	end := cmp.Or(t.end, t.withoutEnd(w.Now))
	switch {
	case end != nil:
		t.jobFailed(w, end)
		if current && end.Reason != batchv1.JobReasonDeadlineExceeded {
			// The Job is up to date, so its failure counts for the current Plan, also after changes that do not affect the Job. A Plan with another deadline
			// than the Job's is tried again.
			t.Claim.Attempt = w.Attempt(t.Node)
		}
	case len(t.OtherJobs) > 0:
		t.Step = StepStop
	case t.Job.DeletionTimestamp != nil:
		t.Expire(w.Plan.Spec.Strategy, "what ran on it does not end", w.Now)
	default:
		if !current {
			w.MarkOutdated(t)
			t.Unit.InTurn, t.Unit.Running = true, true
		}
		if podless := t.Job.CreationTimestamp.Add(podPatience); t.Pod == nil && podless.After(w.Now) {
			t.WakeAt(podless)
		}
		t.Expire(w.Plan.Spec.Strategy, "what runs on it is stopped"+t.undrained(w), w.Now)
	}
}

// withoutEnd returns the condition of a Job that is to fail, and whose pod does not end: the machine is dead. Since Kubernetes 1.31 such a Job
// fails only when its pod has ended. It is nil for endPatience, in which a pod ends on a machine that works.
func (t *Unit) withoutEnd(now time.Time) *batchv1.JobCondition {
	target := rollout.Find(t.Job.Status.Conditions, func(c *batchv1.JobCondition) bool {
		return c.Type == batchv1.JobFailureTarget && c.Status == corev1.ConditionTrue
	})
	if target != nil && now.Before(target.LastTransitionTime.Add(endPatience)) {
		t.WakeAt(target.LastTransitionTime.Add(endPatience))
		return nil
	}
	return target
}

const endPatience = 2 * time.Minute

// jobFailed fails a turn whose Job has failed, or is to fail.
func (t *Unit) jobFailed(w *World, end *batchv1.JobCondition) {
	message := fmt.Sprintf("Job %s/%s failed on Node %s: %s: %s", t.Job.Namespace, t.Job.Name, t.Node.Name, end.Reason, end.Message)
	t.Fail(v1alpha1.ReasonJobFailed, message+t.undrained(w), end.LastTransitionTime.Time)
}

// Undrained reports whether the drain of a turn has begun and is not over, so that the turn has changed nothing.
func Undrained(c *v1alpha1.Claim) bool { return c.Drains && c.Cordoned != nil && c.Drained == nil }

// undrained says what holds the drain of a turn that ends before its drain is over.
func (t *Unit) undrained(w *World) string {
	held := t.DrainMessage(w.Holder)
	if !Undrained(t.Claim) || held == "" {
		return ""
	}
	return "; the drain was not over: " + held
}

// finish judges a turn whose Job has succeeded. Its node must be healthy and soak before the turn ends.
func (t *Unit) finish(w *World) {
	began := cmp.Or(t.Claim.Soaking, t.Claim.Changed)
	if began == nil {
		began = &t.end.LastTransitionTime
	}
	since := began.Time
	t.Unit.State, t.Unit.Since = v1alpha1.UnitSoaking, since
	end := cmp.Or(t.Claim.Changed, began).Add(ptr.Deref(w.Plan.Spec.PostCompleteDelay, metav1.Duration{}).Duration)
	if s := w.Plan.Spec.Strategy; s != nil {
		var next time.Time
		if t.unhealthy, next = w.Fleet.Unhealthy(t.Node.Name, w.Now); t.unhealthy != "" {
			t.verify(w)
			t.WakeAt(next)
			return
		}
		if t.Claim.Soaking == nil && t.Claim.Changed != nil { // It was not healthy before.
			since = w.Now
			t.Unit.Since = since
		}
		end = rollout.Later(end, nodeturn.SoakEnd(&w.Fleet, s, t.Node.Name, since))
	}
	switch {
	case !w.Now.Before(end):
		t.Step = nodeturn.StepFinish
	case t.Claim.Soaking == nil:
		t.Step, t.Wake, t.SoakEnd = nodeturn.StepSoak, end, end
	default:
		t.Wake = end
	}
}

// verify judges a turn whose Job has succeeded and whose node is not healthy. The turn waits, and fails after turnTimeout. A node that already
// soaks continues to soak.
func (t *Unit) verify(w *World) {
	switch {
	case t.Claim.Soaking != nil:
	case t.Claim.Failed != nil:
		t.ShowFailure(w.Plan.Spec.Strategy)
	default:
		t.Unit.State = v1alpha1.UnitUpdating
		if t.Claim.Changed == nil {
			t.Step = StepVerify
		}
		t.Expire(w.Plan.Spec.Strategy, "its Job has succeeded, but the node is not healthy: "+t.unhealthy, w.Now)
	}
}
