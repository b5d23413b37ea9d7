// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"errors"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/cli/source"
)

// installation is what check looks at.
type installation struct {
	operator         *appsv1.Deployment
	lease            *coordinationv1.Lease
	agents           *appsv1.DaemonSet
	policy           *admissionregistrationv1.ValidatingAdmissionPolicy
	binding          *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	denied, unlisted map[string]bool
	// definitions changes the definitions in the cluster.
	definitions func(map[string]*unstructured.Unstructured)
}

func installed(change func(*installation)) *installation {
	named := func(namespace, name, app string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": app}}
	}
	i := &installation{
		operator: &appsv1.Deployment{
			ObjectMeta: named("moult-system", "moult", "moult"),
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "moult"}}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{upgradev1.LabelController: "suc"}},
				Spec: corev1.PodSpec{ServiceAccountName: "moult", Containers: []corev1.Container{{
					Name: "moult", Image: "registry.example:5000/moult:v1.2.0@sha256:0123456789012345678901234567890123456789012345678901234567890123",
					Env: []corev1.EnvVar{{Name: "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", Value: "plans"}},
				}}},
			}},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
		},
		lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "plans", Name: "suc"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("moult-5d9c7-x2x7q"), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-5 * time.Second))), LeaseDurationSeconds: ptr.To[int32](15),
		}},
		agents: &appsv1.DaemonSet{
			ObjectMeta: named("system-upgrade", "moult-agent-updog", "moult-agent"),
			Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/component": "updog"}}},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3},
		},
		policy: &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "moult-agent"}},
		binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "moult-agent"},
			Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "moult-agent", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		},
	}
	if change != nil {
		change(i)
	}
	return i
}

// source returns a cluster with the installation, a Plan and a NodeRollout. It answers reviews of access.
func (i *installation) source(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition) *source.Source {
	t.Helper()
	var objects []runtime.Object
	add := func(k *source.Kind, o any) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(k.Resource.GroupVersion().WithKind(k.Name))
		objects = append(objects, u)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, d := range definitions {
		add(source.Definition, d)
		byName[d.Name] = objects[len(objects)-1].(*unstructured.Unstructured)
	}
	if i.definitions != nil {
		i.definitions(byName)
	}
	objects = objects[:0]
	for _, d := range byName {
		objects = append(objects, d)
	}
	for _, name := range []string{"moult-controller", i.policyName()} {
		if name != "" {
			p, b := i.policy.DeepCopy(), i.binding.DeepCopy()
			if p.Name = name; name == "moult-controller" {
				b.Spec.PolicyName, b.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
			}
			b.Name = name
			add(source.Policy, p)
			add(source.PolicyBinding, b)
		}
	}
	for k, o := range map[*source.Kind]any{source.Deployment: i.operator, source.Lease: i.lease, source.AppsDaemonSet: i.agents} {
		if o := o.(metav1.Object); o.GetName() != "" {
			add(k, o)
		}
	}
	add(source.Plan, &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: "plans", Name: "p"}})
	add(source.NodeRollout, &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}}})
	kinds := map[schema.GroupVersionResource]string{}
	for _, k := range []*source.Kind{source.Plan, source.DaemonSet, source.NodeRollout, source.Deployment, source.AppsDaemonSet} {
		kinds[k.Resource] = k.Name + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	client.PrependReactor("create", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		u := a.(ktesting.CreateAction).GetObject().(*unstructured.Unstructured)
		of, _, _ := unstructured.NestedStringMap(u.Object, "spec", "resourceAttributes")
		who := "you"
		if u.GetKind() == source.Access.Name {
			who, _, _ = unstructured.NestedString(u.Object, "spec", "user")
		}
		return true, u, unstructured.SetNestedField(u.Object, !i.denied[who+" "+of["verb"]+" "+of["resource"]], "status", "allowed")
	})
	client.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		if r := a.GetResource(); i.unlisted[r.Resource] {
			return true, nil, apierrors.NewForbidden(r.GroupResource(), "", errors.New("no"))
		}
		return false, nil, nil
	})
	return &source.Source{Client: client, Core: fake.NewClientset().CoreV1(), Namespace: "plans"}
}

func (i *installation) policyName() string {
	if i.policy == nil {
		return ""
	}
	return i.policy.Name
}

// TestInstallation finds what is wrong with an installation.
func TestInstallation(t *testing.T) {
	const account = "system:serviceaccount:moult-system:moult "
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	// Two are enough, and the others are large.
	definitions = slices.DeleteFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
		return d.Spec.Group == edsv1.GroupVersion.Group
	})
	for name, tc := range map[string]struct {
		change func(*installation)
		plugin string
	}{
		"complete": {},
		"rights": {change: func(i *installation) {
			i.denied = map[string]bool{"you list nodes": true, "you patch plans": true, account + "patch nodes": true, account + "create pods": true}
		}},
		"definitions": {change: func(i *installation) {
			i.definitions = func(d map[string]*unstructured.Unstructured) {
				delete(d, "noderollouts.moult.dev")
				versions, _, _ := unstructured.NestedSlice(d["plans.upgrade.cattle.io"].Object, "spec", "versions")
				unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "strategy")
				if err := unstructured.SetNestedSlice(d["plans.upgrade.cattle.io"].Object, versions, "spec", "versions"); err != nil {
					panic(err)
				}
			}
		}},
		"no-operator": {change: func(i *installation) { i.operator.Name = "" }},
		"operator": {plugin: "v1.4.1", change: func(i *installation) {
			i.lease.Spec.HolderIdentity = ptr.To("system-upgrade-controller-7c9")
		}},
		"not-ready": {change: func(i *installation) {
			i.operator.Status.ReadyReplicas, i.agents.Status.NumberReady = 0, 1
			i.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(-time.Minute)))
		}},
		"no-policy": {change: func(i *installation) { i.policy.Name = "" }},
		"policy-weak": {change: func(i *installation) {
			i.binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}},
		"may-not-look": {change: func(i *installation) {
			i.unlisted = map[string]bool{}
			for _, r := range []string{"customresourcedefinitions", "deployments", "daemonsets", "selfsubjectaccessreviews", "validatingadmissionpolicies"} {
				i.unlisted[r] = true
			}
		}},
		"may-not-review": {change: func(i *installation) { i.unlisted = map[string]bool{"subjectaccessreviews": true, "leases": true} }},
	} {
		t.Run(name, func(t *testing.T) {
			k := &checker{src: installed(tc.change).source(t, definitions), now: now, plugin: tc.plugin, wanted: definitions}
			if k.plugin == "" {
				k.plugin = "v1.2.3"
			}
			k.run(t.Context())
			golden(t, "check/"+name, drawChecked(k.all).Text(0, false))
		})
	}
}

func TestSkew(t *testing.T) {
	for _, tc := range []struct{ plugin, operator, want string }{
		{"v1.2.3", "v1.2.0", ""},
		{"v1.2.3", "dev", ""},
		{"v0.0.0-0123456", "v1.2.0", ""},
		{"v1.3.0", "v1.2.9", ""},
		{"v1.2.3", "v1.3.0-rc.1", ""},
		{"v1.4.0", "v1.2.9", "the operator is older: use a plugin of v1.2, as the operator is"},
		{"v1.2.3", "v1.4.0-rc.1", "the plugin is older: use a plugin of v1.4, as the operator is"},
		{"v1.0.0", "v2.0.0", "the plugin is older: use a plugin of v2.0, as the operator is"},
	} {
		if got := skew(tc.plugin, tc.operator); got != tc.want {
			t.Errorf("%s, %s: %q, want %q", tc.plugin, tc.operator, got, tc.want)
		}
	}
}
