// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/hack/image"
)

// settings is a ConfigMap that is not there.
const settings = "settings"

// nothingImage has no program to run: the runtime can't make a container of it.
const nothingImage = "moult.dev/e2e/nothing:1"

func loadNothing(t *testing.T) {
	t.Helper()
	tar := filepath.Join(t.TempDir(), "nothing.tar")
	spec := image.Spec{Tags: []string{nothingImage}, Files: map[string]image.File{"/nothing": {}}}
	if err := errors.Join(image.Build(t.Context(), spec, tar), world.LoadImage(t.Context(), tar)); err != nil {
		t.Fatal(err)
	}
}

// afterAWhile lets a container be ready only when it runs for a while. Without, one that ends at once is ready as long as it runs,
// and as its kubelet has not said that it has ended.
var afterAWhile = &corev1.Probe{
	InitialDelaySeconds: 5, PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
}

// canariesThatCannotStart pauses each canary whose pod does not start, for the reason that the kubelet gives, and goes on with
// it when it is mended.
func canariesThatCannotStart(t *testing.T, all *daemons) {
	loadNothing(t)
	d := all.on(all.nodes[:2]...)
	tests := newTogether(t, 3)
	for _, tc := range []struct {
		name    string
		breaks  func(*corev1.PodSpec, *corev1.Container)
		reasons []edsv1.StatusReason
		// bears is how many restarts the canary bears. Where a pod can't start it is paused for that.
		bears int32
		slow  time.Duration
		// config is true where it lacks a ConfigMap.
		config bool
	}{
		{
			name:    "no-image",
			breaks:  func(_ *corev1.PodSpec, c *corev1.Container) { c.Image, c.ImagePullPolicy = "127.0.0.1:1/nowhere:1", "" },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonErrImagePull, edsv1.StatusReasonImagePullBackOff}, bears: 100,
		},
		{
			name:    "image-never-pulled",
			breaks:  func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "127.0.0.1:1/nowhere:1" },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonErrImageNeverPull}, bears: 100,
		},
		{
			name:    "image-name",
			breaks:  func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "moult.dev/No/Such:Name:1" },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonInvalidImageName}, bears: 100,
		},
		{
			name: "env", config: true,
			breaks: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Env = append(c.Env, corev1.EnvVar{Name: "WORD", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: settings + "-env"}, Key: "word",
				}}})
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCreateContainerConfigError}, bears: 100,
		},
		{
			name: "volume", config: true, slow: 4 * time.Second,
			breaks: func(s *corev1.PodSpec, c *corev1.Container) {
				s.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: settings + "-volume"}},
				}}}
				c.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonSlowStartTimeoutExceeded}, bears: 100,
		},
		{
			name:    "command",
			breaks:  func(_ *corev1.PodSpec, c *corev1.Container) { c.Command = []string{"/no/such/program"} },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonStartError}, bears: 100,
		},
		{
			name:    "container",
			breaks:  func(_ *corev1.PodSpec, c *corev1.Container) { c.Image, c.Command = nothingImage, nil },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCreateContainerError}, bears: 100,
		},
		{
			name: "hook",
			breaks: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonPostStartHookError}, bears: 100,
		},
		{
			name: "restarts",
			breaks: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Command, c.ReadinessProbe = []string{"sh", "-c", "exit 1"}, afterAWhile
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCLB, "Error"},
		},
		{
			name: "init-restarts",
			breaks: func(s *corev1.PodSpec, c *corev1.Container) {
				first := *c.DeepCopy()
				first.Name, first.Command = "first", []string{"sh", "-c", "exit 1"}
				s.InitContainers = []corev1.Container{first}
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCLB, "Error"},
		},
		{
			name: "memory",
			breaks: func(_ *corev1.PodSpec, c *corev1.Container) {
				c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
				c.ReadinessProbe = afterAWhile
				c.Command = []string{"sh", "-c", "x=moult; while :; do x=$x$x; done"}
			},
			// A kubelet that is told of the end before it is told why calls it an Error. And it may be what starts the program that
			// has no memory.
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCLB, edsv1.StatusReasonOOM, "Error", edsv1.StatusReasonStartError},
		},
	} {
		tests.run(tc.name, func(t *testing.T) {
			old := d.start(t, d.daemon(tc.name, canary(2*time.Second), func(e *edsv1.ExtendedDaemonSet) {
				c := e.Spec.Strategy.Canary
				c.AutoPause.MaxRestarts, c.AutoFail.MaxRestarts = ptr.To(tc.bears), ptr.To[int32](100)
				if tc.slow > 0 {
					c.AutoPause.MaxSlowStartDuration = &metav1.Duration{Duration: tc.slow}
				}
			}))
			before := d.uids(t, tc.name)
			d.edit(t, tc.name, version("broken"), func(e *edsv1.ExtendedDaemonSet) {
				tc.breaks(&e.Spec.Template.Spec, &e.Spec.Template.Spec.Containers[0])
			})
			e := d.inState(t, tc.name, edsv1.StateCanaryPaused)
			broken := e.Status.Canary.ReplicaSet
			if !slices.Contains(tc.reasons, e.Status.Reason) {
				t.Errorf("it is paused for %q, want one of %v", e.Status.Reason, tc.reasons)
			}
			c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionCanaryPaused)
			if c == nil || c.Status != metav1.ConditionTrue || c.Message != "canary paused with ers: "+broken {
				t.Errorf("the condition is %+v", c)
			}
			// It would be promoted by now, and the other node is left alone.
			lasts(t, 3*time.Second, "it stays", func(context.Context) error {
				other := d.nodes[0]
				if e.Status.Canary.Nodes[0] == other {
					other = d.nodes[1]
				}
				if e := d.get(t, tc.name); e.Status.ActiveReplicaSet != old.Status.ActiveReplicaSet || d.uids(t, tc.name)[other] != before[other] {
					return fmt.Errorf("the broken template went on: %s", statusOf(e))
				}
				return nil
			})
			if !tc.config {
				d.edit(t, tc.name, version("mended"), func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Spec = old.Spec.Template.Spec }, version("mended"))
				d.settled(t, tc.name)
				d.neverActive(t, tc.name, broken)
				return
			}
			d.create(t, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: settings + "-" + tc.name, Namespace: d.namespace}, Data: map[string]string{"word": "moult"},
			})
			d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: edsv1.True})
			if e := d.settled(t, tc.name); e.Status.ActiveReplicaSet != broken {
				t.Errorf("%s is active, want %s, which starts by now", e.Status.ActiveReplicaSet, broken)
			}
		})
	}
	tests.wait()
}
