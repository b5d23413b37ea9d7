// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// undone follows the token of an addition in the tag, once its missing machines are taken out of the capacity again.
const undone = "-undone"

// followAdd reads which machines are new, and undoes an addition that failed.
func (s *scaleSet) followAdd(ctx context.Context, m *memory) (over bool, err error) {
	// The scale set is read before the machines, so that these are not older.
	set, err := s.get(ctx)
	if err != nil {
		return false, err
	}
	idle := busyReason(set) == ""
	machines, err := s.Machines(ctx)
	if err != nil {
		return false, err
	}
	machines = slices.DeleteFunc(slices.Clone(machines), func(m cloud.Machine) bool { return m.State == cloud.Deleting })
	found := m.newMachines(machines, cloud.Value(set.Properties.Overprovision))
	if m.Failure == "" {
		if over, err = s.concludeAdd(ctx, m, set, len(machines), found); err != nil || over {
			return over, err
		}
	}
	if m.Failure == "" || !idle {
		return false, nil
	}
	return s.undo(ctx, m, set, len(machines), len(m.Added))
}

// concludeAdd reports whether an addition was successful, or records that it failed. all is how many machines the scale set has.
func (s *scaleSet) concludeAdd(ctx context.Context, m *memory, set *armcompute.VirtualMachineScaleSet, all int, found []cloud.Machine) (done bool, err error) {
	idle := busyReason(set) == ""
	creating := slices.ContainsFunc(found, func(m cloud.Machine) bool { return m.State == cloud.Creating })
	broken := slices.IndexFunc(found, func(m cloud.Machine) bool { return m.State == cloud.Failed })
	complete := len(m.Added) == m.Add && broken < 0 && (idle || !creating && !cloud.Value(set.Properties.Overprovision))
	if complete || !idle {
		return complete, nil
	}
	why, state := "", cloud.Value(set.Properties.ProvisioningState)
	switch {
	case broken >= 0:
		why = found[broken].Message
	case !strings.EqualFold(state, "Failed") && !hasToken(set, m.Token+undone) && all < int(cloud.Value(set.SKU.Capacity)):
		return false, nil // Azure has still to make them.
	default:
		if done, why, err = s.failure(ctx, m); err != nil || !done {
			return false, err
		}
		why = cmp.Or(why, "its provisioning state is "+state)
	}
	m.Fail(cloud.KindOfAnswer(rules, why, cloud.KindFailed), fmt.Sprintf("adding machines to scale set %s, %s", s.name, why))
	return false, nil
}

// newMachines returns the machines that were made since the operation was planned, the oldest first and at most as many as it adds, and keeps their ids. Once
// all are known, later ones are of other additions; unless Azure may delete some of these again.
func (m *memory) newMachines(machines []cloud.Machine, overprovisions bool) []cloud.Machine {
	if len(m.Added) == m.Add && !overprovisions {
		return slices.DeleteFunc(slices.Clone(machines), func(machine cloud.Machine) bool { return !slices.Contains(m.Added, machine.ID) })
	}
	found := slices.DeleteFunc(slices.Clone(machines), func(machine cloud.Machine) bool { return !machine.Created.After(m.Newest) })
	slices.SortFunc(found, func(a, b cloud.Machine) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	found = found[:min(len(found), m.Add)]
	m.Added = nil
	for _, machine := range found {
		m.Added = append(m.Added, machine.ID)
	}
	return found
}

// undo lowers the capacity by the machines that an addition failed to make: otherwise Azure makes them later. It reports whether that is done. The capacity
// never goes below the number of machines, so that Azure deletes none.
func (s *scaleSet) undo(ctx context.Context, m *memory, set *armcompute.VirtualMachineScaleSet, all, added int) (bool, error) {
	now := cloud.Value(set.SKU.Capacity)
	capacity := max(now-int64(m.Add-added), int64(all))
	if capacity >= now || !hasToken(set, m.Token) || hasToken(set, m.Token+undone) {
		return true, nil
	}
	_, err := s.patch(ctx, set, m.Token+undone, armcompute.VirtualMachineScaleSetUpdate{SKU: skuWithCapacity(set, capacity)})
	return err == nil, err
}
