// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// What is told of a replacement is proof, or none.
func TestReplacementProof(t *testing.T) {
	good := []string{"+a", "+b", "a!", "-a", "b!", "-b"}
	for _, test := range []struct {
		name string
		// seen are what happened to nodes: they came, were cordoned, fell silent, or went.
		seen   []string
		fewest int32
		spoil  func(*replacementProof)
		wrong  string
	}{
		{"one after the other", good, 2, nil, ""},
		{"both at once", []string{"+a", "+b", "a!", "b!", "-a", "-b"}, 2, nil, "2 were cordoned at once"},
		{"one was not cordoned", []string{"+a", "+b", "a!", "-a", "-b"}, 2, nil, "b was not cordoned once"},
		{"one was cordoned twice", []string{"+a", "+b", "a!", "+a", "a!", "-a", "b!", "-b"}, 2, nil, "a was not cordoned once"},
		{"one is there still", good[:5], 2, nil, "b was not cordoned once"},
		{"another was cordoned", append([]string{"+c", "c!", "+c"}, good...), 2, nil, "c was cordoned"},
		{"too few pods", good, 1, nil, "the PodDisruptionBudget allows no fewer than 2 of 3 pods"},
		{"too few pods on a busy computer", append([]string{"+a", "a?", "+a"}, good...), 1, nil, ""},
		{"one was not deleted", good, 2, func(p *replacementProof) { p.gone = p.gone[:1] }, "b was deleted 0 times"},
		{"a new one was deleted", good, 2, func(p *replacementProof) { p.gone = append(p.gone, machineOf("c", oldImage)) }, "c was added, and deleted again"},
		{"an old image", good, 2, func(p *replacementProof) { p.now[0].Image = oldImage }, "c is Running, and made of " + oldImage},
		{"one more machine", good, 2, func(p *replacementProof) { p.set.Capacity = 3 }, "the scale set has 2 machines, of 3"},
		{"one is on still", good, 2, func(p *replacementProof) { p.real, p.running = true, []string{"a", "c", "d"} }, "a is on still"},
		{"one is off", good, 2, func(p *replacementProof) { p.real, p.running = true, []string{"c"} }, "d is not on"},
		{"a node without a machine", good, 2, func(p *replacementProof) { p.nodes = append(p.nodes, *nodeOf("x", newImage)) }, "x is of no machine"},
		{"a machine without a node", good, 2, func(p *replacementProof) { p.nodes = p.nodes[:1] }, "d has no node"},
		{"a node of an old image", good, 2, func(p *replacementProof) { p.nodes[0] = *nodeOf("c", oldImage) }, "c tells of " + oldImage},
		{"a node is cordoned", good, 2, func(p *replacementProof) { p.nodes[0].Spec.Unschedulable = true }, "c is unschedulable"},
		{"a node is claimed", good, 2, func(p *replacementProof) {
			p.nodes[0].Annotations = map[string]string{v1alpha1.AnnotationClaims: "[]"}
		}, "c is still claimed"},
		{"two more at once", good, 2, func(p *replacementProof) {
			p.journal = []clouds.Call{{Name: "Add", Detail: workersSet + " c d"}, {Name: "Delete", Detail: workersSet + " a b"}}
		}, "the scale set had 2 to 4 machines, and was to have 2 to 3"},
		{"one fewer", good, 2, func(p *replacementProof) {
			p.journal = []clouds.Call{{Name: "Delete", Detail: workersSet + " a"}, {Name: "Add", Detail: workersSet + " c"}}
		}, "the scale set had 1 to 2 machines, and was to have 2 to 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newSpectator()
			now := time.Unix(1000, 0)
			for _, seen := range test.seen {
				now = now.Add(time.Second)
				n, what := nodeOf(strings.Trim(seen, "+-!?"), oldImage), watch.Modified
				n.Spec.Unschedulable = strings.HasSuffix(seen, "!")
				if strings.HasSuffix(seen, "?") {
					n.Status.Conditions = nil
				}
				if strings.HasPrefix(seen, "-") {
					what, n.Spec.Unschedulable = watch.Deleted, true
				}
				w.seeNode(what, n, now)
			}
			for _, n := range []int32{3, test.fewest, 3} {
				w.seeWorkload(&appsv1.Deployment{Status: appsv1.DeploymentStatus{AvailableReplicas: n}})
			}
			p := goodProof()
			if test.spoil != nil {
				test.spoil(p)
			}
			err := p.tell(io.Discard, w)
			if got := fmt.Sprint(err); (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(got, test.wrong) {
				t.Errorf("got %v, want %q", err, test.wrong)
			}
		})
	}
}

// goodProof is that of two machines that were replaced.
func goodProof() *replacementProof {
	p := &replacementProof{
		capacity: 2, set: clouds.Set{Name: workersSet, Capacity: 2},
		original: []clouds.Machine{machineOf("a", oldImage), machineOf("b", oldImage)},
		now:      []clouds.Machine{machineOf("c", newImage), machineOf("d", newImage)},
		nodes:    []corev1.Node{*nodeOf("c", newImage), *nodeOf("d", newImage)},
	}
	p.gone = append(p.gone, p.original...)
	for i := range 2 {
		p.journal = append(p.journal,
			clouds.Call{Name: "Update", Detail: "PATCH /", Outcome: strconv.Itoa(200)},
			clouds.Call{Name: "Add", Detail: workersSet + " " + p.now[i].NodeName},
			clouds.Call{Name: "Add", Detail: "another x y z"},
			clouds.Call{Name: "Delete", Detail: workersSet + " " + p.gone[i].NodeName, Outcome: "OperationFails"},
			clouds.Call{Name: "Delete", Detail: workersSet + " " + p.gone[i].NodeName})
	}
	return p
}

func machineOf(name, image string) clouds.Machine {
	return clouds.Machine{NodeName: name, Image: image, State: clouds.Running}
}

func nodeOf(name, image string) *corev1.Node {
	n := nodeAs(name + " boot")
	n.Status.NodeInfo.OSImage = image
	return n
}
