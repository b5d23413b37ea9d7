// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func TestAliases(t *testing.T) {
	for name, tc := range map[string]struct {
		spec []string
		ids  map[string]string
		// turns and operations are under way in these sets.
		turns      []string
		operations map[string]v1alpha1.CloudOperationKind
		// alias has which set another one is, and empty those that have no machines for it.
		alias map[string]string
		empty []string
		// of is the set that the machine is found in.
		of string
	}{
		"others":              {spec: []string{"pool", "Pool"}, ids: map[string]string{"pool": "1", "Pool": "2"}},
		"not known":           {spec: []string{"pool", "Pool"}, ids: map[string]string{"pool": "", "Pool": ""}},
		"the first is used":   {spec: []string{"pool", "Pool"}, alias: map[string]string{"Pool": "pool"}, empty: []string{"Pool"}, of: "pool"},
		"the second is first": {spec: []string{"Pool", "pool"}, alias: map[string]string{"pool": "Pool"}, empty: []string{"pool"}, of: "Pool"},
		"one has a turn":      {spec: []string{"pool", "Pool"}, turns: []string{"Pool"}, alias: map[string]string{"pool": "Pool"}, empty: []string{"pool"}, of: "Pool"},
		"one has an addition": {
			spec: []string{"pool", "Pool"}, operations: map[string]v1alpha1.CloudOperationKind{"Pool": v1alpha1.CloudOperationAdd},
			alias: map[string]string{"pool": "Pool"}, empty: []string{"pool"}, of: "Pool",
		},
		"one gets an image": {
			spec: []string{"pool", "Pool"}, operations: map[string]v1alpha1.CloudOperationKind{"Pool": v1alpha1.CloudOperationSetImage},
			alias: map[string]string{"Pool": "pool"}, empty: []string{"Pool"}, of: "pool",
		},
		"one is not in the spec any more": {spec: []string{"pool"}, turns: []string{"Pool"}, alias: map[string]string{"pool": "Pool"}, empty: []string{"pool"}, of: "Pool"},
		"both have turns":                 {spec: []string{"pool", "Pool"}, turns: []string{"pool", "Pool"}, alias: map[string]string{"pool": "Pool"}, of: "Pool"},
	} {
		n := &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Spec: corev1.NodeSpec{ProviderID: "sky://a"}}, Selected: true}
		w := &World{Rules: Rules{ScaleSets: tc.spec, Surge: rollout.Amount{N: 1}}, Sets: map[string]*Set{}, Nodes: map[string]*Node{"n": n}}
		for _, of := range []string{"pool", "Pool"} {
			s := &Set{Name: of, ID: "the same", Known: true, Machines: []Machine{{ID: "a", ProviderID: "Sky://A", State: Running, UpToDate: true}}}
			if id, ok := tc.ids[of]; ok {
				s.ID = id
			}
			if kind := tc.operations[of]; kind != "" {
				s.Operations = []v1alpha1.CloudOperation{{Token: "t", Kind: kind}}
			}
			w.Sets[of] = s
		}
		var turns []*Turn
		for _, of := range tc.turns {
			turns = append(turns, &Turn{MachineTurn: v1alpha1.MachineTurn{ScaleSet: of}})
		}
		w.Aliases(turns)
		for of, s := range w.Sets {
			machines := 1
			for _, empty := range tc.empty {
				if empty == of {
					machines = 0
				}
			}
			if s.Alias != tc.alias[of] || len(s.Machines) != machines {
				t.Errorf("%s: %s is %q, and has %d machines", name, of, s.Alias, len(s.Machines))
			}
			reason := Note(v1alpha1.ScaleSetStatus{}, s, 0).Reason
			if want := map[bool]v1alpha1.Reason{true: v1alpha1.ReasonScaleSetUnfit}[s.Alias != ""]; reason != want {
				t.Errorf("%s: the reason of %s is %q", name, of, reason)
			}
		}
		if p := w.Look(n, nil); tc.of != "" && (p.Set.Name != tc.of || !p.Counted) {
			t.Errorf("%s: the node is of %+v", name, p.Set)
		}
	}
}
