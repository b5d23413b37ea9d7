// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/cluster"
)

// bench is a node of a real cluster, and a namespace for its pods.
type bench struct {
	client.Client
	t          *testing.T
	kubeconfig string
	kubectl    string
	node       string
	namespace  string
	owner      metav1.OwnerReference
}

// TestAPI runs the commands against a real API server, as the service account of a Plan's Jobs.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	tests := []struct {
		name string
		test func(*bench)
	}{
		{"kubectl", sameAsKubectl},
		{"plan", drainAsAPlanDoes},
		{"held", drainSaysWhatHolds},
		{"dryrun", dryRunChangesNothing},
		{"overdue", drainLeavesTheOverdue},
		{"signal", drainEndsBySignal},
		{"marks", cordonMarks},
	}
	binaries, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	// One that lives for each test; the dead ones are made by those that need them.
	running := cluster.New(t, cluster.Options{Nodes: len(tests)})
	config := running.Config()
	config.QPS, config.Burst, config.Timeout = 1000, 1000, 30*time.Second
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	drainer(t, c)
	for i, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := &bench{
				Client: c, t: t, kubeconfig: running.Kubeconfig(), kubectl: binaries["kubectl"],
				node: "sim-000" + string(rune('1'+i)), namespace: tc.name,
			}
			b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
			manager := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "manager"}}
			b.create(manager)
			yes := true
			b.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: manager.Name, UID: manager.UID, Controller: &yes}
			tc.test(b)
		})
	}
}

// drainer gives the service account of Plans' Jobs the rights that it has in system-upgrade-controller's manifests.
func drainer(t *testing.T, c client.Client) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "system-upgrade-controller-drainer"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "daemonsets", "replicasets"}, Verbs: []string{"get", "list"}},
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "system-upgrade", Name: "system-upgrade"}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a command line, as the Plans' service account.
func (b *bench) start(ctx context.Context, args ...string) (out *output, wait func() error) {
	b.t.Helper()
	out = &output{}
	root := &cobra.Command{Use: "moult", SilenceErrors: true}
	root.AddCommand(NewCommands(clock.RealClock{}, genericiooptions.IOStreams{Out: out, ErrOut: out})...)
	root.SetArgs(append(args, "--kubeconfig", b.kubeconfig, "--as", "system:serviceaccount:system-upgrade:system-upgrade"))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	return out, func() error { return <-done }
}

func (b *bench) run(args ...string) (string, error) {
	b.t.Helper()
	out, wait := b.start(b.t.Context(), args...)
	err := wait()
	return out.String(), err
}

// output can be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (b *bench) create(obj client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	b.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: name, Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{b.owner},
		},
		Spec: corev1.PodSpec{NodeName: b.node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	for _, c := range change {
		c(p)
	}
	b.create(p)
	if strings.HasPrefix(p.Spec.NodeName, "sim-") {
		b.eventually(name+" runs", func() bool {
			b.get(p)
			return p.Status.Phase != corev1.PodPending
		})
	}
	return p
}

// daemon runs a DaemonSet on the bench's node, and gives the name of its pod.
func (b *bench) daemon(name string) string {
	b.t.Helper()
	labels := map[string]string{"daemon": name}
	b.create(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: b.node},
					Containers:   []corev1.Container{{Name: "c", Image: "none"}},
				},
			},
		},
	})
	var pods corev1.PodList
	b.eventually("the daemon runs", func() bool {
		if err := b.List(b.t.Context(), &pods, client.InNamespace(b.namespace), client.MatchingLabels(labels)); err != nil {
			b.t.Fatal(err)
		}
		return len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodRunning
	})
	return pods.Items[0].Name
}

func (b *bench) budget(app string) *policyv1.PodDisruptionBudget {
	b.t.Helper()
	one := intstr.FromInt32(1)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	b.create(pdb)
	b.eventually("the budget is in force", func() bool {
		b.get(pdb)
		return pdb.Status.ObservedGeneration == pdb.Generation && pdb.Status.CurrentHealthy == 1
	})
	return pdb
}

func (b *bench) get(obj client.Object) {
	b.t.Helper()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		b.t.Fatal(err)
	}
}

// there is the pods of the bench, but not those that are going.
func (b *bench) there() []string {
	b.t.Helper()
	var pods corev1.PodList
	if err := b.List(b.t.Context(), &pods, client.InNamespace(b.namespace)); err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, pods.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waiting until %s", what)
		}
	}
}

// dead makes a node whose pods never end by themselves.
func (b *bench) dead() {
	b.node = b.namespace + "-dead"
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node}})
}

func emptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

// sameAsKubectl asks kubectl itself what it would evict, for every combination of flags that matters to the choice.
func sameAsKubectl(b *bench) {
	b.pod("managed")
	b.pod("unowned", unowned)
	b.pod("scratch", emptyDir)
	b.pod("both", emptyDir, unowned)
	b.pod("mirror", unowned, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	finished := b.pod("finished", emptyDir, unowned)
	finished.Status.Phase = corev1.PodFailed
	if err := b.Status().Update(b.t.Context(), finished); err != nil {
		b.t.Fatal(err)
	}
	b.daemon("daemon")

	flags := []string{"--force", "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app notin (both,scratch)"}
	for set := range 1 << len(flags) {
		args := []string{"drain", "node/" + b.node, "--dry-run=client"}
		for i, flag := range flags {
			if set&(1<<i) != 0 {
				args = append(args, flag)
			}
		}
		theirs, theirErr := exec.CommandContext(b.t.Context(), b.kubectl, append(args, "--kubeconfig", b.kubeconfig)...).CombinedOutput()
		ours, ourErr := b.run(args...)
		if (theirErr == nil) != (ourErr == nil) {
			b.t.Errorf("%v: kubectl gives %v, moult %v\n%s\n%s", args, theirErr, ourErr, theirs, ours)
		}
		expect(b.t, strings.Join(args, " "), evicting(string(theirs)), evicting(ours))
	}
}

// evicting is what the output says of nodes, and of pods that are evicted.
func evicting(output string) []string {
	var said []string
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "evicting pod ") || strings.HasPrefix(line, "node/") && !strings.Contains(line, "not drained") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	slices.Sort(said)
	return said
}

// drainAsAPlanDoes runs the command line of a Plan's Job, in its environment.
func drainAsAPlanDoes(b *bench) {
	b.t.Setenv(planVariable, "k3s")
	b.t.Setenv(namespaceVariable, "system-upgrade")
	daemon := b.daemon("daemon")
	b.pod("web", emptyDir)
	b.pod("unowned", unowned)
	b.pod("job", func(p *corev1.Pod) { p.Labels["upgrade.cattle.io/controller"] = "system-upgrade-controller" })
	b.pod("held")
	b.budget("held")

	out, err := b.run("drain", b.node, "--pod-selector", "!upgrade.cattle.io/controller", "--ignore-daemonsets",
		"--delete-emptydir-data", "--force", "--timeout", "60s", "--grace-period", "30", "--disable-eviction=true",
		"--skip-wait-for-delete-timeout", "60")
	if err != nil {
		b.t.Fatal(err, out)
	}
	if !strings.HasSuffix(out, "node/"+b.node+" drained\n") {
		b.t.Errorf("said:\n%s", out)
	}
	expect(b.t, "left", []string{daemon, "job"}, b.there())
	b.expectCordon(b.node, true, "Plan/system-upgrade/k3s")
}

// drainSaysWhatHolds is held by a budget until the time is over, and then until the budget is gone.
func drainSaysWhatHolds(b *bench) {
	b.pod("api")
	b.pod("web")
	pdb := b.budget("api")
	held := "pod held/api is held by PodDisruptionBudget held/api: Cannot evict pod as it would violate the pod's disruption " +
		"budget. The disruption budget api needs 1 healthy pods and has 1 currently"

	out, err := b.run("drain", b.node, "--timeout=2s")
	if err == nil {
		b.t.Fatal("no error")
	}
	expect(b.t, "error", "draining node "+b.node+", its time is over and these pods are still there:\n  "+held, err.Error())
	expect(b.t, "left", []string{"api"}, b.there())
	if !strings.Contains(out, held+"\n") {
		b.t.Errorf("said:\n%s", out)
	}
	b.expectCordon(b.node, true, "")

	again, wait := b.start(b.t.Context(), "drain", b.node)
	b.eventually("it is held", func() bool { return strings.Contains(again.String(), held) })
	if err := b.Delete(b.t.Context(), pdb); err != nil {
		b.t.Fatal(err)
	}
	if err := wait(); err != nil {
		b.t.Error(err)
	}
	expect(b.t, "left", nil, b.there())
	expect(b.t, "said", "node/"+b.node+" already cordoned\n"+held+"\nevicting pod held/api\npod/api evicted\nnode/"+b.node+" drained\n",
		again.String())
}

func dryRunChangesNothing(b *bench) {
	b.pod("api")
	pdb := b.budget("api")
	out, err := b.run("drain", b.node, "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), "is held by PodDisruptionBudget dryrun/api") {
		b.t.Errorf("got %v\n%s", err, out)
	}
	if err := b.Delete(b.t.Context(), pdb); err != nil {
		b.t.Fatal(err)
	}
	out, err = b.run("drain", b.node, "--dry-run=server")
	if err != nil {
		b.t.Error(err)
	}
	expect(b.t, "said", "node/"+b.node+" cordoned (server dry run)\nevicting pod dryrun/api (server dry run)\nnode/"+b.node+
		" drained (server dry run)\n", out)
	expect(b.t, "left", []string{"api"}, b.there())
	b.expectCordon(b.node, false, "")
}

func drainLeavesTheOverdue(b *bench) {
	b.dead()
	second := int64(1)
	b.pod("lost", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &second })
	out, err := b.run("drain", b.node, "--skip-wait-for-delete-timeout=1", "--timeout=30s")
	if err != nil {
		b.t.Fatal(err)
	}
	expect(b.t, "said", "node/"+b.node+" cordoned\nevicting pod overdue/lost\n"+
		"pod overdue/lost should have ended more than 1s ago, and is left\nnode/"+b.node+" drained\n", out)
}

func drainEndsBySignal(b *bench) {
	b.dead()
	b.pod("lost")
	out, wait := b.start(b.t.Context(), "drain", b.node)
	b.eventually("it drains", func() bool { return strings.Contains(out.String(), "evicting pod") })
	began := time.Now()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	err := wait()
	if err == nil {
		b.t.Fatal("no error")
	}
	expect(b.t, "error", "drain stopped, terminated signal received: draining node "+b.node+
		", it stays cordoned and these pods are still there:\n  pod signal/lost is still terminating", err.Error())
	if took := time.Since(began); took > time.Second {
		b.t.Errorf("took %v", took)
	}
	b.expectCordon(b.node, true, "")
}

// cordonMarks for a Plan, and leaves a person's cordon a person's.
func cordonMarks(b *bench) {
	uncordon := func() {
		b.t.Helper()
		if _, err := b.run("uncordon", b.node); err != nil {
			b.t.Error(err)
		}
		b.expectCordon(b.node, false, "")
	}
	cordon := func(want string) {
		b.t.Helper()
		out, err := b.run("cordon", b.node)
		if err != nil {
			b.t.Error(err)
		}
		expect(b.t, "said", "node/"+b.node+" "+want+"\n", out)
	}
	cordon("cordoned")
	b.expectCordon(b.node, true, "")

	b.t.Setenv(planVariable, "k3s")
	b.t.Setenv(namespaceVariable, "system-upgrade")
	cordon("already cordoned")
	b.expectCordon(b.node, true, "")
	uncordon()

	cordon("cordoned")
	b.expectCordon(b.node, true, "Plan/system-upgrade/k3s")
	cordon("already cordoned")
	b.expectCordon(b.node, true, "Plan/system-upgrade/k3s")
	uncordon()

	if _, err := b.run("cordon", "nobody"); !apierrors.IsNotFound(err) {
		b.t.Errorf("got %v", err)
	}
}

func (b *bench) expectCordon(name string, unschedulable bool, by string) {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.get(n)
	if n.Spec.Unschedulable != unschedulable || n.Annotations["moult.dev/cordoned-by"] != by {
		b.t.Errorf("unschedulable is %v, by %q", n.Spec.Unschedulable, n.Annotations["moult.dev/cordoned-by"])
	}
}
