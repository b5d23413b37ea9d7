// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
)

// judged is all that judging a turn sets. Nil is a node that is none of the Plan's.
type judged struct {
	State            v1alpha1.UnitState
	Step             nodeturn.Step
	Reason           v1alpha1.Reason
	Message          string
	InTurn, OptedOut bool
	Pending          bool
	Ranked           bool
	NotCounted       bool
	Job              string // the turn's own, by uid
	Pod              string
	OtherJobs        []string // by uid
	Since            time.Time
	Wake             time.Time
	Attempt          string // of the claim, afterwards
}

func newWorld(p *upgradev1.Plan) *plan.World {
	w, err := plan.NewWorld(p)
	if err != nil {
		panic(err)
	}
	w.Ready, w.Job, w.Now = true, &testOptions().Job, now
	return w
}

// judges looks at one node with these claims, Jobs and pods.
func judges(t *testing.T, w *plan.World, n *corev1.Node, claims []v1alpha1.Claim, jobs []*batchv1.Job, pods []*corev1.Pod) *plan.Unit {
	t.Helper()
	for i := range claims {
		if claims[i].Attempt == asked {
			claims[i].Attempt = w.Attempt(n)
		}
	}
	if len(claims) > 0 {
		holding(claims...)(n)
	}
	s := snapshotOf(n)
	s.jobs, s.pods = map[string][]*batchv1.Job{n.Name: jobs}, map[string][]*corev1.Pod{n.Name: pods}
	w.Fleet, w.SharedHostnames = s.Fleet, s.SharedHostnames
	all := w.Units(s.Objects, s.jobs, s.pods)
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		t.Fatalf("%d turns of one node", len(all))
		return nil
	}
}

func summary(w *plan.World, t *plan.Unit) *judged {
	if t == nil {
		return nil
	}
	j := &judged{
		State: t.Unit.State, Step: t.Step, Reason: t.Unit.Reason, Message: t.Unit.Message, InTurn: t.Unit.InTurn, OptedOut: t.Unit.OptedOut,
		Pending: t.Pending, Ranked: t.Unit.Rank > 0, NotCounted: !t.Counted, Since: t.Unit.Since, Wake: t.Wake,
	}
	if t.Job != nil {
		j.Job = string(t.Job.UID)
	}
	if t.Pod != nil {
		j.Pod = t.Pod.Name
	}
	for _, s := range t.OtherJobs {
		j.OtherJobs = append(j.OtherJobs, string(s.UID))
	}
	if t.Claim != nil {
		if j.Attempt = t.Claim.Attempt; j.Attempt == w.Attempt(t.Node) {
			j.Attempt = asked
		}
	}
	return j
}

func withUID(uid types.UID) func(*batchv1.Job) { return func(j *batchv1.Job) { j.UID = uid } }

func paused(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](0) }

func madeFor(template string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationTemplate] = template }
}

func created(at metav1.Time) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.CreationTimestamp = at }
}

func newPod(name string, j types.UID, at metav1.Time) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, CreationTimestamp: at,
		OwnerReferences: []metav1.OwnerReference{{UID: j, Controller: ptr.To(true)}},
	}}
}

// judgement is a node with what the Plan has on it, and what the judge makes of that.
type judgement struct {
	plan   func(*upgradev1.Plan)
	world  func(*plan.World)
	node   []func(*corev1.Node)
	claims []v1alpha1.Claim
	jobs   func(*upgradev1.Plan, *corev1.Node) []*batchv1.Job
	pods   []*corev1.Pod
	want   *judged
}

// build makes the world, the node, and the Plan's Jobs there.
func (tc *judgement) build() (*plan.World, *corev1.Node, []*batchv1.Job) {
	p := newPlan()
	if tc.plan != nil {
		tc.plan(p)
	}
	w := newWorld(p)
	if tc.world != nil {
		tc.world(w)
	}
	n := newNode("node-1", tc.node...)
	if tc.jobs == nil {
		return w, n, nil
	}
	return w, n, tc.jobs(p, n)
}

func judgements() map[string]judgement {
	const (
		outdated = v1alpha1.UnitOutdated
		updating = v1alpha1.UnitUpdating
		soaking  = v1alpha1.UnitSoaking
		updated  = v1alpha1.UnitUpdated
		isFailed = v1alpha1.UnitFailed

		failedText = "Job system-upgrade/NAME failed on Node node-1: BackoffLimitExceeded: Job has reached the specified backoff limit"
		lostText   = "the Job that was started on Node node-1 at SINCE is gone, and its result is unknown; it runs again only after a change of the Plan or a request to retry"
	)
	var (
		since   = ago(10 * time.Minute).Time
		minute  = ago(time.Minute).Time
		old     = func(c *v1alpha1.Claim) { c.Since = metav1.Time{Time: started.Add(-time.Second)} }
		before  = func(c *v1alpha1.Claim) { c.Attempt = "before" }
		soaked  = func(c *v1alpha1.Claim) { c.Soaking = ptr.To(ago(time.Minute)) }
		claims  = func(c ...v1alpha1.Claim) []v1alpha1.Claim { return c }
		other   = v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Turn: "t9", Since: ago(time.Hour)}
		newJobs = func(change ...func(*batchv1.Job)) func(*upgradev1.Plan, *corev1.Node) []*batchv1.Job {
			return func(p *upgradev1.Plan, n *corev1.Node) []*batchv1.Job {
				return []*batchv1.Job{newTurnJob(p, n, change...)}
			}
		}
	)
	return map[string]judgement{
		// Nothing has been done yet, or all of it.
		"fresh": {
			want: &judged{State: outdated, Ranked: true},
		},
		"with another hash": {
			node: []func(*corev1.Node){labelled(oldHash)},
			want: &judged{State: outdated, Ranked: true},
		},
		"updated": {
			node: []func(*corev1.Node){labelled(hash)},
			want: &judged{State: updated},
		},
		"updated, and its Job is still there": {
			node: []func(*corev1.Node){labelled(hash)},
			jobs: newJobs(succeeded),
			want: &judged{State: updated},
		},
		"opted out": {
			node: []func(*corev1.Node){labelled("disabled")},
			want: &judged{State: outdated, OptedOut: true, Ranked: true},
		},
		"not selected": {
			world: func(w *plan.World) { w.Selector = labels.Nothing() },
		},
		"without a hostname": {
			node: []func(*corev1.Node){without(corev1.LabelHostname)},
		},
		"of a Plan that is not ready": {
			world: func(w *plan.World) { w.Ready = false },
		},
		"Windows": {
			node: []func(*corev1.Node){windows},
			want: &judged{State: outdated, Ranked: true},
		},
		"Windows, to be drained": {
			plan: drains,
			node: []func(*corev1.Node){windows},
			want: &judged{
				State: outdated, Ranked: true, Reason: v1alpha1.ReasonWindowsImageMissing,
				Message: "a Windows node can't be cordoned or drained until SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image for it",
			},
		},
		"Windows, to be drained, with an image for that": {
			plan:  drains,
			world: func(w *plan.World) { w.Job.KubectlImageWindows = "win" },
			node:  []func(*corev1.Node){windows},
			want:  &judged{State: outdated, Ranked: true},
		},
		"claimed by another": {
			claims: claims(other),
			want:   &judged{State: outdated, Ranked: true},
		},
		"claimed by an older Plan of the same name": {
			claims: claims(claimed(func(c *v1alpha1.Claim) { c.UID = "older" })),
			want:   &judged{State: outdated, Ranked: true},
		},
		"with an old Job that has failed": {
			jobs: newJobs(failed),
			want: &judged{State: outdated, Ranked: true},
		},

		// Claimed, and the Job is not there.
		"claimed": {
			claims: claims(claimed()),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: since, Attempt: asked},
		},
		"claimed beside another": {
			claims: claims(other, claimed()),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: since, Attempt: asked},
		},
		"claimed for what is not asked for any more": {
			claims: claims(claimed(before)),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: since, Attempt: "before"},
		},
		"claimed less than the TTL ago": {
			claims: claims(claimed()),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: since, Attempt: asked},
		},
		"claimed a TTL ago": {
			claims: claims(claimed(func(c *v1alpha1.Claim) { c.Since = ago(15 * time.Minute) })),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: ago(15 * time.Minute).Time, Attempt: asked},
		},
		"claimed more than the TTL ago": {
			claims: claims(claimed(old)),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobLost, Message: strings.ReplaceAll(lostText, "SINCE", "2026-11-20T10:59:59Z"),
				Since: now, Attempt: asked,
			},
		},
		"claimed more than the TTL ago, for what is not asked for any more": {
			claims: claims(claimed(old, before)),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: started.Add(-time.Second), Attempt: "before"},
		},
		"claimed longer ago than its soak keeps its Job": {
			claims: claims(claimed(old, func(c *v1alpha1.Claim) { c.KeptSeconds = 7200 })),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: started.Add(-time.Second), Attempt: asked},
		},
		"claimed when the result was not kept": {
			claims: claims(claimed(func(c *v1alpha1.Claim) { c.Since, c.KeptSeconds = ago(time.Second), 0 })),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobLost, Message: strings.ReplaceAll(lostText, "SINCE", "2026-11-20T11:59:59Z"),
				Since: now, Attempt: asked,
			},
		},

		// The Job runs.
		"running": {
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, by the newest of its pods": {
			claims: claims(claimed()),
			jobs:   newJobs(),
			pods: []*corev1.Pod{
				newPod("second", "job-node-1", ago(2*time.Minute)), newPod("third", "job-node-1", ago(time.Minute)),
				newPod("first", "job-node-1", ago(3*time.Minute)), newPod("other", "job-other", ago(0)),
			},
			want: &judged{State: updating, Job: "job-node-1", Pod: "third", Since: since, Attempt: asked},
		},
		"running, and the attempt is another": {
			claims: claims(claimed(before)),
			jobs:   newJobs(),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"running, and the template is another": {
			claims: claims(claimed(before)),
			jobs:   newJobs(madeFor("another")),
			want:   &judged{State: outdated, InTurn: true, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"running, and the hash is another": {
			claims: claims(claimed(before)),
			jobs:   newJobs(forHash(oldHash)),
			want:   &judged{State: outdated, InTurn: true, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"running for something else, and being stopped": {
			claims: claims(claimed(before)),
			jobs:   newJobs(forHash(oldHash), deleted),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"running, and being deleted": {
			claims: claims(claimed()),
			jobs:   newJobs(deleted),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and opted out": {
			node:   []func(*corev1.Node){labelled("disabled")},
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Step: plan.StepStop, OptedOut: true, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and not selected": {
			world:  func(w *plan.World) { w.Selector = labels.Nothing() },
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Step: plan.StepStop, NotCounted: true, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and labelled as updated": {
			node:   []func(*corev1.Node){labelled(hash)},
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Step: plan.StepStop, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, of a Plan that is not ready": {
			world:  func(w *plan.World) { w.Ready = false },
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, NotCounted: true, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and what was cordoned is not any more": {
			node:   []func(*corev1.Node){annotated(v1alpha1.AnnotationCordonedBy, self)},
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Step: nodeturn.StepUnmark, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and a person has lifted its cordon, though not its exclusion from load balancers": {
			node:   []func(*corev1.Node){annotated(v1alpha1.AnnotationExcludedBy, self)},
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Step: nodeturn.StepUnmark, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"running, and cordoned": {
			node:   []func(*corev1.Node){annotated(v1alpha1.AnnotationCordonedBy, self), unschedulable},
			claims: claims(claimed()),
			jobs:   newJobs(),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: asked},
		},

		// The Job has succeeded.
		"succeeded": {
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"succeeded, and what was cordoned is not any more": {
			node:   []func(*corev1.Node){annotated(v1alpha1.AnnotationCordonedBy, self)},
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"succeeded for something else": {
			claims: claims(claimed(before)),
			jobs:   newJobs(succeeded, forHash(oldHash)),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: "before"},
		},
		"succeeded, and opted out": {
			node:   []func(*corev1.Node){labelled("disabled")},
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, OptedOut: true, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"succeeded, and not selected": {
			world:  func(w *plan.World) { w.Selector = labels.Nothing() },
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, NotCounted: true, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"succeeded, of a Plan that is not ready": {
			world:  func(w *plan.World) { w.Ready = false },
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, NotCounted: true, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"succeeded, with a delay": {
			plan:   soaks(3 * time.Minute),
			claims: claims(claimed()),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepSoak, Job: "job-node-1", Since: minute, Wake: minute.Add(3 * time.Minute), Attempt: asked},
		},
		"soaking": {
			plan:   soaks(3 * time.Minute),
			claims: claims(claimed(soaked)),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Job: "job-node-1", Since: minute, Wake: minute.Add(3 * time.Minute), Attempt: asked},
		},
		"soaking, and the Job is gone": {
			plan:   soaks(3 * time.Minute),
			claims: claims(claimed(soaked)),
			want:   &judged{State: soaking, Since: minute, Wake: minute.Add(3 * time.Minute), Attempt: asked},
		},
		"soaked a moment short": {
			plan:   soaks(time.Minute + 1),
			claims: claims(claimed(soaked)),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Job: "job-node-1", Since: minute, Wake: now.Add(1), Attempt: asked},
		},
		"soaked": {
			plan:   soaks(time.Minute),
			claims: claims(claimed(soaked)),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"soaked, and the Job is gone": {
			plan:   soaks(time.Minute),
			claims: claims(claimed(soaked)),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Since: minute, Attempt: asked},
		},
		"soaking, and the delay was taken away": {
			claims: claims(claimed(soaked)),
			jobs:   newJobs(succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: asked},
		},

		// The Job has failed.
		"failed": {
			claims: claims(claimed()),
			jobs:   newJobs(failed),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobFailed, Message: failedText, Job: "job-node-1", Since: minute, Attempt: asked,
			},
		},
		"to fail, and its pod has not ended": {
			claims: claims(claimed()),
			jobs:   newJobs(ended(batchv1.JobFailureTarget, ago(time.Minute))),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Wake: now.Add(time.Minute), Attempt: asked},
		},
		"to fail, and its pod does not end": {
			claims: claims(claimed()),
			jobs:   newJobs(ended(batchv1.JobFailureTarget, ago(2*time.Minute))),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobFailed, Message: failedText, Job: "job-node-1", Since: ago(2 * time.Minute).Time, Attempt: asked,
			},
		},
		"failed, and noted": {
			claims: claims(claimed(broken)),
			jobs:   newJobs(failed),
			want: &judged{
				State: isFailed, Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Job: "job-node-1", Since: ago(5 * time.Minute).Time, Attempt: asked,
			},
		},
		"failed, and the Job is gone": {
			claims: claims(claimed(broken)),
			want:   &judged{State: isFailed, Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Since: ago(5 * time.Minute).Time, Attempt: asked},
		},
		"failed, and asked for again": {
			claims: claims(claimed(broken, before)),
			jobs:   newJobs(failed),
			want:   &judged{State: outdated, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"failed, and opted out": {
			node:   []func(*corev1.Node){labelled("disabled")},
			claims: claims(claimed(broken)),
			jobs:   newJobs(failed),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, OptedOut: true, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"failed, and not selected": {
			world:  func(w *plan.World) { w.Selector = labels.Nothing() },
			claims: claims(claimed(broken)),
			jobs:   newJobs(failed),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, NotCounted: true, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"failed, and labelled as updated by hand": {
			node:   []func(*corev1.Node){labelled(hash)},
			claims: claims(claimed(broken)),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, Since: since, Attempt: asked},
		},
		"failed, of a Plan that is not ready": {
			world:  func(w *plan.World) { w.Ready = false },
			claims: claims(claimed(broken)),
			want:   &judged{State: isFailed, NotCounted: true, Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Since: ago(5 * time.Minute).Time, Attempt: asked},
		},
		"failed just now, of a Plan that is not ready": {
			world:  func(w *plan.World) { w.Ready = false },
			claims: claims(claimed()),
			jobs:   newJobs(failed),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, NotCounted: true, Reason: v1alpha1.ReasonJobFailed, Message: failedText, Job: "job-node-1", Since: minute, Attempt: asked,
			},
		},
		"failed, and something runs": {
			claims: claims(claimed(broken)),
			jobs:   newJobs(ofTurn("t0"), withUID("unowned")),
			want: &judged{
				State: v1alpha1.UnitFailed, Step: plan.StepStop, OtherJobs: []string{"unowned"}, Since: ago(5 * time.Minute).Time, Attempt: asked,
				Reason: v1alpha1.ReasonJobFailed, Message: "it broke; what runs on the node is being stopped",
			},
		},
		// A change that shapes no Job, made while it ran, is no reason to try again what has just failed.
		"failed, and only the attempt is another": {
			claims: claims(claimed(before)),
			jobs:   newJobs(failed),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobFailed, Message: failedText, Job: "job-node-1", Since: minute, Attempt: asked,
			},
		},
		"failed for something else": {
			claims: claims(claimed(before)),
			jobs:   newJobs(failed, forHash(oldHash)),
			want: &judged{
				State: isFailed, Step: nodeturn.StepFail, Reason: v1alpha1.ReasonJobFailed, Message: failedText, Job: "job-node-1", Since: minute, Attempt: "before",
			},
		},

		// Jobs that system-upgrade-controller has left.
		"left running": {
			jobs: newJobs(left),
			want: &judged{State: updating, Step: nodeturn.StepAdopt, Job: "job-node-1"},
		},
		"left complete": {
			jobs: newJobs(left, succeeded),
			want: &judged{State: updating, Step: nodeturn.StepAdopt, Job: "job-node-1"},
		},
		"left failed": {
			jobs: newJobs(left, failed),
			want: &judged{State: updating, Step: nodeturn.StepAdopt, Job: "job-node-1"},
		},
		"left complete, and the node is labelled": {
			node: []func(*corev1.Node){labelled(hash)},
			jobs: newJobs(left, succeeded),
			want: &judged{State: updated},
		},
		"left paused": {
			jobs: newJobs(left, paused),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"left running for another hash": {
			jobs: newJobs(left, forHash(oldHash)),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"left complete for another hash": {
			jobs: newJobs(left, succeeded, forHash(oldHash)),
			want: &judged{State: outdated, Ranked: true},
		},
		"left running, and being deleted": {
			jobs: newJobs(left, deleted),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"left running on a node that opted out": {
			node: []func(*corev1.Node){labelled("disabled")},
			jobs: newJobs(left),
			want: &judged{State: updating, Step: plan.StepStop, OptedOut: true, OtherJobs: []string{"job-node-1"}},
		},
		"left running, of a Plan that is not ready": {
			world: func(w *plan.World) { w.Ready = false },
			jobs:  newJobs(left),
			want:  &judged{State: updating, NotCounted: true, OtherJobs: []string{"job-node-1"}},
		},
		"left running, and adopted": {
			claims: claims(claimed(func(c *v1alpha1.Claim) { c.Turn = "job/job-node-1" })),
			jobs:   newJobs(left),
			want:   &judged{State: updating, Job: "job-node-1", Since: since, Attempt: asked},
		},
		"left complete, and adopted": {
			claims: claims(claimed(func(c *v1alpha1.Claim) { c.Turn = "job/job-node-1" })),
			jobs:   newJobs(left, succeeded),
			want:   &judged{State: soaking, Step: nodeturn.StepFinish, Job: "job-node-1", Since: minute, Attempt: asked},
		},
		"left running, adopted, and the Plan has changed": {
			claims: claims(claimed(before, func(c *v1alpha1.Claim) { c.Turn = "job/job-node-1" })),
			jobs:   newJobs(left, forHash(oldHash)),
			want:   &judged{State: outdated, InTurn: true, Job: "job-node-1", Since: since, Attempt: "before"},
		},
		"left running twice: the newest is taken": {
			jobs: func(p *upgradev1.Plan, n *corev1.Node) []*batchv1.Job {
				return []*batchv1.Job{
					newTurnJob(p, n, left, withUID("older"), created(ago(time.Hour))),
					newTurnJob(p, n, left, withUID("newest"), created(ago(time.Minute))),
					newTurnJob(p, n, left, withUID("old"), created(ago(30*time.Minute))),
				}
			},
			want: &judged{State: updating, Step: nodeturn.StepAdopt, Job: "newest"},
		},

		// Jobs of its own whose claim is gone.
		"running, and the claim is gone": {
			jobs: newJobs(),
			want: &judged{State: updating, Step: nodeturn.StepAdopt, Job: "job-node-1"},
		},
		"complete, and the claim is gone": {
			jobs: newJobs(succeeded),
			want: &judged{State: outdated, Ranked: true},
		},
		"running for another hash, and the claim is gone": {
			jobs: newJobs(forHash(oldHash)),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"running, the claim is gone, and not selected": {
			world: func(w *plan.World) { w.Selector = labels.Nothing() },
			jobs:  newJobs(forHash(oldHash)),
			want:  &judged{State: updating, Step: plan.StepStop, NotCounted: true, OtherJobs: []string{"job-node-1"}},
		},

		// Jobs that should not be there.
		"of an older Plan of the same name": {
			jobs: newJobs(ownedBy("older")),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"of an older Plan of the same name, and complete": {
			jobs: newJobs(ownedBy("older"), succeeded),
			want: &judged{State: outdated, Ranked: true},
		},
		"of an older Plan of the same name, left": {
			jobs: newJobs(ownedBy("older"), left),
			want: &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}},
		},
		"of an older Plan of the same name, left and complete": {
			jobs: newJobs(ownedBy("older"), left, succeeded),
			want: &judged{State: outdated, Ranked: true},
		},
		"claimed, and a Job of another turn runs": {
			claims: claims(claimed()),
			jobs:   newJobs(ofTurn("t0")),
			want:   &judged{State: updating, Step: plan.StepStop, OtherJobs: []string{"job-node-1"}, Since: since, Attempt: asked},
		},
		"claimed, and a Job of another turn has ended": {
			claims: claims(claimed()),
			jobs:   newJobs(ofTurn("t0"), failed),
			want:   &judged{State: outdated, InTurn: true, Pending: true, Since: since, Attempt: asked},
		},
		"running, and a Job of another turn too": {
			claims: claims(claimed()),
			jobs: func(p *upgradev1.Plan, n *corev1.Node) []*batchv1.Job {
				return []*batchv1.Job{newTurnJob(p, n, ofTurn("t0"), withUID("unowned")), newTurnJob(p, n)}
			},
			want: &judged{State: updating, Step: plan.StepStop, Job: "job-node-1", OtherJobs: []string{"unowned"}, Since: since, Attempt: asked},
		},
		"released, and only a Job of another turn runs": {
			node:   []func(*corev1.Node){labelled("disabled")},
			claims: claims(claimed()),
			jobs:   newJobs(ofTurn("t0")),
			want:   &judged{State: updating, Step: plan.StepStop, OptedOut: true, OtherJobs: []string{"job-node-1"}, Since: since, Attempt: asked},
		},

		// Not selected any more, and nothing runs.
		"claimed, and not selected": {
			world:  func(w *plan.World) { w.Selector = labels.Nothing() },
			claims: claims(claimed()),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, NotCounted: true, Since: since, Attempt: asked},
		},
		"claimed, and without a hostname now": {
			node:   []func(*corev1.Node){without(corev1.LabelHostname)},
			claims: claims(claimed()),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, NotCounted: true, Since: since, Attempt: asked},
		},
		"claimed, of a Plan that is not ready": {
			world:  func(w *plan.World) { w.Ready = false },
			claims: claims(claimed()),
			want:   &judged{State: updating, NotCounted: true, Since: since, Attempt: asked},
		},
		"claimed, and opted out": {
			node:   []func(*corev1.Node){labelled("disabled")},
			claims: claims(claimed()),
			want:   &judged{State: updating, Step: nodeturn.StepRelease, OptedOut: true, Since: since, Attempt: asked},
		},

		// Claims that can't be read: the node is ignored, and what runs there holds its slot.
		"with claims that can't be read": {
			node: []func(*corev1.Node){annotated(v1alpha1.AnnotationClaims, "{")},
			want: &judged{State: outdated},
		},
		"with claims that can't be read, and running": {
			node: []func(*corev1.Node){annotated(v1alpha1.AnnotationClaims, "{")},
			jobs: newJobs(),
			want: &judged{State: outdated, InTurn: true, Job: "job-node-1"},
		},
		"with claims that can't be read, and running for another hash": {
			node: []func(*corev1.Node){annotated(v1alpha1.AnnotationClaims, "{")},
			jobs: newJobs(forHash(oldHash)),
			want: &judged{State: outdated, InTurn: true, OtherJobs: []string{"job-node-1"}},
		},
		"with claims that can't be read, and updated": {
			node: []func(*corev1.Node){annotated(v1alpha1.AnnotationClaims, "{"), labelled(hash)},
			want: &judged{State: updated},
		},
		"with claims that can't be read, and opted out": {
			node: []func(*corev1.Node){annotated(v1alpha1.AnnotationClaims, "{"), labelled("disabled")},
			want: &judged{State: outdated, OptedOut: true},
		},
	}
}

func TestTurns(t *testing.T) {
	for name, tc := range judgements() {
		t.Run(name, func(t *testing.T) {
			w, n, jobs := tc.build()
			got := judges(t, w, n, tc.claims, jobs, tc.pods)
			if tc.want != nil && strings.Contains(tc.want.Message, "NAME") {
				tc.want.Message = strings.ReplaceAll(tc.want.Message, "NAME", got.Job.Name)
			}
			if diff := cmp.Diff(tc.want, summary(w, got), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got != nil && got.Step == nodeturn.StepFail && (got.Failure.Reason != got.Unit.Reason || got.Failure.Message != got.Unit.Message || !got.Failure.Time.Time.Equal(got.Unit.Since)) {
				t.Errorf("fails with %+v", got.Failure)
			}
		})
	}
}

// The operator cordons and drains while a container of the Job waits for that.
func TestTurnsAwaitOperator(t *testing.T) {
	waiting := func(name string) *corev1.Pod {
		p := newPod("p1", "job-node-1", ago(time.Minute))
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{terminated("prepare", ago(time.Minute)), running(name, ago(time.Minute))}
		return p
	}
	ended := newPod("p1", "job-node-1", ago(time.Minute))
	ended.Status.InitContainerStatuses = []corev1.ContainerStatus{terminated("drain", ago(time.Minute))}
	cordoned := func(c *v1alpha1.Claim) { c.Cordoned = ptr.To(ago(time.Minute)) }
	for name, tc := range map[string]struct {
		world func(*plan.World)
		node  func(*corev1.Node)
		claim func(*v1alpha1.Claim)
		job   func(*batchv1.Job)
		pod   *corev1.Pod
		want  nodeturn.Step
	}{
		"to be cordoned":              {pod: waiting("cordon"), want: plan.StepCordon},
		"to be drained":               {pod: waiting("drain"), want: plan.StepCordon},
		"cordoned":                    {claim: cordoned, pod: waiting("drain"), want: plan.StepDrain},
		"cordoned, and no more":       {claim: func(c *v1alpha1.Claim) { cordoned(c); c.Drains = false }, pod: waiting("cordon")},
		"drained":                     {claim: func(c *v1alpha1.Claim) { cordoned(c); c.Drained = ptr.To(ago(0)) }, pod: waiting("drain")},
		"uncordoned by a person":      {node: annotated(v1alpha1.AnnotationCordonedBy, self), claim: cordoned, pod: waiting("drain"), want: nodeturn.StepUnmark},
		"preparing":                   {pod: waiting("prepare")},
		"without a pod":               {},
		"past it":                     {pod: ended},
		"with kubectl":                {world: func(w *plan.World) { w.Job.KubectlImage = "kubectl" }, pod: waiting("drain")},
		"a Job that was there before": {job: left, claim: func(c *v1alpha1.Claim) { c.Turn = "job/job-node-1" }, pod: waiting("drain")},
		"Windows":                     {world: func(w *plan.World) { w.Job.KubectlImageWindows = "kubectl" }, node: windows, pod: waiting("drain")},
		"of a Plan that is not ready": {world: func(w *plan.World) { w.Ready = false }, pod: waiting("drain")},
		"being deleted":               {job: deleted, pod: waiting("drain")},
		"out of date":                 {job: madeFor("another"), pod: waiting("drain"), want: plan.StepCordon},
		"failed":                      {claim: broken, pod: waiting("drain"), want: plan.StepStop},
		"not selected":                {world: func(w *plan.World) { w.Selector = labels.Nothing() }, pod: waiting("drain"), want: plan.StepStop},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(newPlan(drains))
			n := newNode("node-1")
			if tc.node != nil {
				tc.node(n)
			}
			if tc.world != nil {
				tc.world(w)
			}
			claim := claimed(func(c *v1alpha1.Claim) { c.Drains = true })
			if tc.claim != nil {
				tc.claim(&claim)
			}
			j := newTurnJob(w.Plan, n)
			if tc.job != nil {
				tc.job(j)
			}
			var pods []*corev1.Pod
			if tc.pod != nil {
				pods = append(pods, tc.pod)
			}
			if got := judges(t, w, n, []v1alpha1.Claim{claim}, []*batchv1.Job{j}, pods); got.Step != tc.want {
				t.Errorf("step is %q, want %q", got.Step, tc.want)
			}
		})
	}
}

// Nodes are selected by their labels, whatever stands on them.
func TestTurnsSelected(t *testing.T) {
	w := newWorld(newPlan())
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Turn: "t9", Since: ago(time.Hour)}
	s := snapshotOf(
		newNode("none"), newNode("other", holding(other)), newNode("bad", annotated(v1alpha1.AnnotationClaims, "{")),
		newNode("unselected", without(corev1.LabelHostname), holding(other)), newNode("empty", holding()),
	)
	w.Fleet, w.SharedHostnames = s.Fleet, s.SharedHostnames
	all := w.Units(s.Objects, s.jobs, s.pods)
	var names []string
	for i := range all {
		names = append(names, all[i].Node.Name)
	}
	if diff := cmp.Diff([]string{"none", "other", "bad", "empty"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Jobs find their node by its hostname label: a node that shares it is ignored, unless it is on its way already.
func TestTurnsHostnames(t *testing.T) {
	host := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = name }
	}
	w := newWorld(newPlan())
	running := newNode("running", host("c"))
	claim := claimed()
	claim.Attempt = w.Attempt(running)
	holding(claim)(running)
	s := snapshotOf(
		newNode("fresh-1", host("a")), newNode("fresh-2", host("a")), newNode("own", host("b")),
		newNode("updated", host("c"), labelled(hash)), running,
		newNode("beside-an-updated", host("d")), newNode("updated-beside", host("d"), labelled(hash)),
		newNode("windows", host("e"), windows), newNode("windows-beside", host("e"), labelled(hash)),
	)
	s.jobs = map[string][]*batchv1.Job{"running": {newTurnJob(w.Plan, running)}}
	w.Plan.Spec.Cordon = true // Which Windows nodes wait for anyway.
	w.Fleet, w.SharedHostnames = s.Fleet, s.SharedHostnames
	all := w.Units(s.Objects, s.jobs, s.pods)
	got := map[string]v1alpha1.Reason{}
	for i := range all {
		got[all[i].Node.Name] = all[i].Unit.Reason
	}
	want := map[string]v1alpha1.Reason{
		"fresh-1": v1alpha1.ReasonHostnameShared, "fresh-2": v1alpha1.ReasonHostnameShared, "own": "", "updated": "", "running": "",
		"beside-an-updated": v1alpha1.ReasonHostnameShared, "updated-beside": "",
		"windows": v1alpha1.ReasonWindowsImageMissing, "windows-beside": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := all[0].Unit.Message; text != "another node has the same label kubernetes.io/hostname=a, by which its Job would find it" {
		t.Errorf("says %s", text)
	}
}

// Outdated nodes go in system-upgrade-controller's order; what holds a claim goes before.
func TestTurnsRank(t *testing.T) {
	w := newWorld(newPlan())
	fresh := judges(t, w, newNode("node-1"), nil, nil, nil)
	if want := rollout.Rank("uid-node-1", uid, hash); fresh.Unit.Rank != want {
		t.Errorf("rank is %d, want %d", fresh.Unit.Rank, want)
	}
	retried := judges(t, w, newNode("node-1"), []v1alpha1.Claim{claimed(broken, func(c *v1alpha1.Claim) { c.Attempt = "before" })}, nil, nil)
	if retried.Unit.Rank != 0 {
		t.Errorf("rank of a retry is %d", retried.Unit.Rank)
	}
}

func TestAttempt(t *testing.T) {
	base := newWorld(newPlan()).Attempt(newNode("node-1"))
	for name, tc := range map[string]struct {
		plan  func(*upgradev1.Plan)
		node  []func(*corev1.Node)
		other bool
	}{
		"nothing":                {nil, nil, false},
		"the node's hash":        {nil, []func(*corev1.Node){labelled(oldHash)}, false},
		"the node's cordon":      {nil, []func(*corev1.Node){unschedulable}, false},
		"another annotation":     {nil, []func(*corev1.Node){annotated("x", "y")}, false},
		"a retry on the node":    {nil, []func(*corev1.Node){annotated(v1alpha1.AnnotationRetry, "1")}, true},
		"a retry of the Plan":    {func(p *upgradev1.Plan) { p.Annotations = map[string]string{v1alpha1.AnnotationRetry: "1"} }, nil, true},
		"a change of the spec":   {func(p *upgradev1.Plan) { p.Spec.ServiceAccountName = "other" }, nil, true},
		"another strategy":       {func(p *upgradev1.Plan) { p.Spec.Strategy = &v1alpha1.Strategy{Paused: true} }, nil, false},
		"a change of the hash":   {func(p *upgradev1.Plan) { p.Status.LatestHash = oldHash }, nil, true},
		"a change of the labels": {func(p *upgradev1.Plan) { p.Labels = map[string]string{"x": "y"} }, nil, true},
	} {
		p := newPlan()
		if tc.plan != nil {
			tc.plan(p)
		}
		if other := newWorld(p).Attempt(newNode("node-1", tc.node...)) != base; other != tc.other {
			t.Errorf("%s: another attempt: %v", name, other)
		}
	}
}

func TestShared(t *testing.T) {
	for name, tc := range map[string]struct {
		plan func(*upgradev1.Plan)
		want bool
	}{
		"neither":   {func(*upgradev1.Plan) {}, true},
		"exclusive": {func(p *upgradev1.Plan) { p.Spec.Exclusive = true }, false},
		"cordon":    {func(p *upgradev1.Plan) { p.Spec.Cordon = true }, false},
		"drain":     {drains, false},
	} {
		if got := newWorld(newPlan(tc.plan)).Strategy(1, nil).Shared; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNewClaim(t *testing.T) {
	kubectl := func(w *plan.World) { w.Job.KubectlImage = "rancher/kubectl" }
	for name, tc := range map[string]struct {
		plan  func(*upgradev1.Plan)
		world func(*plan.World)
		node  []func(*corev1.Node)
		claim *v1alpha1.Claim
		adopt func(*batchv1.Job)
		want  v1alpha1.Claim
	}{
		"of a Plan that shares": {
			want: v1alpha1.Claim{Shared: true},
		},
		"of a Plan that is exclusive": {
			plan: func(p *upgradev1.Plan) { p.Spec.Exclusive = true },
			want: v1alpha1.Claim{},
		},
		"of a Plan that drains: moult leaves a mark": {
			plan: drains,
			want: v1alpha1.Claim{Drains: true},
		},
		"of a Plan that drains, with kubectl, which leaves none": {
			plan: drains, world: kubectl,
			want: v1alpha1.Claim{Drains: true, Uncordon: true},
		},
		"of a Plan that drains, with kubectl, what a person has cordoned": {
			plan: drains, world: kubectl, node: []func(*corev1.Node){unschedulable},
			want: v1alpha1.Claim{Drains: true},
		},
		"of a Plan that drains Windows": {
			plan: drains, world: func(w *plan.World) { w.Job.KubectlImageWindows = "win" }, node: []func(*corev1.Node){windows},
			want: v1alpha1.Claim{Drains: true, Uncordon: true},
		},
		"of a Plan that does not cordon, with kubectl": {
			world: kubectl,
			want:  v1alpha1.Claim{Shared: true},
		},
		"started over, with kubectl: what the first turn has cordoned": {
			plan: drains, world: kubectl, node: []func(*corev1.Node){unschedulable}, claim: ptr.To(claimed(broken, func(c *v1alpha1.Claim) { c.Uncordon = true })),
			want: v1alpha1.Claim{Drains: true, Uncordon: true},
		},
		"started over, with kubectl: what a person had cordoned": {
			plan: drains, world: kubectl, node: []func(*corev1.Node){unschedulable}, claim: ptr.To(claimed(broken)),
			want: v1alpha1.Claim{Drains: true},
		},
		"started over, and the Plan drains no more": {
			claim: ptr.To(claimed(broken, func(c *v1alpha1.Claim) { c.Uncordon = true })),
			want:  v1alpha1.Claim{Shared: true, Uncordon: true},
		},
		"of a Plan that soaks longer than Jobs are kept": {
			plan: soaks(time.Hour),
			want: v1alpha1.Claim{Shared: true, KeptSeconds: 3660},
		},
		"adopted, with a Job that is kept for another time": {
			adopt: func(j *batchv1.Job) {
				left(j)
				j.Spec.TTLSecondsAfterFinished = ptr.To[int32](30)
			},
			want: v1alpha1.Claim{Shared: true, KeptSeconds: 30, Turn: "job/job-node-1", Since: ago(9 * time.Minute)},
		},
		"adopted": {
			adopt: left,
			want:  v1alpha1.Claim{Shared: true, Turn: "job/job-node-1", Since: ago(9 * time.Minute)},
		},
		"adopted from a drain with kubectl": {
			plan: drains, adopt: left, node: []func(*corev1.Node){unschedulable},
			want: v1alpha1.Claim{Drains: true, Uncordon: true, Turn: "job/job-node-1", Since: ago(9 * time.Minute)},
		},
		"adopted from a drain of its own, which leaves a mark": {
			plan: drains, adopt: func(*batchv1.Job) {}, node: []func(*corev1.Node){unschedulable},
			want: v1alpha1.Claim{Drains: true, Turn: "t1", Since: ago(9 * time.Minute)},
		},
		"adopted from a drain of its own, with kubectl": {
			plan: drains, world: kubectl, adopt: func(*batchv1.Job) {}, node: []func(*corev1.Node){unschedulable},
			want: v1alpha1.Claim{Drains: true, Uncordon: true, Turn: "t1", Since: ago(9 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan()
			if tc.plan != nil {
				tc.plan(p)
			}
			w := newWorld(p)
			if tc.world != nil {
				tc.world(w)
			}
			n := newNode("node-1", tc.node...)
			u := &plan.Unit{Turn: nodeturn.Turn{Node: n, Claim: tc.claim}}
			if tc.adopt != nil {
				u.Step, u.Job = nodeturn.StepAdopt, newTurnJob(p, n, tc.adopt)
			}
			got := w.NewClaim(u)
			tc.want.Rollout, tc.want.UID, tc.want.Revision, tc.want.Attempt = self, uid, hash, w.Attempt(n)
			if tc.want.KeptSeconds == 0 {
				tc.want.KeptSeconds = 900
			}
			if tc.want.Turn == "" {
				tc.want.Turn, tc.want.Since = got.Turn, metav1.Time{Time: now}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			w.Now = now.Add(1)
			if again := w.NewClaim(u); tc.adopt == nil && again.Turn == got.Turn {
				t.Error("another turn has the same name")
			}
		})
	}
}
