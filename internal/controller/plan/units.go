// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// Steps that only Plans have.
const (
	stepStop   turn.Step = "stop"   // delete Jobs that are not wanted any more, and wait until they are gone
	stepCordon turn.Step = "cordon" // cordon the node: the Job's pod waits for that
	stepDrain  turn.Step = "drain"  // take its drain as far as it goes now: the Job's pod waits for the end
	stepVerify turn.Step = "verify" // record in the claim that the Job has succeeded, while the node is not healthy
	stepUnmark turn.Step = "unmark" // remove the mark of a cordon that a person has lifted
)

// unit is one node's part in the Plan.
type unit struct {
	turn.Turn
	job     *batchv1.Job   // the claim's, or nil
	pod     *corev1.Pod    // the newest of the Job's, or nil
	unowned []*batchv1.Job // other Jobs of the Plan that still run on the node
	// pending is true for a claim whose Job is not made yet.
	pending bool
	// unhealthy says why the node is not healthy although its Job has succeeded.
	unhealthy string
}

// world is what all turns of one Plan are judged by.
type world struct {
	plan     *upgradev1.Plan
	options  *Options
	selector labels.Selector
	// ready is false while the Plan is not valid and resolved: what runs is seen to its end, and nothing else happens.
	ready    bool
	template string
	spec     string // see specDigest
	// label is the key of the nodes' label with the hash: see units.
	label string
	fleet rollout.Fleet
	now   time.Time
}

func isWindows(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == "windows" }

// cordons reports whether the Plan's turns make their node unschedulable.
func cordons(p *upgradev1.Plan) bool { return p.Spec.Cordon || p.Spec.Drain != nil }

// shared reports whether the Plan tolerates others of its kind on a node.
func shared(p *upgradev1.Plan) bool { return !cordons(p) && !p.Spec.Exclusive }

// units judges every node that the Plan selects, or still has something on.
func units(w *world, s snapshot) []*unit {
	w.label = upgradev1.LabelPlanHash(w.plan.Name)
	taint := taintOf(w.plan.Name)
	all, backing := make([]*unit, 0, len(s.Objects)), make([]unit, len(s.Objects))
	for i, n := range s.Objects {
		_, hasHostname := n.Labels[corev1.LabelHostname]
		selected := w.ready && hasHostname && w.selector.Matches(labels.Set(n.Labels))
		known := s.Nodes[n.Name]
		t := &backing[i]
		t.Turn = turn.Turn{Node: n, Claim: node.Held(known.Claims, w.plan.UID), Unreadable: known.ClaimError != "", Counted: selected}
		if jobs := s.jobs[n.Name]; len(jobs) > 0 || t.Claim != nil {
			t.sort(w, jobs, s.pods[n.Name])
		}
		if selected || t.Claim != nil || len(t.unowned) > 0 || t.leaves() || node.Tainted(n, taint) {
			t.judge(w, taint)
			all = append(all, t)
		}
	}
	refuseSharedHostnames(all, s.SharedHostnames)
	return all
}

// refuseSharedHostnames keeps the Plan away from nodes that share their hostname label: a Job finds its node by that label, and could run on
// the wrong one.
func refuseSharedHostnames(all []*unit, shared map[string]bool) {
	for _, t := range all {
		hostname := t.Node.Labels[corev1.LabelHostname]
		if shared[hostname] && t.Unit.State == v1alpha1.UnitOutdated && t.Unit.Reason == "" {
			t.Unit.Reason = v1alpha1.ReasonHostnameShared
			t.Unit.Message = "another node has the same label " + corev1.LabelHostname + "=" + hostname + ", by which its Job would find it"
		}
	}
}

// sort finds the turn's own Job and pod among those on the node.
func (t *unit) sort(w *world, jobs []*batchv1.Job, pods []*corev1.Pod) {
	var foreign *batchv1.Job
	for _, j := range jobs {
		switch {
		case t.Claim != nil && turnOf(j) == t.Claim.Turn:
			t.job = j
		case !metav1.IsControlledBy(j, w.plan) && finished(j) == nil:
			t.unowned = append(t.unowned, j)
		case t.Claim == nil && adoptable(w, t.Node, j):
			if foreign == nil || foreign.CreationTimestamp.Before(&j.CreationTimestamp) {
				foreign = j
			}
		case finished(j) == nil:
			t.unowned = append(t.unowned, j)
		}
	}
	if t.Claim == nil {
		t.job = foreign
	}
	if t.job == nil {
		return
	}
	for _, p := range pods {
		if metav1.IsControlledBy(p, t.job) && (t.pod == nil || t.pod.CreationTimestamp.Before(&p.CreationTimestamp)) {
			t.pod = p
		}
	}
}

func nodeOf(j *batchv1.Job) string { return j.Labels[upgradev1.LabelNode] }

// turnOf is the turn that a Job belongs to. One that carries none was made by another controller, and is adopted by uid.
func turnOf(j *batchv1.Job) string {
	if id, ok := j.Annotations[v1alpha1.AnnotationTurn]; ok {
		return id
	}
	return "job/" + string(j.UID)
}

// adoptable reports whether a Job without a claim is to be taken over: one for the present hash, on a node that lacks it,
// that system-upgrade-controller has left there and not paused; or one of our own that still runs, though its claim is
// gone with the Node object or by somebody's hand. To stop it in the middle would be worse.
func adoptable(w *world, n *corev1.Node, j *batchv1.Job) bool {
	_, ours := j.Annotations[v1alpha1.AnnotationTurn]
	value := n.Labels[w.label]
	return w.ready && (!ours || finished(j) == nil) && j.DeletionTimestamp == nil && metav1.IsControlledBy(j, w.plan) &&
		hashOf(w, j) == w.plan.Status.LatestHash && value != w.plan.Status.LatestHash && value != upgradev1.LabelDisabled &&
		(j.Spec.Parallelism == nil || *j.Spec.Parallelism > 0)
}

func hashOf(w *world, j *batchv1.Job) string { return j.Labels[w.label] }

// judge sets the unit's state and the next step.
func (t *unit) judge(w *world, taint string) {
	value := t.Node.Labels[w.label]
	optedOut := value == upgradev1.LabelDisabled
	updated := w.ready && value == w.plan.Status.LatestHash
	t.Unit = rollout.Unit{Node: t.Node.Name, State: v1alpha1.UnitUpdating, OptedOut: optedOut}
	if t.Claim == nil {
		t.judgeUnclaimed(w, updated)
		t.keepTaint(w, taint)
		return
	}
	t.Unit.Since = t.Claim.Since.Time
	switch {
	case t.done() && (t.Claim.Failed == nil || t.Claim.Attempt == w.attempt(t.Node)):
		t.finish(w)
	case !w.ready:
		t.observe()
	case !t.Counted || optedOut || updated:
		t.Step = turn.StepRelease
		if t.running() {
			t.Step = stepStop
		}
	case t.Claim.Failed != nil:
		t.failed(w)
	case t.job == nil:
		t.jobless(w)
	default:
		t.jobbed(w)
	}
	t.Unit.Claimed = !t.Claim.Parked()
	_, marked := t.Node.Annotations[v1alpha1.AnnotationCordonedBy]
	if t.Step == turn.StepNone && marked && !t.Node.Spec.Unschedulable {
		t.Step = stepUnmark
	}
	if t.Step == turn.StepNone && w.ready && t.awaitsOperator(w) {
		switch c := t.Claim; {
		case c.Cordoned == nil:
			t.Step = stepCordon
		case c.Drains && c.Drained == nil:
			t.Step = stepDrain
		}
	}
	t.keepTaint(w, taint)
}

func (t *unit) keepTaint(w *world, taint string) {
	if w.ready {
		t.KeepTaint(w.plan.Spec.Strategy, taint)
	}
}

// awaitsOperator reports whether a container of the turn's Job waits until the operator has cordoned or drained the node. One with another image
// does it itself.
func (t *unit) awaitsOperator(w *world) bool {
	if t.pod == nil || t.Claim.Failed != nil || finished(t.job) != nil || t.job.DeletionTimestamp != nil || !w.options.Job.waits(isWindows(t.Node)) {
		return false
	}
	return slices.ContainsFunc(t.pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return (s.Name == drainContainer || s.Name == cordonContainer) && s.State.Running != nil
	})
}

// judgeUnclaimed judges a node that the Plan has no claim on.
func (t *unit) judgeUnclaimed(w *world, updated bool) {
	switch {
	case t.Unreadable && updated:
		t.Unit.State = v1alpha1.UnitUpdated
	case t.Unreadable:
		// Nobody may touch the node. What runs there holds its slot, and so does a node that was cordoned for it.
		cordoned := t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == holder(w.plan)
		t.Unit.State, t.Unit.InTurn = v1alpha1.UnitOutdated, t.running() || cordoned
	case t.job != nil && (t.Counted || t.leaves()):
		t.Step = turn.StepAdopt
	case !w.ready:
		// What runs without a claim may be what is to be adopted once the Plan is ready.
	case len(t.unowned) > 0:
		t.Step = stepStop
	case updated:
		t.Unit.State = v1alpha1.UnitUpdated
	default:
		t.outdated(w)
	}
}

// done reports whether the turn's Job has succeeded. A claim that soaks says so after the Job is gone, too.
func (t *unit) done() bool {
	if t.Claim.Soaking != nil || t.Claim.Changed != nil {
		return true
	}
	if t.job == nil {
		return false
	}
	end := finished(t.job)
	return end != nil && end.Type == batchv1.JobComplete
}

// leaves reports whether a Job without a claim has left something to be undone, though the Plan may not select its node any
// more: it still runs, or it has succeeded and nobody has taken note.
func (t *unit) leaves() bool {
	if t.job == nil {
		return false
	}
	end := finished(t.job)
	return end == nil || end.Type == batchv1.JobComplete
}

// running reports whether Jobs of the Plan still run on the node.
func (t *unit) running() bool {
	return len(t.unowned) > 0 || t.job != nil && finished(t.job) == nil
}

// outdated is a unit that Decide may start.
func (t *unit) outdated(w *world) {
	t.Unit.State = v1alpha1.UnitOutdated
	if t.Claim == nil {
		t.Unit.Rank = max(1, rollout.Rank(t.Node.UID, w.plan.UID, w.plan.Status.LatestHash))
	}
	if isWindows(t.Node) && cordons(w.plan) && w.options.Job.KubectlImageWindows == "" {
		t.Unit.Reason = v1alpha1.ReasonWindowsImageMissing
		t.Unit.Message = "a Windows node can't be cordoned or drained until SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image for it"
	}
}

// observe is a turn of a Plan that is not valid or not resolved now: only a failure is noted.
func (t *unit) observe() {
	if t.Claim.Failed != nil {
		t.Unit.State, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitFailed, t.Claim.Failed.Reason, t.Claim.Failed.Message
		t.Unit.Since = t.Claim.Failed.Time.Time
		t.Unit.Skipped = t.Claim.Parked()
	} else if t.job != nil && finished(t.job) != nil {
		t.jobFailed(finished(t.job))
	}
}

// failed is a turn that failed: it waits, until what was asked for then is not what is asked for now.
func (t *unit) failed(w *world) {
	switch {
	case t.running():
		// The Job is stopped, and nothing else starts on the node before it is gone. A dead machine does not hold up other nodes.
		t.Step = stepStop
		t.ShowFailure(w.plan.Spec.Strategy)
		if at := t.Unit.RetryAt; !at.IsZero() && !at.After(w.now) {
			t.Unit.RetryAt = w.now.Add(podPatience)
		}
		t.Unit.Message += "; what runs on the node is being stopped"
	case t.Claim.Attempt != w.attempt(t.Node):
		t.outdated(w)
	default:
		t.ShowFailure(w.plan.Spec.Strategy)
	}
}

// jobless is a claimed node without its Job. A finished Job is kept for KeptSeconds. So a claim that is younger has had no Job yet, or somebody
// has deleted it, and it is made. The Job of an older claim may have ended unseen: it is not run again, unless the Plan asks for something else now.
func (t *unit) jobless(w *world) {
	kept := time.Duration(t.Claim.KeptSeconds) * time.Second
	switch {
	case len(t.unowned) > 0:
		t.Step = stepStop
	case !t.interrupted(w) && w.now.Sub(t.Claim.Since.Time) > kept:
		t.Fail(v1alpha1.ReasonJobLost, fmt.Sprintf("the Job that was started on Node %s at %s is gone, and nobody saw how it ended; it is not run again unasked",
			t.Node.Name, t.Claim.Since.UTC().Format(time.RFC3339)), w.now)
	default:
		t.outdated(w)
		t.Unit.InTurn, t.pending = true, true
	}
}

// jobbed is a turn whose Job runs, or has failed.
func (t *unit) jobbed(w *world) {
	_, ours := t.job.Annotations[v1alpha1.AnnotationTemplate]
	current := hashOf(w, t.job) == w.plan.Status.LatestHash && (!ours || t.job.Annotations[v1alpha1.AnnotationTemplate] == w.template)
	end := finished(t.job)
	switch {
	case end != nil:
		t.jobFailed(end)
		if current {
			// The failure is one of the Plan as it is now, also where it changed in what shapes no Job.
			t.Claim.Attempt = w.attempt(t.Node)
		}
	case len(t.unowned) > 0:
		t.Step = stepStop
	case t.job.DeletionTimestamp != nil:
		t.expire(w, "what ran on it does not end")
	case !current:
		t.outdated(w)
		t.Unit.InTurn, t.Unit.Running = true, true
		t.expire(w, "what runs on it is stopped")
	default:
		t.expire(w, "what runs on it is stopped")
	}
}

// jobFailed is a turn whose Job has failed.
func (t *unit) jobFailed(end *batchv1.JobCondition) {
	message := fmt.Sprintf("Job %s/%s failed on Node %s: %s: %s", t.job.Namespace, t.job.Name, t.Node.Name, end.Reason, end.Message)
	t.Fail(v1alpha1.ReasonJobFailed, message, end.LastTransitionTime.Time)
}
