// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

func object(t *testing.T, from any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func aPlan(t *testing.T, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, &upgradev1.Plan{
		TypeMeta:   metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       upgradev1.PlanSpec{Upgrade: &upgradev1.ContainerSpec{Image: "i"}},
		Status:     upgradev1.PlanStatus{LatestHash: "h"},
	})
}

func aBudget(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, &v1alpha1.NodeDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.NodeDisruptionBudgetStatus{Matched: 3},
	})
}

func fakes(objects ...runtime.Object) (*Source, *dynamicfake.FakeDynamicClient, *fake.Clientset) {
	kinds := map[schema.GroupVersionResource]string{
		Plan.Resource: "PlanList", Budget.Resource: "NodeDisruptionBudgetList", DaemonSet.Resource: "ExtendedDaemonSetList",
		NodeRollout.Resource: "NodeRolloutList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"): "ExtendedDaemonSetReplicaSetList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetsettings"):    "ExtendedDaemonsetSettingList",
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	core := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	return &Source{Client: dynamic, Core: core.CoreV1()}, dynamic, core
}

func TestReadSaysWhereElseToLook(t *testing.T) {
	src, _, _ := fakes(aPlan(t, "system-upgrade", "p"))
	src.Namespace = "default"
	_, err := src.ReadRollouts(t.Context(), Target{Name: "p", Kind: Plan})
	if want := `Plan default/p not found; Plan p is in system-upgrade: use -n`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	want := "No rollouts in namespace default: -A shows those of all namespaces."
	if got := src.Nothing("rollouts"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReadRolloutsFallsBack to a namespace only for kinds that may not be listed in all.
func TestReadRolloutsFallsBack(t *testing.T) {
	eds := func(namespace string) *unstructured.Unstructured {
		return object(t, &edsv1.ExtendedDaemonSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: "ExtendedDaemonSet"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "d"},
		})
	}
	src, dynamic, _ := fakes(aPlan(t, "own", "p"), aPlan(t, "other", "p"), eds("own"), eds("other"))
	src.Own = "own"
	dynamic.PrependReactor("list", "plans", func(action ktesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == "", nil, apierrors.NewForbidden(Plan.Resource.GroupResource(), "", errors.New("no"))
	})
	found, err := src.ReadRollouts(t.Context(), Target{})
	if err != nil || len(found.Plans) != 1 || found.Plans[0].Namespace != "own" || len(found.DaemonSets) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	if want := "Only Plans of namespace own are shown: others may not be listed."; strings.Join(src.Notes, "|") != want {
		t.Errorf("notes %q, want %q", src.Notes, want)
	}
}

// TestAsForgives objects that the API server has taken, but whose spec does not fit the type.
func TestAsForgives(t *testing.T) {
	u := aPlan(t, "ns", "p")
	u.Object["spec"] = map[string]any{"concurrency": "two"}
	if p := As[upgradev1.Plan](u); p.Name != "p" || p.Namespace != "ns" || p.Status.LatestHash != "h" {
		t.Errorf("%+v", p)
	}
	u = object(t, &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u"}, Status: v1alpha1.NodeRolloutStatus{Revision: "1.20.3"},
	})
	u.Object["spec"] = map[string]any{"hostUpdate": "yes"}
	if r := As[v1alpha1.NodeRollout](u); r.Name != "r" || r.UID != "u" || r.Status.Revision != "1.20.3" || r.Spec.HostUpdate != nil {
		t.Errorf("%+v", r)
	}
	u = aBudget(t, "b")
	u.Object["spec"] = map[string]any{"paused": "yes"}
	if b := As[v1alpha1.NodeDisruptionBudget](u); b.Name != "b" || b.Status.Matched != 3 {
		t.Errorf("%+v", b)
	}
}

// TestReadGoesOn without what may not be seen.
func TestReadGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		budgets, nodes error
		budgetNote     string
		budgetErr      bool
		wantNodes      int
	}{
		"all must be seen":           {wantNodes: 1},
		"there is no such kind":      {budgets: apierrors.NewNotFound(Budget.Resource.GroupResource(), ""), wantNodes: 1},
		"budgets are not to be seen": {budgets: apierrors.NewForbidden(Budget.Resource.GroupResource(), "", errors.New("no")), budgetNote: NoBudgets, wantNodes: 1},
		"the API server fails":       {budgets: errors.New("broken"), budgetErr: true, wantNodes: 1},
		"nodes are not to be seen":   {nodes: apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no")), wantNodes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			src, dynamic, core := fakes(aBudget(t, "b"))
			fail := func(err error) ktesting.ReactionFunc {
				return func(ktesting.Action) (bool, runtime.Object, error) { return err != nil, nil, err }
			}
			dynamic.PrependReactor("list", "nodedisruptionbudgets", fail(tc.budgets))
			core.PrependReactor("list", "nodes", fail(tc.nodes))
			budgets, err := src.ReadBudgets(t.Context())
			note := strings.Join(src.Notes, "")
			if (err != nil) != tc.budgetErr || note != tc.budgetNote || tc.budgets == nil && len(budgets) != 1 {
				t.Errorf("budgets: %v, %q, %v", budgets, note, err)
			}
			nodes, err := src.ReadNodes(t.Context())
			if err != nil || nodes == nil && tc.wantNodes >= 0 || nodes != nil && len(nodes) != tc.wantNodes {
				t.Errorf("nodes: %v, %v", nodes, err)
			}
		})
	}
}
