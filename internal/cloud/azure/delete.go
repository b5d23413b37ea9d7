// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// submitDelete deletes the machines that still exist. Azure refuses a request that names a missing machine.
func (s *scaleSet) submitDelete(ctx context.Context, m *memory) error {
	for ids := m.Delete; ; {
		poller, err := s.sets.BeginDeleteInstances(ctx, s.group, s.name,
			armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: to.SliceOfPtrs(ids...)}, nil)
		if err == nil {
			m.Resume, _ = poller.ResumeToken()
			return nil
		}
		err = classify("deleting machines of scale set "+s.name, err)
		if kind := cloud.KindOf(err); kind != cloud.KindInvalid && kind != cloud.KindNotFound && kind != cloud.KindConflict {
			return err
		}
		staying, _, unknown := s.members(ctx, ids)
		switch {
		case unknown != nil:
			return cloud.Errorf(cloud.KindUnavailable, "%w", unknown)
		case len(staying) == 0:
			return nil
		case len(staying) == len(ids):
			return err
		}
		ids = staying
	}
}

// members returns the machines with these ids that stay, and those that are being deleted.
func (s *scaleSet) members(ctx context.Context, ids []string) (staying, leaving []string, err error) {
	machines, err := s.Machines(ctx)
	for _, m := range machines {
		switch {
		case !slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(id, m.ID) }):
		case m.State == cloud.Deleting:
			leaving = append(leaving, m.ID)
		default:
			staying = append(staying, m.ID)
		}
	}
	return staying, leaving, err
}

// mostAgain is how often a deletion is sent again that another change of the scale set has ended.
const mostAgain = 5

// followDelete reads whether the machines are gone.
func (s *scaleSet) followDelete(ctx context.Context, m *memory) (over bool, err error) {
	// The scale set is read before the machines, so that these are not older.
	set, err := s.get(ctx)
	if err != nil {
		return false, err
	}
	staying, leaving, err := s.members(ctx, m.Delete)
	switch {
	case err != nil:
		return false, err
	case len(leaving) > 0, len(staying) > 0 && busyReason(set) != "":
		return false, nil
	case len(staying) == 0:
		return true, nil
	}
	over, why, err := s.failure(ctx, m)
	switch {
	case over && strings.HasPrefix(why, "OperationPreempted") && m.Again < mostAgain:
		m.Again++
		return false, s.submitDelete(ctx, m) // Another change of the scale set has ended this one.
	case over:
		m.Fail(cloud.KindOfAnswer(rules, why, cloud.KindFailed),
			fmt.Sprintf("deleting machines %s of scale set %s, %s", strings.Join(staying, " "), s.name, cmp.Or(why, "Azure has not done it")))
	}
	return over, err
}
