// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
)

var (
	cart  = v1alpha1.Workload{Kind: "ReplicaSet", Namespace: "shop", Name: "cart-5d4f"}
	db    = v1alpha1.Workload{Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	stock = v1alpha1.Workload{Kind: "ReplicationController", Namespace: "depot", Name: "stock"}
)

// recording makes a node with this record; empty: without.
func recording(record string) *corev1.Node {
	n := cordonable(false, "")
	if record != "" {
		n.Annotations[v1alpha1.AnnotationEvicted] = record
	}
	return n
}

func TestWorkloadOf(t *testing.T) {
	for owner, want := range map[string]v1alpha1.Workload{
		"apps/v1 ReplicaSet": {Kind: "ReplicaSet", Namespace: "shop", Name: "x"}, "apps/v1 StatefulSet": {Kind: "StatefulSet", Namespace: "shop", Name: "x"},
		"v1 ReplicationController": {Kind: "ReplicationController", Namespace: "shop", Name: "x"},
		"apps/v1 DaemonSet":        {}, "batch/v1 Job": {}, "v1 Node": {},
		// Another's StatefulSet is not the one that a StatefulSet's name would find.
		"apps.kruise.io/v1beta1 StatefulSet": {},
	} {
		apiVersion, kind, _ := strings.Cut(owner, " ")
		got, ok := WorkloadOf("shop", &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "x"})
		if got != want || ok != (want != v1alpha1.Workload{}) {
			t.Errorf("%s: got %v, %v", owner, got, ok)
		}
	}
	if _, ok := WorkloadOf("shop", nil); ok {
		t.Error("a pod without a controller has one")
	}
}

func TestRecordEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		workloads    []v1alpha1.Workload
		before, want string
	}{
		"the first":              {[]v1alpha1.Workload{db, cart}, "", `["ReplicaSet/shop/cart-5d4f","StatefulSet/shop/db"]`},
		"more":                   {[]v1alpha1.Workload{stock}, `["StatefulSet/shop/db"]`, `["ReplicationController/depot/stock","StatefulSet/shop/db"]`},
		"what is there":          {[]v1alpha1.Workload{db, db}, `["StatefulSet/shop/db"]`, `["StatefulSet/shop/db"]`},
		"nothing":                {nil, `["StatefulSet/shop/db"]`, `["StatefulSet/shop/db"]`},
		"nothing, on none":       {nil, "", ""},
		"one that can't be read": {[]v1alpha1.Workload{db}, "{", `["StatefulSet/shop/db"]`},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(recording(tc.before)).Build()
			before := read(t, c)
			if err := RecordEvicted(t.Context(), c, read(t, c), tc.workloads...); err != nil {
				t.Fatal(err)
			}
			expectNode(t, recording(tc.want), c)
			if wrote := read(t, c).ResourceVersion != before.ResourceVersion; wrote != (tc.before != tc.want) {
				t.Errorf("wrote: %v", wrote)
			}
		})
	}
}

func TestRecordIsBounded(t *testing.T) {
	var many []v1alpha1.Workload
	for i := range v1alpha1.MaxEvicted + 100 {
		many = append(many, v1alpha1.Workload{Kind: "ReplicaSet", Namespace: "shop", Name: fmt.Sprintf("rs-%04d", i)})
	}
	c := fake.NewClientBuilder().WithObjects(recording("")).Build()
	if err := RecordEvicted(t.Context(), c, read(t, c), many...); err != nil {
		t.Fatal(err)
	}
	got, err := v1alpha1.ParseEvicted(read(t, c).Annotations)
	if diff := cmp.Diff(many[:v1alpha1.MaxEvicted], got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestForgetEvicted(t *testing.T) {
	for _, record := range []string{`["ReplicaSet/shop/cart-5d4f","StatefulSet/shop/db"]`, ""} {
		c := fake.NewClientBuilder().WithObjects(recording(record)).Build()
		before := read(t, c)
		if err := ForgetEvicted(t.Context(), c, before); err != nil {
			t.Fatal(err)
		}
		expectNode(t, recording(""), c)
		if wrote := read(t, c).ResourceVersion != before.ResourceVersion; wrote != (record != "") {
			t.Errorf("%s: wrote: %v", record, wrote)
		}
	}
}

// A drain that records more between the read and the write is not forgotten.
func TestForgetEvictedLoses(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(recording(`["StatefulSet/shop/db"]`)).Build()
	stale := read(t, c)
	if err := RecordEvicted(t.Context(), c, stale, cart); err != nil {
		t.Fatal(err)
	}
	if err := ForgetEvicted(t.Context(), c, stale); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	expectNode(t, recording(`["ReplicaSet/shop/cart-5d4f","StatefulSet/shop/db"]`), c)
}
