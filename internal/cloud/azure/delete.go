// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// sendDelete sends a deletion. Sent again, it is for those that are there still.
func (s *scaleSet) sendDelete(ctx context.Context, m *memory) error {
	err := s.postDelete(ctx, m, m.Delete, true)
	kind := cloud.KindOf(err)
	if kind != cloud.KindInvalid && kind != cloud.KindNotFound && kind != cloud.KindConflict {
		return err
	}
	// Azure refuses all where one is gone.
	staying, leaving, listErr := s.stillThere(ctx, m.Delete)
	switch {
	case listErr != nil:
		return listErr
	case len(staying)+len(leaving) == 0:
		m.Ended = true
		return nil
	case len(staying) == 0:
		return nil
	case kind == cloud.KindConflict || len(staying) == len(m.Delete):
		return err
	default:
		return s.postDelete(ctx, m, staying, len(leaving) == 0)
	}
}

// postDelete deletes machines, which are all of the operation's that are there, or else others are going already.
func (s *scaleSet) postDelete(ctx context.Context, m *memory, ids []string, all bool) error {
	request := armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{}
	for _, id := range ids {
		request.InstanceIDs = append(request.InstanceIDs, &id)
	}
	poller, err := s.sets.BeginDeleteInstances(ctx, s.group, s.name, request, nil)
	if err != nil {
		return classify(err, "deleting machines of scale set %s", s.name)
	}
	if all {
		m.Resume, m.Ended = resumeToken(poller)
	}
	return nil
}

// stillThere are those of these machines that are there still, and those that are being deleted.
func (s *scaleSet) stillThere(ctx context.Context, ids []string) (staying, leaving []string, err error) {
	machines, err := s.list(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		i := slices.IndexFunc(machines, func(m cloud.Machine) bool { return strings.EqualFold(m.ID, id) })
		switch {
		case i < 0:
		case machines[i].State == cloud.Deleting:
			leaving = append(leaving, id)
		default:
			staying = append(staying, id)
		}
	}
	return staying, leaving, nil
}

// pollDelete looks whether the machines are gone.
func (s *scaleSet) pollDelete(ctx context.Context, m *memory, progress *cloud.Progress) error {
	progress.Message = fmt.Sprintf("Azure deletes %s of scale set %s", machineCount(len(m.Delete)), s.name)
	if m.Ended {
		progress.Done = true
		return nil
	}
	if m.Resume != "" && m.Failed == "" {
		return nil
	}
	idle := false
	if m.Failed == "" {
		// First of the scale set, so that the machines are not older news.
		set, err := s.get(ctx)
		if err != nil {
			return err
		}
		idle = busyReason(set) == ""
	}
	staying, leaving, err := s.stillThere(ctx, m.Delete)
	if err != nil {
		return err
	}
	if len(staying)+len(leaving) == 0 {
		m.Failed, m.Kind = "", ""
		m.Ended, progress.Done = true, true
		return nil
	}
	if idle && len(leaving) == 0 {
		m.fail(fmt.Sprintf("deleting machines of scale set %s, Azure has left %s", s.name, machineCount(len(staying))), cloud.KindFailed)
	}
	progress.Done = m.Failed != "" && len(leaving) == 0
	return nil
}

func machineCount(machines int) string {
	if machines == 1 {
		return "one machine"
	}
	return strconv.Itoa(machines) + " machines"
}
