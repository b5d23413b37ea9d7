// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	turnof "moult.dev/moult/internal/turn"
)

// Two NodeRollouts that select one node do not both add a machine for it; if both have at the same moment, whoever was made later takes its own back.
func TestTwoRolloutsOfOneNode(t *testing.T) {
	theirs := func(p *pass, name string, made time.Time, provider v1alpha1.CloudProvider) {
		t.Helper()
		r := &v1alpha1.NodeRollout{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: made}},
			Spec:       v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{Provider: provider}},
			Status: v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{{
				Turn: "theirs", ScaleSet: "set", Machine: "m-old", Phase: v1alpha1.MachineJoining, Replacement: "m-theirs",
			}}},
		}
		if err := p.client.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	aws, azure := v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}, v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{}}
	for name, tc := range map[string]struct {
		begun  bool
		name   string
		made   time.Time
		in     v1alpha1.CloudProvider
		goesOn bool
		starts bool
	}{
		"theirs alone":             {name: "z", made: noon, in: aws},
		"of another cloud":         {name: "z", made: noon, in: azure, starts: true},
		"both, and theirs is old":  {begun: true, name: "z", made: noon.Add(-time.Hour), in: aws},
		"both, and theirs is new":  {begun: true, name: "a", made: noon.Add(time.Hour), in: aws, goesOn: true},
		"both, made together":      {begun: true, name: "a", made: noon, in: aws},
		"both, ours by its name":   {begun: true, name: "z", made: noon, in: aws, goesOn: true},
		"both, in different ones":  {begun: true, name: "a", made: noon, in: azure, goesOn: true},
		"both, of different times": {begun: true, name: "z", made: noon.Add(-time.Second), in: aws},
	} {
		status := v1alpha1.NodeRolloutStatus{}
		if tc.begun {
			status.Turns = []v1alpha1.MachineTurn{turnIn(v1alpha1.MachineJoining)}
		}
		p := passOf(t, status, nodeNamed("old"), nodeNamed("new"))
		p.rollout.CreationTimestamp = metav1.Time{Time: noon}
		theirs(p, tc.name, tc.made, tc.in)
		s := newSet("set")
		s.known, s.at, s.described = true, noon, cloud.Set{Image: "images/two", ImageName: "two", Model: "2", Capacity: 2}
		s.machines = []machine.Machine{
			{ID: "m-old", NodeName: "old", State: machine.Running}, {ID: "m-new", NodeName: "new", State: machine.Running, UpToDate: true},
			{ID: "m-theirs", State: machine.Running, UpToDate: true},
		}
		p.memo.sets["set"] = s
		if tc.begun {
			p.gather()
			if err := p.rivals(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.judge()
			if on := p.turns[0].Phase != v1alpha1.MachineDiscarding; on != tc.goesOn {
				t.Errorf("%s: %s, %s", name, p.turns[0].Phase, p.turns[0].Message)
			}
			continue
		}
		p.fleet, p.waves, p.queued = &fleet.Fleet{}, fleet.NewWaves(), fleet.NewWaiters()
		p.missing = &missing{of: map[types.NamespacedName][]*corev1.Node{}}
		p.rollout.Spec.Strategy = &v1alpha1.Strategy{Paused: true} // What keeps a node back in any case is to be seen all the same.
		p.memo.provider = turnof.Digest(p.replacement.Provider)
		p.options.Clouds = func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) {
			return nil, cloud.Errorf(cloud.KindDenied, "no rights")
		}
		if err := p.carryOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range p.spots {
			if u := &p.spots[i].Unit; u.Node == "old" && ((u.Reason == "") != tc.starts || !tc.starts && u.Message != "machine m-old is in a turn of NodeRollout z") {
				t.Errorf("%s: %s %s", name, u.Reason, u.Message)
			}
		}
	}
}
