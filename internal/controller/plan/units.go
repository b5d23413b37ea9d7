// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
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
	stepSoak         // record in the claim that the change is done, and give the node back to the scheduler
	stepFinish       // label the node and release it: it is updated
	stepAbandon      // release the node: the Plan wants nothing of it any more
	stepUnmark       // drop the mark of a cordon that a person has lifted, lest a later one be taken for it
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
	wake    time.Time             // when the clock alone changes the step
}

// world is what all turns of one Plan are judged by.
type world struct {
	plan     *upgradev1.Plan
	options  *Options
	selector labels.Selector
	// ready is false while the Plan is not valid and resolved: what runs is seen to its end, and nothing else happens.
	ready    bool
	template string
	seen     *sightings
	now      time.Time
}

// attempt identifies what a turn on this node is started for. A failed turn is tried again once it differs: after any
// change of the Plan's spec, version or secrets, or when somebody asks for it.
func (w *world) attempt(n *corev1.Node) string {
	return digest(w.plan.Generation, w.template, w.plan.Annotations[v1alpha1.AnnotationRetry], n.Annotations[v1alpha1.AnnotationRetry])
}

// cordons reports whether the Plan's Jobs make their node unschedulable.
func cordons(p *upgradev1.Plan) bool { return p.Spec.Cordon || p.Spec.Drain != nil }

// shared reports whether the Plan tolerates others of its kind on a node.
func shared(p *upgradev1.Plan) bool { return !cordons(p) && !p.Spec.Exclusive }

// turns judges every node that the Plan selects, or still has something on.
func turns(w *world, s snapshot) ([]turn, rollout.Fleet) {
	all := make([]turn, 0, len(s.nodes))
	fleet := rollout.Fleet{}
	for i := range s.nodes {
		n := &s.nodes[i]
		_, hasHostname := n.Labels[corev1.LabelHostname]
		selected := w.ready && hasHostname && w.selector.Matches(labels.Set(n.Labels))
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		t := turn{node: n, claim: node.Held(claims, w.plan.UID)}
		if err != nil {
			fleet[n.Name] = rollout.Node{ClaimError: err.Error()}
			t.unreadable = true
		} else if len(claims) > 0 {
			fleet[n.Name] = rollout.Node{Claims: claims}
		}
		if jobs := s.jobs[n.Name]; len(jobs) > 0 || t.claim != nil {
			t.sort(w, jobs, s.pods[n.Name])
		}
		if !selected && t.claim == nil && len(t.stray) == 0 && !t.leaves() {
			continue
		}
		t.counted = selected
		t.judge(w, selected)
		all = append(all, t)
	}
	tellHostnames(all, s.nodes)
	return all, fleet
}

// tellHostnames keeps the Plan away from nodes that share their hostname label: their Jobs find their node by it, and
// might run on the wrong one.
func tellHostnames(all []turn, nodes []corev1.Node) {
	outdated := func(t turn) bool { return t.unit.State == v1alpha1.UnitOutdated }
	if !slices.ContainsFunc(all, outdated) {
		return
	}
	count := make(map[string]int, len(nodes))
	for i := range nodes {
		count[nodes[i].Labels[corev1.LabelHostname]]++
	}
	for i := range all {
		t := &all[i]
		if hostname := t.node.Labels[corev1.LabelHostname]; outdated(*t) && t.unit.Reason == "" && count[hostname] > 1 {
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
	value := n.Labels[upgradev1.LabelPlanHash(w.plan.Name)]
	return w.ready && (!ours || finished(j) == nil) && j.DeletionTimestamp == nil && metav1.IsControlledBy(j, w.plan) &&
		hashOf(w, j) == w.plan.Status.LatestHash && value != w.plan.Status.LatestHash && value != upgradev1.LabelDisabled &&
		(j.Spec.Parallelism == nil || *j.Spec.Parallelism > 0)
}

func hashOf(w *world, j *batchv1.Job) string { return j.Labels[upgradev1.LabelPlanHash(w.plan.Name)] }

// judge sets the unit's state and the next step.
func (t *turn) judge(w *world, selected bool) {
	value := t.node.Labels[upgradev1.LabelPlanHash(w.plan.Name)]
	optedOut := value == upgradev1.LabelDisabled
	updated := w.ready && value == w.plan.Status.LatestHash
	t.unit = rollout.Unit{Node: t.node.Name, State: v1alpha1.UnitUpdating, OptedOut: optedOut}
	if t.claim == nil {
		t.judgeUnclaimed(w, selected, updated)
		return
	}
	t.unit.Since = t.claim.Since.Time
	switch {
	case t.done():
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
	_, marked := t.node.Annotations[v1alpha1.AnnotationCordonedBy]
	if t.step == stepNone && marked && !t.node.Spec.Unschedulable {
		t.step = stepUnmark
	}
}

// judgeUnclaimed judges a node that the Plan has no claim on.
func (t *turn) judgeUnclaimed(w *world, selected, updated bool) {
	switch {
	case t.unreadable && updated:
		t.unit.State = v1alpha1.UnitUpdated
	case t.unreadable:
		// Nobody may touch the node. What runs there holds its slot.
		t.unit.State, t.unit.InTurn = v1alpha1.UnitOutdated, t.running()
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
	if t.claim.Soaking != nil {
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
		t.unit.Rank = max(1, rollout.Rank(t.node.UID, w.plan.UID, w.plan.Status.LatestHash))
	}
	windows := t.node.Labels[corev1.LabelOSStable] == "windows"
	if windows && cordons(w.plan) && w.options.Job.KubectlImageWindows == "" {
		t.unit.Reason = v1alpha1.ReasonWindowsImageMissing
		t.unit.Message = "a Windows node can't be cordoned or drained until SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image for it"
	}
}

// finish is a turn whose Job has succeeded: it soaks, and then it ends.
func (t *turn) finish(w *world) {
	t.unit.State = v1alpha1.UnitSoaking
	var since time.Time
	if t.claim.Soaking != nil {
		since = t.claim.Soaking.Time
	} else {
		since = finished(t.job).LastTransitionTime.Time
	}
	var delay time.Duration
	if d := w.plan.Spec.PostCompleteDelay; d != nil {
		delay = d.Duration
	}
	switch end := since.Add(delay); {
	case !w.now.Before(end):
		t.step = stepFinish
	case t.claim.Soaking == nil:
		t.step, t.wake = stepSoak, end
	default:
		t.wake = end
	}
	t.unit.Since = since
}

// observe is a turn of a Plan that is not valid or not resolved now: only a failure is noted.
func (t *turn) observe() {
	if t.claim.Failed != nil {
		t.unit.State, t.unit.Reason, t.unit.Message = v1alpha1.UnitFailed, t.claim.Failed.Reason, t.claim.Failed.Message
		t.unit.Since = t.claim.Failed.Time.Time
	} else if t.job != nil && finished(t.job) != nil {
		t.fails(v1alpha1.ReasonJobFailed, failureText(t.job, t.node.Name), finished(t.job).LastTransitionTime)
	}
}

// failed is a turn that failed: it waits, until what was asked for then is not what is asked for now.
func (t *turn) failed(w *world) {
	f := t.claim.Failed
	switch {
	case t.running():
		// Failed, and yet something runs: a Job that nobody asked for.
		t.step = stepStop
	case t.claim.Attempt != w.attempt(t.node):
		t.outdated(w)
	default:
		t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
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

// interrupted reports whether the turn had begun for something else than is asked for now.
func (t *turn) interrupted(w *world) bool { return t.claim.Attempt != w.attempt(t.node) }

// jobbed is a turn whose Job runs, or has failed.
func (t *turn) jobbed(w *world) {
	_, ours := t.job.Annotations[v1alpha1.AnnotationTemplate]
	current := hashOf(w, t.job) == w.plan.Status.LatestHash && (!ours || t.job.Annotations[v1alpha1.AnnotationTemplate] == w.template)
	end := finished(t.job)
	switch {
	case end != nil:
		t.fails(v1alpha1.ReasonJobFailed, failureText(t.job, t.node.Name), end.LastTransitionTime)
		if current {
			// The failure is one of the Plan as it is now, also where it changed in what shapes no Job.
			t.claim.Attempt = w.attempt(t.node)
		}
	case len(t.stray) > 0:
		t.step = stepStop
	case t.job.DeletionTimestamp != nil:
	case !current:
		t.outdated(w)
		t.unit.InTurn = true
	}
}

func (t *turn) fails(reason v1alpha1.Reason, message string, at metav1.Time) {
	t.step = stepFail
	t.failure = v1alpha1.ClaimFailure{Reason: reason, Message: message, Time: at}
	t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, reason, message, at.Time
}

func failureText(j *batchv1.Job, nodeName string) string {
	end := finished(j)
	return fmt.Sprintf("Job %s/%s failed on Node %s: %s: %s", j.Namespace, j.Name, nodeName, end.Reason, end.Message)
}

// newClaim starts a turn, or starts it over: then what is to be undone at the end stays known.
func (t *turn) newClaim(w *world) v1alpha1.Claim {
	p := w.plan
	windows := t.node.Labels[corev1.LabelOSStable] == "windows"
	claim := v1alpha1.Claim{
		Rollout:  holder(p),
		UID:      p.UID,
		Shared:   shared(p),
		Revision: p.Status.LatestHash,
		Attempt:  w.attempt(t.node),
		Turn:     strconv.FormatInt(w.now.UnixNano(), 36),
		Since:    metav1.Time{Time: w.now},

		KeptSeconds: jobTTL(p, &w.options.Job),
		Uncordon:    cordons(p) && !w.options.Job.marksCordon(windows) && !t.node.Spec.Unschedulable,
	}
	if t.claim != nil {
		claim.Uncordon = claim.Uncordon || t.claim.Uncordon
	}
	if t.step == stepAdopt {
		_, ours := t.job.Annotations[v1alpha1.AnnotationTurn]
		claim.Turn = turnOf(t.job)
		claim.Since = t.job.CreationTimestamp
		if ttl := t.job.Spec.TTLSecondsAfterFinished; ttl != nil {
			claim.KeptSeconds = *ttl
		}
		claim.Uncordon = cordons(p) && (!ours || !w.options.Job.marksCordon(windows))
	}
	return claim
}
