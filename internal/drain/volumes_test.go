// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// attachment attaches a PersistentVolume to a node; one without a name is inline.
func attachment(node, volume string) *storagev1.VolumeAttachment {
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + node + "-" + volume},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "disks.example.com", NodeName: node},
	}
	if volume == "" {
		va.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{}
	} else {
		va.Spec.Source.PersistentVolumeName = &volume
	}
	return va
}

func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

func claiming(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v-" + name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

func ephemeral(volume string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{},
		}})
	}
}

func TestVolumesOfStaying(t *testing.T) {
	one, two, three := pod("a", claiming("data", "logs")), pod("b", claiming("data", "deleted"), withEmptyDir), pod("c", ephemeral("scratch"))
	elsewhere, going := pod("d", claiming("data"), func(p *corev1.Pod) { p.Namespace = "db" }), pod("e", claiming("other"))
	a := newAPI(t)
	inDB := claim("data", "pv-db")
	inDB.Namespace = "db"
	a.create(t, claim("data", "pv-data"), claim("logs", "pv-logs"), claim("c-scratch", "pv-scratch"), claim("other", "pv-other"), inDB)
	got, err := New(a.clock, a.Client).volumesOfStaying(t.Context(), "n1", []Verdict{
		{Pod: &one, State: Skipped}, {Pod: &two, State: Skipped}, {Pod: &three, State: Skipped}, {Pod: &elsewhere, State: Skipped}, {Pod: &going},
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "volumes", sets.New("pv-data", "pv-logs", "pv-scratch", "pv-db", ""), got)
}

func (a *api) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := a.Client.(client.Client).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *api) remove(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := a.Client.(client.Client).Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// end lets a pod that terminates go: nothing but its finalizer kept it.
func (a *api) end(t *testing.T, p corev1.Pod) {
	t.Helper()
	p.Finalizers = nil
	if err := a.Client.(client.Client).Update(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
}

func TestPassWaitsForVolumes(t *testing.T) {
	going := pod("db", claiming("db"), terminating(time.Minute), labelled("app", "drained"))
	a := newAPI(t, going,
		pod("log", ofDaemonSet, labelled("app", "drained"), claiming("log"), ephemeral("spool")), pod("kept", labelled("app", "kept"), claiming("kept")))
	o := Options{
		WaitForVolumeDetach: true, IgnoreDaemonSets: true, PodSelector: labels.SelectorFromSet(labels.Set{"app": "drained"}), Timeout: time.Hour,
	}
	a.create(t, claim("db", "pv-db"), claim("log", "pv-log"), claim("log-spool", "pv-spool"), claim("kept", "pv-kept"),
		attachment("n1", "pv-db"), attachment("n1", "pv-old"), attachment("n1", "pv-log"), attachment("n1", "pv-spool"),
		attachment("n1", "pv-kept"), attachment("n1", ""), attachment("n2", "pv-other"))

	r := a.pass(t, o)
	expect(t, "while a pod ends", nil, r.Attached)
	expect(t, "left", "1 pod left", r.Left())

	a.end(t, going)
	r = a.pass(t, o)
	expect(t, "attached", []string{"pv-db", "pv-old"}, r.Attached)
	expect(t, "next", start.Add(retryAfter), r.Next)
	expect(t, "left", "no pods left; volumes still attached: pv-db, pv-old", r.Left())
	if r.Done() || r.Stuck() {
		t.Errorf("volumes are not only waited for: %+v", r)
	}
	if r := a.pass(t, Options{IgnoreDaemonSets: true, PodSelector: o.PodSelector}); !r.Done() || r.Attached != nil {
		t.Errorf("waits though it was not asked to: %+v", r)
	}

	a.remove(t, attachment("n1", "pv-db"))
	r = a.pass(t, o)
	expect(t, "one less", []string{"pv-old"}, r.Attached)
	expect(t, "left", "no pods left; volumes still attached: pv-old", r.Left())
	a.remove(t, attachment("n1", "pv-old"))
	if r := a.pass(t, o); !r.Done() || !r.Next.IsZero() {
		t.Errorf("not done: %+v", r)
	}
}

func TestPassWhenTheTimeForVolumesIsOver(t *testing.T) {
	for on, want := range map[OnTimeout]string{
		"":             "no pods left; volumes still attached: pv-a, pv-b",
		HaltOnTimeout:  "no pods left; volumes still attached: pv-a, pv-b",
		SkipOnTimeout:  "no pods left; volumes still attached: pv-a, pv-b",
		ForceOnTimeout: "",
	} {
		a := newAPI(t)
		a.create(t, attachment("n1", "pv-a"), attachment("n1", "pv-b"))
		o := Options{WaitForVolumeDetach: true, Timeout: time.Minute, OnTimeout: on}
		a.clock.SetTime(start.Add(58 * time.Second))
		r := a.pass(t, o)
		expect(t, "next", start.Add(time.Minute), r.Next)
		if r.Done() || r.Stuck() {
			t.Errorf("%s: does not wait: %+v", on, r)
		}
		a.clock.SetTime(start.Add(time.Minute))
		r = a.pass(t, o)
		if want == "" {
			if !r.Done() || r.Attached != nil {
				t.Errorf("%s: still waits: %+v", on, r)
			}
			continue
		}
		expect(t, string(on), want, r.Left())
		if !r.Stuck() || (r.TimedOut == SkipOnTimeout) != (on == SkipOnTimeout) {
			t.Errorf("%s: not stuck: %+v", on, r)
		}
	}
}

func TestPassSaysThatItCannotReadVolumes(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}, "", errors.New("no"))
	list := func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*storagev1.VolumeAttachmentList); ok {
			return forbidden
		}
		return c.List(ctx, list, opts...)
	}
	get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			return forbidden
		}
		return c.Get(ctx, key, obj, opts...)
	}
	for want, funcs := range map[string]interceptor.Funcs{
		"listing the volumes attached to node n1, ":              {List: list},
		"reading claim web/log of a pod that stays on node n1, ": {Get: get},
	} {
		a := newAPI(t, pod("log", ofDaemonSet, claiming("log")))
		a.create(t, attachment("n1", "pv-a"))
		broken := interceptor.NewClient(a.Client.(client.WithWatch), funcs)
		_, err := New(a.clock, broken).Pass(t.Context(), "n1", a.pods(t), start, Options{WaitForVolumeDetach: true, IgnoreDaemonSets: true})
		if err == nil || !strings.HasPrefix(err.Error(), want) || IsTransient(err) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
