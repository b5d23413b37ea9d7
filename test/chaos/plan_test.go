// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	planName = "chaos"
	// planPool are nodes of Plans alone. These go over the hosts too, which the host update takes as well.
	planPool    = "plans"
	planNodes   = 10
	planAtOnce  = 4
	podSeconds  = "0.3"
	annotHang   = "test.moult.dev/hang"
	annotAwaits = "test.moult.dev/awaits"
	annotLength = "test.moult.dev/seconds"
)

// byPerson reports whether a person has cordoned the node before.
func byPerson(name string) bool { return name == planPool+"-2" || name == planPool+"-7" }

// plans is a Plan whose version changes as soon as the last one is everywhere.
type plans struct {
	*harness
	plan string
	// nodes is how many nodes it makes in planPool: none where another Plan makes them.
	nodes, atOnce int
	// drains is true where it drains its nodes. Else it cordons them.
	drains   bool
	versions []string
}

const (
	planClaims   = "claiming a node"
	planCreates  = "creating a Job"
	planReleases = "releasing a node"
	planReports  = "writing the Plan's status"
)

func (p *plans) name() string { return "Plan " + p.plan }

// holder is the Plan's name in claims and marks.
func (p *plans) holder() string { return p.planHolder(p.plan) }

func (h *harness) planHolder(plan string) string { return "Plan/" + h.namespace + "/" + plan }

func (p *plans) targets() []target {
	return []target{
		{name: planClaims, most: 3}, {name: planClaims, most: 3}, {name: planCreates, most: 3, late: true}, {name: planCreates, most: 3, late: true},
		{name: planReleases, most: 3, late: true}, {name: planReleases, most: 3, late: true}, {name: planReports, most: 3, late: true},
	}
}

func (p *plans) writeOf(r *http.Request, body []byte) string {
	switch path := r.URL.Path; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/jobs") && bytes.Contains(body, []byte("apply-"+p.plan+"-on-")):
		return planCreates
	case r.Method == http.MethodPatch && strings.HasSuffix(path, "/plans/"+p.plan+"/status"):
		return planReports
	case p.nodeWrite(r, body) != p.holder():
	case bytes.Contains(body, []byte(releasing)):
		return planReleases
	default:
		return planClaims
	}
	return ""
}

// releasing is in a write that takes a node's claim back.
const releasing = `"` + v1alpha1.AnnotationClaims + `":null`

// nodeWrite is the rollout whose claim a write of a Node makes, or takes back; "" for all others.
func (h *harness) nodeWrite(r *http.Request, body []byte) string {
	name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	if r.Method != http.MethodPatch || !ok {
		return ""
	}
	var n corev1.Node
	if json.Unmarshal(body, &n) != nil {
		return ""
	}
	claims, _ := v1alpha1.ParseClaims(n.Annotations)
	if known := find[*corev1.Node](h.journal, name); len(claims) == 0 && known != nil {
		claims = claimsOf(known)
	}
	if len(claims) == 0 {
		return ""
	}
	return claims[0].Rollout
}

func (p *plans) prepare(ctx context.Context) {
	p.t.Helper()
	if p.nodes > 0 {
		p.addNodes(ctx, planPool, p.nodes, nil, "")
	}
	for i := range p.nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", planPool, i+1)}}
		if byPerson(n.Name) {
			if err := p.patch(ctx, n, `{"spec":{"unschedulable":true}}`); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *plans) begin(ctx context.Context) {
	p.t.Helper()
	p.versions = []string{"v1"}
	plan := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: p.plan,
			// Each pod has these too. It runs until the first is taken off it.
			Annotations: map[string]string{annotHang: "true", annotAwaits: "true", annotLength: podSeconds},
		},
		Spec: upgradev1.PlanSpec{
			Concurrency: int64(p.atOnce), Version: p.versions[0], Cordon: true, Upgrade: &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
			NodeSelector: ofPools([]string{planPool, hostPool}),
		},
	}
	if p.drains {
		plan.Spec.Drain = &upgradev1.DrainSpec{}
	}
	p.create(ctx, plan)
}

// runPod lets the Job's pod come to its end once the operator has cordoned or drained the node, for which a container of the pod waits.
func (h *harness) runPod(ctx context.Context, pod *corev1.Pod) {
	for ctx.Err() == nil {
		n := find[*corev1.Node](h.journal, pod.Spec.NodeName)
		goesOn := func(c v1alpha1.Claim) bool {
			return c.Rollout == h.planHolder(pod.Labels[upgradev1.LabelPlan]) && c.Cordoned != nil && (!c.Drains || c.Drained != nil)
		}
		if n != nil && slices.ContainsFunc(claimsOf(n), goesOn) {
			err := h.patch(ctx, pod.DeepCopy(), `{"metadata":{"annotations":{%q:null}}}`, annotHang)
			if err != nil && !cluster.Passing(err) && ctx.Err() == nil {
				h.t.Errorf("ending the pod %s, %v", pod.Name, err)
			}
			if err == nil || !cluster.Passing(err) {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *plans) missing() string {
	plan := find[*upgradev1.Plan](p.journal, p.plan)
	if plan == nil {
		return "there is no Plan"
	}
	condition := plan.Status.Condition(upgradev1.ConditionComplete)
	if condition == nil || condition.Status != metav1.ConditionTrue ||
		plan.Status.ObservedGeneration != plan.Generation || plan.Spec.Version != p.versions[len(p.versions)-1] {
		return fmt.Sprintf("%s is on %v, and being applied to %v", plan.Spec.Version, plan.Status.Counts, plan.Status.Applying)
	}
	return ""
}

func (p *plans) ask(ctx context.Context) error {
	version := fmt.Sprintf("v%d", len(p.versions)+1)
	err := p.patch(ctx, &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Name: p.plan}}, `{"spec":{"version":%q}}`, version)
	if err == nil {
		p.versions = append(p.versions, version)
	}
	return err
}

func (p *plans) busy(ctx context.Context) (bool, error) { return claimed(ctx, p.client, p.holder()) }

// claimed reports whether a rollout has claimed nodes.
func claimed(ctx context.Context, c client.Client, holder string) (bool, error) {
	var nodes corev1.NodeList
	err := c.List(ctx, &nodes)
	return slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		return slices.ContainsFunc(claimsOf(&n), func(c v1alpha1.Claim) bool { return c.Rollout == holder })
	}), err
}

func (p *plans) invariants() []invariant {
	changed, made, cordons := sets.New[string](), sets.New[string](), sets.New[string]()
	running, podOf := map[string]*batchv1.Job{}, map[string]string{}
	label := func(n *corev1.Node) string { return n.Labels[upgradev1.LabelPlanHash(p.plan)] }
	ofJobs := func(name string, check func(r *replay, old, j *batchv1.Job, deleted bool) string) invariant {
		return of(name, func(r *replay, old, j *batchv1.Job, deleted bool) string {
			if !p.owns(j) {
				return ""
			}
			return check(r, old, j, deleted)
		})
	}
	return []invariant{
		limited("the Plan's concurrency is not exceeded", p.holder(), p.atOnce, planPool, hostPool),
		ofJobs("each node gets one Job for a version", func(_ *replay, old, j *batchv1.Job, deleted bool) string {
			key := j.Labels[upgradev1.LabelNode] + " " + j.Labels[upgradev1.LabelVersion]
			if deleted || old == nil && made.Has(key) {
				return fmt.Sprintf("it is deleted %t, or another one for %s", deleted, key)
			}
			made.Insert(key)
			return ""
		}),
		ofJobs("a Job succeeds, once, and on a drained node where the Plan drains it", func(r *replay, old, j *batchv1.Job, _ bool) string {
			if j.Status.Failed > 0 || j.Status.Succeeded > 1 {
				return fmt.Sprintf("%+v", j.Status)
			}
			if !succeeded(j) {
				return ""
			}
			name := j.Labels[upgradev1.LabelNode]
			changed.Insert(name + " " + j.Labels[upgradev1.LabelPlanHash(p.plan)])
			if pods := r.remaining(name); p.drains && old != nil && !succeeded(old) && len(pods) > 0 {
				return fmt.Sprintf("node %s has the pods %v", name, pods)
			}
			return ""
		}),
		{"a Job runs only while its turn has the node", func(r *replay, _ client.Object, e entry) string {
			switch o := e.object.(type) {
			case *batchv1.Job:
				if !p.owns(o) {
					return ""
				}
				if running[o.Name] = o; succeeded(o) {
					delete(running, o.Name)
				}
			case *corev1.Node:
			default:
				return ""
			}
			for name, j := range running {
				if c := r.claims[j.Labels[upgradev1.LabelNode]]; c.Rollout != p.holder() || c.Turn != j.Annotations[v1alpha1.AnnotationTurn] {
					return fmt.Sprintf("Job %s runs, and its node is claimed by %q for turn %q", name, c.Rollout, c.Turn)
				}
			}
			return ""
		}},
		of("a Job has one pod", func(_ *replay, _, pod *corev1.Pod, deleted bool) string {
			owner := metav1.GetControllerOf(pod)
			if owner == nil || owner.Kind != "Job" || !p.owns(pod) {
				return ""
			}
			if other := podOf[owner.Name]; other != "" && other != pod.Name || deleted {
				return fmt.Sprintf("it is deleted %t, and Job %s had pod %s", deleted, owner.Name, other)
			}
			podOf[owner.Name] = pod.Name
			return ""
		}),
		ofNodes("a node is labelled after its Job has succeeded", func(_ *replay, old, n *corev1.Node) string {
			if old != nil && label(n) != label(old) && !changed.Has(n.Name+" "+label(n)) {
				return "its label is " + label(n)
			}
			return ""
		}),
		ofNodes("a node is cordoned once in a turn", func(r *replay, old, n *corev1.Node) string {
			turn := n.Name + " " + r.claims[n.Name].Turn
			if old == nil || !n.Spec.Unschedulable || old.Spec.Unschedulable || r.claims[n.Name].Rollout != p.holder() {
				return ""
			}
			if cordons.Has(turn) {
				return "it was cordoned again in turn " + turn
			}
			cordons.Insert(turn)
			return ""
		}),
	}
}

// owns reports whether a Job or pod is one of the Plan's.
func (p *plans) owns(o client.Object) bool { return o.GetLabels()[upgradev1.LabelPlan] == p.plan }

// checkEnd expects one Job for each node and version, and the label of the last version on each node.
func (p *plans) checkEnd(r *replay) {
	p.t.Helper()
	want, got := map[string]int{}, map[string]int{}
	plan, _ := r.objects[keyOf(&upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Name: p.plan}})].(*upgradev1.Plan)
	for name, n := range r.nodes {
		if pool := n.Labels[labelPool]; pool != planPool && pool != hostPool {
			continue
		}
		for _, version := range p.versions {
			want[name+" "+version] = 1
		}
		if n.Labels[upgradev1.LabelPlanHash(p.plan)] != plan.Status.LatestHash {
			p.t.Errorf("node %s has not the label of the last version", name)
		}
	}
	for _, o := range r.objects {
		if j, ok := o.(*batchv1.Job); ok && p.owns(j) {
			got[j.Labels[upgradev1.LabelNode]+" "+j.Labels[upgradev1.LabelVersion]]++
			if !succeeded(j) {
				p.t.Errorf("Job %s has not succeeded", j.Name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("how many Jobs there were for each node and version (-want +got)\n%s", diff)
	}
	p.t.Logf("Plan %s had %d versions", p.plan, len(p.versions))
}

func succeeded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}
