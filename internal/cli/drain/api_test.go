// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/tier"
)

// bench is a node of a real cluster, and a namespace for its pods.
type bench struct {
	client.Client
	t          *testing.T
	kubeconfig string
	kubectl    string
	node       string
	namespace  string
	// account is who the commands run as: system-upgrade has the rights of the manifests, and plain those of kubectl's drain.
	account string
	owner   metav1.OwnerReference
}

// TestAPI runs the commands against a real API server, as the service account of a Plan's Jobs.
func TestAPI(t *testing.T) {
	tests := []struct {
		name string
		test func(*bench)
	}{
		{"kubectl", sameAsKubectl},
		{"plan", drainAsAPlanDoes},
		{"held", drainSaysWhatHolds},
		{"rights", drainWithTheRightsOfKubectl},
	}
	binaries, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	running := cluster.Shared(t, 0)
	config := running.Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	drainer(t, c)
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			name := "cli-" + tc.name
			if err := running.AddNode(t.Context(), cluster.NodeOptions{Name: name}); err != nil {
				t.Fatal(err)
			}
			b := &bench{
				Client: c, t: t, kubeconfig: running.Kubeconfig(), kubectl: binaries["kubectl"], node: name, namespace: name, account: "system-upgrade",
			}
			b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
			if err := cluster.WaitForAccounts(t.Context(), c, b.namespace); err != nil {
				t.Fatal(err)
			}
			manager := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "manager"}}
			b.create(manager)
			yes := true
			b.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: manager.Name, UID: manager.UID, Controller: &yes}
			tc.test(b)
		})
	}
}

// drainer gives the service account of Plans' Jobs the rights that the manifests give it, and another the rights that it has
// in system-upgrade-controller's manifests.
func drainer(t *testing.T, c client.Client) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	manifests, err := os.ReadFile("../../../config/rbac/jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			if err := yaml.UnmarshalStrict([]byte(document), role); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "daemonsets", "replicasets"}, Verbs: []string{"get", "list"}},
		},
	}
	for account, role := range map[string]*rbacv1.ClusterRole{"system-upgrade": role, "plain": plain} {
		role.Name = "cli-drain-" + account
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "system-upgrade", Name: account}},
		}
		for _, obj := range []client.Object{role, binding} {
			if err := c.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Delete(context.WithoutCancel(t.Context()), obj); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// start starts a command line, as the Plans' service account.
func (b *bench) start(ctx context.Context, args ...string) (out *output, wait func() error) {
	b.t.Helper()
	out = &output{}
	root := &cobra.Command{Use: "moult", SilenceErrors: true}
	root.AddCommand(NewCommands(clock.RealClock{}, genericiooptions.IOStreams{Out: out, ErrOut: out})...)
	root.SetArgs(append(args, "--kubeconfig", b.kubeconfig, "--as", "system:serviceaccount:system-upgrade:"+b.account))
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
	b.eventually(name+" runs", func() bool {
		b.get(p)
		return p.Status.Phase != corev1.PodPending
	})
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
	for deadline := time.Now().Add(5 * time.Minute); !is(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waiting until %s", what)
		}
	}
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
		if !tier.All && set != 0 && set != 1<<len(flags)-1 && set != 0b0101 {
			continue // kubectl takes long to start.
		}
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
	b.expectConditions(map[corev1.NodeConditionType]string{
		corev1.NodeMaintenanceInProgress: "True Plan/system-upgrade/k3s: the node is in maintenance",
		corev1.NodeDrainInProgress:       "False Plan/system-upgrade/k3s: the drain is over",
		corev1.NodeDrained:               "True Plan/system-upgrade/k3s: the node is drained",
	})
}

// A drain waits until the PodDisruptionBudget that holds a pod is gone, and reports it meanwhile.
func drainSaysWhatHolds(b *bench) {
	b.pod("api")
	pdb := b.budget("api")
	held := "pod cli-held/api is held by PodDisruptionBudget cli-held/api: Cannot evict pod as it would violate the pod's disruption " +
		"budget. The disruption budget api needs 1 healthy pods and has 1 currently"
	again, wait := b.start(b.t.Context(), "drain", b.node)
	b.eventually("it is held", func() bool { return strings.Contains(again.String(), held) })
	b.eventually("the node says so", func() bool {
		return b.conditions()[corev1.NodeDrainInProgress] == "True moult drain: 1 pod left; "+held
	})
	if err := b.Delete(b.t.Context(), pdb); err != nil {
		b.t.Fatal(err)
	}
	if err := wait(); err != nil {
		b.t.Error(err)
	}
	expect(b.t, "left", nil, b.there())
	expect(b.t, "said", "node/"+b.node+" cordoned\n"+held+"\nevicting pod cli-held/api\npod/api evicted\nnode/"+b.node+" drained\n",
		again.String())
}

// drainWithTheRightsOfKubectl warns once that it can't set conditions, and drains.
func drainWithTheRightsOfKubectl(b *bench) {
	b.account = "plain"
	b.pod("web")
	out, err := b.run("drain", b.node, "--exclude-from-load-balancers")
	if err != nil {
		b.t.Error(err)
	}
	if n := strings.Count(out, "Warning: "); n != 1 || !strings.Contains(out, `Warning: setting conditions of node `+b.node+`, nodes "`+b.node+`" is forbidden`) {
		b.t.Errorf("said:\n%s", out)
	}
	b.expectCordon(b.node, true, "")
	b.expectExcluded(true, "moult drain")
	b.expectConditions(map[corev1.NodeConditionType]string{})
}

// conditions says of each condition that Moult sets on the node whether it is true, and its message.
func (b *bench) conditions() map[corev1.NodeConditionType]string {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node}}
	b.get(n)
	m := map[corev1.NodeConditionType]string{}
	for _, c := range n.Status.Conditions {
		if c.Reason == "MoultTurn" {
			m[c.Type] = string(c.Status) + " " + c.Message
		}
	}
	return m
}

func (b *bench) expectConditions(want map[corev1.NodeConditionType]string) {
	b.t.Helper()
	expect(b.t, "conditions", want, b.conditions())
}

func (b *bench) expectExcluded(excluded bool, by string) {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node}}
	b.get(n)
	if _, is := n.Labels[corev1.LabelNodeExcludeBalancers]; is != excluded || n.Annotations["moult.dev/excluded-by"] != by {
		b.t.Errorf("excluded is %v, by %q", is, n.Annotations["moult.dev/excluded-by"])
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
