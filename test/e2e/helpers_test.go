// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

const (
	patience = 60 * time.Second
	interval = 100 * time.Millisecond
	// target is the label by which a test's Plans select its nodes.
	target = "e2e.moult.dev/test"
)

// eventually waits until a condition holds. It says what was last seen when it never does.
func eventually(t *testing.T, what string, holds func(ctx context.Context) (string, bool)) {
	t.Helper()
	within(t, patience, what, holds)
}

func within(t *testing.T, patience time.Duration, what string, holds func(ctx context.Context) (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		seen, ok := holds(ctx)
		if ok {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in %s; last seen: %s", what, patience, seen)
		}
	}
}

// throughout checks that a condition holds, again and again, until another has come true.
func throughout(t *testing.T, what string, holds func(ctx context.Context) error, until func(ctx context.Context) (string, bool)) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) (string, bool) {
		if err := holds(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return until(ctx)
	})
}

// persistently does something again and again, for as long as a busy API server does not answer or can't, and it has not ended
// otherwise. What failed may have been done all the same.
func persistently(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil || !cluster.Passing(err) {
			return err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

var nodes struct {
	sync.Mutex
	taken map[string]bool
	// waiting are those who wait for nodes of a kind, by the first of that kind, in the order in which they came.
	waiting map[string][]*waiter
}

// waiter is a test that waits for nodes.
type waiter struct{ since time.Time }

// fair is how long a test waits while others that came later, and want fewer nodes, may have theirs.
const fair = 2 * patience

// queue begins to wait for nodes, and ends it with the function that it returns.
func queue(kind string) (w *waiter, leave func()) {
	nodes.Lock()
	defer nodes.Unlock()
	if nodes.waiting == nil {
		nodes.waiting = map[string][]*waiter{}
	}
	w = &waiter{since: time.Now()}
	nodes.waiting[kind] = append(nodes.waiting[kind], w)
	return w, func() {
		nodes.Lock()
		defer nodes.Unlock()
		nodes.waiting[kind] = slices.DeleteFunc(nodes.waiting[kind], func(other *waiter) bool { return other == w })
	}
}

// take gives a test nodes of its own until it ends: real machines where there are some, simulated nodes where not.
func take(t *testing.T, n int) []string {
	t.Helper()
	if world.noMachines == nil {
		// Those that the cluster was started with: tests may add others for themselves.
		names := make([]string, machines)
		for i := range names {
			names[i] = fmt.Sprintf("machine-%d", i+1)
		}
		return takeFrom(t, names, n)
	}
	return takeSimulated(t, n)
}

// takeMachines gives a test real machines of its own, or skips it.
func takeMachines(t *testing.T, n int) []*cluster.Machine {
	t.Helper()
	if world.noMachines != nil {
		t.Skipf("no machines: %v", world.noMachines)
	}
	var all []*cluster.Machine
	for _, name := range take(t, n) {
		all = append(all, world.Machine(name))
	}
	return all
}

func takeSimulated(t *testing.T, n int) []string {
	t.Helper()
	names := make([]string, simulated)
	for i := range names {
		names[i] = fmt.Sprintf("sim-%04d", i+1)
	}
	return takeFrom(t, names, n)
}

func takeFrom(t *testing.T, names []string, n int) []string {
	t.Helper()
	mine := takeInTurn(t, names, n)
	// The Plan of a test before may have been deleted just now, with its claim.
	eventually(t, "nobody has a claim on "+strings.Join(mine, ", "), func(context.Context) (string, bool) {
		for _, name := range mine {
			if claims := node(t, name).Annotations[v1alpha1.AnnotationClaims]; claims != "" {
				return name + ": " + claims, false
			}
		}
		return "", true
	})
	label := map[string]any{target: labelOf(t)}
	for _, name := range mine {
		patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": label}})
	}
	t.Cleanup(func() {
		for _, name := range mine {
			patchNode(t, name, map[string]any{
				"metadata": map[string]any{"labels": map[string]any{target: nil}}, "spec": map[string]any{"unschedulable": nil},
			})
		}
		nodes.Lock()
		defer nodes.Unlock()
		for _, name := range mine {
			delete(nodes.taken, name)
		}
	})
	return mine
}

// takeInTurn takes nodes when there are as many, and nobody has waited too long before.
func takeInTurn(t *testing.T, names []string, n int) (mine []string) {
	t.Helper()
	me, leave := queue(names[0])
	defer leave()
	within(t, 10*patience, "taking nodes", func(context.Context) (string, bool) {
		nodes.Lock()
		defer nodes.Unlock()
		for _, other := range nodes.waiting[names[0]] {
			if other == me {
				break
			}
			if waits := time.Since(other.since); waits > fair {
				return fmt.Sprintf("another test has waited for %s", waits), false
			}
		}
		var free []string
		for _, name := range names {
			if !nodes.taken[name] {
				free = append(free, name)
			}
		}
		if len(free) < n {
			return fmt.Sprintf("%d of %d are free", len(free), n), false
		}
		if nodes.taken == nil {
			nodes.taken = map[string]bool{}
		}
		mine = free[:n]
		for _, name := range mine {
			nodes.taken[name] = true
		}
		return "", true
	})
	return mine
}

func labelOf(t *testing.T) string { return strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()) }

func patchNode(t *testing.T, name string, fields map[string]any) {
	t.Helper()
	body, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	body, err = yaml.YAMLToJSON(body)
	if err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := persistently(context.WithoutCancel(t.Context()), func(ctx context.Context) error {
		return world.Patch(ctx, n, client.RawPatch(types.MergePatchType, body))
	}); err != nil {
		t.Fatalf("patching node %s: %v", name, err)
	}
}

// newPlan is a Plan over the test's nodes that runs a shell command on each, with the host's root at /host.
func newPlan(t *testing.T, name, command string) *upgradev1.Plan {
	return &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: upgradev1.PlanSpec{
			Concurrency:        10,
			Version:            "v1",
			ServiceAccountName: "system-upgrade",
			NodeSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}},
			Upgrade: &upgradev1.ContainerSpec{
				Image: image.Busybox, Command: []string{"sh", "-c"}, Args: []string{command},
			},
		},
	}
}

// create makes a Plan that goes when the test ends, and leaves no label behind.
func create(t *testing.T, p *upgradev1.Plan) {
	t.Helper()
	asked := false
	if err := persistently(t.Context(), func(ctx context.Context) error {
		err := world.Create(ctx, p)
		if asked && apierrors.IsAlreadyExists(err) {
			err = world.Get(ctx, client.ObjectKeyFromObject(p), p)
		}
		asked = true
		return err
	}); err != nil {
		t.Fatalf("creating plan: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			explain(t, p.Name)
		}
		remove(t, p.Name)
	})
}

// explain prints what ran for a Plan.
func explain(t *testing.T, plan string) {
	ctx := context.WithoutCancel(t.Context())
	ofPlan := []string{"-n", namespace, "-l", upgradev1.LabelPlan + "=" + plan}
	for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"logs", "--all-containers", "--prefix", "--ignore-errors"}, {"describe", "pods"}} {
		out, err := kubectl(ctx, append(args, ofPlan...)...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	p := &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if err := persistently(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(world.Delete(ctx, p)) }); err != nil {
		t.Errorf("deleting plan: %v", err)
	}
	var all corev1.NodeList
	if err := persistently(ctx, func(ctx context.Context) error { return world.List(ctx, &all) }); err != nil {
		t.Errorf("listing nodes: %v", err)
	}
	for _, n := range all.Items {
		if _, ok := n.Labels[upgradev1.LabelPlanHash(name)]; ok {
			patchNode(t, n.Name, map[string]any{"metadata": map[string]any{"labels": map[string]any{upgradev1.LabelPlanHash(name): nil}}})
		}
	}
}

func get(t *testing.T, name string) *upgradev1.Plan {
	t.Helper()
	p := &upgradev1.Plan{}
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p)
	}); err != nil {
		t.Fatalf("reading plan: %v", err)
	}
	return p
}

// edit changes a Plan's spec.
func edit(t *testing.T, name string, change func(*upgradev1.Plan)) {
	t.Helper()
	eventually(t, "editing plan "+name, func(ctx context.Context) (string, bool) {
		p := get(t, name)
		change(p)
		err := world.Update(ctx, p)
		return fmt.Sprint(err), err == nil
	})
}

// status waits until a Plan's status is as wanted.
func status(t *testing.T, name, what string, holds func(*upgradev1.PlanStatus) bool) *upgradev1.Plan {
	t.Helper()
	var p *upgradev1.Plan
	eventually(t, "plan "+name+" "+what, func(context.Context) (string, bool) {
		p = get(t, name)
		return describe(p), p.Status.ObservedGeneration == p.Generation && holds(&p.Status)
	})
	return p
}

func describe(p *upgradev1.Plan) string {
	text, err := yaml.Marshal(p.Status)
	if err != nil {
		return err.Error()
	}
	return "\n" + string(text)
}

// complete waits until a Plan is complete on as many nodes as it selects.
func complete(t *testing.T, name string) *upgradev1.Plan {
	t.Helper()
	var all corev1.NodeList
	selector, err := metav1.LabelSelectorAsSelector(get(t, name).Spec.NodeSelector)
	if err != nil {
		t.Fatal(err)
	}
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.List(ctx, &all, client.MatchingLabelsSelector{Selector: selector})
	}); err != nil {
		t.Fatalf("listing nodes: %v", err)
	}
	var want int32
	for _, n := range all.Items {
		if n.Labels[upgradev1.LabelPlanHash(name)] != upgradev1.LabelDisabled {
			want++
		}
	}
	return status(t, name, fmt.Sprintf("complete on %d nodes", want), func(s *upgradev1.PlanStatus) bool {
		c := s.Condition(upgradev1.ConditionComplete)
		return c != nil && c.Status == metav1.ConditionTrue && s.Counts.Total == want
	})
}

// condition waits for a condition with this status and reason, and returns its message.
func condition(t *testing.T, name, kind string, is metav1.ConditionStatus, reason string) string {
	t.Helper()
	p := status(t, name, fmt.Sprintf("%s=%s/%s", kind, is, reason), func(s *upgradev1.PlanStatus) bool {
		c := s.Condition(kind)
		return c != nil && c.Status == is && c.Reason == reason
	})
	return p.Status.Condition(kind).Message
}

func node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := persistently(t.Context(), func(ctx context.Context) error { return world.Get(ctx, client.ObjectKey{Name: name}, n) }); err != nil {
		t.Fatalf("reading node: %v", err)
	}
	return n
}

// released checks that nothing of a turn is left on a node.
func released(t *testing.T, name string, unschedulable bool) {
	t.Helper()
	n := node(t, name)
	if n.Annotations[v1alpha1.AnnotationClaims] != "" {
		t.Errorf("node %s is still claimed: %s", name, n.Annotations[v1alpha1.AnnotationClaims])
	}
	if n.Spec.Unschedulable != unschedulable {
		t.Errorf("node %s: unschedulable is %v, want %v", name, n.Spec.Unschedulable, unschedulable)
	}
	if mark := n.Annotations[v1alpha1.AnnotationCordonedBy]; mark != "" {
		t.Errorf("node %s is still marked as cordoned by %s", name, mark)
	}
}

// jobsOf are the Jobs of Plans, all as they were at one instant.
func jobsOf(t *testing.T, plans ...string) []batchv1.Job {
	t.Helper()
	of, err := labels.NewRequirement(upgradev1.LabelPlan, selection.In, plans)
	if err != nil {
		t.Fatal(err)
	}
	var all batchv1.JobList
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)})
	}); err != nil {
		t.Fatalf("listing jobs: %v", err)
	}
	return all.Items
}

// lines are those of a file on a machine; none if there is no such file.
func lines(t *testing.T, m *cluster.Machine, path string) []string {
	t.Helper()
	data, err := m.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatalf("reading %s on %s: %v", path, m.Name(), err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func eventReasons(t *testing.T, plan string) map[string]int {
	t.Helper()
	var all *corev1.EventList
	if err := persistently(t.Context(), func(ctx context.Context) (err error) {
		all, err = world.clientset.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Plan,involvedObject.name=" + plan})
		return err
	}); err != nil {
		t.Fatalf("listing events: %v", err)
	}
	counts := map[string]int{}
	for _, e := range all.Items {
		counts[e.Reason]++
	}
	return counts
}

func ownerReference(p *upgradev1.Plan) metav1.OwnerReference {
	return *metav1.NewControllerRef(p, upgradev1.GroupVersion.WithKind("Plan"))
}
