// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// Where a quota is used up the status says so, once: pods are tried again now and then, and nothing is written meanwhile. When
// there is room they are made.
func TestDaemonsBeyondAQuota(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "quota", 6)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: d.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}},
	}
	d.create(t, quota)
	eventually(t, "the quota counts", func(ctx context.Context) (string, bool) {
		err := d.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		return fmt.Sprint(quota.Status, err), err == nil && len(quota.Status.Used) > 0
	})
	log, err := audit.Open(world.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	d.create(t, d.daemon("agent"))
	d.until(t, "agent", "has as many pods as there is room for, and says why", func(e *edsv1.ExtendedDaemonSet) bool {
		c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionReconcileError)
		return e.Status.Available == 2 && c != nil && c.Status == metav1.ConditionTrue && c.Reason == "PodRefused" && strings.Contains(c.Message, "exceeded quota")
	})
	began := time.Now()
	tried, last := 0, began
	look := func() (written []string) {
		t.Helper()
		err := log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
			switch {
			case e.Object.Namespace != d.namespace || !slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb):
			case e.Refused():
				tried++
			default:
				written = append(written, e.Verb+" "+e.Resource()+" "+e.Object.Name)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return written
	}
	eventually(t, "it has come to rest", func(context.Context) (string, bool) {
		seen := look()
		if len(seen) > 0 {
			last = time.Now()
		}
		return fmt.Sprint(seen), time.Since(last) > 5*time.Second
	})
	tried = 0
	lasts(t, 20*time.Second, "nothing is written", func(context.Context) error {
		if seen := look(); len(seen) > 0 && !d.faltered(t, began) {
			return fmt.Errorf("%s after %s", seen, time.Since(last).Round(time.Second))
		}
		return nil
	})
	if tried > 100 { // What happens on other nodes has it look, and try, again.
		t.Errorf("%d requests were refused in 20 seconds", tried)
	}
	if err := d.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	d.settled(t, "agent")
	if c := edsv1.FindCondition(d.get(t, "agent").Status.Conditions, edsv1.ConditionReconcileError); c.Status != metav1.ConditionFalse {
		t.Errorf("it still says %s", c.Message)
	}
}

// A spec that the API server lets through, and nobody can carry out, is told of; and carried out when it is put right.
func TestDaemonsThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "invalid", 2)
	affinity := func(name ...string) func(*edsv1.ExtendedDaemonSet) {
		return func(e *edsv1.ExtendedDaemonSet) {
			e.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: name},
				}}},
			}}}
		}
	}
	d.create(t, d.daemon("agent", affinity("a", "b")))
	e := d.until(t, "agent", "is stalled", func(e *edsv1.ExtendedDaemonSet) bool {
		return edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled) && edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionReconcileError)
	})
	for _, kind := range []string{edsv1.ConditionStalled, edsv1.ConditionReconcileError, edsv1.ConditionReady} {
		if c := edsv1.FindCondition(e.Status.Conditions, kind); c == nil || c.Reason != "InvalidSpec" || !strings.Contains(c.Message, "spec.template.spec.affinity") {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	eventually(t, "there is an Event", func(ctx context.Context) (string, bool) {
		list, err := world.clientset.CoreV1().Events(d.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ExtendedDaemonSet,reason=Stalled"})
		return fmt.Sprint(err), err == nil && len(list.Items) == 1 && strings.Contains(list.Items[0].Message, "spec.template.spec.affinity")
	})
	if pods := d.pods(t, "agent"); len(pods) > 0 {
		t.Errorf("there are %d pods", len(pods))
	}
	d.edit(t, "agent", affinity("a"))
	d.settled(t, "agent")

	// One that is spoilt later leaves its pods as they are.
	before := d.uids(t, "agent")
	d.edit(t, "agent", affinity("a", "b"), version("v2"))
	d.until(t, "agent", "is stalled again", func(e *edsv1.ExtendedDaemonSet) bool {
		return edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled)
	})
	lasts(t, 2*time.Second, "its pods stay", func(context.Context) error {
		for node, uid := range before {
			if d.uids(t, "agent")[node] != uid {
				return fmt.Errorf("%w on %s", errReplaced, node)
			}
		}
		return nil
	})
	d.edit(t, "agent", affinity("a"))
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}
