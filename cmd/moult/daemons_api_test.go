// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
)

const definitionOfDaemons = "extendeddaemonsets.datadoghq.com"

// daemons are the ExtendedDaemonSets of a test, in a namespace of its own.
type daemons struct {
	*testing.T
	client.Client
	clientset kubernetes.Interface
	cluster   *cluster.Cluster
	namespace string
}

// newDaemons makes a namespace in a cluster with so many nodes, and with the definitions of this program, which are restored when the test ends.
func newDaemons(t *testing.T, nodes int) *daemons {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	d := &daemons{T: t, cluster: cluster.Shared(t, nodes)}
	cfg := d.cluster.Config()
	cfg.QPS = -1
	restore := func() {
		takeBack(t, d.cluster.Config())
	}
	restore()
	t.Cleanup(restore)
	var err error
	if d.Client, err = client.New(cfg, client.Options{Scheme: newScheme()}); err != nil {
		t.Fatal(err)
	}
	if d.clientset, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	d.namespace = d.newNamespace()
	return d
}

// takeBack installs the definitions, whoever has changed them.
func takeBack(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range all {
		own.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := c.Patch(ctx, own, client.Apply, client.FieldOwner(fieldManager), client.ForceOwnership); err != nil { //nolint:staticcheck // CRDs have no apply configuration here.
			t.Fatal(err)
		}
	}
	if err := installCRDs(ctx, cfg); err != nil {
		t.Fatal(err)
	}
}

func (d *daemons) newNamespace() string {
	d.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "daemons-"}}
	d.create(ns)
	if err := cluster.WaitForAccounts(d.Context(), d, ns.Name); err != nil {
		d.Fatal(err)
	}
	return ns.Name
}

// create makes an object, which is deleted when the test ends.
func (d *daemons) create(o client.Object) {
	d.Helper()
	if err := d.Create(d.Context(), o); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		if err := d.Delete(context.WithoutCancel(d.Context()), o); client.IgnoreNotFound(err) != nil {
			d.Error(err)
		}
	})
}

func (d *daemons) patch(o client.Object, fields string) {
	d.Helper()
	if err := d.Patch(d.Context(), o, client.RawPatch(types.MergePatchType, []byte(fields))); err != nil {
		d.Fatal(err)
	}
}

// await waits until there is nothing wrong.
func (d *daemons) await(what string, wrong func() string) {
	d.Helper()
	last := ""
	if err := wait.PollUntilContextTimeout(d.Context(), 50*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	}); err != nil {
		d.Fatalf("%s: %v: %s", what, err, last)
	}
}

// daemon is an ExtendedDaemonSet on all nodes, whose canary passes when all its pods have been ready for a second.
func (d *daemons) daemon(name, image string) *edsv1.ExtendedDaemonSet {
	e := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name}}
	e.Spec.Template.Labels = map[string]string{"app": name}
	e.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
	e.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{Duration: &metav1.Duration{Duration: time.Second}}
	e.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(10))
	return e
}

// says waits until a condition has a status, with a message that contains all parts.
func (d *daemons) says(e *edsv1.ExtendedDaemonSet, kind string, is metav1.ConditionStatus, parts ...string) {
	d.Helper()
	d.await(fmt.Sprintf("%s: %s is %s, %q", e.Name, kind, is, parts), func() string {
		if err := d.Get(d.Context(), client.ObjectKeyFromObject(e), e); err != nil {
			return err.Error()
		}
		c := edsv1.FindCondition(e.Status.Conditions, kind)
		if c == nil || c.Status != is || slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(c.Reason+": "+c.Message, part) }) {
			return fmt.Sprintf("%+v", e.Status)
		}
		return ""
	})
}

// settled waits until all nodes have an available pod with this image.
func (d *daemons) settled(e *edsv1.ExtendedDaemonSet, image string, nodes int) {
	d.Helper()
	d.says(e, edsv1.ConditionReady, metav1.ConditionTrue)
	d.await("all pods have "+image, func() string {
		pods, images := d.pods(e.Namespace, e.Name), 0
		for i := range pods {
			if pods[i].Spec.Containers[0].Image == image {
				images++
			}
		}
		if len(pods) != nodes || images != nodes {
			return fmt.Sprintf("%d of %d have it", images, len(pods))
		}
		return ""
	})
}

func (d *daemons) pods(namespace, name string) []corev1.Pod {
	d.Helper()
	var list corev1.PodList
	if err := d.List(d.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{edsv1.LabelName: name}); err != nil {
		d.Fatal(err)
	}
	return list.Items
}

// dropFields makes the definition of ExtendedDaemonSets what ExtendedDaemonSet's own is: its status lacks what Moult has added.
func (d *daemons) dropFields() {
	d.Helper()
	own := &apiextensionsv1.CustomResourceDefinition{}
	if err := d.Get(d.Context(), client.ObjectKey{Name: definitionOfDaemons}, own); err != nil {
		d.Fatal(err)
	}
	fields := own.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties
	for _, added := range []string{"observedGeneration", "wave", "updating", "waiting"} {
		delete(fields, added)
	}
	if err := d.Update(d.Context(), own); err != nil {
		d.Fatal(err)
	}
}

// While the definition of ExtendedDaemonSets drops what the operator stores, nothing is done with them, and they say so, once. Plans are
// carried out. When the definition is complete, so are ExtendedDaemonSets, without a restart.
func TestAPIForeignDefinition(t *testing.T) {
	const nodes = 2
	d := newDaemons(t, nodes)
	d.dropFields()
	log, _ := runOperator(t, d.cluster.Kubeconfig(), "--controllers=plan,extendeddaemonset",
		"--watch-namespace="+d.namespace, "--namespace="+d.namespace)
	a, b := d.daemon("a", "image:1"), d.daemon("b", "image:1")
	d.create(a)
	refused := []string{v1alpha1.ReasonDefinitionIncomplete, definitionOfDaemons, "status.observedGeneration", "status.wave", "apply config/crd"}
	d.says(a, edsv1.ConditionStalled, metav1.ConditionTrue, refused...)
	d.says(a, edsv1.ConditionReconcileError, metav1.ConditionTrue, refused...)
	plan := &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "p"}}
	plan.Spec.Version, plan.Spec.Upgrade = "v1", &upgradev1.ContainerSpec{Image: "upgrade"}
	d.create(plan)
	d.await("the Plan is complete", func() string {
		if err := d.Get(t.Context(), client.ObjectKeyFromObject(plan), plan); err != nil {
			return err.Error()
		}
		if c := plan.Status.Condition(v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Sprintf("%+v", plan.Status)
		}
		return ""
	})
	d.patch(a, `{"metadata": {"annotations": {"look": "again"}}}`)
	version := a.ResourceVersion
	d.create(b)
	d.says(b, edsv1.ConditionStalled, metav1.ConditionTrue, refused...)
	d.says(a, edsv1.ConditionStalled, metav1.ConditionTrue, refused...)
	if a.ResourceVersion != version {
		t.Errorf("the same was written again: %+v", a.Status)
	}
	if n := len(d.pods(d.namespace, "a")); n > 0 {
		t.Errorf("%d pods were created", n)
	}
	if n := strings.Count(log.String(), `"msg":"objects are not carried out"`); n != 1 {
		t.Errorf("the log says it %d times", n)
	}

	takeBack(t, d.cluster.Config())
	d.settled(a, "image:1", nodes)
	d.says(a, edsv1.ConditionStalled, metav1.ConditionFalse)
	d.patch(a, `{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "image:2"}]}}}}`)
	d.settled(a, "image:2", nodes)

	d.dropFields()
	d.says(a, edsv1.ConditionStalled, metav1.ConditionTrue, refused...)
}

// The operator needs the definitions of the kinds that it carries out, and no others. When there may be budgets that it does not
// know of, it ends, so that it is started again.
func TestAPIChosenDefinitions(t *testing.T) {
	const nodes = 2
	d := newDaemons(t, nodes)
	for _, name := range []string{definitionOfBudgets, "noderollouts.moult.dev", "plans.upgrade.cattle.io"} {
		o := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := d.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	d.await("the kinds are gone", func() string {
		for _, group := range []string{v1alpha1.GroupVersion.String(), upgradev1.GroupVersion.String()} {
			if _, err := d.clientset.Discovery().ServerResourcesForGroupVersion(group); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%s: %v", group, err)
			}
		}
		return ""
	})
	log, ended := runOperator(t, d.cluster.Kubeconfig(), "--controllers=extendeddaemonset", "--watch-namespace="+d.namespace)
	e := d.daemon("a", "image:1")
	d.create(e)
	d.await("it is carried out", func() string {
		select {
		case err := <-ended:
			t.Fatalf("the operator ended: %v\n%s", err, log)
		default:
		}
		if err := d.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil || !edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionReady) {
			return fmt.Sprintf("%v: %+v", err, e.Status)
		}
		return ""
	})
	takeBack(t, d.cluster.Config())
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(log.String(), definitionOfBudgets+" is there") {
			t.Errorf("the operator ended: %v\n%s", err, log)
		}
	case <-time.After(time.Minute):
		t.Errorf("the operator does not end\n%s", log)
	}
}

// reducedRights are the roles that docs/operations/operate.md gives to an operator for some namespaces.
func reducedRights(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## In some namespaces only\n")
	_, section, _ = strings.Cut(section, "\n```yaml\n")
	section, _, _ = strings.Cut(section, "\n```\n")
	for document := range strings.SplitSeq(section, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// account is the name of the service account with the reduced rights.
const account = "reduced"

// grant makes an account with the reduced rights in the test's namespace, which is the operator's too. It returns a kubeconfig.
func (d *daemons) grant() string {
	d.Helper()
	d.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: account}})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: d.namespace, Name: account}}
	for _, role := range reducedRights(d.T) {
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.GetKind(), Name: role.GetName()}
		bind := func() {
			d.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: role.GetName()}, Subjects: subjects, RoleRef: ref})
		}
		switch role.GetName() {
		case "moult-cluster":
			d.create(role)
			d.create(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.GetName()}, Subjects: subjects, RoleRef: ref})
		case "moult-daemons":
			d.create(role)
			bind()
		case "moult", "moult-pod":
			role.SetNamespace(d.namespace)
			d.create(role)
			bind()
		default:
			d.Fatalf("what is %s bound to?", role.GetName())
		}
	}
	user := "system:serviceaccount:" + d.namespace + ":" + account
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "nodes"}, {Verb: "list", Resource: "pods", Namespace: d.namespace},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: d.namespace},
	} {
		d.await("the API server knows the rights", func() string {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right}}
			got, err := d.clientset.AuthorizationV1().SubjectAccessReviews().Create(d.Context(), review, metav1.CreateOptions{})
			if err != nil || !got.Status.Allowed {
				return fmt.Sprint(err, right)
			}
			return ""
		})
	}
	accounts := d.clientset.CoreV1().ServiceAccounts(d.namespace)
	token, err := accounts.CreateToken(d.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(d.cluster.Kubeconfig())
	if err != nil {
		d.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := filepath.Join(d.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		d.Fatal(err)
	}
	return path
}

// With the rights for one namespace the operator does all that it does for ExtendedDaemonSets there, is refused nothing, and asks for nothing in
// another namespace. It begins with a revision whose pods do not start, which the status explains by an Event of a pod.
func TestAPIReducedRights(t *testing.T) {
	const nodes = 2
	d := newDaemons(t, nodes)
	other := d.newNamespace()
	kubeconfig := d.grant()
	runOperator(t, kubeconfig, "--controllers=extendeddaemonset", "--watch-namespace="+d.namespace, "--namespace="+d.namespace, "--leader-elect")

	e, elsewhere := d.daemon("a", "image:1"), d.daemon("a", "image:1")
	e.Spec.Template.Annotations = map[string]string{"test.moult.dev/start-seconds": "3600"}
	e.Spec.RevisionHistoryLimit = ptr.To[int32](0)
	elsewhere.Namespace = other
	d.create(elsewhere)
	d.create(e)
	setting := &edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "s"}}
	setting.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonSet", Name: "a"}
	setting.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"no": "such"}}
	d.create(setting)
	var pods []corev1.Pod
	d.await("its pods are there", func() string {
		pods = d.pods(d.namespace, "a")
		if len(pods) != nodes {
			return fmt.Sprint(len(pods))
		}
		return ""
	})
	for i := range pods {
		d.create(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: d.namespace, GenerateName: "e-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: d.namespace, Name: pods[i].Name, UID: pods[i].UID},
			Type:           corev1.EventTypeWarning, Reason: "FailedMount", LastTimestamp: metav1.Now(),
			Message: `MountVolume.SetUp failed for volume "config" : configmap "absent" not found`,
		})
	}
	d.says(e, edsv1.ConditionReady, metav1.ConditionFalse, "0 are available", "cannot start with reason: ContainerCreating",
		`FailedMount: MountVolume.SetUp failed for volume "config" : configmap "absent" not found`)
	d.patch(e, `{"spec": {"template": {"metadata": {"annotations": null}}}}`)
	d.settled(e, "image:1", nodes)
	d.await("the Setting has a status, and one revision is left", func() string {
		var revisions edsv1.ExtendedDaemonSetReplicaSetList
		err := d.List(t.Context(), &revisions, client.InNamespace(d.namespace))
		if err == nil {
			err = d.Get(t.Context(), client.ObjectKeyFromObject(setting), setting)
		}
		if err != nil || setting.Status.Status != edsv1.SettingValid || len(revisions.Items) != 1 {
			return fmt.Sprint(err, setting.Status, len(revisions.Items))
		}
		return ""
	})
	d.adopts(e)

	if err := d.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere); err != nil || len(elsewhere.Status.Conditions) > 0 {
		t.Errorf("in another namespace: %v, %+v", err, elsewhere.Status)
	}
	if n := len(d.pods(other, "a")); n > 0 {
		t.Errorf("%d pods were created in another namespace", n)
	}
	log, err := audit.Open(d.cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	requests := 0
	if err := log.Read(`"system:serviceaccount:`+d.namespace+":"+account+`"`, func(r *audit.Event) {
		requests++
		if r.Response.Code == http.StatusForbidden || r.Object.Namespace == other {
			t.Errorf("%d %s %s", r.Response.Code, r.Verb, r.RequestURI)
		}
	}); err != nil || requests < 20 {
		t.Errorf("%d requests, %v", requests, err)
	}
}

// adopts checks that an ExtendedDaemonSet takes over the revisions that one of its name has left behind.
func (d *daemons) adopts(before *edsv1.ExtendedDaemonSet) {
	d.Helper()
	if err := d.Delete(d.Context(), before, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		d.Fatal(err)
	}
	key := client.ObjectKeyFromObject(before)
	d.await("it is gone", func() string {
		err := d.Get(d.Context(), key, before.DeepCopy())
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there: ", err)
	})
	now := d.daemon(key.Name, "image:1")
	d.create(now)
	d.await("its revisions are those of the new one", func() string {
		var revisions edsv1.ExtendedDaemonSetReplicaSetList
		err := d.List(d.Context(), &revisions, client.InNamespace(key.Namespace))
		for i := range revisions.Items {
			if !metav1.IsControlledBy(&revisions.Items[i], now) {
				return revisions.Items[i].Name + " is another's"
			}
		}
		if err != nil || len(revisions.Items) == 0 {
			return fmt.Sprint(err, len(revisions.Items))
		}
		return ""
	})
}

// apply applies an example in the test's namespace.
func (d *daemons) apply(example string) {
	d.Helper()
	raw, err := os.ReadFile("../../examples/" + example)
	if err != nil {
		d.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(raw, &o.Object); err != nil {
		d.Fatal(err)
	}
	o.SetNamespace(d.namespace)
	config := client.ApplyConfigurationFromUnstructured(o)
	if err := d.Client.Apply(d.Context(), config, client.FieldOwner("a-person"), client.ForceOwnership); err != nil {
		d.Fatal(err)
	}
}

// The examples of daemons do what their comments say: a canary that a person validates, a Setting, and a label that keeps a node free.
func TestAPIExamplesOfDaemons(t *testing.T) {
	const nodes, first = 3, cluster.SimulatedNode + "0001"
	d := newDaemons(t, nodes)
	runOperator(t, d.cluster.Kubeconfig(), "--controllers=extendeddaemonset", "--watch-namespace="+d.namespace)
	pause := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "pause"}}
	d.apply("extendeddaemonset-canary.yaml")
	d.settled(pause, "registry.k8s.io/pause:3.9", nodes)
	d.apply("extendeddaemonset-canary-next.yaml")
	d.await("the canary has its pod", func() string {
		if err := d.Get(t.Context(), client.ObjectKeyFromObject(pause), pause); err != nil {
			return err.Error()
		}
		if s := &pause.Status; s.State != edsv1.StateCanary || s.Canary == nil || len(s.Canary.Nodes) != 1 || s.UpToDate != 1 || s.Available != nodes {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	d.patch(pause, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, edsv1.AnnotationCanaryValid, pause.Status.Canary.ReplicaSet))
	d.settled(pause, "registry.k8s.io/pause:3.10", nodes)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: first}}
	d.patch(node, `{"metadata": {"labels": {"node-type": "xxl"}}}`)
	d.apply("extendeddaemonsetsetting-pool.yaml")
	// on returns the pods of a daemon on the first node.
	on := func(name string) []corev1.Pod {
		return slices.DeleteFunc(d.pods(d.namespace, name), func(p corev1.Pod) bool { return p.Spec.NodeName != first || p.DeletionTimestamp != nil })
	}
	d.await("the Setting counts", func() string {
		pods := on("pause")
		if len(pods) != 1 || pods[0].Spec.Containers[0].Resources.Requests.Cpu().String() != "500m" {
			return fmt.Sprintf("%d pods", len(pods))
		}
		return ""
	})

	d.apply("extendeddaemonset-exclude.yaml")
	choosy := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "pause-elsewhere"}}
	d.settled(choosy, "registry.k8s.io/pause:3.9", nodes)
	d.patch(node, `{"metadata": {"labels": {"extendeddaemonset.datadoghq.com/exclude": "pause-elsewhere"}}}`)
	d.settled(choosy, "registry.k8s.io/pause:3.9", nodes-1)
	if pods := on("pause-elsewhere"); len(pods) != 0 {
		t.Errorf("%d pods are on the node", len(pods))
	}
}
