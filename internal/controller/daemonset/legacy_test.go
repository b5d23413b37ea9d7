// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Where pods and DaemonSets may not be watched the status says so, though not while it is only that they have not come yet.
func TestDaemonSetsThatMayNotBeSeen(t *testing.T) {
	w := newWorld(1)
	w.eds.Annotations = map[string]string{edsv1.AnnotationOldDaemonset: "agent"}
	c := w.serve(t)
	seen := controllertest.NewFakeInformer()
	c.legacy = &legacy{
		start: func(manager.Runnable) error { return nil }, watch: func(source.Source) error { return nil }, namespaces: map[string]*legacyCache{},
	}
	c.newLegacy = func(string) (cache.Cache, client.Client, error) {
		return &informertest.FakeInformers{InformersByGVK: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			corev1.SchemeGroupVersion.WithKind("Pod"): seen, appsv1.SchemeGroupVersion.WithKind("DaemonSet"): seen,
		}}, c.client, nil
	}
	look := func(after time.Duration) *edsv1.ExtendedDaemonSet {
		t.Helper()
		clk := testingclock.NewFakePassiveClock(now.Add(after))
		c.clock = clk
		if _, err := c.reconcile(t.Context(), client.ObjectKeyFromObject(w.eds)); !errors.Is(err, errNotSeen) {
			t.Fatalf("after %s: %v", after, err)
		}
		eds := &edsv1.ExtendedDaemonSet{}
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(w.eds), eds); err != nil {
			t.Fatal(err)
		}
		return eds
	}
	for _, after := range []time.Duration{0, seenWithin - time.Second} {
		if s := look(after).Status; len(s.Conditions) > 0 {
			t.Errorf("after %s it says %+v", after, s.Conditions)
		}
	}
	eds := look(seenWithin)
	for _, kind := range []string{edsv1.ConditionReconcileError, edsv1.ConditionStalled} {
		c := edsv1.FindCondition(eds.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "DaemonSetNotSeen" || c.Message != errNotSeen.Error() {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	if again := look(time.Hour); again.ResourceVersion != eds.ResourceVersion {
		t.Error("the same was written again")
	}
}

// An ExtendedDaemonSet that replaces a DaemonSet makes the operator watch the pods and DaemonSets of its namespace, and of no other.
func TestLegacyWatchesOneNamespace(t *testing.T) {
	paths := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	caches, err := NewCaches(&rest.Config{Host: server.URL}, Options{}, cache.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper, HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	legacy, _, err := caches.newLegacy("shop")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = legacy.Start(t.Context()) }()
	for o, want := range map[client.Object]string{
		&corev1.Pod{}: "/api/v1/namespaces/shop/pods", &appsv1.DaemonSet{}: "/apis/apps/v1/namespaces/shop/daemonsets",
	} {
		if _, err := legacy.GetInformer(t.Context(), o, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != want; {
			if got = <-paths; !strings.Contains(got, "/namespaces/shop/") {
				t.Fatalf("it asks for %s", got)
			}
		}
	}
}

// A DaemonSet keeps the pods that it would make again, and those alone.
func TestCreatesAgain(t *testing.T) {
	n := newNode(0)
	for name, tc := range map[string]struct {
		change func(*appsv1.DaemonSet, *corev1.Node)
		node   string
		want   bool
	}{
		"as it is": {func(*appsv1.DaemonSet, *corev1.Node) {}, n.Name, true},
		"it does not tolerate the node's taint any more": {func(_ *appsv1.DaemonSet, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, n.Name, false},
		"a cordoned node": {func(_ *appsv1.DaemonSet, n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}, n.Name, true},
		"it selects others": {func(ds *appsv1.DaemonSet, _ *corev1.Node) {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
		}, n.Name, false},
		"a node that no one knows": {func(*appsv1.DaemonSet, *corev1.Node) {}, "gone", true},
	} {
		ds, node := &appsv1.DaemonSet{}, n.DeepCopy()
		tc.change(ds, node)
		if got := createsAgain(ds, []*corev1.Node{node})(tc.node); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
