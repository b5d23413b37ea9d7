// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the witness has seen is proof, or none.
func TestWitness(t *testing.T) {
	good := []string{"a 1", "b 1", "a 1 cordoned", "a 2 cordoned", "a 2", "b 1 cordoned", "b 1 cordoned away", "b 2 cordoned", "b 2"}
	for _, test := range []struct {
		name string
		// seen are "node boot", and what else is so.
		seen   []string
		fewest int32
		wrong  string
	}{
		{"one after the other", good, 2, ""},
		{"both at once", []string{"a 1", "b 1", "a 1 cordoned", "b 1 cordoned", "a 2", "b 2"}, 2, "b was cordoned before a was back"},
		{"one is left cordoned", []string{"a 1", "b 1", "a 1 cordoned", "a 2", "b 1 cordoned", "b 2 cordoned"}, 2, "b is still cordoned"},
		{"one was not rebooted", []string{"a 1", "b 1", "a 1 cordoned", "a 2", "b 1 cordoned", "b 1"}, 2, "b has rebooted 0 times"},
		{"one was rebooted twice", []string{"a 1", "b 1", "a 1 cordoned", "a 2", "a 3", "b 1 cordoned", "b 2"}, 2, "a has rebooted 2 times"},
		{"one was not touched", good[:5], 2, "1 machines were cordoned, of 2"},
		{"one had two turns", append(slices.Clip(good), "a 2 cordoned", "a 2"), 2, "a was cordoned more than once"},
		{"too few pods", good, 1, "the PodDisruptionBudget allows no fewer than 2 of 3 pods"},
		{"too few pods on a busy computer", append([]string{"a 1", "b 1 away"}, good[1:]...), 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &witness{boots: map[string][]string{}, faint: map[string]bool{}, fewest: -1}
			now := time.Unix(1000, 0)
			for _, seen := range test.seen {
				now = now.Add(time.Second)
				w.seeNode(nodeAs(seen), now)
			}
			for _, n := range []int32{3, test.fewest, 3} {
				w.seeWorkload(&appsv1.Deployment{Status: appsv1.DeploymentStatus{AvailableReplicas: n}})
			}
			err := w.tell(io.Discard, 2)
			if got := fmt.Sprint(err); (err == nil) != (test.wrong == "") || !strings.Contains(got, test.wrong) && err != nil {
				t.Errorf("got %v, want %q", err, test.wrong)
			}
		})
	}
}

func nodeAs(seen string) *corev1.Node {
	fields := strings.Fields(seen)
	ready := corev1.ConditionTrue
	if strings.Contains(seen, "away") {
		ready = corev1.ConditionUnknown
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fields[0]},
		Spec:       corev1.NodeSpec{Unschedulable: strings.Contains(seen, "cordoned")},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: fields[1]}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}
