// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// patience is for what happens in goroutines. Nothing waits that long.
const patience = time.Minute

func aPlan(namespace, name string, conditions ...upgradev1.Condition) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&upgradev1.Plan{
		TypeMeta:   metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       upgradev1.PlanSpec{NodeSelector: &metav1.LabelSelector{}, Upgrade: &upgradev1.ContainerSpec{Image: "i"}},
		Status:     upgradev1.PlanStatus{LatestHash: "h", Conditions: conditions},
	})
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func fakes(t *testing.T, plans ...runtime.Object) (*source.Source, *dynamicfake.FakeDynamicClient, *fake.Clientset) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		source.Plan.Resource: "PlanList", source.Budget.Resource: "NodeDisruptionBudgetList", source.DaemonSet.Resource: "ExtendedDaemonSetList",
		source.NodeRollout.Resource:                                     "NodeRolloutList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"): "ExtendedDaemonSetReplicaSetList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetsettings"):    "ExtendedDaemonsetSettingList",
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, plans...)
	core := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node", Labels: map[string]string{corev1.LabelHostname: "node", upgradev1.LabelPlanHash("p"): "h"},
	}})
	return &source.Source{Client: dynamic, Core: core.CoreV1(), Namespace: "ns"}, dynamic, core
}

// seen is a painter that passes on what it is shown.
type seen chan []view.Rollout

func (s seen) show(all *shown, _ string, _ time.Time) {
	select {
	case s <- all.rollouts:
	default:
	}
}

func (seen) close() {}

func TestFollow(t *testing.T) {
	complete := upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionTrue}
	stalled := upgradev1.Condition{Type: upgradev1.ConditionStalled, Status: metav1.ConditionTrue, Message: "it\x1b[2J broke"}
	under := upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonSyncJob}
	for name, tc := range map[string]struct {
		conditions []upgradev1.Condition
		want       string
	}{
		"until complete": {conditions: []upgradev1.Condition{complete}},
		"until stalled":  {conditions: []upgradev1.Condition{under, stalled}, want: "Plan ns/p is stalled: it [2J broke"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			src, _, core := fakes(t, aPlan("ns", "p", under), aPlan("other", "p", stalled))
			painter, ended := make(seen, 1), make(chan error, 1)
			go func() { ended <- follow(ctx, clock.RealClock{}, src, source.Target{}, painter, true) }()

			var rollouts []view.Rollout
			select {
			case rollouts = <-painter:
			case err := <-ended:
				t.Fatal(err)
			}
			if len(rollouts) != 1 || rollouts[0].State != view.Progressing || rollouts[0].Counts.Updated != 1 {
				t.Fatalf("first seen: %+v", rollouts)
			}
			if _, err := src.Of(source.Plan).Update(ctx, aPlan("ns", "p", tc.conditions...), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil && tc.want != "" || err != nil && err.Error() != tc.want {
				t.Errorf("ended with %v, want %q", err, tc.want)
			}
			for _, a := range core.Actions() {
				if a.GetVerb() != "list" && a.GetVerb() != "watch" {
					t.Errorf("it may not %s", a.GetVerb())
				}
			}
		})
	}
}

func TestFollowEnds(t *testing.T) {
	forbidden := apierrors.NewForbidden(source.Plan.Resource.GroupResource(), "", errors.New("no"))
	for name, tc := range map[string]struct {
		named     source.Target
		namespace string
		fails     map[string]error
		want      string
	}{
		"when there is no such Plan":        {named: source.Target{Name: "p"}, namespace: "nowhere", want: `Plan nowhere/p not found; Plan p is in ns: use -n`},
		"when Plans may not be seen":        {fails: map[string]error{"plans": forbidden}, want: "forbidden"},
		"when there are no Plans":           {fails: map[string]error{"plans": apierrors.NewNotFound(source.Plan.Resource.GroupResource(), "")}, want: "is Moult installed?"},
		"when the API server can't be seen": {fails: map[string]error{"plans": errors.New("connection refused")}, want: "connection refused"},
		"when complete, though budgets may not be seen": {
			fails: map[string]error{"nodedisruptionbudgets": apierrors.NewForbidden(source.Budget.Resource.GroupResource(), "", errors.New("no"))},
		},
		"when complete, though there is no such kind as budgets": {
			fails: map[string]error{"nodedisruptionbudgets": apierrors.NewNotFound(source.Budget.Resource.GroupResource(), "")},
		},
		"when complete, though nodes may not be seen": {fails: map[string]error{"nodes": apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no"))}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			src, dynamic, core := fakes(t, aPlan("ns", "p", upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionTrue}))
			for resource, err := range tc.fails {
				fail := func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
				dynamic.PrependReactor("list", resource, fail)
				core.PrependReactor("list", resource, fail)
			}
			if tc.namespace != "" {
				src.Namespace = tc.namespace
			}
			err := follow(ctx, clock.RealClock{}, src, tc.named, make(seen), true)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("it ends with %v, want %q", err, tc.want)
			}
		})
	}
}
