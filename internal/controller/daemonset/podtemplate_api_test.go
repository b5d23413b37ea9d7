// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/test/cluster"
)

const namespace = "podtemplates"

type bench struct {
	client.Client
	*testing.T
}

// TestAPIPodTemplates follows ExtendedDaemonSets with PodTemplates.
func TestAPIPodTemplates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), edsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Shared(t, 0).Config()
	cfg.QPS = -1
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{c, t}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	runPodTemplates(t, cfg, scheme)
	for name, test := range map[string]func(*bench){
		"follows": followsDaemonSet, "repairs": repairs, "foreign": leavesForeignAlone, "unlabelled": leavesUnlabelledAlone, "invalid": saysWhatIsInvalid,
	} {
		t.Run(name, func(t *testing.T) { test(&bench{c, t}) })
	}
	if failed := reconcileErrors(t); failed > 0 {
		t.Errorf("%g reconciles ended in an error", failed)
	}
}

// runPodTemplates runs the controller until the test ends.
func runPodTemplates(t *testing.T, cfg *rest.Config, scheme *runtime.Scheme) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{ByObject: CacheOptions(Options{})}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Controller{client: m.GetClient(), events: recorder}).watchPodTemplates(m); err != nil {
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

// reconcileErrors is how many reconciles have ended in an error.
func reconcileErrors(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "controller_runtime_reconcile_errors_total" && m.GetLabel()[0].GetValue() == "podtemplate.autoscaler" {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Error("errors are not counted")
	return 0
}

func (b *bench) create(o client.Object) {
	b.Helper()
	if err := b.Create(b.Context(), o); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) delete(o client.Object) {
	b.Helper()
	if err := b.Delete(b.Context(), o); err != nil {
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
	b.Helper()
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"team": "infra"}, Annotations: map[string]string{"note": "x"},
	}}
	if err := yaml.UnmarshalStrict([]byte(template), &d.Spec.Template); err != nil {
		b.Fatal(err)
	}
	b.create(d)
	return d
}

// podtemplate reads the one of that name.
func (b *bench) podtemplate(name string) (*corev1.PodTemplate, error) {
	p := &corev1.PodTemplate{}
	return p, b.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p)
}

// shows waits until the PodTemplate is what the ExtendedDaemonSet asks for, and returns it.
func (b *bench) shows(d *edsv1.ExtendedDaemonSet) (p *corev1.PodTemplate) {
	b.Helper()
	b.eventually("the PodTemplate is that of "+d.Name, func() string {
		want := newPodTemplate(d)
		var err error
		if p, err = b.podtemplate(d.Name); err != nil {
			return err.Error()
		}
		if !isCurrentPodTemplate(p, want) {
			return cmp.Diff(want, p)
		}
		return ""
	})
	return p
}

// edit changes an object.
func edit[T client.Object](b *bench, o T, change func(T)) {
	b.Helper()
	if err := b.Get(b.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change(o)
	if err := b.Patch(b.Context(), o, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}

// event waits for Events about an ExtendedDaemonSet with this reason, so many times, and returns the last one's message.
func (b *bench) event(of *edsv1.ExtendedDaemonSet, reason string, times int32) (message string) {
	b.Helper()
	b.eventually("there is an Event "+reason, func() string {
		var list corev1.EventList
		if err := b.List(b.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		count := int32(0)
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.UID == of.UID && e.Reason == reason {
				count, message = count+e.Count, e.Message
			}
		}
		if count != times {
			return fmt.Sprintf("%d of them", count)
		}
		return ""
	})
	return message
}

// Each change of the ExtendedDaemonSet that matters is written once. One that is deleted leaves no error.
func followsDaemonSet(b *bench) {
	d := b.daemonset("follows")
	p := b.shows(d)
	if got := b.event(d, "Create PodTemplate", 1); got != namespace+"/follows" {
		b.Errorf("the Event says %q", got)
	}
	edit(b, d, func(d *edsv1.ExtendedDaemonSet) {
		d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
		d.Spec.Template.Spec.Containers[0].LivenessProbe = nil
	})
	changed := b.shows(d)
	if c := changed.Template.Spec.Containers; changed.UID != p.UID || len(c) != 1 || c[0].LivenessProbe != nil {
		b.Errorf("got %+v", changed)
	}
	edit(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels, d.Annotations = nil, nil })
	last := b.shows(d).ResourceVersion
	b.event(d, "Update PodTemplate", 2)

	edit(b, d, func(d *edsv1.ExtendedDaemonSet) {
		d.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: time.Minute}
	})
	b.passes("after-follows")
	if now := b.shows(d); now.ResourceVersion != last {
		b.Errorf("it was written again: %s", cmp.Diff(changed, now))
	}
	b.delete(d)
	b.passes("after-deletion")
}

// passes returns when the controller has seen what happened: it reconciles one ExtendedDaemonSet at a time, in order.
func (b *bench) passes(name string) { b.shows(b.daemonset(name)) }

// What others change of labels and owner is reverted, and a PodTemplate that is deleted is made again.
func repairs(b *bench) {
	d := b.daemonset("repairs")
	p := b.shows(d)
	for _, change := range []func(*corev1.PodTemplate){
		func(p *corev1.PodTemplate) { p.Labels["team"] = "apps" },
		func(p *corev1.PodTemplate) { p.OwnerReferences = nil },
	} {
		edit(b, p, change)
		if now := b.shows(d); now.UID != p.UID {
			b.Error("it was made anew")
		}
	}
	b.delete(p)
	b.shows(d)
}

// theirs makes a PodTemplate of another owner's.
func (b *bench) theirs(name string, labels map[string]string) *corev1.PodTemplate {
	b.Helper()
	p := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	p.Template.Spec.Containers = []corev1.Container{{Name: "theirs", Image: "pause:3.10"}}
	b.create(p)
	return p
}

// untouched checks that a PodTemplate of another owner's is as it was.
func (b *bench) untouched(p *corev1.PodTemplate) {
	b.Helper()
	if now, err := b.podtemplate(p.Name); err != nil || !cmp.Equal(p, now) {
		b.Errorf("%v (-want +got):\n%s", err, cmp.Diff(p, now))
	}
}

// One that is another owner's stays as it is, and is reported whenever it is in the way. When it goes, there is room.
func leavesForeignAlone(b *bench) {
	theirs := b.theirs("foreign", map[string]string{labelPod: "true"})
	d := b.daemonset("foreign")
	const want = "PodTemplate podtemplates/foreign belongs to another owner and is not changed: the cluster autoscaler does not see these pods"
	if got := b.event(d, "PodTemplateForeign", 1); got != want {
		b.Errorf("the Event says %q", got)
	}
	edit(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Labels["more"] = "x" })
	b.passes("after-foreign")
	b.event(d, "PodTemplateForeign", 2)
	b.untouched(theirs)
	b.delete(theirs)
	b.shows(d)
}

// So does one that the cache does not show. One that ExtendedDaemonSet has left is kept, and brought up to date.
func leavesUnlabelledAlone(b *bench) {
	theirs := b.theirs("unlabelled", nil)
	d := b.daemonset("unlabelled")
	b.event(d, "PodTemplateForeign", 1)
	b.untouched(theirs)
	b.delete(theirs)
	left := newPodTemplate(d)
	left.Annotations[annotationsHash] = "old"
	left.Template.Spec.Containers = left.Template.Spec.Containers[:1]
	b.create(left)
	if p := b.shows(d); p.UID != left.UID {
		b.Error("it was made anew")
	}
}

// What the API server refuses has an Event, and is tried again when it changes.
func saysWhatIsInvalid(b *bench) {
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "invalid"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "Upper", Image: "pause:3.10"}}
	b.create(d)
	if got := b.event(d, "PodTemplateInvalid", 1); !strings.Contains(got, "template.spec.containers[0].name: Invalid value") {
		b.Errorf("the Event says %q", got)
	}
	edit(b, d, func(d *edsv1.ExtendedDaemonSet) { d.Spec.Template.Spec.Containers[0].Name = "lower" })
	b.shows(d)
}
