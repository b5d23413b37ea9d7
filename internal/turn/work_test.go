// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

var now = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// followed notes whose pods are followed.
type followed struct{ nodes map[string]bool }

func (f followed) Watch(node string)                { f.nodes[node] = true }
func (f followed) Stop(node string)                 { delete(f.nodes, node) }
func (f followed) Pods(string) ([]corev1.Pod, bool) { return nil, true }
func (f followed) are(t *testing.T, nodes ...string) {
	t.Helper()
	var all []string
	for name := range f.nodes {
		all = append(all, name)
	}
	slices.Sort(all)
	if !slices.Equal(all, nodes) {
		t.Errorf("pods of %v are followed, not of %v", all, nodes)
	}
}

func TestWorks(t *testing.T) {
	f := followed{map[string]bool{}}
	k := NewWorks(f)
	key := types.NamespacedName{Name: "os"}
	on := func(name, turn string) Of { return Of{Rollout: key, Node: name, Turn: turn} }
	k.Follow(on("a", "1"))
	k.Follow(on("b", "1"))
	k.Of(on("c", "1")).Left = "1 pod left"
	f.are(t, "a", "b")

	if _, ok := k.Changed("nobody"); ok {
		t.Error("somebody is woken for a node without a turn")
	}
	if got, ok := k.Changed("a"); !ok || got != key || !k.Of(on("a", "1")).stale.Load() || k.Of(on("b", "1")).stale.Load() {
		t.Errorf("%v is woken", got)
	}
	if k.Of(on("c", "1")).Left == "" || k.Of(on("c", "2")).Left != "" {
		t.Error("one turn remembers what another one saw")
	}
	k.Of(on("a", "2")) // Its pods are still followed.
	k.Keep(types.NamespacedName{Name: "other"}, nil)
	f.are(t, "a", "b")
	k.Keep(key, map[string]bool{"a": true})
	f.are(t, "a")
	k.Rest("a")
	f.are(t)
	k.Follow(on("a", "2"))
	k.Keep(key, nil)
	f.are(t)
}

// A write of the record that fails is made up for by the next.
func TestFreshUntilRecorded(t *testing.T) {
	k := &Work{recorded: map[node.Workload]bool{}}
	pod := func(name string) drain.Outcome {
		owner := &metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}
		return drain.Outcome{Pod: types.NamespacedName{Namespace: "default", Name: name}, Owner: owner, State: drain.Evicted}
	}
	r := &drain.Result{Pods: []drain.Outcome{pod("db-0"), pod("db-1")}}
	for range 2 {
		if got := k.fresh(r); len(got) != 1 {
			t.Errorf("fresh are %v", got)
		}
	}
	k.record(k.fresh(r))
	if got := k.fresh(r); len(got) != 0 {
		t.Errorf("fresh are %v after they were recorded", got)
	}
}
