// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// nothingImage has no program. The runtime can not create a container of it.
const nothingImage = "moult.dev/e2e/nothing:1"

// TestDaemonsCanariesThatCannotStart are paused with the reason that a real kubelet gives.
func TestDaemonsCanariesThatCannotStart(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	tar := filepath.Join(t.TempDir(), "nothing.tar")
	spec := image.Spec{Tags: []string{nothingImage}, Files: map[string]image.File{"/nothing": {}}}
	if err := errors.Join(image.Build(t.Context(), spec, tar), world.LoadImage(t.Context(), tar)); err != nil {
		t.Fatal(err)
	}
	d := newDaemons(t, "cannot-start", 1, m)
	old := d.start(t, canaryOn(m), func(e *edsv1.ExtendedDaemonSet) {
		c := e.Spec.Strategy.Canary
		c.AutoPause.Enabled, c.AutoPause.MaxRestarts, c.AutoFail.MaxRestarts = ptr.To(true), ptr.To[int32](100), ptr.To[int32](1000)
		c.AutoPause.MaxSlowStartDuration = &metav1.Duration{Duration: 4 * time.Second}
	})
	before := d.uids(t)
	for _, tc := range []struct {
		name   string
		breaks func(*corev1.PodSpec, *corev1.Container)
		want   []edsv1.StatusReason
	}{
		{"pull", func(_ *corev1.PodSpec, c *corev1.Container) {
			c.Image, c.ImagePullPolicy = "127.0.0.1:1/nowhere:1", corev1.PullAlways
		},
			[]edsv1.StatusReason{"ErrImagePull", "ImagePullBackOff"}},
		{"never pulled", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "127.0.0.1:1/nowhere:1" },
			[]edsv1.StatusReason{"ErrImageNeverPull"}},
		{"image name", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "moult.dev/No/Such:Name:1" },
			[]edsv1.StatusReason{"InvalidImageName"}},
		{"environment", func(_ *corev1.PodSpec, c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}
		}, []edsv1.StatusReason{"CreateContainerConfigError"}},
		{"volume", func(s *corev1.PodSpec, c *corev1.Container) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}}
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}, []edsv1.StatusReason{edsv1.StatusReasonSlowStartTimeoutExceeded}},
		{"command", func(_ *corev1.PodSpec, c *corev1.Container) { c.Command = []string{"/no/such/program"} },
			[]edsv1.StatusReason{edsv1.StatusReasonStartError}},
		{"container", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image, c.Command = nothingImage, nil },
			[]edsv1.StatusReason{"CreateContainerError"}},
		{"hook", func(_ *corev1.PodSpec, c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
		}, []edsv1.StatusReason{"PostStartHookError"}},
	} {
		d.edit(t, version(tc.name), func(e *edsv1.ExtendedDaemonSet) {
			e.Spec.Template.Spec = *old.Spec.Template.Spec.DeepCopy()
			tc.breaks(&e.Spec.Template.Spec, &e.Spec.Template.Spec.Containers[0])
		})
		e := d.inState(t, edsv1.StateCanaryPaused)
		// Something that starts slowly on a busy machine is told as that, too.
		if e.Status.Reason != edsv1.StatusReasonSlowStartTimeoutExceeded && !slices.Contains(tc.want, e.Status.Reason) {
			t.Errorf("%s: paused for %q, want %q", tc.name, e.Status.Reason, tc.want)
		}
		d.unchanged(t, before, d.nodes[1])
		d.edit(t, version("v1"), func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template = old.Spec.Template })
		d.settled(t)
	}
}

// TestDaemonsCanaryOutlivesAPlan that drains the canary's node, and during which the machine reboots. The canary tolerates no
// restart, and yet does not fail.
func TestDaemonsCanaryOutlivesAPlan(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	d := newDaemons(t, "claims", 1, m)
	d.start(t, canaryOn(m), func(e *edsv1.ExtendedDaemonSet) {
		c := e.Spec.Strategy.Canary
		c.ValidationMode, c.Duration, c.NoRestartsDuration = edsv1.ValidationModeManual, nil, nil
	})
	d.edit(t, version("v2"))
	d.inCanary(t, 1)
	p := newPlan(t, "eds-claims", "while sleep 1; do :; done")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: m.Name()}}
	p.Spec.Drain = &upgradev1.DrainSpec{}
	create(t, p)
	status(t, p.Name, "has drained the node", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node's pod has restarted", func(context.Context) (string, bool) {
		p := d.podOn(t, m.Name())
		return fmt.Sprint(p), p != nil && podReady(p) && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	remove(t, p.Name)
	eventually(t, "the node is released", func(context.Context) (string, bool) {
		n := node(t, m.Name())
		return fmt.Sprint(n.Annotations, n.Spec), n.Annotations[v1alpha1.AnnotationClaims] == "" && !n.Spec.Unschedulable
	})
	d.eds(t, "canary", "validate", agent)
	d.settled(t)
	d.wantStates(t, edsv1.StateRunning, edsv1.StateCanary, edsv1.StateRunning)
}

// writes reads from the audit log what the operator has written since the last call, and how many writes were refused.
func writes(t *testing.T, log *audit.Log, d *daemons) (written []string, refused int) {
	t.Helper()
	if err := log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
		mine := e.Object.Namespace == d.namespace || e.Object.Resource == "nodes" && slices.Contains(d.nodes, e.Object.Name)
		switch {
		case !mine || !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb):
		case e.Refused():
			refused++
		default:
			written = append(written, fmt.Sprintf("%s %s %s", e.Verb, e.Resource(), e.Object.Name))
		}
	}); err != nil {
		t.Fatal(err)
	}
	return written, refused
}

// idle checks that the operator comes to rest, and then writes nothing for a while. It returns how many writes were refused.
func (d *daemons) idle(t *testing.T, log *audit.Log) (refused int) {
	t.Helper()
	last := time.Now()
	eventually(t, "nothing is written any more", func(context.Context) (string, bool) {
		seen, _ := writes(t, log, d)
		if len(seen) > 0 {
			last = time.Now()
		}
		return fmt.Sprint(seen), time.Since(last) > 5*time.Second
	})
	lasts(t, 20*time.Second, "nothing is written", func(context.Context) error {
		seen, n := writes(t, log, d)
		refused += n
		if len(seen) > 0 {
			return fmt.Errorf("%s", seen)
		}
		return nil
	})
	return refused
}

// TestDaemonsIdle writes nothing as long as nothing happens, whatever an ExtendedDaemonSet waits for.
func TestDaemonsIdle(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*edsv1.ExtendedDaemonSet){
		"running": nil, "manual": canary, "paused": canary, "failed": canary, "stuck": behave("unready", "true"),
		"frozen": func(e *edsv1.ExtendedDaemonSet) {
			e.Annotations = map[string]string{edsv1.AnnotationRolloutFrozen: edsv1.True}
		},
		"ondelete": func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Type = edsv1.StrategyOnDelete },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemons(t, "idle-"+name, 3)
			log, err := audit.Open(world.AuditLog())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = log.Close() })
			d.start(t)
			if change != nil {
				d.edit(t, version("v2"), change)
				d.until(t, "sees the change", func(*edsv1.ExtendedDaemonSet) bool { return true })
			}
			switch name {
			case "paused":
				d.inCanary(t, 1)
				d.eds(t, "canary", "pause", agent)
			case "failed":
				active := d.inCanary(t, 1).Status.ActiveReplicaSet
				d.eds(t, "canary", "fail", agent)
				d.canaryFailed(t, active)
			}
			d.idle(t, log)
		})
	}
}

// TestDaemonsBeyondAQuota tries refused pods now and then, and writes nothing meanwhile. The status says why once. When there is
// room the pods are made.
func TestDaemonsBeyondAQuota(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "quota", 6)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: d.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}},
	}
	d.create(t, quota)
	eventually(t, "the quota counts", func(context.Context) (string, bool) {
		d.read(t, quota.Name, quota)
		return fmt.Sprint(quota.Status), len(quota.Status.Used) > 0
	})
	log, err := audit.Open(world.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	d.create(t, d.daemon())
	d.until(t, "it says why there are only 2 pods", func(e *edsv1.ExtendedDaemonSet) bool {
		c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionReconcileError)
		return e.Status.Available == 2 && c != nil && c.Status == metav1.ConditionTrue && c.Reason == "PodRefused" && strings.Contains(c.Message, "exceeded quota")
	})
	if refused := d.idle(t, log); refused > 100 { // Changes of other nodes make it try again, too.
		t.Errorf("%d requests were refused in 20 seconds", refused)
	}
	if err := d.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	d.settled(t)
}

// lasts checks that something holds for a time.
func lasts(t *testing.T, duration time.Duration, what string, holds func(ctx context.Context) error) {
	t.Helper()
	end := time.Now().Add(duration)
	eventually(t, what, func(ctx context.Context) (string, bool) {
		if err := holds(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return "it holds", time.Now().After(end)
	})
}
