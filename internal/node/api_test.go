// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// TestAPI writes conditions through a real API server, which merges and tests patches in its own way.
func TestAPI(t *testing.T) {
	config := cluster.Shared(t, 0).Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, client.Client){
		"kubelet": conditionsBesideAKubelet,
		"stale":   conditionsOfANodeThatWasReadBefore,
		"another": conditionsThatAnotherTookMeanwhile,
		"release": conditionsAreClearedBesideARelease,
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			if err := c.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := c.Delete(context.WithoutCancel(t.Context()), n); err != nil {
					t.Error(err)
				}
			})
			heartbeat(t.Context(), t, c, 0)
			test(t, c)
		})
	}
}

// heartbeat patches a Node's status as the kubelet does: its own condition, without a precondition.
func heartbeat(ctx context.Context, t *testing.T, c client.Client, count int) {
	body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"%d","lastHeartbeatTime":%q}]}}`,
		count, time.Now().UTC().Format(time.RFC3339))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if err := c.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(body))); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// found are the node's conditions by type; each must be there once.
func found(t *testing.T, c client.Reader) map[corev1.NodeConditionType]corev1.NodeCondition {
	t.Helper()
	byType := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, condition := range read(t, c).Status.Conditions {
		if _, twice := byType[condition.Type]; twice {
			t.Errorf("%s is there twice", condition.Type)
		}
		byType[condition.Type] = condition
	}
	return byType
}

// marks are the annotations of Moult on the node; others have some there too.
func marks(n *corev1.Node) map[string]string {
	own := maps.Clone(n.Annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupName+"/") })
	return own
}

// decide writes to the node as it is, and decides again when another client has written to it: the cluster's controllers do.
func decide(t *testing.T, c client.Client, write func(*corev1.Node) error) *corev1.Node {
	t.Helper()
	for range 20 {
		n := read(t, c)
		if err := write(n); err == nil {
			return n
		} else if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	t.Fatal("others never stop writing")
	return nil
}

func expectCondition(t *testing.T, c client.Reader, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
	t.Helper()
	if got := found(t, c)[kind]; got.Status != status || got.Reason != reason || got.Message != message {
		t.Errorf("%s is %+v", kind, got)
	}
}

// Both write what is theirs at the same time, and nothing is lost.
func conditionsBesideAKubelet(t *testing.T, c client.Client) {
	ctx, stop := context.WithCancel(t.Context())
	var kubelet sync.WaitGroup
	beats := 0
	kubelet.Go(func() {
		for ticker := time.NewTicker(50 * time.Millisecond); ; beats++ {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				heartbeat(ctx, t, c, beats)
			}
		}
	})
	stale := read(t, c)
	at := time.Now()
	for i := range 40 {
		conditions := []Condition{{maintenance, true, "maintained"}, {draining, true, fmt.Sprintf("%d pods left", 40-i)}}
		if err := SetConditions(t.Context(), c, stale, plan, at.Add(time.Duration(i)*time.Minute), conditions...); err != nil {
			t.Fatal(err)
		}
		expectCondition(t, c, draining, yes, v1alpha1.ReasonMaintenance, fmt.Sprintf("%s: %d pods left", plan, 40-i))
	}
	is := found(t, c)
	if since := is[draining].LastTransitionTime; since.Unix() != at.Unix() {
		t.Errorf("drains since %v, not %v", since, at)
	}
	if alive := is[draining].LastHeartbeatTime; alive.Unix() != at.Add(39*time.Minute).Unix() {
		t.Errorf("was written at %v", alive)
	}
	ended := []Condition{{draining, false, "over"}, {drained, true, "drained"}}
	if err := SetConditions(t.Context(), c, read(t, c), plan, at.Add(time.Hour), ended...); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, c, maintenance, yes, v1alpha1.ReasonMaintenance, plan+": maintained")
	expectCondition(t, c, draining, no, v1alpha1.ReasonMaintenance, plan+": over")
	expectCondition(t, c, drained, yes, v1alpha1.ReasonMaintenance, plan+": drained")
	if _, err := ClearConditions(t.Context(), c, stale, plan, at); err != nil {
		t.Fatal(err) // There were none when it was read.
	}
	expectCondition(t, c, drained, yes, v1alpha1.ReasonMaintenance, plan+": drained")
	if _, err := ClearConditions(t.Context(), c, read(t, c), plan, at.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	stop()
	kubelet.Wait()
	expectCondition(t, c, maintenance, no, v1alpha1.ReasonMaintenance, plan+": over")
	expectCondition(t, c, drained, no, v1alpha1.ReasonMaintenance, plan+": over")
	is = found(t, c)
	if since := is[drained].LastTransitionTime; since.Unix() != at.Add(2*time.Hour).Unix() {
		t.Errorf("not drained since %v", since)
	}
	if beats == 0 || is[corev1.NodeReady].Reason != "KubeletReady" || is[corev1.NodeReady].Message == "0" {
		t.Errorf("after %d heartbeats the node is %+v", beats, is[corev1.NodeReady])
	}
}

// Where conditions stand in the list may change after it was read.
func conditionsOfANodeThatWasReadBefore(t *testing.T, c client.Client) {
	if err := SetConditions(t.Context(), c, read(t, c), plan, now.Time, Condition{draining, true, "x"}); err != nil {
		t.Fatal(err)
	}
	stale := read(t, c)
	body := `[{"op":"add","path":"/status/conditions/0","value":{"type":"Sunny","status":"True","reason":"Sky","message":"blue"}}]`
	if err := c.Status().Patch(t.Context(), read(t, c), client.RawPatch(types.JSONPatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
	if _, err := ClearConditions(t.Context(), c, stale, plan, now.Time); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, c, draining, no, v1alpha1.ReasonMaintenance, plan+": over")
	expectCondition(t, c, "Sunny", yes, "Sky", "blue")
}

// Somebody else who sets a condition between our read and our write keeps it.
func conditionsThatAnotherTookMeanwhile(t *testing.T, c client.Client) {
	takes := func() {
		t.Helper()
		body := `{"status":{"conditions":[{"type":"DrainInProgress","status":"True","reason":"Rack42","message":"new disks"}]}}`
		if err := c.Status().Patch(t.Context(), read(t, c), client.RawPatch(types.StrategicMergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	stale := read(t, c)
	takes()
	if err := SetConditions(t.Context(), c, stale, plan, now.Time, Condition{draining, true, "x"}, Condition{drained, true, "y"}); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, c, draining, yes, "Rack42", "new disks")
	expectCondition(t, c, drained, yes, v1alpha1.ReasonMaintenance, plan+": y")

	gone := `{"status":{"conditions":[{"type":"DrainInProgress","$patch":"delete"}]}}`
	if err := c.Status().Patch(t.Context(), read(t, c), client.RawPatch(types.StrategicMergePatchType, []byte(gone))); err != nil {
		t.Fatal(err)
	}
	if err := SetConditions(t.Context(), c, read(t, c), plan, now.Time, Condition{draining, true, "x"}); err != nil {
		t.Fatal(err)
	}
	stale = read(t, c)
	takes()
	if _, err := ClearConditions(t.Context(), c, stale, plan, now.Time); err != nil {
		t.Fatal(err)
	}
	expectCondition(t, c, draining, yes, "Rack42", "new disks")
	expectCondition(t, c, drained, no, v1alpha1.ReasonMaintenance, plan+": over")
}

// A controller releases a node and clears its conditions by the one node that it has read, in either order for the latter.
func conditionsAreClearedBesideARelease(t *testing.T, c client.Client) {
	decide(t, c, func(n *corev1.Node) error {
		return Write(t.Context(), c, n, Edit{Claim: own(), Cordon: true, Also: []Also{Excluding, Evicting(db)}})
	})
	if err := SetConditions(t.Context(), c, read(t, c), plan, now.Time, Condition{maintenance, true, "x"}, Condition{drained, true, "y"}); err != nil {
		t.Fatal(err)
	}
	decide(t, c, func(n *corev1.Node) error { return hold(t.Context(), c, n, own()) })
	n := decide(t, c, func(n *corev1.Node) error { return releasesBare(t.Context(), c, n, own()) })
	for range 2 {
		if _, err := ClearConditions(t.Context(), c, n, plan, now.Time); err != nil {
			t.Fatal(err)
		}
	}
	expectCondition(t, c, maintenance, no, v1alpha1.ReasonMaintenance, plan+": over")
	expectCondition(t, c, drained, no, v1alpha1.ReasonMaintenance, plan+": over")
	after := read(t, c)
	if _, ok := after.Labels[corev1.LabelNodeExcludeBalancers]; ok || after.Spec.Unschedulable {
		t.Errorf("got labels %v, unschedulable %v", after.Labels, after.Spec.Unschedulable)
	}
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationEvicted: `["StatefulSet/shop/db"]`}, marks(after)); diff != "" {
		t.Error(diff)
	}
	if err := ForgetEvicted(t.Context(), c, n); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	decide(t, c, func(n *corev1.Node) error { return ForgetEvicted(t.Context(), c, n) })
	if left := marks(read(t, c)); len(left) != 0 {
		t.Errorf("got %v", left)
	}
}
