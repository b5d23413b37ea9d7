// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/test/follow"
)

// The witness of a demo accepts what the demo is to show, and nothing else.
func TestWitness(t *testing.T) {
	for _, test := range []struct {
		// seen are the nodes a and b, cordoned (!), back (+) or deleted (-).
		seen   string
		gone   bool
		fewest int
		wrong  string
	}{
		{"a! a+ b! b+", false, 2, ""},
		{"a! -a b! -b", true, 2, ""},
		{"a! a+ b! b+", false, 1, "1 of 3 pods available"},
		{"a! b! a+ b+", false, 2, "2 nodes were cordoned at once"},
		{"a! a+ b!", false, 2, "b is still cordoned"},
		{"a! a+", false, 2, "b was cordoned 0 times"},
		{"a! a+ b! b+ a! a+", false, 2, "a was cordoned 2 times"},
		{"a! a+ b! b+ c! c+", false, 2, "c was cordoned"},
		{"a! -a b! b+", true, 2, "b was deleted: false"},
	} {
		w := newWitness(3)
		for i, seen := range strings.Fields(test.seen) {
			n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: !strings.HasSuffix(seen, "+")}}
			n.Name = strings.Trim(seen, "!+-")
			change := follow.Change{Type: watch.Modified, Object: n}
			if strings.HasPrefix(seen, "-") {
				change.Type = watch.Deleted
			}
			w.see(change, time.Unix(int64(i)+1, 0))
		}
		w.fewest = test.fewest
		err := w.judge(1, test.gone, "a", "b")
		if got := fmt.Sprint(err); (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(got, test.wrong) {
			t.Errorf("%s with %d pods: got %v, want %q", test.seen, test.fewest, err, test.wrong)
		}
	}
}
