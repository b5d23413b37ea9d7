// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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
	// account is who the commands run as: system-upgrade has the rights of the manifests, and plain those of kubectl's drain.
	account string
	owner   metav1.OwnerReference
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
		{"ends", drainEndsAsItIsTold},
		{"volumes", drainWaitsForVolumes},
		{"rights", drainWithTheRightsOfKubectl},
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
				node: fmt.Sprintf("sim-%04d", i+1), namespace: tc.name, account: "system-upgrade",
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
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "system-upgrade", Name: account}},
		}
		for _, obj := range []client.Object{role, binding} {
			if err := c.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
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
	b.expectConditions(map[corev1.NodeConditionType]string{
		corev1.NodeMaintenanceInProgress: "True Plan/system-upgrade/k3s: the node is in maintenance",
		corev1.NodeDrainInProgress:       "False Plan/system-upgrade/k3s: the drain is over",
		corev1.NodeDrained:               "True Plan/system-upgrade/k3s: the node is drained",
	})
}

// drainSaysWhatHolds is held by a budget until the time is over, and then until the budget is gone.
func drainSaysWhatHolds(b *bench) {
	b.pod("api")
	b.pod("web")
	pdb := b.budget("api")
	held := "pod held/api is held by PodDisruptionBudget held/api: Cannot evict pod as it would violate the pod's disruption " +
		"budget. The disruption budget api needs 1 healthy pods and has 1 currently"

	out, err := b.run("drain", b.node, "--timeout=10s")
	if err == nil {
		b.t.Fatal("no error")
	}
	expect(b.t, "error", "draining node "+b.node+", its time is over and these pods are still there:\n  "+held, err.Error())
	expect(b.t, "left", []string{"api"}, b.there())
	if !strings.Contains(out, held+"\n") {
		b.t.Errorf("said:\n%s", out)
	}
	b.expectCordon(b.node, false, "")
	b.expectConditions(map[corev1.NodeConditionType]string{
		corev1.NodeMaintenanceInProgress: "False moult drain: over", corev1.NodeDrainInProgress: "False moult drain: over",
	})

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
	expect(b.t, "said", "node/"+b.node+" cordoned\n"+held+"\nevicting pod held/api\npod/api evicted\nnode/"+b.node+" drained\n",
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
	b.t.Setenv(planVariable, "k3s")
	b.t.Setenv(namespaceVariable, "system-upgrade")
	b.dead()
	b.pod("lost")
	out, wait := b.start(b.t.Context(), "drain", b.node, "--exclude-from-load-balancers")
	b.eventually("it drains", func() bool { return strings.Contains(out.String(), "evicting pod") })
	b.expectCordon(b.node, true, "Plan/system-upgrade/k3s")
	b.expectExcluded(true, "Plan/system-upgrade/k3s")
	expect(b.t, "drains", "True Plan/system-upgrade/k3s: 1 pod left", b.conditions()[corev1.NodeDrainInProgress])
	began := time.Now()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	err := wait()
	if err == nil {
		b.t.Fatal("no error")
	}
	expect(b.t, "error", "drain stopped, terminated signal received: draining node "+b.node+
		", these pods are still there:\n  pod signal/lost is still terminating", err.Error())
	// The pod has 30 seconds to end.
	if took := time.Since(began); took > 10*time.Second {
		b.t.Errorf("took %v", took)
	}
	b.expectCordon(b.node, false, "")
	b.expectExcluded(false, "")
	b.expectConditions(map[corev1.NodeConditionType]string{
		corev1.NodeMaintenanceInProgress: "False Plan/system-upgrade/k3s: over", corev1.NodeDrainInProgress: "False Plan/system-upgrade/k3s: over",
	})
}

// drainEndsAsItIsTold when a budget holds a pod until the time is over.
func drainEndsAsItIsTold(b *bench) {
	b.t.Setenv(planVariable, "k3s")
	b.t.Setenv(namespaceVariable, "system-upgrade")
	one, yes := int32(1), true
	labels := map[string]string{"app": "api"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "api-5d4f"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			// Its own pod is nobody's, so that it is on no node.
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{NodeSelector: map[string]string{"no": "where"}, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}
	b.create(rs)
	b.pod("api", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: &yes}}
	})
	b.budget("api")
	drain := func(args ...string) int {
		b.t.Helper()
		_, err := b.run(append([]string{"drain", b.node, "--timeout=2s"}, args...)...)
		var coded interface{ ExitCode() int }
		switch {
		case err == nil:
			return 0
		case !errors.As(err, &coded):
			b.t.Fatal(err)
		}
		if !strings.Contains(err.Error(), "held by PodDisruptionBudget ends/api") {
			b.t.Errorf("got %v", err)
		}
		if !slices.Contains(b.there(), "api") {
			b.t.Error("it was evicted")
		}
		return coded.ExitCode()
	}
	for _, tc := range []struct {
		end  []string
		code int
	}{{nil, 1}, {[]string{"--on-timeout=Halt"}, 43}, {[]string{"--on-timeout=Skip"}, 44}} {
		expect(b.t, strings.Join(tc.end, ""), tc.code, drain(append(tc.end, "--exclude-from-load-balancers")...))
		b.expectCordon(b.node, false, "")
		b.expectExcluded(false, "")
	}

	// A label of a user's own stays theirs, and so does their cordon.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node}}
	theirs := `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}},"spec":{"unschedulable":true}}`
	if err := b.Patch(b.t.Context(), n, client.RawPatch(types.MergePatchType, []byte(theirs))); err != nil {
		b.t.Fatal(err)
	}
	expect(b.t, "over a user's own", 44, drain("--on-timeout=Skip", "--exclude-from-load-balancers"))
	b.expectCordon(b.node, true, "")
	b.expectExcluded(true, "")

	expect(b.t, "force", 0, drain("--on-timeout=Force", "--exclude-from-load-balancers"))
	if slices.Contains(b.there(), "api") {
		b.t.Error("it was not deleted")
	}
	b.expectCordon(b.node, true, "")
	b.expectExcluded(true, "")
	b.get(n)
	expect(b.t, "record", `["ReplicaSet/ends/api-5d4f"]`, n.Annotations["moult.dev/evicted"])
}

// drainWaitsForVolumes of the pods that go, and not for those of the pods that stay.
func drainWaitsForVolumes(b *bench) {
	claimed := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name},
		}}}
	}
	gone := b.volume("db")
	b.volume("stays")
	b.pod("db", claimed)
	b.pod("stays", claimed)
	args := []string{"drain", b.node, "--wait-for-volume-detach", "--pod-selector=app!=stays", "--timeout=30s"}
	out, wait := b.start(b.t.Context(), args...)
	b.eventually("it waits", func() bool { return strings.Contains(out.String(), "waiting for volume pv-db to be detached") })
	b.eventually("the node says so", func() bool {
		return strings.HasSuffix(b.conditions()[corev1.NodeDrainInProgress], "no pods left; volume pv-db is still attached")
	})
	if err := b.Delete(b.t.Context(), gone); err != nil {
		b.t.Fatal(err)
	}
	if err := wait(); err != nil {
		b.t.Error(err)
	}
	expect(b.t, "said", "node/"+b.node+" cordoned\nevicting pod volumes/db\npod/db evicted\n"+
		"waiting for volume pv-db to be detached\nvolume/pv-db detached\nnode/"+b.node+" drained\n", out.String())
	expect(b.t, "left", []string{"stays"}, b.there())
}

// volume makes a PersistentVolume that is attached to the bench's node and bound to a claim of the same name.
func (b *bench) volume(name string) *storagev1.VolumeAttachment {
	b.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: name},
			},
		},
	}
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "disks.example.com", NodeName: b.node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
		},
	}
	b.create(pv)
	b.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, VolumeName: pv.Name, StorageClassName: new(string),
		},
	})
	b.create(va)
	return va
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

	b.volume("old")
	_, err = b.run("drain", b.node, "--wait-for-volume-detach")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "listing the volumes attached to node "+b.node) {
		b.t.Errorf("got %v", err)
	}
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
