// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/gcp"
	"moult.dev/moult/test/tier"
)

// Whatever goes wrong, and whenever processes end, no machine is made that no one knows of, none is deleted that was not named, and the group wants
// as many as it has in the end.
func TestRandomTrouble(t *testing.T) {
	seeds := uint64(4)
	if tier.All {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			set := regional("pool", 6)
			if seed%2 == 0 {
				set = zonal("pool", 6)
			}
			set = settings(set, double.PageSize, "3", double.Lasting, fmt.Sprint(random.IntN(3)), double.Forgetful, fmt.Sprint(random.IntN(2) == 0),
				double.LateErrors, fmt.Sprint(random.IntN(2) == 0))
			p := newProject(t, set)
			want := p.ids(set.Name)
			c := p.cloud(t)
			current := func() cloud.ScaleSet {
				if random.IntN(3) == 0 { // another process
					c = p.cloud(t)
				}
				return c.ScaleSet(set.Name)
			}
			trouble := func() {
				wire := []clouds.FaultKind{clouds.Throttled, clouds.Denied, clouds.Unavailable, clouds.DropBefore, clouds.DropAfter, clouds.Twice, clouds.Truncated}
				world := []clouds.FaultKind{clouds.Quota, clouds.OperationFails, clouds.Slow}
				for range random.IntN(4) {
					p.Fault(clouds.Fault{Kind: wire[random.IntN(len(wire))], Times: 1 + random.IntN(2)})
				}
				if random.IntN(3) == 0 {
					p.Fault(clouds.Fault{Kind: world[random.IntN(len(world))], Times: 1})
				}
			}
			for step := range 15 {
				change := cloud.Change{Token: fmt.Sprint("step", step)}
				if random.IntN(2) == 0 || len(want) < 4 {
					change.Add = 1 + random.IntN(3)
				} else {
					random.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
					change.Delete = slices.Clone(want[:1+random.IntN(2)])
				}
				o := prepared(t, current(), change)
				trouble()
				taken := false
				await(t, "the sending", func() bool {
					next, err := current().Send(t.Context(), o)
					if err == nil {
						taken = true
						if random.IntN(3) > 0 { // else what it has learned is lost
							o = next
						} else {
							taken = false
						}
					}
					return taken
				})
				progress, err := polled(t, current, o)
				p.ClearFaults()
				if err != nil {
					var typed *cloud.Error
					if !errors.As(err, &typed) || typed.Kind == cloud.KindInvalid || typed.Kind == cloud.KindDenied {
						t.Fatalf("step %d, %+v: %v", step, change, err)
					}
				}
				if change.Add > 0 || err == nil {
					want = slices.DeleteFunc(append(want, progress.Added...), func(id string) bool { return slices.Contains(change.Delete, id) })
				}
				slices.Sort(want)
				await(t, "machines to go", func() bool {
					return !slices.ContainsFunc(p.Machines(set.Name), func(m clouds.Machine) bool { return m.State == clouds.Deleting })
				})
				described, err := current().Describe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(p.ids(set.Name), want) || described.Capacity != len(want) {
					t.Fatalf("step %d, %+v: capacity %d, machines %q, want %q", step, change, described.Capacity, p.ids(set.Name), want)
				}
			}
		})
	}
}
