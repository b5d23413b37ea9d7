// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	on := func(name, turn string) ID { return ID{Rollout: key, Node: name, Turn: turn} }
	k.stateOf(on("a", "1"))
	k.stateOf(on("b", "1")).last.Message = "1 pod left"
	f.are(t, "a", "b")

	if _, ok := k.Changed("c"); ok {
		t.Error("a rollout is woken for a node without a turn")
	}
	if got, ok := k.Changed("a"); !ok || got != key || !k.stateOf(on("a", "1")).stale.Load() || k.stateOf(on("b", "1")).stale.Load() {
		t.Errorf("%v is woken", got)
	}
	if k.stateOf(on("b", "1")).last.Message == "" || k.stateOf(on("b", "2")).last.Message != "" {
		t.Error("one turn remembers what another one saw")
	}
	k.StopExcept(types.NamespacedName{Name: "other"}, nil)
	f.are(t, "a", "b")
	k.StopExcept(key, map[string]bool{"a": true})
	f.are(t, "a")
	k.StopExcept(key, nil)
	f.are(t)
}
