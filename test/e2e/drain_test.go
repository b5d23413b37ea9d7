// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
)

// deploy runs a Deployment on the test's machines, with a PodDisruptionBudget over it.
func deploy(t *testing.T, name string, replicas int32, minAvailable int) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					NodeSelector:                  map[string]string{target: labelOf(t)},
					Containers: []corev1.Container{{
						Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
					}},
				},
			},
		},
	}
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	for _, o := range []client.Object{d, pdb} {
		if err := world.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = world.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
	available(t, d, replicas)
	return d
}

func available(t *testing.T, d *appsv1.Deployment, want int32) {
	t.Helper()
	eventually(t, d.Name+" is available", func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(d), d)
		var pdb policyv1.PodDisruptionBudget
		if err == nil {
			err = world.Get(ctx, client.ObjectKeyFromObject(d), &pdb)
		}
		return fmt.Sprint(d.Status, err), err == nil && d.Status.AvailableReplicas == want && pdb.Status.CurrentHealthy == want
	})
}

func podsOn(t *testing.T, app, node string) (running []string) {
	t.Helper()
	var all corev1.PodList
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": app})
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Items {
		if p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning {
			running = append(running, p.Name)
		}
	}
	return running
}

// A drain waits for a PodDisruptionBudget, evicts when it allows, and runs between prepare and upgrade.
func TestPlanDrainsBetweenPrepareAndUpgrade(t *testing.T) {
	t.Parallel()
	two := takeMachines(t, 2)
	d := deploy(t, "held", 1, 1)
	holder, other := two[0], two[1]
	if len(podsOn(t, d.Name, holder.Name())) == 0 {
		holder, other = other, holder
	}
	// What each step sees of the deployment's process in this machine's own table of processes, where those of other tests may be too.
	look := `n=0; for p in /proc/[0-9]*; do
		[ "$(tr '\0' ' ' < $p/cmdline)" = "sleep 3600 " ] && tr '\0' '\n' < $p/environ | grep -q '^HOSTNAME=held-' && n=$((n+1))
	done; echo "$0 $n" >> /host/var/order`
	p := newPlan(t, "drains", "")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: holder.Name()}}
	p.Spec.Prepare = &upgradev1.ContainerSpec{Image: image.Busybox, Command: []string{"sh", "-c"}, Args: []string{look, "prepare"}}
	p.Spec.Upgrade.Args = []string{look, "upgrade"}
	p.Spec.Drain = &upgradev1.DrainSpec{}
	create(t, p)
	status(t, p.Name, "draining", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseDraining
	})
	var said string
	eventually(t, "the drain says what holds it", func(ctx context.Context) (string, bool) {
		said, _ = kubectl(ctx, "logs", "-n", namespace, "-l", upgradev1.LabelPlan+"="+p.Name, "-c", "drain")
		return said, strings.Contains(said, "disruption budget")
	})
	if n := node(t, holder.Name()); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != "Plan/system-upgrade/drains" {
		t.Errorf("while draining: unschedulable %v, marks %v", n.Spec.Unschedulable, n.Annotations)
	}
	if got := podsOn(t, d.Name, holder.Name()); len(got) != 1 {
		t.Errorf("the budget allows no eviction, but %d pods run", len(got))
	}

	// A second pod elsewhere lets the first one go.
	before := d.DeepCopy()
	d.Spec.Replicas = ptr.To[int32](2)
	if err := world.Patch(t.Context(), d, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	complete(t, p.Name)
	released(t, holder.Name(), false)
	if diff := cmp.Diff([]string{"prepare 1", "upgrade 0"}, lines(t, holder, "/var/order")); diff != "" {
		t.Errorf("what ran (-want +got)\n%s", diff)
	}
	if got := podsOn(t, d.Name, other.Name()); len(got) == 0 {
		t.Errorf("no pod of the deployment runs on %s", other.Name())
	}
}

// A drain that never ends is a failure with its reason, and the change is not run.
func TestPlanDrainTimesOut(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	deploy(t, "stuck", 1, 1)
	p := newPlan(t, "stuck", "echo ran >> /host/var/stuck")
	p.Spec.Drain = &upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("3s"))}
	create(t, p)
	condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonJobFailed)
	if got := lines(t, m, "/var/stuck"); got != nil {
		t.Errorf("the change ran without a drain: %v", got)
	}
	if got := podsOn(t, "stuck", m.Name()); len(got) != 1 {
		t.Errorf("%d pods run, want the one that the budget protects", len(got))
	}
	// Past the budget, as the Plan now says.
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Drain = &upgradev1.DrainSpec{DisableEviction: true} })
	complete(t, p.Name)
	released(t, m.Name(), false)
}
