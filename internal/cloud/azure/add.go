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

// undone is what the token of an addition is followed by in the tag, once what has come to nothing of it is taken out of the capacity again.
const undone = "-undone"

// prepareAdd notes which machines there are, by the age of the newest one.
func (s *scaleSet) prepareAdd(ctx context.Context, set *cloud.Set, add int, m *memory) error {
	if set.Max > 0 && set.Capacity+add > set.Max {
		return cloud.Errorf(cloud.KindFull, "scale set %s has %d machines, and %d at most: there is no room for %d more", s.name, set.Capacity, set.Max, add)
	}
	machines, err := s.list(ctx, false)
	if err != nil {
		return err
	}
	m.Add = add
	for _, machine := range machines {
		if machine.Created.After(m.Newest) {
			m.Newest = machine.Created
		}
	}
	return nil
}

// pollAdd looks which machines are new, and undoes what has failed.
func (s *scaleSet) pollAdd(ctx context.Context, token string, m *memory, progress *cloud.Progress) error {
	defer func() { progress.Added = m.Added }()
	var set *armcompute.VirtualMachineScaleSet
	blind := m.Resume == "" && !m.Ended && m.Failed == ""
	if blind {
		// Only the scale set can tell. It is read before the machines, so that these are not older.
		var err error
		if set, err = s.get(ctx); err != nil {
			return err
		}
		blind = busyReason(set) == ""
	}
	machines, err := s.list(ctx, m.Failed != "" || blind)
	if err != nil {
		return err
	}
	news := m.newMachines(machines, m.Ended || m.Failed != "" || blind)
	if blind {
		s.concludeAdd(set, token, m, news)
	}
	switch {
	case m.Failed != "":
		progress.Message = m.Failed
		progress.Done, err = s.undo(ctx, token, m)
		return err
	case m.Ended:
		progress.Done = true
	default:
		progress.Message = fmt.Sprintf("Azure adds %s to scale set %s, of which there are %d", machineCount(m.Add), s.name, len(m.Added))
	}
	return nil
}

// concludeAdd finds out how an addition has ended, of a scale set with which Azure does nothing any more and its new machines.
func (s *scaleSet) concludeAdd(set *armcompute.VirtualMachineScaleSet, token string, m *memory, news []cloud.Machine) {
	if i := slices.IndexFunc(news, func(n cloud.Machine) bool { return n.State == cloud.Failed }); i >= 0 {
		code, _, _ := strings.Cut(news[i].Message, ":")
		m.fail(fmt.Sprintf("adding machines to scale set %s, %s", s.name, news[i].Message), kindOfFailure(code, news[i].Message))
		return
	}
	switch {
	case len(news) >= m.Add:
		m.Ended = true
	case strings.EqualFold(value(set.Properties.ProvisioningState), "Failed"):
		m.fail(fmt.Sprintf("adding machines to scale set %s, its provisioning state is Failed", s.name), cloud.KindFailed)
	case !hasToken(set, token):
		m.fail(fmt.Sprintf("adding machines to scale set %s, Azure has not done it", s.name), cloud.KindFailed)
	default:
		// Those that are missing were there, and have been removed.
		m.Ended = true
	}
}

// newMachines returns the machines that were made since the operation was prepared, as many as it adds: those that it has had before, and then the
// best and oldest. It keeps their ids. final is true once no more will come.
func (m *memory) newMachines(machines []cloud.Machine, final bool) []cloud.Machine {
	found := slices.DeleteFunc(slices.Clone(machines), func(machine cloud.Machine) bool {
		return !machine.Created.After(m.Newest) || machine.State == cloud.Deleting
	})
	rank := func(machine cloud.Machine) int {
		switch {
		case slices.Contains(m.Added, machine.ID):
			return 0
		case machine.UpToDate:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(found, func(a, b cloud.Machine) int {
		return cmp.Or(rank(a)-rank(b), a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	if len(found) > m.Add && !final {
		// Azure may be making more machines than it keeps, and which it keeps is not known yet.
		found = slices.DeleteFunc(found, func(machine cloud.Machine) bool { return !slices.Contains(m.Added, machine.ID) })
	}
	found = found[:min(len(found), m.Add)]
	m.Added = nil
	for _, machine := range found {
		m.Added = append(m.Added, machine.ID)
	}
	return found
}

// undo takes what an addition has failed to make out of the scale set's capacity again, so that Azure does not make it later, and reports whether
// that is done. The capacity never goes below what machines there are, so that Azure deletes none.
func (s *scaleSet) undo(ctx context.Context, token string, m *memory) (bool, error) {
	set, err := s.get(ctx)
	switch {
	case err != nil:
		return false, err
	case hasToken(set, token+undone):
		return true, nil
	case busyReason(set) != "":
		return false, nil
	}
	// The etag was read first: what comes or goes after it makes the PATCH fail.
	machines, err := s.list(ctx, false)
	if err != nil {
		return false, err
	}
	there := 0
	for _, machine := range machines {
		if machine.State != cloud.Deleting {
			there++
		}
	}
	missing := m.Add - len(m.newMachines(machines, true))
	capacity := max(value(set.SKU.Capacity)-int64(missing), int64(there))
	if capacity >= value(set.SKU.Capacity) || !hasToken(set, token) {
		return true, nil
	}
	err = s.patch(ctx, set, token+undone, armcompute.VirtualMachineScaleSetUpdate{SKU: skuWithCapacity(set, capacity)}, &memory{})
	if cloud.KindOf(err) == cloud.KindConflict {
		return false, nil
	}
	return err == nil, err
}

// skuWithCapacity is the SKU of a scale set with another capacity. A PATCH has nothing else of the model, so that Azure does not see a new model.
func skuWithCapacity(set *armcompute.VirtualMachineScaleSet, capacity int64) *armcompute.SKU {
	sku := *set.SKU
	sku.Capacity = &capacity
	return &sku
}
