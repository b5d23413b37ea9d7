// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/test/cluster"
)

// bench is a cluster in which the controller runs. Each test has a namespace of its own.
type bench struct {
	client.Client
	t         *testing.T
	namespace string
	audit     string
}

// TestAPI lets the controller run against a real API server, with the collector of garbage.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	b := newBench(t)
	for _, tc := range []struct {
		name string
		test func(*bench)
	}{
		{"follows", followsDaemonSet},
		{"repairs", repairs},
		{"quiet", writesNothingTwice},
		{"foreign", leavesForeignAlone},
		{"unlabelled", leavesUnlabelledAlone},
		{"takeover", takesOver},
		{"invalid", saysWhatIsInvalid},
		{"collected", isCollected},
		{"terminating", endsWithNamespace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := *b
			sub.t, sub.namespace = t, tc.name
			sub.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tc.name}})
			tc.test(&sub)
		})
	}
	if failed := reconcileErrors(t); failed > 0 {
		t.Errorf("%g reconciles ended in an error", failed)
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	running := cluster.New(t, cluster.Options{Dir: dir, AuditLog: true})
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
	b.eventually("daemon sets are served", func() string { return text(c.List(t.Context(), &edsv1.ExtendedDaemonSetList{})) })

	cfg.UserAgent = "the-operator"
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{ByObject: CacheOptions()}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := NewController(m.GetClient(), m.GetAPIReader(), recorder).SetupWithManager(t.Context(), m); err != nil {
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

// reconcileErrors is how many reconciles have ended in an error.
func reconcileErrors(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "podtemplate.autoscaler" {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Error("nobody counts errors")
	return 0
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

// eventually waits until there is nothing left to say. The collector of garbage looks for new kinds every half a minute.
func (b *bench) eventually(what string, wrong func() string) {
	b.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %v: %s", what, err, last)
	}
}

// template uses what the API server fills in or writes differently.
const template = `
metadata: {name: ignored, labels: {app: d}, creationTimestamp: null}
spec:
  hostNetwork: true
  tolerations: [{operator: Exists}]
  containers:
  - name: c
    image: pause:3.10
    ports: [{containerPort: 8080, protocol: TCP}]
    resources: {limits: {cpu: 0.5, memory: 128Mi}}
    livenessProbe: {httpGet: {port: 8080}}
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    volumeMounts: [{name: config, mountPath: /config}]
  - {name: other, image: pause:3.10}
  volumes:
  - name: config
    configMap: {name: config}
  - name: token
    projected: {sources: [{serviceAccountToken: {path: token}}]}
`

// daemonset makes one of that template.
func (b *bench) daemonset(name string) *edsv1.ExtendedDaemonSet {
	b.t.Helper()
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.namespace, Name: name, Labels: map[string]string{"team": "infra"}, Annotations: map[string]string{"note": "x"},
	}}
	if err := yaml.UnmarshalStrict([]byte(template), &d.Spec.Template); err != nil {
		b.t.Fatal(err)
	}
	b.create(d)
	return d
}

// podtemplate is the one of that name, or nil.
func (b *bench) podtemplate(name string) *corev1.PodTemplate {
	b.t.Helper()
	p := &corev1.PodTemplate{}
	if err := b.Get(b.t.Context(), client.ObjectKey{Namespace: b.namespace, Name: name}, p); err != nil {
		if client.IgnoreNotFound(err) != nil {
			b.t.Fatal(err)
		}
		return nil
	}
	return p
}

// shows waits until the PodTemplate is what the ExtendedDaemonSet asks for, and returns it.
func (b *bench) shows(d *edsv1.ExtendedDaemonSet) *corev1.PodTemplate {
	b.t.Helper()
	hash, err := daemon.TemplateHash(&d.Spec.Template)
	if err != nil {
		b.t.Fatal(err)
	}
	labels := map[string]string{labelPod: "true"}
	maps.Copy(labels, d.Labels)
	annotations := map[string]string{annotationsHash: hash}
	maps.Copy(annotations, d.Annotations)
	var p *corev1.PodTemplate
	b.eventually("the pod template is "+d.Name+"'s", func() string {
		p = b.podtemplate(d.Name)
		switch {
		case p == nil:
			return "there is none"
		case !metav1.IsControlledBy(p, d):
			return fmt.Sprintf("it belongs to %v", p.OwnerReferences)
		case len(p.Template.Spec.Containers) != len(d.Spec.Template.Spec.Containers):
			return fmt.Sprintf("it has %d containers", len(p.Template.Spec.Containers))
		case p.Template.Spec.Containers[0].Image != d.Spec.Template.Spec.Containers[0].Image:
			return "its image is " + p.Template.Spec.Containers[0].Image
		default:
			return cmp.Diff(labels, p.Labels) + cmp.Diff(annotations, p.Annotations)
		}
	})
	return p
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

// told waits for Events about an ExtendedDaemonSet with this reason, so many times, and returns the last one's message.
func (b *bench) told(of *edsv1.ExtendedDaemonSet, reason string, times int32) string {
	b.t.Helper()
	message := ""
	b.eventually("there is an Event "+reason, func() string {
		var list corev1.EventList
		if err := b.List(b.t.Context(), &list, client.InNamespace(b.namespace)); err != nil {
			return err.Error()
		}
		count, all := int32(0), ""
		for i := range list.Items {
			e := &list.Items[i]
			all += e.Reason + ";"
			if e.InvolvedObject.UID == of.UID && e.InvolvedObject.Kind == "ExtendedDaemonSet" && e.Reason == reason {
				count, message = count+e.Count, e.Message
			}
		}
		if count != times {
			return fmt.Sprintf("%d of them among %s", count, all)
		}
		return ""
	})
	return message
}

// writes are what the operator has asked to be done to the PodTemplate of this name.
func (b *bench) writes(name string) []string {
	b.t.Helper()
	log, err := os.ReadFile(b.audit)
	if err != nil {
		b.t.Fatal(err)
	}
	var verbs []string
	about := fmt.Sprintf(`"objectRef":{"resource":"podtemplates","namespace":%q,"name":%q`, b.namespace, name)
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `"userAgent":"the-operator"`) || !strings.Contains(line, `"stage":"ResponseComplete"`) || !strings.Contains(line, about) {
			continue
		}
		for _, verb := range []string{"create", "patch", "update", "delete"} {
			if strings.Contains(line, `"verb":"`+verb+`"`) {
				verbs = append(verbs, verb)
			}
		}
	}
	return verbs
}

// wantWrites checks them. The audit log has each a moment after its answer.
func (b *bench) wantWrites(name string, want ...string) {
	b.t.Helper()
	b.eventually("writes of "+name+" are in the audit log", func() string {
		if got := b.writes(name); len(got) < len(want) {
			return fmt.Sprintf("%q, want %q", got, want)
		}
		return ""
	})
	if diff := cmp.Diff(want, b.writes(name)); diff != "" {
		b.t.Errorf("writes of %s (-want +got):\n%s", name, diff)
	}
}

func followsDaemonSet(b *bench) {
	d := b.daemonset("d")
	p := b.shows(d)
	if p.Template.Name != "" || p.Template.Labels["app"] != "d" || p.Template.Spec.Containers[0].Resources.Limits.Cpu().MilliValue() != 500 {
		b.t.Errorf("got %v", p.Template)
	}
	if got := b.told(d, "Create PodTemplate", 1); got != "follows/d" {
		b.t.Errorf("told %q", got)
	}
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) {
		d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
		d.Spec.Template.Spec.Containers[0].Image = "pause:3.11"
		d.Spec.Template.Spec.Containers[0].LivenessProbe = nil
	})
	if now := b.shows(d); now.UID != p.UID || now.Template.Spec.Containers[0].LivenessProbe != nil {
		b.t.Errorf("got %+v", now)
	}
	if got := b.told(d, "Update PodTemplate", 1); got != "follows/d" {
		b.t.Errorf("told %q", got)
	}
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels = map[string]string{"team": "apps", "new": "x"} })
	b.shows(d)
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels, d.Annotations = nil, nil })
	b.shows(d)
	b.wantWrites("d", "create", "patch", "patch", "patch")
}

// What people change in it is put right, and what they delete comes again.
func repairs(b *bench) {
	d := b.daemonset("d")
	p := b.shows(d)
	edits(b, p, func(p *corev1.PodTemplate) { p.Template.Spec.Containers[0].Image = "other" })
	b.shows(d)
	edits(b, p, func(p *corev1.PodTemplate) { delete(p.Labels, labelPod) })
	if now := b.shows(d); now.UID != p.UID {
		b.t.Error("it was made anew")
	}
	edits(b, p, func(p *corev1.PodTemplate) { p.OwnerReferences = nil })
	if now := b.shows(d); now.UID != p.UID {
		b.t.Error("it was made anew")
	}
	if err := b.Delete(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
	b.shows(d)
}

// It is written once, whatever else changes.
func writesNothingTwice(b *bench) {
	d := b.daemonset("d")
	b.shows(d)
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) {
		d.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: time.Minute}
	})
	d.Status.State = edsv1.StateRunning
	if err := b.Status().Update(b.t.Context(), d); err != nil {
		b.t.Fatal(err)
	}
	// One at a time is looked at: when this one is done, so is the other.
	b.shows(b.daemonset("next"))
	b.wantWrites("next", "create")
	b.wantWrites("d", "create")
}

// config makes a ConfigMap that may own something.
func (b *bench) owner() metav1.OwnerReference {
	b.t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "owner"}}
	b.create(c)
	return *metav1.NewControllerRef(c, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
}

// somebodys makes a PodTemplate of somebody else's.
func (b *bench) somebodys(name string, labels map[string]string, by ...metav1.OwnerReference) *corev1.PodTemplate {
	b.t.Helper()
	p := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: labels, OwnerReferences: by}}
	p.Template.Spec.Containers = []corev1.Container{{Name: "theirs", Image: "pause:3.10"}}
	b.create(p)
	return p
}

// One that somebody else owns stays as it is; when it goes, there is room.
func leavesForeignAlone(b *bench) {
	theirs := b.somebodys("d", map[string]string{labelPod: "true"}, b.owner())
	d := b.daemonset("d")
	const want = "PodTemplate foreign/d is somebody else's and left alone: the cluster autoscaler is not told of these pods"
	if got := b.told(d, "PodTemplateForeign", 1); got != want {
		b.t.Errorf("told %q", got)
	}
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels["more"] = "x" })
	b.shows(b.daemonset("next"))
	b.told(d, "PodTemplateForeign", 1)
	if diff := cmp.Diff(theirs, b.podtemplate("d")); diff != "" {
		b.t.Errorf("(-want +got):\n%s", diff)
	}
	b.wantWrites("d")
	if err := b.Delete(b.t.Context(), theirs); err != nil {
		b.t.Fatal(err)
	}
	b.shows(d)
}

// So does one that the cache does not show.
func leavesUnlabelledAlone(b *bench) {
	theirs := b.somebodys("d", nil)
	d := b.daemonset("d")
	b.told(d, "PodTemplateForeign", 1)
	if diff := cmp.Diff(theirs, b.podtemplate("d")); diff != "" {
		b.t.Errorf("(-want +got):\n%s", diff)
	}
	if err := b.Delete(b.t.Context(), theirs); err != nil {
		b.t.Fatal(err)
	}
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels["more"] = "x" })
	b.shows(d)
}

// One that ExtendedDaemonSet has left is kept, and brought up to date.
func takesOver(b *bench) {
	// Nothing is made for it as long as somebody else's is in the way.
	theirs := b.somebodys("d", nil)
	d := b.daemonset("d")
	b.told(d, "PodTemplateForeign", 1)
	left, err := build(d)
	if err != nil {
		b.t.Fatal(err)
	}
	left.Annotations[corev1.LastAppliedConfigAnnotation] = `{"kind":"ExtendedDaemonSet"}`
	left.Annotations[annotationsHash] = "old"
	left.Template.Spec.Containers = append(left.Template.Spec.Containers, corev1.Container{Name: "gone", Image: "pause:3.9"})
	if err := b.Delete(b.t.Context(), theirs); err != nil {
		b.t.Fatal(err)
	}
	b.create(left)
	if p := b.shows(d); p.UID != left.UID {
		b.t.Error("it was made anew")
	}
}

// What the API server refuses is told, and tried again when it changes.
func saysWhatIsInvalid(b *bench) {
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "d"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "Upper", Image: "pause:3.10"}}
	b.create(d)
	if got := b.told(d, "PodTemplateInvalid", 1); !strings.Contains(got, "template.spec.containers[0].name: Invalid value") {
		b.t.Errorf("told %q", got)
	}
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Spec.Template.Spec.Containers[0].Name = "lower" })
	b.shows(d)
}

// It goes with the ExtendedDaemonSet, and comes again with another of that name.
func isCollected(b *bench) {
	d := b.daemonset("d")
	first := b.shows(d).UID
	e := b.daemonset("e")
	b.shows(e)
	for _, o := range []*edsv1.ExtendedDaemonSet{d, e} {
		if err := b.Delete(b.t.Context(), o); err != nil {
			b.t.Fatal(err)
		}
	}
	if p := b.shows(b.daemonset("d")); p.UID == first {
		b.t.Error("it was kept")
	}
	b.eventually("the other's is gone", func() string {
		if b.podtemplate("e") != nil {
			return "it is still there"
		}
		return ""
	})
}

// In a namespace that goes nothing is made, and nothing is wrong.
func endsWithNamespace(b *bench) {
	d := b.daemonset("d")
	b.shows(d)
	edits(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Finalizers = []string{"test.moult.dev/stay"} })
	if err := b.Delete(b.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("it is gone", func() string {
		if b.podtemplate("d") != nil {
			return "it is still there"
		}
		return ""
	})
	b.eventually("the daemon set goes", func() string {
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err.Error()
		}
		if d.DeletionTimestamp == nil {
			return "it stays"
		}
		return ""
	})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := b.Patch(b.t.Context(), d, patch); err != nil {
		b.t.Fatal(err)
	}
}
