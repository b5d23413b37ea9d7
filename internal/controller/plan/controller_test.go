// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/turn"
)

// cluster is an API server, and a controller whose reconciles a test calls by hand.
type cluster struct {
	client.Client
	*Controller
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	// refuse says what a new Job gets, and meanwhile happens before a Node is written.
	refuse    func() error
	meanwhile func(node string)
	// live reads past the cache. Nil: what it reads is the same.
	live drain.Client
	// lists happens before objects are listed.
	lists   func(client.ObjectList)
	created atomic.Int64
	writes  atomic.Int64
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, clock: clocktesting.NewFakePassiveClock(now)}
	c.Client = clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&upgradev1.Plan{}).
		WithIndex(&batchv1.Job{}, indexPlan, indexedByPlan).WithIndex(&batchv1.Job{}, indexNode, indexedByNode).
		WithIndex(&corev1.Pod{}, indexPlan, indexedByPlan).
		WithIndex(&corev1.Pod{}, drain.NodeNameField, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				c.writes.Add(1)
				if c.refuse != nil {
					if err := c.refuse(); err != nil {
						return err
					}
				}
				c.created.Add(1)
				o.SetUID(types.UID("uid-" + o.GetName()))
				o.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
				return w.Create(ctx, o, opts...)
			},
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if c.lists != nil {
					c.lists(list)
				}
				return w.List(ctx, list, opts...)
			},
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				c.writes.Add(1)
				if c.meanwhile != nil {
					c.meanwhile(o.GetName())
				}
				return w.Patch(ctx, o, patch, opts...)
			},
			SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				c.writes.Add(1)
				return w.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
			Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				c.writes.Add(1)
				return w.Delete(ctx, o, opts...)
			},
		}).Build()
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, fake.NewClientset().CoreV1().Events(""), scheme, "suc", "n1")
	t.Cleanup(func() { recorder.Shutdown(context.WithoutCancel(t.Context())) })
	o := testOptions()
	c.Controller = c.newController(recorder)
	c.channels = newChannels(t.Context(), c.clock, o, c.Waiting.Wake)
	return c
}

// newController is a controller that remembers nothing.
func (c *cluster) newController(recorder *events.Recorder) *Controller {
	live := c.live
	if live == nil {
		live = c.Client
	}
	fresh := NewController(c.clock, c.Client, live, fake.NewClientset().CoreV1(), fleet.New(c.clock, c.Client, nil), recorder, *testOptions())
	fresh.Reports = fleet.NewReports(0)
	if c.Controller != nil {
		fresh.channels = c.channels
	}
	return fresh
}

// reconciles lets the controller act, until it has nothing more to write.
func (c *cluster) reconciles() ctrl.Result {
	c.t.Helper()
	for range 20 {
		before := c.writes.Load()
		result := c.reconcileOnce()
		if c.writes.Load() == before {
			return result
		}
		c.passes(fleet.StatusInterval)
	}
	c.t.Fatal("it never comes to rest")
	return ctrl.Result{}
}

func (c *cluster) reconcileOnce() ctrl.Result {
	c.t.Helper()
	result, err := c.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

func (c *cluster) passes(d time.Duration) { c.clock.SetTime(c.clock.Now().Add(d)) }

func (c *cluster) plan() *upgradev1.Plan {
	c.t.Helper()
	p := &upgradev1.Plan{}
	if err := c.Client.Get(c.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	n := &corev1.Node{}
	if err := c.Client.Get(c.t.Context(), types.NamespacedName{Name: name}, n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// jobs are the Plan's by node, the running one before those that have ended.
func (c *cluster) jobs() map[string]*batchv1.Job {
	c.t.Helper()
	var list batchv1.JobList
	if err := c.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	all := map[string]*batchv1.Job{}
	for i := range list.Items {
		if j := &list.Items[i]; all[j.Labels[upgradev1.LabelNode]] == nil || plan.Finished(j) == nil {
			all[j.Labels[upgradev1.LabelNode]] = j
		}
	}
	return all
}

// ends gives the Job on a node an end.
func (c *cluster) ends(node string, how func(*batchv1.Job)) {
	c.t.Helper()
	j := c.jobs()[node]
	if j == nil {
		c.t.Fatalf("nothing runs on %s", node)
	}
	how(j)
	for i := range j.Status.Conditions {
		j.Status.Conditions[i].LastTransitionTime = metav1.NewTime(c.clock.Now())
	}
	if err := c.Client.Status().Update(c.t.Context(), j); err != nil {
		c.t.Fatal(err)
	}
}

// edit changes a node as a person does.
func (c *cluster) edit(name string, how func(*corev1.Node)) {
	c.t.Helper()
	n := c.node(name)
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	how(n)
	status := n.Status
	if err := c.Update(c.t.Context(), n); err != nil {
		c.t.Fatal(err)
	}
	n.Status = status
	if err := c.Client.Status().Update(c.t.Context(), n); err != nil {
		c.t.Fatal(err)
	}
}

// expect says which nodes have a Job that runs, which are claimed, and which are labelled with the Plan's hash.
func (c *cluster) expect(jobs, claims, labels string) {
	c.t.Helper()
	var list corev1.NodeList
	if err := c.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	var run, held, done []string
	for node, j := range c.jobs() {
		if plan.Finished(j) == nil {
			run = append(run, node)
		}
	}
	for i := range list.Items {
		n := &list.Items[i]
		all, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			c.t.Fatal(err)
		}
		if slices.ContainsFunc(all, func(c v1alpha1.Claim) bool { return c.UID == uid }) {
			held = append(held, n.Name)
		}
		if n.Labels[upgradev1.LabelPlanHash(name)] == c.plan().Status.LatestHash {
			done = append(done, n.Name)
		}
	}
	slices.Sort(run)
	got := []string{strings.Join(run, " "), strings.Join(held, " "), strings.Join(done, " ")}
	if diff := cmp.Diff([]string{jobs, claims, labels}, got); diff != "" {
		c.t.Errorf("Jobs, claims and labels (-want +got):\n%s", diff)
	}
}

// By rank, node-3 goes before node-2 and that before node-1.
func threeNodes() []client.Object {
	return []client.Object{newNode("node-1"), newNode("node-2"), newNode("node-3")}
}

func one(p *upgradev1.Plan) { p.Spec.Concurrency = 1 }

func TestReconcile(t *testing.T) {
	c := newCluster(t, append(threeNodes(), newPlan(one))...)
	order := []string{}
	for range 3 {
		c.reconciles()
		applying := c.plan().Status.Applying
		if len(applying) != 1 {
			t.Fatalf("applying are %v", applying)
		}
		node := strings.TrimPrefix(applying[0], "host-")
		order = append(order, node)
		c.passes(time.Minute)
		c.ends(node, succeeded)
	}
	result := c.reconciles()
	c.expect("", "", "node-1 node-2 node-3")
	p := c.plan()
	if got := told(p, upgradev1.ConditionComplete); got != "True Complete" || len(p.Status.Applying) > 0 || result.RequeueAfter != 0 {
		t.Errorf("Complete is %s, applying are %v, comes back after %s", got, p.Status.Applying, result.RequeueAfter)
	}
	slices.Sort(order)
	if diff := cmp.Diff([]string{"node-1", "node-2", "node-3"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.created.Load() != 3 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
}

// The least number of writes that a turn can do with: the claim, the Job, the release, and the status.
func TestReconcileWrites(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan())
	c.reconcileOnce()
	if c.writes.Load() != 3 {
		t.Errorf("%d writes to start a node: want the claim, the Job and the status", c.writes.Load())
	}
	c.passes(time.Minute)
	c.reconciles()
	c.ends("node-1", succeeded)
	c.passes(time.Minute)
	before := c.writes.Load()
	c.reconcileOnce()
	if c.writes.Load() != before+2 {
		t.Errorf("%d writes to finish a node: want the release and the status", c.writes.Load()-before)
	}
	before = c.writes.Load()
	c.passes(time.Hour)
	c.reconciles()
	if c.writes.Load() != before {
		t.Errorf("%d writes with nothing to do", c.writes.Load()-before)
	}
}

func TestReconcileFailureAndRetry(t *testing.T) {
	c := newCluster(t, append(threeNodes(), newPlan(one))...)
	c.reconciles()
	first := slices.Collect(maps.Keys(c.jobs()))[0]
	c.ends(first, failed)
	c.passes(time.Minute)
	c.reconciles()
	c.expect("", first, "")
	p := c.plan()
	if len(p.Status.Failed) != 1 || p.Status.Failed[0].Reason != v1alpha1.ReasonJobFailed || p.Status.Condition(upgradev1.ConditionStalled).Status != metav1.ConditionTrue {
		t.Errorf("got %+v", p.Status)
	}
	// Each new value of the annotation asks once.
	for _, value := range []string{"1", "2"} {
		c.edit(first, func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationRetry] = value })
		c.reconciles()
		j := c.jobs()[first]
		c.expect(first, first, "")
		c.ends(first, failed)
		c.reconciles()
		c.reconciles()
		c.expect("", first, "")
		if err := c.Client.Delete(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	// A change of how fast it goes does not, and any other change of the Plan does.
	p = c.plan()
	p.Generation++
	p.Spec.Strategy = &v1alpha1.Strategy{Order: []v1alpha1.Order{{By: v1alpha1.OrderZone}}}
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("", first, "")
	p = c.plan()
	p.Generation++
	p.Spec.JobActiveDeadlineSecs = ptr.To[int64](77)
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect(first, first, "")
	if c.created.Load() != 4 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
}

// A change of the Plan replaces the Job that failed, also while nothing may start. A retry replaces the Job once the next one is made.
func TestReconcileReplacesFailedJobs(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*upgradev1.Plan)
		want   string // the Jobs afterwards
	}{
		"other arguments":             {func(p *upgradev1.Plan) { p.Spec.Upgrade.Args = []string{"exit", "0"} }, "running"},
		"another version":             {func(p *upgradev1.Plan) { p.Spec.Version = "v9" }, "running"},
		"other arguments, and paused": {func(p *upgradev1.Plan) { p.Spec.Upgrade.Args, p.Spec.Concurrency = []string{"exit", "0"}, 0 }, ""},
		"paused":                      {func(p *upgradev1.Plan) { p.Spec.Concurrency = 0 }, "failed"},
		"a retry":                     {func(p *upgradev1.Plan) { p.Annotations = map[string]string{v1alpha1.AnnotationRetry: "1"} }, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1"), newPlan())
			c.reconciles()
			c.ends("node-1", failed)
			c.reconciles()
			p := c.plan()
			if tc.change(p); p.Annotations == nil {
				p.Generation++
			}
			if err := c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			c.reconciles()
			var jobs batchv1.JobList
			if err := c.List(t.Context(), &jobs); err != nil {
				t.Fatal(err)
			}
			got := make([]string, len(jobs.Items))
			for i := range jobs.Items {
				got[i] = "running"
				if plan.Finished(&jobs.Items[i]) != nil {
					got[i] = "failed"
				}
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("the Jobs are %q, want %q", got, tc.want)
			}
		})
	}
}

// The Job that failed is deleted before the next one is made, and while the next one runs if that was missed.
func TestReconcileDeletesBeforeItCreates(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan())
	c.reconciles()
	c.ends("node-1", failed)
	c.reconciles()
	old := c.jobs()["node-1"]
	c.refuse = func() error {
		if j := c.jobs()["node-1"]; j != nil {
			t.Errorf("Job %s is there", j.Name)
		}
		return nil
	}
	p := c.plan()
	p.Spec.Upgrade.Args, p.Generation = []string{"exit", "0"}, 4
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.refuse = nil
	running := c.jobs()["node-1"]
	old.ResourceVersion = ""
	if err := c.Client.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	old.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	if err := c.Client.Status().Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	var jobs batchv1.JobList
	if err := c.List(t.Context(), &jobs); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || running == nil || jobs.Items[0].Name != running.Name {
		t.Errorf("got %v, and %v ran", jobs.Items, running)
	}
}

// A retry of what has failed leaves alone what runs.
func TestReconcileRetryOfThePlan(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newNode("node-2"), newPlan())
	c.reconciles()
	c.ends("node-1", failed)
	c.reconciles()
	before := c.jobs()["node-2"]
	p := c.plan()
	p.Annotations = map[string]string{v1alpha1.AnnotationRetry: "1"}
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("node-1 node-2", "node-1 node-2", "")
	if after := c.jobs()["node-2"]; after == nil || after.UID != before.UID {
		t.Errorf("what ran on node-2 was stopped: %v", after)
	}
}

// The labels at the end tell what the Job has brought, which is not what the Plan wants by then.
func TestReconcileLabelsOfAnOlderVersion(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(func(p *upgradev1.Plan) {
		p.Spec.PostCompleteLabels = map[string]string{"version": "$(LATEST_VERSION)", "hash": "h-$(LATEST_HASH)"}
	}))
	c.reconciles()
	firstHash := c.plan().Status.LatestHash
	c.ends("node-1", succeeded)
	p := c.plan()
	p.Spec.Version, p.Generation = "v9", 4
	p.Spec.Concurrency = 0
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	n := c.node("node-1")
	got := map[string]string{"version": n.Labels["version"], "hash": n.Labels["hash"], "plan": n.Labels[upgradev1.LabelPlanHash(name)]}
	if diff := cmp.Diff(map[string]string{"version": latest, "hash": "h-" + firstHash, "plan": firstHash}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := c.plan().Status.LatestVersion; got != "v9" {
		t.Errorf("the Plan wants %s", got)
	}
}

// A node that a person labels to keep the Plan away keeps that label.
func TestReconcileOptOutInTheMiddle(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan())
	c.reconciles()
	c.ends("node-1", succeeded)
	c.edit("node-1", labelled("disabled"))
	c.reconciles()
	c.expect("", "", "")
	if got := c.node("node-1").Labels[upgradev1.LabelPlanHash(name)]; got != "disabled" {
		t.Errorf("the label is %s", got)
	}
}

// The failed Job of a node that opts out goes at once: an alert on failed Jobs would fire for it.
func TestReconcileOptOutAfterFailure(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan())
	c.reconciles()
	c.ends("node-1", failed)
	c.reconciles()
	c.edit("node-1", labelled("disabled"))
	c.reconciles()
	c.expect("", "", "")
	if len(c.jobs()) > 0 {
		t.Errorf("%d Jobs are left", len(c.jobs()))
	}
}

func TestReconcilePlanGone(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newNode("node-2"), newPlan(drains))
	c.reconciles()
	c.expect("node-1 node-2", "node-1 node-2", "")
	for _, node := range []string{"node-1", "node-2"} {
		c.edit(node, func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Annotations[v1alpha1.AnnotationCordonedBy] = self
		})
	}
	c.edit("node-2", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationCordonedBy) }) // A person's.
	if err := c.Client.Delete(t.Context(), c.plan()); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	if len(c.jobs()) > 0 {
		t.Errorf("%d Jobs are left", len(c.jobs()))
	}
	for node, cordoned := range map[string]bool{"node-1": false, "node-2": true} {
		n := c.node(node)
		if n.Annotations[v1alpha1.AnnotationClaims] != "" || n.Spec.Unschedulable != cordoned {
			t.Errorf("%s: %v, unschedulable: %v", node, n.Annotations, n.Spec.Unschedulable)
		}
	}
}

// The cordon of a Plan that is gone goes as soon as the claim that could not be read does.
func TestReconcilePlanGoneBehindUnreadableClaim(t *testing.T) {
	c := newCluster(t, newNode("node-1", unschedulable, annotated(v1alpha1.AnnotationCordonedBy, self), annotated(v1alpha1.AnnotationClaims, "oops")),
		newNode("node-2", unschedulable, annotated(v1alpha1.AnnotationCordonedBy, "Plan/system-upgrade/other")))
	c.reconciles()
	if n := c.node("node-1"); !n.Spec.Unschedulable {
		t.Error("is uncordoned though its claims can't be read")
	}
	c.edit("node-1", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	c.reconciles()
	if n := c.node("node-1"); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != "" {
		t.Errorf("is still cordoned: %v", n.Annotations)
	}
	if n := c.node("node-2"); !n.Spec.Unschedulable {
		t.Error("another's cordon is lifted")
	}
}

// What an older Plan of the same name has left is cleared away before the node is taken.
func TestReconcilePlanMadeAnew(t *testing.T) {
	old := newPlan(func(p *upgradev1.Plan) { p.UID = "older" })
	n := newNode("node-1", unschedulable, annotated(v1alpha1.AnnotationCordonedBy, self))
	holding(claimed(func(c *v1alpha1.Claim) { c.UID = "older" }))(n)
	j := newTurnJob(old, n)
	c := newCluster(t, n, j, newPlan())
	c.reconciles()
	if got := c.jobs()["node-1"]; got == nil || metav1.GetControllerOf(got).UID != uid {
		t.Errorf("the Job is %v", got)
	}
	c.expect("node-1", "node-1", "")
	if n := c.node("node-1"); n.Spec.Unschedulable {
		t.Error("is still cordoned")
	}
}

// A Job whose node is gone goes too.
func TestReconcileNodeGone(t *testing.T) {
	c := newCluster(t, append(threeNodes(), newPlan())...)
	c.reconciles()
	for node := range c.jobs() {
		if err := c.Client.Delete(t.Context(), c.node(node)); err != nil {
			t.Fatal(err)
		}
		c.reconciles()
		if got := c.jobs()[node]; got != nil {
			t.Errorf("the Job of %s is left", node)
		}
		return
	}
}

// Whoever loses a claim decides again at once, which is no error; the others are not held up.
func TestReconcileClaimLost(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newNode("node-2"), newPlan())
	lost := ""
	var taken atomic.Bool
	c.meanwhile = func(node string) {
		if node != name && taken.CompareAndSwap(false, true) {
			lost = node
			c.edit(node, func(n *corev1.Node) { n.Labels["other"] = "writer" })
		}
	}
	result := c.reconcileOnce()
	if result.RequeueAfter != fleet.Coalesce {
		t.Errorf("comes back after %s", result.RequeueAfter)
	}
	other := map[string]string{"node-1": "node-2", "node-2": "node-1"}[lost]
	c.expect(other, other, "")
	p := c.plan()
	if len(p.Status.Waiting) != 1 || p.Status.Waiting[0].Node != lost || p.Status.Waiting[0].Reason != v1alpha1.ReasonClaimLost {
		t.Errorf("waiting are %+v", p.Status.Waiting)
	}
	c.reconciles()
	c.expect("node-1 node-2", "node-1 node-2", "")
}

// A Job that the API server refuses, as by a quota or an admission policy, is tried again and again, and its node stays claimed.
func TestReconcileJobRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"by a quota":  apierrors.NewForbidden(batchv1.Resource("jobs"), "x", errors.New("exceeded quota")),
		"by a policy": &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "no jobs today: exceeded quota"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1"), newPlan())
			c.refuse = func() error { return refusal }
			for tries := range 20 {
				before := c.node("node-1").ResourceVersion
				result := c.reconcileOnce()
				c.expect("", "node-1", "")
				if tries > 0 && c.node("node-1").ResourceVersion != before && c.clock.Now().Sub(now) < 7*time.Minute {
					t.Fatal("wakes itself by a write to the node")
				}
				if result.RequeueAfter <= 0 || result.RequeueAfter > turn.LastRetry {
					t.Fatalf("comes back after %s", result.RequeueAfter)
				}
				c.passes(time.Minute)
			}
			p := c.plan()
			if len(p.Status.Updating) != 1 || p.Status.Updating[0].Reason != v1alpha1.ReasonJobRefused || !strings.Contains(p.Status.Updating[0].Message, "exceeded quota") {
				t.Errorf("updating are %+v", p.Status.Updating)
			}
			c.refuse = nil
			c.reconciles()
			c.expect("node-1", "node-1", "")
		})
	}
}

// The first status of a Plan with a channel says what the channel leads to, unless the channel takes long.
func TestReconcileReportsTheAnswerOfAChannel(t *testing.T) {
	for of, tc := range map[string]struct {
		answers bool
		want    string
	}{"it answers": {true, "True Channel"}, "it takes long": {false, "Unknown Channel: the channel is being asked"}} {
		t.Run(of, func(t *testing.T) {
			s := newChannelServer(t)
			asked, _ := s.hangs()
			if tc.answers {
				s.says("v1.2.3+test")
			}
			c := newCluster(t, newPlan(byChannel, func(p *upgradev1.Plan) { p.Spec.Channel = s.URL }))
			c.channels = s.channels
			if result := c.reconcileOnce(); c.writes.Load() > 0 || result.RequeueAfter != fleet.StatusInterval {
				t.Errorf("%d writes while it is asked, comes back after %s", c.writes.Load(), result.RequeueAfter)
			}
			if tc.answers {
				s.wakes(types.NamespacedName{Namespace: namespace, Name: name})
			} else {
				s.waits(asked)
				c.passes(fleet.StatusInterval)
				s.passes(fleet.StatusInterval)
			}
			c.reconcileOnce()
			if got := told(c.plan(), upgradev1.ConditionLatestResolved); got != tc.want || c.writes.Load() != 1 {
				t.Errorf("got %s after %d writes, want %s", got, c.writes.Load(), tc.want)
			}
		})
	}
}

// A Plan without an image is valid. The Job that it asks for is not, and the status says what is missing.
func TestReconcileNoImage(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(imageless))
	c.refuse = func() error {
		return apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "x",
			field.ErrorList{field.Required(field.NewPath("spec", "template", "spec", "containers").Index(0).Child("image"), "")})
	}
	c.reconcileOnce()
	p := c.plan()
	if u := p.Status.Updating; len(u) != 1 || u[0].Reason != v1alpha1.ReasonJobRefused || !strings.Contains(u[0].Message, "image: Required value") {
		t.Errorf("updating are %+v", u)
	}
	c.refuse = nil
	p.Spec.Upgrade.Image, p.Generation = "rancher/k3s-upgrade", 4
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.passes(turn.LastRetry)
	c.reconciles()
	if j := c.jobs()["node-1"]; j == nil || j.Spec.Template.Spec.Containers[0].Image != "rancher/k3s-upgrade:"+latest {
		t.Errorf("the Job is %+v", j)
	}
}

// A controller that is killed between the claim and the Job goes on there.
func TestReconcileKilled(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan())
	c.refuse = func() error { return errors.New("connection refused") }
	c.reconcileOnce()
	c.expect("", "node-1", "")
	c.refuse = nil
	c.Controller = c.newController(c.Events)
	c.passes(time.Minute)
	c.reconciles()
	c.expect("node-1", "node-1", "")
	if c.created.Load() != 1 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
	// And with a Job that no one has seen end, it does not run that again.
	if err := c.Client.Delete(t.Context(), c.jobs()["node-1"]); err != nil {
		t.Fatal(err)
	}
	c.Controller = c.newController(c.Events)
	c.passes(time.Hour)
	c.reconciles()
	c.expect("", "node-1", "")
	if p := c.plan(); len(p.Status.Failed) != 1 || p.Status.Failed[0].Reason != v1alpha1.ReasonJobLost {
		t.Errorf("failed are %+v", p.Status.Failed)
	}
}

// A node that is claimed and untouched is released while it may not start, so that others may have it.
func TestReconcileGivenBack(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(window([]upgradev1.Day{"fri", "sat"}, "11:00", "12:10", "")))
	c.refuse = func() error { return errors.New("connection refused") }
	c.reconcileOnce()
	c.expect("", "node-1", "")
	c.refuse = nil
	c.passes(12 * time.Minute)
	result := c.reconciles()
	c.expect("", "", "")
	if p := c.plan(); len(p.Status.Waiting) != 1 || p.Status.Waiting[0].Reason != v1alpha1.ReasonOutsideWindow || len(p.Status.Applying) > 0 {
		t.Errorf("got %+v", p.Status)
	}
	opens := time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)
	if at := c.clock.Now().Add(result.RequeueAfter); !at.Equal(opens) {
		t.Errorf("comes back at %s, want %s", at, opens)
	}
	c.clock.SetTime(opens)
	c.reconciles()
	c.expect("node-1", "node-1", "")
}

// One whose turn had begun for something else may have been cordoned: that one keeps its slot.
func TestReconcileNotGivenBack(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(drains))
	c.reconciles()
	c.edit("node-1", func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[v1alpha1.AnnotationCordonedBy] = self
	})
	p := c.plan()
	p.Generation++
	p.Spec.Version, p.Spec.Concurrency = "v9", 0
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	j := c.jobs()["node-1"]
	if err := c.Client.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("", "node-1", "")
	if p := c.plan(); len(p.Status.Applying) != 1 || !c.node("node-1").Spec.Unschedulable {
		t.Errorf("applying are %v", p.Status.Applying)
	}
	p = c.plan()
	p.Generation++
	p.Spec.Concurrency = 1
	if err := c.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("node-1", "node-1", "")
}

// A Job that system-upgrade-controller has left on a node that another Plan has now is left to run, and adopted later.
func TestReconcileAdoptionBesideAnother(t *testing.T) {
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Turn: "t9", Since: ago(time.Hour)}
	p := newPlan(drains)
	// The hash that the controller computes.
	p.Status.LatestHash = hashOfText(latest)
	n := newNode("node-1", holding(other))
	j := newTurnJob(p, n, left)
	c := newCluster(t, n, j, p)
	before := c.writes.Load()
	result := c.reconcileOnce()
	if c.jobs()["node-1"] == nil {
		t.Error("what ran was stopped")
	}
	if claims, err := v1alpha1.ParseClaims(c.node("node-1").Annotations); err != nil || len(claims) != 1 {
		t.Errorf("claims are %v, %v", claims, err)
	}
	if c.writes.Load() != before+1 || result.RequeueAfter > turn.LastRetry {
		t.Errorf("%d writes, comes back after %s", c.writes.Load()-before, result.RequeueAfter)
	}
	c.edit("node-1", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	c.passes(time.Minute)
	c.reconciles()
	c.expect("node-1", "node-1", "")
	if c.created.Load() != 0 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
}

// An API server that is too slow ends a reconcile before it is done. It comes back by itself: on a quiet cluster nothing
// else would wake it. Only the end of the process is left at that.
func TestReconcileEndsEarly(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		back bool
	}{
		"by its deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) }, true},
		"with the process": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, false},
	} {
		c := newCluster(t, newNode("node-1"), newPlan())
		ctx, cancel := tc.end(t.Context())
		c.Controller.Engine.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return w.Patch(ctx, o, patch, opts...)
			},
		})
		result, err := c.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: newPlan().Name}})
		cancel()
		if err != nil || (result.RequeueAfter > 0) != tc.back {
			t.Errorf("%s: comes back after %s, %v", name, result.RequeueAfter, err)
		}
	}
}

// A Plan that waits until others have claimed their nodes claims none once its window has closed.
func TestReconcileWindowClosesMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		waits time.Duration
		want  string
	}{
		"before its end": {29*time.Minute + 59*time.Second, "node-1"},
		"at its end":     {30 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1"), newPlan(func(p *upgradev1.Plan) {
				p.Spec.Strategy = &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "0 12 * * *", Duration: metav1.Duration{Duration: 30 * time.Minute}}}}
			}))
			looks := 0
			c.lists = func(list client.ObjectList) {
				if _, ok := list.(*corev1.NodeList); ok {
					if looks++; looks == 2 { // It has been let in.
						c.passes(tc.waits)
					}
				}
			}
			c.reconcileOnce()
			c.expect(tc.want, tc.want, "")
			if looks < 2 {
				t.Errorf("the nodes were listed %d times", looks)
			}
		})
	}
}

// A Plan that waits until others have claimed their nodes claims none once these have used up a budget.
func TestReconcileBudgetIsUsedUpMeanwhile(t *testing.T) {
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
	healthy := ready(now.Add(-time.Hour))
	c := newCluster(t, newNode("node-1", healthy), newNode("node-2", healthy), newPlan(one), budget)
	looks := 0
	c.lists = func(list client.ObjectList) {
		if _, ok := list.(*corev1.NodeList); ok {
			if looks++; looks == 2 { // It has been admitted. By rank it takes node-2.
				c.edit("node-1", holding(v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Since: ago(0)}))
			}
		}
	}
	c.reconcileOnce()
	c.lists = nil
	c.expect("", "", "")
	if looks < 2 {
		t.Errorf("the nodes were listed %d times", looks)
	}
	c.edit("node-1", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	c.reconciles()
	c.expect("node-2", "node-2", "")
}

// newer is an API server that has a budget which the cache does not show yet.
type newer struct {
	drain.Client
	budget v1alpha1.NodeDisruptionBudget
}

func (n newer) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if budgets, ok := list.(*metav1.PartialObjectMetadataList); ok {
		budgets.Items = []metav1.PartialObjectMetadata{{ObjectMeta: n.budget.ObjectMeta}}
		return nil
	}
	return n.Client.List(ctx, list, opts...)
}

// A Plan claims no node before each ExtendedDaemonSet has found where it replaces pods, and then none of these.
func TestReconcileAwaitsDaemonSets(t *testing.T) {
	healthy := ready(now.Add(-time.Hour))
	c := newCluster(t, newNode("node-1", healthy), newNode("node-2", healthy), newPlan(one))
	daemon := types.NamespacedName{Namespace: "ns", Name: "agent"}
	c.Fleet.DaemonSets(func(context.Context) ([]ctrl.Request, error) { return []ctrl.Request{{NamespacedName: daemon}}, nil })
	if next := c.reconcileOnce(); next.RequeueAfter != fleet.Coalesce {
		t.Errorf("it comes back after %s", next.RequeueAfter)
	}
	c.expect("", "", "")
	c.Fleet.SetReplaced(daemon, map[string]time.Time{"node-2": c.clock.Now()}) // By rank it would take node-2.
	c.reconciles()
	c.expect("node-1", "node-1", "")
}

// A Plan claims no node before the cache shows a budget that was applied with it, or a change of one.
func TestReconcileAwaitsTheCacheOfBudgets(t *testing.T) {
	budget := v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "uid-all", Generation: 2},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	}
	healthy := ready(now.Add(-time.Hour))
	c := newCluster(t, newNode("node-1", healthy), newNode("node-2", healthy), newPlan(one))
	c.live = newer{c.Client, budget}
	c.Controller = c.newController(c.Events)
	c.reconcileOnce()
	c.expect("", "", "")
	old := budget.DeepCopy()
	old.Generation = 1
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if next := c.reconcileOnce(); next.RequeueAfter != fleet.Coalesce {
		t.Errorf("it comes back after %s", next.RequeueAfter)
	}
	c.expect("", "", "")
	old.Generation = 2
	if err := c.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("node-2", "node-2", "")
}

// ill is an API server that can't list budgets.
type ill struct{ drain.Client }

func (i ill) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*metav1.PartialObjectMetadataList); ok {
		return errors.New("ill")
	}
	return i.Client.List(ctx, list, opts...)
}

// A Plan claims no node while budgets can't be listed, and waits longer after each attempt. Where the API server does not know budgets, there are none.
func TestReconcileWithoutBudgets(t *testing.T) {
	healthy := ready(now.Add(-time.Hour))
	c := newCluster(t, newNode("node-1", healthy), newNode("node-2", healthy), newPlan(one))
	c.live = ill{c.Client}
	c.Controller = c.newController(c.Events)
	for _, want := range []time.Duration{turn.FirstRetry, 2 * turn.FirstRetry} {
		if next := c.reconcileOnce(); next.RequeueAfter != want {
			t.Errorf("it comes back after %s, want %s", next.RequeueAfter, want)
		}
		c.expect("", "", "")
	}
	c.Fleet.NoBudgets = true
	c.reconciles()
	c.expect("node-2", "node-2", "")
}

// The windows of a strategy open by the clock of their zone, on the days on which that is changed too, and the controller
// comes back at that moment by itself.
func TestReconcileWindowsOverClockChanges(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	nightly := &v1alpha1.Strategy{Windows: []v1alpha1.Window{{
		Schedule: "30 2 * * *", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Berlin",
	}}}
	for name, tc := range map[string]struct {
		before time.Time
		// opens and ends of the window of that night.
		opens, ends time.Time
	}{
		"an ordinary night": {
			time.Date(2026, 3, 28, 0, 0, 0, 0, berlin),
			time.Date(2026, 3, 28, 1, 30, 0, 0, time.UTC), time.Date(2026, 3, 28, 2, 30, 0, 0, time.UTC),
		},
		"2:30 is skipped": {
			time.Date(2026, 3, 29, 0, 0, 0, 0, berlin),
			time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC),
		},
		"2:30 comes twice": {
			time.Date(2026, 10, 25, 0, 0, 0, 0, berlin),
			time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1"), newNode("node-2"), newPlan(one, func(p *upgradev1.Plan) { p.Spec.Strategy = nightly }))
			c.clock.SetTime(tc.before)
			result := c.reconciles()
			if len(c.jobs()) > 0 {
				t.Fatal("a Job was made outside of the window")
			}
			if at := c.clock.Now().Add(result.RequeueAfter); !at.Equal(tc.opens) {
				t.Fatalf("it comes back at %s, want %s", at.UTC(), tc.opens)
			}
			if p := c.plan(); len(p.Status.Waiting) != 2 || p.Status.Waiting[0].Reason != v1alpha1.ReasonOutsideWindow {
				t.Fatalf("waiting are %+v", p.Status.Waiting)
			}
			c.clock.SetTime(tc.opens)
			c.reconciles()
			first := slices.Collect(maps.Keys(c.jobs()))
			if len(first) != 1 {
				t.Fatalf("%d Jobs were made when it opened", len(first))
			}
			c.edit(first[0], ready(tc.before))
			c.ends(first[0], succeeded)
			c.clock.SetTime(tc.ends)
			result = c.reconciles()
			if n := c.created.Load(); n != 1 {
				t.Errorf("%d Jobs were made, and the window has closed", n)
			}
			if at := c.clock.Now().Add(result.RequeueAfter); at.Before(tc.ends.Add(22*time.Hour)) || at.After(tc.ends.Add(26*time.Hour)) {
				t.Errorf("it comes back at %s", at.UTC())
			}
		})
	}
}

// ready makes a node ready since then.
func ready(since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	}
}

// With a strategy a node is updated when its Job has succeeded, it is healthy, and has been for the soak.
func TestReconcileVerifiesAndSoaks(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(func(p *upgradev1.Plan) {
		p.Spec.Strategy = &v1alpha1.Strategy{Soak: &metav1.Duration{Duration: 10 * time.Minute}, TurnTimeout: &metav1.Duration{Duration: 24 * time.Hour}}
	}))
	c.reconciles()
	c.ends("node-1", succeeded)
	c.reconciles()
	if u := c.plan().Status.Updating; len(u) != 1 || u[0].Phase != v1alpha1.PhaseVerifying || u[0].Message != "not ready" {
		t.Fatalf("updating are %+v", u)
	}
	// The Job is gone before the node is healthy, and no one remembers it.
	if err := c.Client.Delete(t.Context(), c.jobs()["node-1"]); err != nil {
		t.Fatal(err)
	}
	c.Controller = c.newController(c.Events)
	c.passes(time.Hour)
	c.reconciles()
	healthy := c.clock.Now()
	c.edit("node-1", ready(healthy))
	result := c.reconciles()
	if u := c.plan().Status.Updating; len(u) != 1 || u[0].Phase != v1alpha1.PhaseSoaking {
		t.Fatalf("updating are %+v", u)
	}
	if at := c.clock.Now().Add(result.RequeueAfter); !at.Equal(healthy.Add(10 * time.Minute)) {
		t.Errorf("it comes back at %s, want ten minutes after %s", at, healthy)
	}
	// It flaps, and soaks anew.
	c.passes(5 * time.Minute)
	again := c.clock.Now()
	c.edit("node-1", ready(again))
	c.clock.SetTime(healthy.Add(11 * time.Minute))
	c.reconciles()
	c.expect("", "node-1", "")
	c.clock.SetTime(again.Add(10 * time.Minute))
	c.reconciles()
	c.expect("", "", "node-1")
	if c.created.Load() != 1 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
}

// A node must be ready for the minReadySeconds of a budget: the Plan then looks again by itself.
func TestReconcileWakesWhenANodeIsReadyForLongEnough(t *testing.T) {
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeDisruptionBudgetSpec{MinReadySeconds: 30}}
	c := newCluster(t, newNode("node-1", ready(now.Add(-time.Hour))), budget, newPlan(func(p *upgradev1.Plan) { p.Spec.Strategy = &v1alpha1.Strategy{} }))
	c.reconciles()
	since := c.clock.Now()
	c.edit("node-1", ready(since))
	c.ends("node-1", succeeded)
	result := c.reconciles()
	if at := c.clock.Now().Add(result.RequeueAfter); !at.Equal(since.Add(30 * time.Second)) {
		t.Errorf("it comes back %s after the node was ready", at.Sub(since))
	}
}

// A rollout whose own failed node uses up a budget goes no further until a person acts.
func TestReconcileFailureUsesUpBudget(t *testing.T) {
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}}
	c := newCluster(t, newNode("node-1", ready(now)), newNode("node-2", ready(now)), budget, newPlan(func(p *upgradev1.Plan) {
		p.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(2)), Order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}}
	}))
	c.reconciles()
	c.ends("node-1", failed)
	c.reconciles()
	c.expect("", "node-1", "")
	if s := c.plan().Status; s.Condition(upgradev1.ConditionStalled).Status != metav1.ConditionTrue || s.Waiting[0].Reason != v1alpha1.ReasonBudgetExhausted {
		t.Errorf("%+v", s)
	}
}

// inWaves is a cluster with a Plan whose first waves have a node each.
func inWaves(t *testing.T) *cluster {
	t.Helper()
	nodes := []client.Object{}
	for i := range 5 {
		nodes = append(nodes, newNode(fmt.Sprintf("node-%d", i+1), ready(now)))
	}
	return newCluster(t, append(nodes, newPlan(func(p *upgradev1.Plan) {
		one := ptr.To(intstr.FromInt32(1))
		p.Spec.Concurrency = 3
		p.Spec.Strategy = &v1alpha1.Strategy{
			Waves: []v1alpha1.Wave{{Name: "canary", Size: one}, {Name: "second", Size: one}},
			Order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}},
		}
	}))...)
}

// No node of a wave is claimed before the status has the wave, though it was written a moment ago: else the node would count as one of the wave before.
func TestReconcileStoresWaveFirst(t *testing.T) {
	c := inWaves(t)
	c.reconciles()
	c.edit("node-3", func(n *corev1.Node) { delete(n.Labels, corev1.LabelHostname) })
	c.reconcileOnce() // Another node counts now, and the status says so.
	c.ends("node-1", succeeded)
	claimed := false
	for range 9 {
		result := c.reconcileOnce()
		if claimed {
			break
		}
		if wake := c.plan().Status.Condition(upgradev1.ConditionComplete); result.RequeueAfter <= 0 || wake.Reason == upgradev1.ReasonWaiting {
			t.Errorf("it comes back after %s, and says %+v", result.RequeueAfter, wake)
		}
		claimed = c.node("node-2").Annotations[v1alpha1.AnnotationClaims] != ""
		if w := c.plan().Status.Wave; claimed && w.Number != 2 {
			t.Fatalf("a node of wave 2 is claimed, and the status has %+v", w)
		}
	}
	if !claimed {
		t.Error("wave 2 does not begin")
	}
}

// A wave that is about to begin beside a failure that maxFailures allows is no halt, though no node is in a turn.
func TestReconcileBetweenWavesIsNoHalt(t *testing.T) {
	c := inWaves(t)
	c.change(func(p *upgradev1.Plan) {
		two := ptr.To(intstr.FromInt32(2))
		p.Spec.Concurrency, p.Spec.Strategy.MaxFailures, p.Spec.Strategy.Waves[1].Size = 1, two, two
	})
	c.reconciles()
	c.ends("node-1", succeeded)
	c.reconciles()
	c.ends("node-2", failed)
	c.reconciles()
	c.ends("node-3", succeeded)
	for range 9 {
		c.reconcileOnce()
		s := c.plan().Status
		if s.Condition(upgradev1.ConditionStalled).Status == metav1.ConditionTrue || s.History[0].HaltedAt != nil {
			t.Fatalf("%+v, of %+v", s.Condition(upgradev1.ConditionStalled), s.Wave)
		}
	}
	c.expect("node-4", "node-2 node-4", "node-1 node-3")
}

// A later wave that halts, halts the rollout, also without maxFailures.
func TestReconcileLaterWaveHalts(t *testing.T) {
	c := inWaves(t)
	c.reconciles()
	c.ends("node-1", succeeded)
	c.reconciles()
	c.ends("node-2", failed)
	c.reconciles()
	s := c.plan().Status
	if stalled := s.Condition(upgradev1.ConditionStalled); stalled.Status != metav1.ConditionTrue || !strings.Contains(stalled.Message, "halted: in wave 2 (second) the change failed on node-2") {
		t.Errorf("%+v", stalled)
	}
	if len(s.History) == 0 || s.History[0].HaltedAt == nil {
		t.Errorf("the history is %+v", s.History)
	}
}

// A turn that takes too long fails, what it runs is stopped, and it is tried again when the strategy says so, so often.
func TestReconcileTurnTimeoutAndRetries(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(func(p *upgradev1.Plan) {
		p.Spec.Strategy = &v1alpha1.Strategy{
			TurnTimeout: &metav1.Duration{Duration: time.Hour},
			Retries:     &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: 5 * time.Minute}},
		}
	}))
	c.reconciles()
	began := c.clock.Now()
	c.passes(10 * time.Second)
	result := c.reconciles()
	if at := c.clock.Now().Add(result.RequeueAfter); at.Before(began.Add(59*time.Minute)) || at.After(began.Add(time.Hour)) {
		t.Errorf("it comes back at %s", at)
	}
	c.passes(time.Hour)
	c.reconciles()
	c.expect("", "node-1", "")
	p := c.plan()
	if f := p.Status.Failed; len(f) != 1 || f[0].Reason != v1alpha1.ReasonTurnTimeout || !strings.Contains(f[0].Message, "retry at") {
		t.Fatalf("failed are %+v", f)
	}
	if p.Status.Condition(upgradev1.ConditionStalled).Status != metav1.ConditionFalse {
		t.Error("it is stalled, though it tries again by itself")
	}
	c.passes(5 * time.Minute)
	c.reconciles()
	c.expect("node-1", "node-1", "")
	c.ends("node-1", failed)
	c.reconciles()
	c.passes(time.Hour)
	c.reconciles()
	p = c.plan()
	if f := p.Status.Failed; len(f) != 1 || f[0].Reason != v1alpha1.ReasonJobFailed || strings.Contains(f[0].Message, "tried again") {
		t.Fatalf("failed are %+v", f)
	}
	if p.Status.Condition(upgradev1.ConditionStalled).Status != metav1.ConditionTrue {
		t.Error("it is not stalled, though nothing goes on")
	}
	if c.created.Load() != 2 {
		t.Errorf("%d Jobs were made", c.created.Load())
	}
}

// Outdated nodes carry a taint where the strategy asks for it, updated ones do not, and none does when the Plan is gone.
func TestReconcileTaintsOutdated(t *testing.T) {
	plan := newPlan(one, func(p *upgradev1.Plan) { p.Spec.Strategy = &v1alpha1.Strategy{TaintOutdated: true} })
	first, second := newNode("node-1", ready(now.Add(-time.Hour))), newNode("node-2", ready(now.Add(-time.Hour)))
	second.Spec.Taints = []corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}
	c := newCluster(t, first, second, plan)
	tainted := func() (names []string) {
		for _, name := range []string{"node-1", "node-2"} {
			for _, taint := range c.node(name).Spec.Taints {
				if taint.Key == "plan.outdated.moult.dev/"+plan.Name && taint.Effect == corev1.TaintEffectPreferNoSchedule {
					names = append(names, name)
				}
			}
		}
		return names
	}
	c.reconciles()
	if diff := cmp.Diff([]string{"node-1", "node-2"}, tainted()); diff != "" {
		t.Fatalf("tainted (-want +got):\n%s", diff)
	}
	for _, upgrade := range []*upgradev1.ContainerSpec{nil, plan.Spec.Upgrade} {
		p := c.plan()
		p.Spec.Upgrade, p.Generation = upgrade, p.Generation+1
		if err := c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		c.passes(time.Minute)
		c.reconciles()
		if s := c.plan().Status; len(s.Applying) != 1 || len(s.Updating) != 1 {
			t.Errorf("one node is in its turn, and %v, %v are shown as updating", s.Applying, s.Updating)
		}
	}
	done := slices.Collect(maps.Keys(c.jobs()))[0]
	c.ends(done, succeeded)
	c.reconciles()
	if got := tainted(); len(got) != 1 || got[0] == done {
		t.Fatalf("tainted are %v, and %s is updated", got, done)
	}
	if err := c.Client.Delete(t.Context(), c.plan()); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	if got := tainted(); len(got) > 0 {
		t.Errorf("tainted are %v, and the Plan is gone", got)
	}
	if got := c.node("node-2").Spec.Taints; len(got) != 1 || got[0].Key != "mine" {
		t.Errorf("the node's own taints are %v", got)
	}
}
