// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"maps"
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

// Aliases finds scale sets that are one by several names, which the spec may have given it: each would have its own surge, and its own account of the same
// machines. The one is used that turns go on in, or else that the spec names first. Under the others nothing begins, and nobody has their machines.
func (w *World) Aliases(turns []*Turn) {
	names := slices.Sorted(maps.Keys(w.Sets))
	used := func(name string) bool {
		return slices.ContainsFunc(turns, func(t *Turn) bool { return t.ScaleSet == name }) ||
			slices.ContainsFunc(w.Sets[name].Operations, func(o v1alpha1.CloudOperation) bool { return o.Kind != v1alpha1.CloudOperationSetImage })
	}
	rank := func(name string) int {
		i := slices.Index(w.ScaleSets, name)
		switch {
		case used(name):
			return -1
		case i < 0:
			return len(w.ScaleSets)
		}
		return i
	}
	one := map[string]*Set{}
	for _, name := range names {
		s := w.Sets[name]
		before := one[s.ID]
		switch {
		case s.ID == "":
		case before == nil:
			one[s.ID] = s
		case cmp.Compare(rank(name), rank(before.Name)) < 0:
			one[s.ID] = s
			s.names = append(before.names, before.Name)
			before.alias(s, used(before.Name))
		default:
			before.names = append(before.names, name)
			s.alias(before, used(name))
		}
	}
}

// alias makes a set another's name alone. What goes on under it goes on.
func (s *Set) alias(one *Set, used bool) {
	s.Alias, s.names = one.Name, nil
	if !used {
		s.Machines = nil // They are the other's.
	}
}

// isFor reports whether the rollout is for a scale set of this name.
func (w *World) isFor(name string) bool {
	return len(w.ScaleSets) == 0 || slices.Contains(w.ScaleSets, name) ||
		slices.ContainsFunc(w.set(name).names, func(other string) bool { return slices.Contains(w.ScaleSets, other) })
}

// twice says why nothing begins in a set that is an alias.
func (s *Set) twice() string {
	return "it is scale set " + s.Alias + " by another name: one of them is too many in spec.replacement.scaleSets"
}
