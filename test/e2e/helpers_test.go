// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

const (
	// patience bounds what hangs. It is much longer than anything takes on a slow machine.
	patience = 5 * time.Minute
	interval = 100 * time.Millisecond
	// target is the label by which a test's Plans select its nodes.
	target = "e2e.moult.dev/test"
)

// eventually waits until a condition holds. It fails with what was last seen if it never does.
func eventually(t *testing.T, what string, holds func(ctx context.Context) (string, bool)) {
	t.Helper()
	within(t, patience, what, holds)
}

// within is eventually with a limit of its own. It ends before the tests do, so that it can say what was last seen.
func within(t *testing.T, limit time.Duration, what string, holds func(ctx context.Context) (string, bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if end, ok := t.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, end.Add(-30*time.Second))
		defer cancel()
	}
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
			t.Fatalf("%s: %v; last seen: %s", what, context.Cause(ctx), seen)
		}
	}
}

// persistently tries again for as long as a busy API server does not answer. A request that failed may have been carried out.
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

// taken are the nodes that a test has for itself.
var taken = struct {
	sync.Mutex
	nodes map[string]bool
}{nodes: map[string]bool{}}

// takeMachines gives a test real machines of its own until it ends. It skips the test where there are none.
func takeMachines(t *testing.T, n int) []*cluster.Machine {
	t.Helper()
	if world.noMachines != nil {
		t.Skipf("no machines: %v", world.noMachines)
	}
	var all []*cluster.Machine
	// Those that the cluster was started with: tests may add others for themselves.
	for _, name := range take(t, "machine-%d", machines, n) {
		all = append(all, world.Machine(name))
	}
	return all
}

// takeSimulated gives a test simulated nodes of its own until it ends.
func takeSimulated(t *testing.T, n int) []string {
	t.Helper()
	return take(t, "sim-%04d", simulated, n)
}

// take waits until n of these nodes are free, for as long as the tests may run.
func take(t *testing.T, format string, of, n int) (mine []string) {
	t.Helper()
	within(t, 24*time.Hour, "taking nodes", func(context.Context) (string, bool) {
		taken.Lock()
		defer taken.Unlock()
		mine = nil
		for i := range of {
			if name := fmt.Sprintf(format, i+1); !taken.nodes[name] {
				mine = append(mine, name)
			}
		}
		if len(mine) < n {
			return fmt.Sprintf("%d of %d are free", len(mine), n), false
		}
		mine = mine[:n]
		for _, name := range mine {
			taken.nodes[name] = true
		}
		return "", true
	})
	t.Cleanup(func() {
		for _, name := range mine {
			patchNode(t, name, map[string]any{
				"metadata": map[string]any{"labels": map[string]any{target: nil}}, "spec": map[string]any{"unschedulable": nil},
			})
		}
		taken.Lock()
		defer taken.Unlock()
		for _, name := range mine {
			delete(taken.nodes, name)
		}
	})
	// The rollout of the test before was deleted just now. Its claim goes a moment later.
	eventually(t, "nothing claims "+strings.Join(mine, ", "), func(context.Context) (string, bool) {
		for _, name := range mine {
			if claims := node(t, name).Annotations[v1alpha1.AnnotationClaims]; claims != "" {
				return name + ": " + claims, false
			}
		}
		return "", true
	})
	for _, name := range mine {
		patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{target: labelOf(t)}}})
	}
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

// create makes a Plan. When the test ends it deletes the Plan and the labels that it left on nodes.
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

// jobsOf are the Jobs of a Plan.
func jobsOf(t *testing.T, plan string) []batchv1.Job {
	t.Helper()
	var all batchv1.JobList
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{upgradev1.LabelPlan: plan})
	}); err != nil {
		t.Fatalf("listing jobs: %v", err)
	}
	return all.Items
}

// simulate says how the Plan's pods end on simulated nodes, which run nothing.
func simulate(p *upgradev1.Plan, how string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations["test.moult.dev/"+how] = "true"
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

func eventReasons(t *testing.T, kind, name string) map[string]int {
	t.Helper()
	var all *corev1.EventList
	if err := persistently(t.Context(), func(ctx context.Context) (err error) {
		all, err = world.clientset.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name,
		})
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
