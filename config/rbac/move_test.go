// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	nodes    = 6
	manifest = "resources: [CONFIG/namespace, CONFIG/rbac, CONFIG/manager]\n"
	// together is for those who keep the operator in the namespace of Plans.
	together = manifest + "namespace: " + plans + `
patches:
- patch: |
    $patch: delete
    apiVersion: v1
    kind: Namespace
    metadata: {name: moult-system}
`
)

// world has an operator in the namespace of Plans, as Moult's manifests had it before.
type world struct {
	*testing.T
	client.Client
	cluster *cluster.Cluster
	program string
}

func newWorld(t *testing.T) (w *world, old *operator.Process) {
	log.SetLogger(logr.Discard())
	w = &world{T: t, cluster: cluster.Shared(t, nodes)}
	var err error
	if w.program, err = operator.Build(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, upgradev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if w.Client, err = client.New(w.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	kubectl(t, w.cluster, "apply", "--server-side", "--force-conflicts", "-k", "../crd")
	kustomize(t, w.cluster, together)
	t.Cleanup(func() {
		for _, namespace := range []string{own, plans} {
			kubectl(t, w.cluster, "delete", "--ignore-not-found", "-n", namespace, "deployment/moult", "serviceaccount/moult",
				"lease/system-upgrade-controller")
		}
	})
	return w, w.run(plans)
}

// run runs the operator as the pod of the Deployment in a namespace. On a simulated node the pod only looks as if it ran.
func (w *world) run(namespace string) *operator.Process {
	w.Helper()
	var pod string
	eventually(w.T, "the pod of the operator runs", func(ctx context.Context) (string, bool) {
		var pods corev1.PodList
		err := w.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "moult"})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Sprint(len(pods.Items), err), false
		}
		pod = pods.Items[0].Name
		return string(pods.Items[0].Status.Phase), pods.Items[0].Status.Phase == corev1.PodRunning
	})
	config, err := clientcmd.LoadFromFile(w.cluster.Kubeconfig())
	if err != nil {
		w.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = account(namespace), groups
	}
	dir := w.TempDir()
	kubeconfig, logFile := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "operator.log")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		w.Fatal(err)
	}
	env := []string{"POD_NAME=" + pod, "POD_NAMESPACE=" + namespace, "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE=" + plans}
	p, err := operator.Start(w.program, kubeconfig, logFile, env,
		"--install-crds=false", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect", "--leader-election-lease-duration=20s",
		"--leader-election-renew-deadline=15s", "--job-active-deadline-seconds=0", "--job-ttl-seconds-after-finish=86400")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.Kill()
		if w.Failed() {
			w.Log(operator.Tail(logFile, 30))
		}
	})
	return p
}

func (w *world) plan(name string, change func(*upgradev1.Plan)) *upgradev1.Plan {
	w.Helper()
	p := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: plans},
		Spec: upgradev1.PlanSpec{
			Concurrency: 1, Version: "v1", ServiceAccountName: "system-upgrade", Cordon: true,
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelOSStable: "linux"}},
			Upgrade:      &upgradev1.ContainerSpec{Image: "busybox", Command: []string{"true"}},
		},
	}
	change(p)
	if err := w.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		if err := client.IgnoreNotFound(w.Delete(ctx, p)); err != nil {
			w.Error(err)
		}
		_ = w.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(plans), client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
	return p
}

func (w *world) jobs(ctx context.Context) ([]batchv1.Job, error) {
	var all batchv1.JobList
	err := w.List(ctx, &all, client.InNamespace(plans), client.HasLabels{upgradev1.LabelPlan})
	return all.Items, err
}

// Who may write Plans does not get what the operator has, where both are in one namespace.
func TestAPIPlansDoNotGetTheOperatorsRights(t *testing.T) {
	w, _ := newWorld(t)
	env := func(secret string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
	}
	for name, change := range map[string]func(*upgradev1.Plan){
		"account":     func(p *upgradev1.Plan) { p.Spec.ServiceAccountName = "moult" },
		"environment": func(p *upgradev1.Plan) { p.Spec.Upgrade.EnvFrom = env("moult-cloud") },
		"volume": func(p *upgradev1.Plan) {
			p.Spec.Secrets = []upgradev1.SecretSpec{{Name: "moult-cloud", IgnoreUpdates: true}}
		},
	} {
		p := w.plan(name, change)
		eventually(t, "the Plan is refused", func(ctx context.Context) (string, bool) {
			err := w.Get(ctx, client.ObjectKeyFromObject(p), p)
			c := ptr.Deref(p.Status.Condition(upgradev1.ConditionValidated), upgradev1.Condition{})
			return fmt.Sprint(c, err), err == nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "the operator's own")
		})
	}
	if all, err := w.jobs(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("there are the Jobs %v, %v", all, err)
	}
}

// An operator in a namespace of its own takes over from one in the namespace of Plans. A node is claimed and cordoned
// all the while, and its Job runs.
func TestAPIMove(t *testing.T) {
	const hang, awaits = "test.moult.dev/hang", "test.moult.dev/awaits" // The pods of Jobs run until the first is taken off them.
	w, old := newWorld(t)
	p := w.plan("move", func(p *upgradev1.Plan) { p.Annotations = map[string]string{hang: "true", awaits: "true"} })
	var job batchv1.Job
	var before *corev1.Node
	eventually(t, "a node is claimed and cordoned, and its Job runs", func(ctx context.Context) (string, bool) {
		all, err := w.jobs(ctx)
		if err != nil || len(all) != 1 || all[0].Status.Active != 1 {
			return fmt.Sprint(all, err), false
		}
		job, before = all[0], w.node(ctx, all[0].Labels[upgradev1.LabelNode])
		return fmt.Sprint(before), before.Spec.Unschedulable && before.Annotations[v1alpha1.AnnotationClaims] != ""
	})

	kustomize(t, w.cluster, manifest)
	w.run(own) // It waits for the Lease.
	kubectl(t, w.cluster, "delete", "-n", plans, "deployment/moult", "serviceaccount/moult")
	old.Kill()
	var lease coordinationv1.Lease
	eventually(t, "the new operator leads", func(ctx context.Context) (string, bool) {
		err := w.Get(ctx, client.ObjectKey{Namespace: plans, Name: "system-upgrade-controller"}, &lease)
		return fmt.Sprint(lease.Spec, err), err == nil && ptr.Deref(lease.Spec.LeaseTransitions, 0) == 1
	})
	after := w.node(t.Context(), before.Name)
	if diff := cmp.Diff(before.Annotations[v1alpha1.AnnotationClaims], after.Annotations[v1alpha1.AnnotationClaims]); diff != "" || !after.Spec.Unschedulable {
		t.Errorf("node %s is unschedulable %t, claims (-before +after)\n%s", after.Name, after.Spec.Unschedulable, diff)
	}

	eventually(t, "the rollout is complete", func(ctx context.Context) (string, bool) {
		var pods corev1.PodList
		err := w.List(ctx, &pods, client.InNamespace(plans), client.HasLabels{upgradev1.LabelPlan})
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Annotations[hang] != "" && pod.Status.Phase == corev1.PodRunning {
				_ = w.Patch(ctx, pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, hang)))
			}
		}
		err = errors.Join(err, w.Get(ctx, client.ObjectKeyFromObject(p), p))
		c := ptr.Deref(p.Status.Condition(upgradev1.ConditionComplete), upgradev1.Condition{})
		return fmt.Sprint(c, err), err == nil && c.Status == metav1.ConditionTrue
	})
	var all corev1.NodeList
	if err := w.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, n := range all.Items {
		if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "" || n.Labels[upgradev1.LabelPlanHash(p.Name)] == "" {
			t.Errorf("node %s is left unschedulable %t, with annotations %v and labels %v", n.Name, n.Spec.Unschedulable, n.Annotations, n.Labels)
		}
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(&job), &job); err != nil || job.Status.Succeeded != 1 {
		t.Errorf("the Job that ran meanwhile has succeeded %d times, %v", job.Status.Succeeded, err)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(&lease), &lease); err != nil || ptr.Deref(lease.Spec.LeaseTransitions, 0) != 1 {
		t.Errorf("the Lease has changed hands %d times, want once, %v", ptr.Deref(lease.Spec.LeaseTransitions, 0), err)
	}
	if diff := cmp.Diff(nodes, w.made(p)); diff != "" {
		t.Errorf("Jobs that were ever made (-want +got)\n%s", diff)
	}
}

func (w *world) node(ctx context.Context, name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{}
	if err := w.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		w.Fatal(err)
	}
	return n
}

// made is how many Jobs were made for a Plan, by the audit log.
func (w *world) made(p *upgradev1.Plan) (made int) {
	w.Helper()
	requests, err := audit.Open(w.cluster.AuditLog())
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = requests.Close() }()
	err = requests.Read(`"resource":"jobs"`, func(e *audit.Event) {
		if e.Verb == "create" && !e.Refused() && e.Object.Namespace == plans && strings.HasPrefix(e.Object.Name, "apply-"+p.Name+"-on-") {
			made++
		}
	})
	if err != nil {
		w.Fatal(err)
	}
	return made
}
