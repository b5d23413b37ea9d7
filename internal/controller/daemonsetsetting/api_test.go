// SPDX-License-Identifier: Apache-2.0

package daemonsetsetting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/test/cluster"
)

// bench is a cluster in which the controller runs. Each test has a namespace of its own, and sees all nodes.
type bench struct {
	client.Client
	t         *testing.T
	namespace string
	audit     string
}

// TestAPI lets the controller run against a real API server.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	b := newBench(t)
	for _, tc := range []struct {
		name string
		test func(*bench)
	}{
		{"settings", followsSettings},
		{"nodes", followsNodes},
		{"apart", leavesOthersAlone},
		{"quiet", writesNothingTwice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := *b
			sub.t, sub.namespace = t, tc.name
			sub.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tc.name}})
			tc.test(&sub)
		})
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	running := cluster.New(t, cluster.Options{Dir: dir, Nodes: 2, AuditLog: true})
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), edsv1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS, cfg.Burst = 1000, 1000
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Client: c, t: t, audit: filepath.Join(dir, "log", "audit.log")}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group == edsv1.GroupVersion.Group {
			b.create(d)
		}
	}
	b.eventually("settings are served", func() string { return text(c.List(t.Context(), &edsv1.ExtendedDaemonsetSettingList{})) })

	cfg.UserAgent = "the-operator"
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
	return b
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// eventually waits until there is nothing left to say.
func (b *bench) eventually(what string, wrong func() string) {
	b.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 60*time.Second, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %v: %s", what, err, last)
	}
}

// setting makes one of these fields, in YAML.
func (b *bench) setting(name, spec string) *edsv1.ExtendedDaemonsetSetting {
	b.t.Helper()
	s := &edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &s.Spec); err != nil {
		b.t.Fatal(err)
	}
	b.create(s)
	return s
}

// says waits until a Setting's status is as wanted.
func (b *bench) says(name, want string) {
	b.t.Helper()
	b.eventually(name+" says "+want, func() string {
		s := &edsv1.ExtendedDaemonsetSetting{}
		if err := b.Get(b.t.Context(), client.ObjectKey{Namespace: b.namespace, Name: name}, s); err != nil {
			return err.Error()
		}
		if got := strings.TrimSpace(string(s.Status.Status) + " " + s.Status.Error); got != want {
			return "it says " + got
		}
		return ""
	})
}

// edits an object.
func edits[T client.Object](b *bench, o T, how func(T)) {
	b.t.Helper()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	how(o)
	if err := b.Patch(b.t.Context(), o, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
}

// relabels a node; an empty value takes the label away.
func (b *bench) relabels(name, key, value string) {
	b.t.Helper()
	edits(b, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) {
		if n.Labels[key] = value; value == "" {
			delete(n.Labels, key)
		}
	})
}

const (
	valid     = "valid"
	conflicts = "error conflict with another ExtendedDaemonsetSetting: "
)

// Whether a Setting counts changes with the others.
func followsSettings(b *bench) {
	a := b.setting("a", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	b.says("a", valid)
	second := b.setting("b", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	b.says("b", valid)
	b.says("a", conflicts+"b")
	b.told(a, "The setting does not count: conflict with another ExtendedDaemonsetSetting: b")
	third := b.setting("c", "{reference: {kind: ExtendedDaemonSet, name: e}, nodeSelector: {}}")
	b.says("c", valid)

	edits(b, a, func(s *edsv1.ExtendedDaemonsetSetting) {
		s.Spec.NodeSelector.MatchLabels = map[string]string{"no": "such"}
	})
	b.says("a", valid)
	edits(b, a, func(s *edsv1.ExtendedDaemonsetSetting) { s.Spec.NodeSelector.MatchLabels = nil })
	b.says("a", conflicts+"b")
	edits(b, second, func(s *edsv1.ExtendedDaemonsetSetting) { s.Spec.Reference.Name = "e" })
	b.says("a", valid)
	b.says("b", conflicts+"c")
	b.says("c", valid)
	edits(b, a, func(s *edsv1.ExtendedDaemonsetSetting) { s.Spec.Reference.Name = "e" })
	b.says("a", conflicts+"c")
	b.says("b", conflicts+"c")
	if err := b.Delete(b.t.Context(), third); err != nil {
		b.t.Fatal(err)
	}
	b.says("b", valid)
	b.says("a", conflicts+"b")
}

// told waits for an Event about a Setting.
func (b *bench) told(of *edsv1.ExtendedDaemonsetSetting, message string) {
	b.t.Helper()
	b.eventually("there is an Event", func() string {
		var list corev1.EventList
		if err := b.List(b.t.Context(), &list, client.InNamespace(b.namespace)); err != nil {
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

// It changes with the nodes as well: their labels, their coming and their going.
func followsNodes(b *bench) {
	b.setting("x", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {matchLabels: {x: '1'}}}")
	b.setting("y", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {matchExpressions: [{key: 'y', operator: Exists}]}}")
	b.says("x", valid)
	b.says("y", valid)
	b.relabels("sim-0001", "x", "1")
	b.relabels("sim-0001", "y", "2")
	b.says("x", conflicts+"y")
	b.relabels("sim-0001", "x", "")
	b.says("x", valid)

	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "extra", Labels: map[string]string{"x": "1", "y": "1"}}}
	b.create(n)
	b.says("x", conflicts+"y")
	b.says("y", valid)
	if err := b.Delete(b.t.Context(), n); err != nil {
		b.t.Fatal(err)
	}
	b.says("x", valid)
}

// Settings of other namespaces are not met, even if they name an ExtendedDaemonSet of the same name.
func leavesOthersAlone(b *bench) {
	elsewhere := *b
	elsewhere.namespace = "elsewhere"
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere.namespace}})
	elsewhere.setting("old", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	elsewhere.says("old", valid)
	b.setting("young", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	b.says("young", valid)
	// When the next one has its status, the others have been looked at.
	b.setting("next", "{reference: {kind: ExtendedDaemonSet, name: e}, nodeSelector: {}}")
	b.says("next", valid)
	elsewhere.says("old", valid)
}

// Each verdict is written once, whatever else changes.
func writesNothingTwice(b *bench) {
	a := b.setting("a", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	b.says("a", valid)
	b.setting("b", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {}}")
	b.says("b", valid)
	b.says("a", conflicts+"b")
	edits(b, a, func(s *edsv1.ExtendedDaemonsetSetting) { s.Labels = map[string]string{"x": "1"} })
	edits(b, a, func(s *edsv1.ExtendedDaemonsetSetting) {
		s.Spec.Containers = []edsv1.ExtendedDaemonsetSettingContainerSpec{{Name: "c"}}
	})
	b.relabels("sim-0002", "quiet", "1")
	// When the next one has its status, the others have been looked at.
	b.setting("c", "{reference: {kind: ExtendedDaemonSet, name: d}, nodeSelector: {matchLabels: {no: such}}}")
	b.says("c", valid)
	b.relabels("sim-0002", "quiet", "2")
	b.setting("d", "{reference: {kind: ExtendedDaemonSet, name: other}, nodeSelector: {}}")
	b.says("d", valid)
	// The audit log has each a moment after its answer.
	writes := 0
	b.eventually("the verdicts are in the audit log", func() string {
		log, err := os.ReadFile(b.audit)
		if err != nil {
			return err.Error()
		}
		writes = 0
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"userAgent":"the-operator"`) && strings.Contains(line, `"verb":"patch"`) && strings.Contains(line, `"stage":"ResponseComplete"`) &&
				strings.Contains(line, `"objectRef":{"resource":"extendeddaemonsetsettings","namespace":"quiet"`) {
				writes++
			}
		}
		if writes < 5 {
			return fmt.Sprintf("%d of 5", writes)
		}
		return ""
	})
	if writes != 5 {
		b.t.Errorf("%d writes for 5 verdicts", writes)
	}
}
