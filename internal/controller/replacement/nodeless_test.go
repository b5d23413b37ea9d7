// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	machine "moult.dev/moult/internal/kind/replacement"
)

// Since when a machine has failed is kept in mind, and forgotten once it has not any more. Which others are for its set is looked up then.
func TestWrecks(t *testing.T) {
	p := passOf(t, v1alpha1.NodeRolloutStatus{})
	p.replacement.Provider = v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{SubscriptionID: "S", ResourceGroup: "g"}}
	replaces := func(name string, azure v1alpha1.AzureProvider, change func(*v1alpha1.Replacement), sets ...v1alpha1.ScaleSetStatus) {
		t.Helper()
		r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{
			Provider: v1alpha1.CloudProvider{Azure: &azure},
		}}}
		change(r.Spec.Replacement)
		r.Status.ScaleSets = sets
		if err := p.client.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	here := v1alpha1.AzureProvider{SubscriptionID: "s", ResourceGroup: "G", ClientID: "other rights"}
	names := func(names ...string) func(*v1alpha1.Replacement) {
		return func(r *v1alpha1.Replacement) { r.ScaleSets = names }
	}
	replaces("by-name", here, names("Named"))
	replaces("by-status", here, names(), v1alpha1.ScaleSetStatus{Name: "seen", Machines: 1}, v1alpha1.ScaleSetStatus{Name: "left", PreviousImage: "one"})
	replaces("elsewhere", v1alpha1.AzureProvider{SubscriptionID: "s", ResourceGroup: "other"}, names("elsewhere"))
	replaces("detects", here, func(r *v1alpha1.Replacement) { r.ScaleSets, r.DetectOnly = []string{"detected"}, true })

	set := &machine.Set{Name: "set", Known: true, Machines: []machine.Machine{{ID: "1", State: machine.Failed}, {ID: "2", State: machine.Running}}}
	p.view.Sets["set"] = set
	if err := p.wrecks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"named": "by-name", "seen": "by-status"}, p.view.Others); diff != "" {
		t.Errorf("others (-want +got)\n%s", diff)
	}
	if n, why := p.nodeless(set); n != 2 || why != ": the rollout does not select all nodes of scale set set, or there are none that it may touch" {
		t.Errorf("%d machines are left alone%s", n, why)
	}
	p.now = noon.Add(time.Minute)
	set.Machines[1].State = machine.Failed
	if err := p.wrecks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"set/1": noon, "set/2": p.now}, p.view.Wrecks); diff != "" {
		t.Errorf("since when (-want +got)\n%s", diff)
	}
	set.Machines = slices.Delete(set.Machines, 0, 1)
	set.Machines[0].UpToDate, p.view.Others = true, nil
	if err := p.wrecks(t.Context()); err != nil || len(p.view.Wrecks) > 0 || p.view.Others != nil {
		t.Errorf("there are no such machines any more: %v, %v, %v", err, p.view.Wrecks, p.view.Others)
	}
}
