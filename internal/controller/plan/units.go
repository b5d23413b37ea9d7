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
)

// step is what a turn needs next, before anything new is started.
type step int

const (
	stepNone    step = iota
	stepAdopt        // claim the node for a Job that an earlier controller left there
	stepStop         // delete Jobs that are no longer wanted, and wait until they are gone
	stepFail         // record in the claim why the turn failed
	stepVerify       // record in the claim that the change is done, and that the node is not healthy yet
	stepSoak         // record in the claim that the change is done, and give the node back to the scheduler
	stepFinish       // label the node and release it: it is updated
	stepAbandon      // release the node: the Plan wants nothing of it any more
	stepUnmark       // drop the mark of a cordon that a person has lifted, lest a later one be taken for it
	stepDrained      // record in the claim that the drain is over, which its node does not say
	stepTaint        // taint the node as one that is still to be updated
	stepUntaint      // take that taint off
)

// turn is one node's part in the Plan: what the API shows, what state that is, and what to do next.
type turn struct {
	node  *corev1.Node
	claim *v1alpha1.Claim // the Plan's own, or nil
	job   *batchv1.Job    // the claim's, or nil
	pod   *corev1.Pod     // the newest of the Job's, or nil
	stray []*batchv1.Job  // other Jobs of the Plan that still run on the node
	unit  rollout.Unit
	step  step
	// pending is true for a claim whose Job is still to be made.
	pending bool
	// unreadable is true when the node's claims can't be read.
	unreadable bool
	// counted is false for a node that the Plan does not select (any more), and only has to leave.
	counted bool
	failure v1alpha1.ClaimFailure // for stepFail
	// verifying says what of a node's health a turn waits for whose Job has succeeded.
	verifying string
	// soakEnd is when it will have soaked, for stepSoak.
	soakEnd time.Time
	wake    time.Time // when the clock alone changes the step
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
	// label is the key of the nodes' label with the hash, and taint that of the taint of outdated ones: see turns.
	label, taint string
	fleet        rollout.Fleet
	nodesVersion uint64
	memo         *memo
	seen         *sightings
	now          time.Time
}

// cordons reports whether the Plan's Jobs make their node unschedulable.
func cordons(p *upgradev1.Plan) bool { return p.Spec.Cordon || p.Spec.Drain != nil }

// shared reports whether the Plan tolerates others of its kind on a node.
func shared(p *upgradev1.Plan) bool { return !cordons(p) && !p.Spec.Exclusive }

// turns judges every node that the Plan selects, or still has something on.
func turns(w *world, s snapshot) []turn {
	w.label, w.taint = upgradev1.LabelPlanHash(w.plan.Name), taintOf(w.plan.Name)
	w.memo.begin(w, s)
	all := w.memo.turns
	for _, n := range s.Objects {
		if q, ok := w.memo.quiet[n]; ok {
			if !q.left {
				all = append(all, turn{node: n, unit: q.unit, step: q.step, counted: q.counted})
			}
			continue
		}
		_, hasHostname := n.Labels[corev1.LabelHostname]
		selected := w.ready && hasHostname && w.selector.Matches(labels.Set(n.Labels))
		known := s.Nodes[n.Name]
		t := turn{node: n, claim: node.Held(known.Claims, w.plan.UID), unreadable: known.ClaimError != ""}
		if jobs := s.jobs[n.Name]; len(jobs) > 0 || t.claim != nil {
			t.sort(w, jobs, s.pods[n.Name])
		}
		left := !selected && t.claim == nil && len(t.stray) == 0 && !t.leaves() && !node.Tainted(n, w.taint)
		if !left {
			t.counted = selected
			t.judge(w, selected)
			all = append(all, t)
		}
		if t.claim == nil && !t.unreadable && len(s.jobs[n.Name]) == 0 {
			w.memo.rest(n, quiet{left: left, unit: t.unit, step: t.step, counted: t.counted})
		}
	}
	w.memo.turns = all
	tellHostnames(all, s.SharedHostnames)
	return all
}

// tellHostnames keeps the Plan away from nodes that share their hostname label: their Jobs find their node by it, and
// might run on the wrong one.
func tellHostnames(all []turn, shared map[string]bool) {
	if len(shared) == 0 {
		return
	}
	for i := range all {
		t := &all[i]
		hostname := t.node.Labels[corev1.LabelHostname]
		if t.unit.State == v1alpha1.UnitOutdated && t.unit.Reason == "" && shared[hostname] {
			t.unit.Reason = v1alpha1.ReasonHostnameShared
			t.unit.Message = "another node has the same label " + corev1.LabelHostname + "=" + hostname + ", by which its Job would find it"
		}
	}
}

// sort finds the turn's own Job and pod among those on the node.
func (t *turn) sort(w *world, jobs []*batchv1.Job, pods []*corev1.Pod) {
	var foreign *batchv1.Job
	for _, j := range jobs {
		switch {
		case t.claim != nil && turnOf(j) == t.claim.Turn:
			t.job = j
		case !metav1.IsControlledBy(j, w.plan) && finished(j) == nil:
			t.stray = append(t.stray, j)
		case t.claim == nil && adoptable(w, t.node, j):
			if foreign == nil || foreign.CreationTimestamp.Before(&j.CreationTimestamp) {
				foreign = j
			}
		case finished(j) == nil:
			t.stray = append(t.stray, j)
		}
	}
	if t.claim == nil {
		t.job = foreign
	} else if t.job != nil {
		w.seen.see(t.key(w))
	} else if s := w.seen.get(t.key(w)); s.state == jobFinished {
		t.job = s.end
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

// key names the turn that the claim is for.
func (t *turn) key(w *world) turnKey {
	return turnKey{plan: w.plan.UID, node: t.node.Name, turn: t.claim.Turn}
}

func nodeOf(j *batchv1.Job) string { return j.Labels[upgradev1.LabelNode] }

// turnOf is the turn that a Job belongs to. One that carries none was made by another controller, and is adopted by uid.
func turnOf(j *batchv1.Job) string {
	if turn, ok := j.Annotations[v1alpha1.AnnotationTurn]; ok {
		return turn
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
func (t *turn) judge(w *world, selected bool) {
	value := t.node.Labels[w.label]
	optedOut := value == upgradev1.LabelDisabled
	updated := w.ready && value == w.plan.Status.LatestHash
	t.unit = rollout.Unit{Node: t.node.Name, State: v1alpha1.UnitUpdating, OptedOut: optedOut}
	if t.claim == nil {
		t.judgeUnclaimed(w, selected, updated)
		t.taint(w, selected)
		return
	}
	t.unit.Since = t.claim.Since.Time
	switch {
	case t.done() && (t.claim.Failed == nil || t.claim.Attempt == w.attempt(t.node)):
		t.finish(w)
	case !w.ready:
		t.observe()
	case !selected || optedOut || updated:
		t.step = stepAbandon
		if t.running() {
			t.step = stepStop
		}
	case t.claim.Failed != nil:
		t.failed(w)
	case t.job == nil:
		t.jobless(w)
	default:
		t.jobbed(w)
	}
	t.unit.Claimed = !t.claim.Parked()
	_, marked := t.node.Annotations[v1alpha1.AnnotationCordonedBy]
	if t.step == stepNone && marked && !t.node.Spec.Unschedulable {
		t.step = stepUnmark
	}
	if t.step == stepNone && t.drained(w) {
		t.step = stepDrained
	}
	t.taint(w, selected)
}

// drained reports whether a budget waits for a drain that is over: its container has ended well, and the node does not say so. Those of
// other images, and accounts that may not write conditions, say nothing.
func (t *turn) drained(w *world) bool {
	known := w.fleet.Nodes[t.node.Name]
	if t.pod == nil || known == nil || !known.Draining || !slices.ContainsFunc(w.fleet.Budgets, func(b rollout.Budget) bool { return b.Workloads }) {
		return false
	}
	return slices.ContainsFunc(t.pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == drainContainer && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
}

// judgeUnclaimed judges a node that the Plan has no claim on.
func (t *turn) judgeUnclaimed(w *world, selected, updated bool) {
	switch {
	case t.unreadable && updated:
		t.unit.State = v1alpha1.UnitUpdated
	case t.unreadable:
		// Nobody may touch the node. What runs there holds its slot, and so does a node that was cordoned for it.
		cordoned := t.node.Spec.Unschedulable && t.node.Annotations[v1alpha1.AnnotationCordonedBy] == holder(w.plan)
		t.unit.State, t.unit.InTurn = v1alpha1.UnitOutdated, t.running() || cordoned
	case t.job != nil && (selected || t.leaves()):
		t.step = stepAdopt
	case !w.ready:
		// What runs without a claim may be what is to be adopted once the Plan is ready.
	case len(t.stray) > 0:
		t.step = stepStop
	case updated:
		t.unit.State = v1alpha1.UnitUpdated
	default:
		t.outdated(w)
	}
}

// done reports whether the turn's Job has succeeded. A claim that soaks says so after the Job is gone, too.
func (t *turn) done() bool {
	if t.claim.Soaking != nil || t.claim.Changed != nil {
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
func (t *turn) leaves() bool {
	if t.job == nil {
		return false
	}
	end := finished(t.job)
	return end == nil || end.Type == batchv1.JobComplete
}

// running reports whether Jobs of the Plan still run on the node.
func (t *turn) running() bool {
	return len(t.stray) > 0 || t.job != nil && finished(t.job) == nil
}

// outdated is a unit that Decide may start.
func (t *turn) outdated(w *world) {
	t.unit.State = v1alpha1.UnitOutdated
	if t.claim == nil {
		t.unit.Rank = w.memo.rank(t.node)
	}
	windows := t.node.Labels[corev1.LabelOSStable] == "windows"
	if windows && cordons(w.plan) && w.options.Job.KubectlImageWindows == "" {
		t.unit.Reason = v1alpha1.ReasonWindowsImageMissing
		t.unit.Message = "a Windows node can't be cordoned or drained until SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image for it"
	}
}

// stays is a turn that has failed: it waits for a retry, or for a person.
func (t *turn) stays(w *world, f *v1alpha1.ClaimFailure) {
	t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
	t.unit.Skipped = f.Skipped
	if s := w.plan.Spec.Strategy; s != nil && !f.Skipped {
		t.unit.RetryAt = rollout.RetryAt(s.Retries, t.claim.Failures, f.Time.Time)
	}
}

// observe is a turn of a Plan that is not valid or not resolved now: only a failure is noted.
func (t *turn) observe() {
	if t.claim.Failed != nil {
		t.unit.State, t.unit.Reason, t.unit.Message = v1alpha1.UnitFailed, t.claim.Failed.Reason, t.claim.Failed.Message
		t.unit.Since = t.claim.Failed.Time.Time
		t.unit.Skipped = t.claim.Parked()
	} else if t.job != nil && finished(t.job) != nil {
		t.jobFailed(finished(t.job))
	}
}

// failed is a turn that failed: it waits, until what was asked for then is not what is asked for now.
func (t *turn) failed(w *world) {
	f := t.claim.Failed
	switch {
	case t.running():
		// It is stopped, and nothing else is tried on the node before it is gone. Its slot is the next one's: a machine that is
		// dead holds nobody up.
		t.step = stepStop
		t.stays(w, f)
		if !t.unit.RetryAt.IsZero() {
			t.unit.RetryAt = later(t.unit.RetryAt, w.now)
			if t.unit.RetryAt.IsZero() {
				t.unit.RetryAt = w.now.Add(podPatience)
			}
		}
		t.unit.Message += "; what runs on the node is being stopped"
	case t.claim.Attempt != w.attempt(t.node):
		t.outdated(w)
	default:
		t.stays(w, f)
	}
}

// jobless is a claimed node without its Job.
func (t *turn) jobless(w *world) {
	age := w.now.Sub(t.claim.Since.Time)
	seen, missing := w.seen.absent(t.key(w), w.now)
	switch {
	case len(t.stray) > 0:
		t.step = stepStop
	case seen == jobSeen && w.now.Before(missing.Add(podPatience)):
		// It has gone this moment: how it ended is about to be told.
		t.wake = missing.Add(podPatience)
	case seen == jobSeen, seen == jobLost, seen == jobUnseen && age > time.Duration(t.claim.KeptSeconds)*time.Second:
		t.fails(v1alpha1.ReasonJobLost, fmt.Sprintf("the Job that was started on Node %s at %s is gone, and nobody saw how it ended; it is not run again unasked",
			t.node.Name, t.claim.Since.UTC().Format(time.RFC3339)), metav1.Time{Time: w.now})
	default:
		t.outdated(w)
		t.unit.InTurn, t.pending = true, true
	}
}

// jobbed is a turn whose Job runs, or has failed.
func (t *turn) jobbed(w *world) {
	_, ours := t.job.Annotations[v1alpha1.AnnotationTemplate]
	current := hashOf(w, t.job) == w.plan.Status.LatestHash && (!ours || t.job.Annotations[v1alpha1.AnnotationTemplate] == w.template)
	end := finished(t.job)
	switch {
	case end != nil:
		t.jobFailed(end)
		if current {
			// The failure is one of the Plan as it is now, also where it changed in what shapes no Job.
			t.claim.Attempt = w.attempt(t.node)
		}
	case len(t.stray) > 0:
		t.step = stepStop
	case t.job.DeletionTimestamp != nil:
		t.expire(w, "what ran on it does not end")
	case !current:
		t.outdated(w)
		t.unit.InTurn, t.unit.Running = true, true
		t.expire(w, "what runs on it is stopped")
	default:
		t.expire(w, "what runs on it is stopped")
	}
}

func (t *turn) fails(reason v1alpha1.Reason, message string, at metav1.Time) {
	t.step = stepFail
	t.failure = v1alpha1.ClaimFailure{Reason: reason, Message: message, Time: at}
	t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, reason, message, at.Time
}

// jobFailed tells from a Job that has failed what that was.
func (t *turn) jobFailed(end *batchv1.JobCondition) {
	skipped, timedOut := drainEnd(t.job)
	switch {
	case skipped:
		t.fails(v1alpha1.ReasonDrainTimeout, "the drain of Node "+t.node.Name+" was not done in time; the node is left as it was, and the rollout goes on without it", end.LastTransitionTime)
		t.failure.Skipped, t.unit.Skipped = true, true
	case timedOut:
		t.fails(v1alpha1.ReasonDrainTimeout, "the drain of Node "+t.node.Name+" was not done in time", end.LastTransitionTime)
	default:
		t.fails(v1alpha1.ReasonJobFailed, failureText(t.job, t.node.Name), end.LastTransitionTime)
	}
}

func failureText(j *batchv1.Job, nodeName string) string {
	end := finished(j)
	return fmt.Sprintf("Job %s/%s failed on Node %s: %s: %s", j.Namespace, j.Name, nodeName, end.Reason, end.Message)
}
