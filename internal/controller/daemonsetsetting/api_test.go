// SPDX-License-Identifier: Apache-2.0

package daemonsetsetting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/test/cluster"
)

const (
	namespace = "settings"
	elsewhere = "settings-elsewhere"
	valid     = "valid"
	conflicts = "error conflict with another ExtendedDaemonsetSetting: "
)

type bench struct {
	client.Client
	*testing.T
}

// TestAPI judges Settings again when Settings or nodes change. TestJudgeSettings proves the verdicts.
func TestAPI(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), edsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Shared(t, 1).Config()
	cfg.QPS = -1
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	run(t, cfg, scheme)
	b := &bench{c, t}
	for _, name := range []string{namespace, elsewhere} {
		b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}

	// Settings of another namespace do not conflict, even if they name an ExtendedDaemonSet of the same name.
	far := b.setting(elsewhere, "far", "d", "{}")
	b.says(far, valid)
	first := b.setting(namespace, "a", "d", "{}")
	b.says(first, valid)
	second := b.setting(namespace, "b", "d", "{}")
	b.says(second, valid)
	b.says(first, conflicts+"b")
	b.event(first, "The setting has no effect: conflict with another ExtendedDaemonsetSetting: b")

	b.patch(second, `{"spec": {"reference": {"name": "e"}}}`)
	b.says(first, valid)
	third := b.setting(namespace, "c", "e", "{}")
	b.says(second, conflicts+"c")
	if err := b.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	b.says(second, valid)

	x := b.setting(namespace, "x", "n", "{matchLabels: {one: '1'}}")
	y := b.setting(namespace, "y", "n", "{matchLabels: {two: '1'}}")
	b.says(y, valid)
	b.says(x, valid)
	sim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cluster.SimulatedNode + "0001"}}
	b.patch(sim, `{"metadata": {"labels": {"one": "1", "two": "1"}}}`)
	b.says(x, conflicts+"y")
	b.patch(sim, `{"metadata": {"labels": {"one": null}}}`)
	b.says(x, valid)
	extra := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "extra", Labels: map[string]string{"one": "1", "two": "1"}}}
	b.create(extra)
	b.says(x, conflicts+"y")
	if err := b.Delete(t.Context(), extra); err != nil {
		t.Fatal(err)
	}
	b.says(x, valid)

	// A verdict that stays is not written again. When the next Setting has its status, the others have been judged.
	all := []*edsv1.ExtendedDaemonsetSetting{far, x, y}
	var before []string
	for _, s := range all {
		b.says(s, valid)
		before = append(before, s.ResourceVersion)
	}
	b.patch(sim, `{"metadata": {"labels": {"other": "1"}}}`)
	b.says(b.setting(namespace, "next", "n", "{matchLabels: {no: such}}"), valid)
	b.says(b.setting(elsewhere, "next", "d", "{matchLabels: {no: such}}"), valid)
	for i, s := range all {
		if b.says(s, valid); s.ResourceVersion != before[i] {
			t.Errorf("%s was written again", s.Name)
		}
	}
}

// run runs the controller until the test ends.
func run(t *testing.T, cfg *rest.Config, scheme *runtime.Scheme) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewController(m.GetClient(), recorder).SetupWithManager(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		recorder.Shutdown(context.WithoutCancel(t.Context()))
	})
}

func (b *bench) create(o client.Object) {
	b.Helper()
	if err := b.Create(b.Context(), o); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) patch(o client.Object, fields string) {
	b.Helper()
	if err := b.Patch(b.Context(), o, client.RawPatch("application/merge-patch+json", []byte(fields))); err != nil {
		b.Fatal(err)
	}
}

// eventually waits until there is nothing wrong.
func (b *bench) eventually(what string, wrong func() string) {
	b.Helper()
	last := ""
	if err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	}); err != nil {
		b.Fatalf("%s: %v: %s", what, err, last)
	}
}

// setting makes a Setting for an ExtendedDaemonSet. The selector is YAML.
func (b *bench) setting(namespace, name, of, selector string) *edsv1.ExtendedDaemonsetSetting {
	b.Helper()
	s := &edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	spec := fmt.Sprintf("{reference: {kind: ExtendedDaemonSet, name: %s}, nodeSelector: %s}", of, selector)
	if err := yaml.UnmarshalStrict([]byte(spec), &s.Spec); err != nil {
		b.Fatal(err)
	}
	b.create(s)
	return s
}

// says waits until a Setting's status is as wanted.
func (b *bench) says(s *edsv1.ExtendedDaemonsetSetting, want string) {
	b.Helper()
	b.eventually(s.Name+" says "+want, func() string {
		if err := b.Get(b.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err.Error()
		}
		if got := strings.TrimSpace(string(s.Status.Status) + " " + s.Status.Error); got != want {
			return "it says " + got
		}
		return ""
	})
}

// event waits for a warning about a Setting.
func (b *bench) event(of *edsv1.ExtendedDaemonsetSetting, message string) {
	b.Helper()
	b.eventually("there is an Event", func() string {
		var list corev1.EventList
		if err := b.List(b.Context(), &list, client.InNamespace(of.Namespace)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.UID == of.UID && e.InvolvedObject.Kind == "ExtendedDaemonsetSetting" && e.Type == corev1.EventTypeWarning && e.Message == message {
				return ""
			}
		}
		return fmt.Sprintf("%d Events, not this one", len(list.Items))
	})
}
