// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// An outdated machine that failed and has no Node is reported by its name, and nothing is done to it.
func TestMachinesWithoutNode(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*scene, *Machine)
		want   bool
	}{
		"failed long ago":         {func(*scene, *Machine) {}, true},
		"may still join":          {func(_ *scene, m *Machine) { m.Created = now.Add(-time.Minute) }, false},
		"runs":                    {func(_ *scene, m *Machine) { m.State = Running }, false},
		"is up to date":           {func(_ *scene, m *Machine) { m.UpToDate = true }, false},
		"has a Node":              {func(s *scene, m *Machine) { s.Nodes["n-old"].Spec.ProviderID = m.ProviderID }, false},
		"is in a turn":            {func(s *scene, m *Machine) { s.turn.Replacement = m.ID }, false},
		"the cloud replaces it":   {func(s *scene, _ *Machine) { s.set.Heals = true }, false},
		"only Nodes tell":         {func(s *scene, _ *Machine) { s.MatchOSImage = true }, false},
		"the rollout is deleted":  {func(s *scene, _ *Machine) { s.Ending = true }, false},
		"the set is not known":    {func(s *scene, _ *Machine) { s.set.Known = false }, false},
		"the set is not selected": {func(s *scene, _ *Machine) { s.ScaleSets = []string{"others"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(v1alpha1.MachineJoining)
			s.set.Machines = append(s.set.Machines, Machine{ID: "dead", ProviderID: "sky://dead", State: Failed, Created: now.Add(-time.Hour)})
			tc.change(s, s.machine("dead"))
			found := s.MachinesWithoutNode([]*Turn{s.turn})
			if (len(found) == 1) != tc.want {
				t.Fatalf("%+v", found)
			}
			if !tc.want {
				return
			}
			const message = "machine dead of scale set pool failed and has no Node: repair it, or delete it in the cloud"
			if u := found[0].Unit; u.Node != "pool/dead" || u.State != v1alpha1.UnitFailed || u.Message != message || !u.HoldsSlot() || !found[0].Unit.NoNode {
				t.Errorf("%+v", u)
			}
		})
	}
}
