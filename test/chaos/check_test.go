// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// check looks at all that has happened, and at how things are at the end.
func (c *chaos) check(ctx context.Context) {
	c.t.Helper()
	var plan upgradev1.Plan
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: planName}, &plan); err != nil {
		c.t.Fatal(err)
	}
	c.checkPlan(&plan)

	now := c.objects(ctx, namespace, &batchv1.JobList{}, &corev1.PodList{}, &upgradev1.PlanList{})
	c.until(ctx, "the journal is up to date", func() (bool, error) { return c.journal.has(now) })
	r := newReplay(c.t, &plan)
	for _, e := range c.journal.inOrder() {
		r.next(e)
	}
	r.end(c.versions)
	c.checkAudit(r)
	c.t.Logf("at most %d nodes were disrupted at once, %d of them claimed and %d with a Job that ran; at most %d were unavailable", r.most, r.mostClaimed, r.mostRunning, r.mostUnavailable)
}

func (c *chaos) checkPlan(p *upgradev1.Plan) {
	c.t.Helper()
	if !complete(p) {
		c.t.Errorf("the Plan is not complete: %+v", p.Status.Conditions)
	}
	if len(p.Status.Applying) > 0 {
		c.t.Errorf("the Plan is still being applied to %v", p.Status.Applying)
	}
	want := &v1alpha1.UnitCounts{Total: nodes, Updated: nodes}
	if diff := cmp.Diff(want, p.Status.Counts); diff != "" {
		c.t.Errorf("the Plan's counts (-want +got)\n%s", diff)
	}
}

// checkAudit compares what the API server says was made with what the journal has seen: each Job was made once.
func (c *chaos) checkAudit(r *replay) {
	c.t.Helper()
	log, err := audit.Open(c.cluster.AuditLog())
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	made, unanswered, refused := map[string]int{}, map[string]bool{}, map[string]int{}
	err = log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
		what := e.Verb + " " + e.Resource()
		switch {
		case e.Response.Code == http.StatusGatewayTimeout:
			// Who asked was dead before the answer. It may have been done.
			unanswered[e.Object.Name] = true
		case e.Refused():
			refused[fmt.Sprintf("%s: %d", what, e.Response.Code)]++
		case what == "create jobs":
			made[e.Object.Name]++
		case e.Verb == "delete" || e.Verb == "deletecollection":
			c.t.Errorf("the operator has deleted %s %s", e.Resource(), e.Object.Name)
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	want := map[string]int{}
	for name := range r.jobs {
		want[name] = 1
		if made[name] == 0 && unanswered[name] {
			made[name] = 1
		}
	}
	if diff := cmp.Diff(want, made); diff != "" {
		c.t.Errorf("how often each Job was made, in the journal and in the audit log (-journal +audit)\n%s", diff)
	}
	c.t.Logf("what the API server has refused: %v; %d requests went unanswered", refused, len(unanswered))
}

// replay goes through the journal and checks what has to hold after every single change.
type replay struct {
	faults
	plan    *upgradev1.Plan
	nodes   map[string]*corev1.Node
	jobs    map[string]*batchv1.Job
	pods    map[string]string // by the name of their Job
	changed map[string]bool   // "node hash": its Job has succeeded
	counts  map[string]int    // "node version": how many Jobs there were
	cordons map[string]int    // "node version": how often the Job's pod has cordoned it
	hashes  map[string]string // by version

	most, mostClaimed, mostRunning, mostUnavailable int
}

func newReplay(t *testing.T, plan *upgradev1.Plan) *replay {
	t.Helper()
	return &replay{
		faults: newFaults(t), plan: plan,
		nodes: map[string]*corev1.Node{}, jobs: map[string]*batchv1.Job{}, pods: map[string]string{},
		changed: map[string]bool{}, counts: map[string]int{}, cordons: map[string]int{}, hashes: map[string]string{},
	}
}

// faults are what is wrong.
type faults struct {
	t     *testing.T
	wrong map[string]bool
}

func newFaults(t *testing.T) faults { return faults{t: t, wrong: map[string]bool{}} }

// errorf reports what is wrong after a change, each thing once, and no more than the first few: the rest follows from them.
func (f *faults) errorf(e entry, format string, args ...any) {
	f.t.Helper()
	const most = 20
	what := fmt.Sprintf(format, args...)
	if !f.wrong[what] && len(f.wrong) < most {
		f.t.Errorf("at revision %d, %T %s: %s", e.revision, e.object, e.object.GetName(), what)
	}
	f.wrong[what] = true
}

func (r *replay) next(e entry) {
	r.t.Helper()
	switch o := e.object.(type) {
	case *corev1.Node:
		r.node(e, o)
	case *batchv1.Job:
		r.job(e, o)
	case *corev1.Pod:
		r.pod(e, o)
	}
	r.count(e)
}

// node checks a Node's claims, whether it is cordoned, and by whom, and its label.
func (r *replay) node(e entry, n *corev1.Node) {
	r.t.Helper()
	if e.deleted {
		r.errorf(e, "it was deleted")
		return
	}
	old := r.nodes[n.Name]
	r.nodes[n.Name] = n
	held, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil || len(held) > 1 || len(held) == 1 && held[0].UID != r.plan.UID {
		r.errorf(e, "claims %q, %v", n.Annotations[v1alpha1.AnnotationClaims], err)
	}
	by, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]
	switch {
	case person(n.Name):
		if !n.Spec.Unschedulable || marked {
			r.errorf(e, "a person had cordoned it, and now it is unschedulable %v and marked by %q", n.Spec.Unschedulable, by)
		}
	case n.Spec.Unschedulable != marked || marked && by != mark:
		r.errorf(e, "unschedulable %v and marked by %q", n.Spec.Unschedulable, by)
	case marked && len(held) == 0:
		r.errorf(e, "cordoned, and not claimed")
	}
	if old == nil {
		return
	}
	if marked && old.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
		r.cordons[n.Name+" "+r.runningVersion(n.Name)]++
	}
	if value := r.label(n); value != r.label(old) && !r.changed[n.Name+" "+value] {
		r.errorf(e, "labelled %s, and no Job has done that", value)
	}
}

func (r *replay) label(n *corev1.Node) string { return n.Labels[upgradev1.LabelPlanHash(r.plan.Name)] }

// job checks that a Job is the only one for its node and version, that it has the node's claim as long as it runs, and
// that it succeeds, once.
func (r *replay) job(e entry, j *batchv1.Job) {
	r.t.Helper()
	name, version, hash := j.Labels[upgradev1.LabelNode], j.Labels[upgradev1.LabelVersion], j.Labels[upgradev1.LabelPlanHash(r.plan.Name)]
	if e.deleted {
		r.errorf(e, "it was deleted")
		return
	}
	if _, ok := r.jobs[j.Name]; !ok {
		r.counts[name+" "+version]++
		if known, ok := r.hashes[version]; ok && known != hash {
			r.errorf(e, "its hash is %s, and that of another one for %s was %s", hash, version, known)
		}
		r.hashes[version] = hash
		if r.changed[name+" "+hash] {
			r.errorf(e, "node %s had been changed to %s before", name, version)
		}
	}
	r.jobs[j.Name] = j
	if failed(j) || j.Status.Failed > 0 {
		r.errorf(e, "it failed: %+v", j.Status)
	}
	if succeeded(j) {
		if j.Status.Succeeded != 1 {
			r.errorf(e, "%d pods have succeeded", j.Status.Succeeded)
		}
		r.changed[name+" "+hash] = true
	}
}

// pod checks that there is one for each Job.
func (r *replay) pod(e entry, p *corev1.Pod) {
	r.t.Helper()
	if e.deleted {
		r.errorf(e, "it was deleted")
		return
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		r.errorf(e, "nobody has made it")
		return
	}
	if other, ok := r.pods[owner.Name]; ok && other != p.Name {
		r.errorf(e, "it is another pod for Job %s, which has %s", owner.Name, other)
	}
	r.pods[owner.Name] = p.Name
}

// count checks how many nodes are disrupted now, by what the Nodes say and by what the Jobs say.
func (r *replay) count(e entry) {
	r.t.Helper()
	claimed, running, disrupted := map[string]string{}, map[string]bool{}, map[string]bool{}
	for name, n := range r.nodes {
		if held, err := v1alpha1.ParseClaims(n.Annotations); err == nil && len(held) > 0 {
			claimed[name], disrupted[name] = held[0].Turn, true
		}
	}
	for _, j := range r.jobs {
		if succeeded(j) {
			continue
		}
		name := j.Labels[upgradev1.LabelNode]
		running[name], disrupted[name] = true, true
		if turn, ok := claimed[name]; !ok || turn != j.Annotations[v1alpha1.AnnotationTurn] {
			r.errorf(e, "Job %s runs on node %s in turn %s, and the node is claimed for turn %q", j.Name, name, j.Annotations[v1alpha1.AnnotationTurn], turn)
		}
	}
	r.mostClaimed, r.mostRunning, r.most = max(r.mostClaimed, len(claimed)), max(r.mostRunning, len(running)), max(r.most, len(disrupted))
	unavailable := len(disrupted)
	for name, n := range r.nodes {
		if n.Spec.Unschedulable && !disrupted[name] {
			unavailable++
		}
	}
	if r.mostUnavailable = max(r.mostUnavailable, unavailable); unavailable > budget {
		r.errorf(e, "%d nodes are unavailable, and the budget is %d", unavailable, budget)
	}
	if len(disrupted) > concurrency {
		r.errorf(e, "%d nodes are disrupted, and only %d may be: %v", len(disrupted), concurrency, slices.Sorted(maps.Keys(disrupted)))
	}
}

// runningVersion is that of the Job that runs on the node now.
func (r *replay) runningVersion(name string) string {
	for _, j := range r.jobs {
		if j.Labels[upgradev1.LabelNode] == name && !succeeded(j) {
			return j.Labels[upgradev1.LabelVersion]
		}
	}
	return "none"
}

// end checks what must be true at the end.
func (r *replay) end(versions []string) {
	r.t.Helper()
	jobs, cordons, left := map[string]int{}, map[string]int{}, []string{}
	for name, n := range r.nodes {
		for _, version := range versions {
			jobs[name+" "+version] = 1
			if !person(name) {
				cordons[name+" "+version] = 1
			}
		}
		_, held := n.Annotations[v1alpha1.AnnotationClaims]
		if held || n.Spec.Unschedulable != person(name) || r.label(n) != r.hashes[versions[len(versions)-1]] {
			left = append(left, fmt.Sprintf("%s: claimed %v, unschedulable %v, label %s", name, held, n.Spec.Unschedulable, r.label(n)))
		}
	}
	if len(r.nodes) != nodes {
		r.t.Errorf("the journal knows %d nodes", len(r.nodes))
	}
	if diff := cmp.Diff(jobs, r.counts); diff != "" {
		r.t.Errorf("how many Jobs there were for each node and version (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(cordons, r.cordons); diff != "" {
		r.t.Errorf("how often each node was cordoned for each version (-want +got)\n%s", diff)
	}
	if len(left) > 0 {
		r.t.Errorf("nodes that are not as they should be at the end:\n%s", strings.Join(left, "\n"))
	}
	for name, j := range r.jobs {
		if !succeeded(j) {
			r.t.Errorf("job %s has not succeeded", name)
		}
	}
	if got := r.plan.Status.LatestHash; got != r.hashes[versions[len(versions)-1]] {
		r.t.Errorf("the Plan's hash is %s, and that of the last Jobs %s", got, r.hashes[versions[len(versions)-1]])
	}
}
