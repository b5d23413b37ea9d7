// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/test/cluster"
)

const apiNodes = 6

// TestAPI replaces pods on a real API server: those of a revision, and those of a DaemonSet that was deleted without them. Never are more
// nodes without an available pod than maxUnavailable allows.
func TestAPI(t *testing.T) {
	c, ns := startController(t)
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		}
	}
	// settled waits until a pod with this image, which is an ExtendedDaemonSet's or not, is available on each node, and there are no others.
	settled := func(image string, daemon bool, least int) {
		t.Helper()
		last := ""
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
			var pods corev1.PodList
			if err := c.List(ctx, &pods, client.InNamespace(ns)); err != nil {
				return false, err
			}
			nodes, wanted := map[string]bool{}, 0
			for i := range pods.Items {
				p := &pods.Items[i]
				ready := p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
				nodes[p.Spec.NodeName] = nodes[p.Spec.NodeName] || ready
				if ready && p.Spec.Containers[0].Image == image && (p.Labels[edsv1.LabelName] != "") == daemon {
					wanted++
				}
			}
			maps.DeleteFunc(nodes, func(_ string, ready bool) bool { return !ready })
			if len(nodes) < least {
				return false, fmt.Errorf("only %d nodes have an available pod", len(nodes))
			}
			last = fmt.Sprintf("%d of %d pods are as wanted", wanted, len(pods.Items))
			return wanted == apiNodes && len(pods.Items) == apiNodes, nil
		}); err != nil {
			t.Fatalf("%v: %s", err, last)
		}
	}
	old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "old"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Template: template("image:0"),
	}}
	eds := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "agent", Annotations: map[string]string{edsv1.AnnotationOldDaemonset: "old"},
	}}
	eds.Spec.Template = template("image:1")
	eds.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	eds.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(100))
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	settled("image:0", false, 0)
	if err := c.Delete(t.Context(), old, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), eds); err != nil {
		t.Fatal(err)
	}
	settled("image:1", true, apiNodes-2)
	for _, patch := range []string{
		`{"metadata": {"annotations": null}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "image:2"}]}}}}`,
		`{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "image:3"}]}}}}`,
	} {
		if err := c.Patch(t.Context(), eds, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		settled(eds.Spec.Template.Spec.Containers[0].Image, true, apiNodes-2)
	}
}

// startController runs the controller in a new namespace of the shared cluster.
func startController(t *testing.T) (c client.Client, namespace string) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), edsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Shared(t, apiNodes).Config()
	cfg.QPS = -1
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "daemons-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), ns) })
	runController(t, cfg, scheme, ns.Name)
	return c, ns.Name
}

// runController runs the controller until the test ends.
func runController(t *testing.T, cfg *rest.Config, scheme *runtime.Scheme, namespace string) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	options := Options{Namespaces: map[string]cache.Config{namespace: {}}, ValidationMode: edsv1.ValidationModeAuto}
	byObject := fleet.CacheOptions()
	maps.Copy(byObject, CacheOptions(options))
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{ByObject: byObject}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	with := cache.Options{Scheme: scheme, Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient()}
	pods, err := fleet.NewPodCache(cfg, with)
	if err != nil {
		t.Fatal(err)
	}
	caches, err := NewCaches(cfg, options, with)
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(clock.RealClock{}, m.GetClient(), pods)
	ctx, stop := context.WithCancel(t.Context())
	controller := NewController(clock.RealClock{}, m.GetClient(), m.GetAPIReader(), caches, f, recorder, options)
	if err := errors.Join(
		m.Add(pods), m.Add(caches.Pods), f.SetupWithManager(ctx, m), controller.SetupWithManager(ctx, m),
	); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		recorder.Shutdown(context.WithoutCancel(t.Context()))
	})
}
