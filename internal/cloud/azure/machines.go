// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// Machines implements cloud.ScaleSet.
func (s *scaleSet) Machines(ctx context.Context, _ ...string) ([]cloud.Machine, error) {
	return s.list(ctx, true)
}

// list reads all machines, with or without the instance view of each, which costs Azure more.
func (s *scaleSet) list(ctx context.Context, views bool) ([]cloud.Machine, error) {
	options := &armcompute.VirtualMachineScaleSetVMsClientListOptions{}
	if views {
		view := "instanceView"
		options.Expand = &view
	}
	var all []*armcompute.VirtualMachineScaleSetVM
	compare := false
	for pager := s.machines.NewListPager(s.group, s.name, options); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, classify(err, "listing the machines of scale set %s", s.name)
		}
		for _, vm := range page.Value {
			if vm == nil || vm.Properties == nil {
				continue
			}
			compare = compare || vm.Properties.LatestModelApplied == nil
			all = append(all, vm)
		}
	}
	image := ""
	if compare {
		set, err := s.get(ctx)
		if err != nil {
			return nil, err
		}
		image = imageText(imageOf(set))
	}
	machines := make([]cloud.Machine, 0, len(all))
	for _, vm := range all {
		machines = append(machines, s.machine(vm, image))
	}
	return machines, nil
}

// machine is a machine as a rollout needs it. image is the scale set's: it is compared if Azure does not report whether a machine has the latest model.
func (s *scaleSet) machine(vm *armcompute.VirtualMachineScaleSetVM, image string) cloud.Machine {
	p := vm.Properties
	m := cloud.Machine{
		Created:   value(p.TimeCreated),
		State:     stateOf(vm),
		Protected: p.ProtectionPolicy != nil && value(p.ProtectionPolicy.ProtectFromScaleSetActions),
	}
	m.ID, m.ProviderID = s.identify(vm)
	if p.OSProfile != nil {
		m.NodeName = strings.ToLower(value(p.OSProfile.ComputerName))
	}
	if len(vm.Zones) > 0 {
		// As in the label that Azure's cloud provider gives to nodes of a zone.
		m.Zone = strings.ToLower(strings.ReplaceAll(value(vm.Location), " ", "")) + "-" + value(vm.Zones[0])
	}
	if p.LatestModelApplied != nil {
		m.UpToDate = *p.LatestModelApplied
	} else {
		var of *armcompute.ImageReference
		if p.StorageProfile != nil {
			of = p.StorageProfile.ImageReference
		}
		m.UpToDate = strings.EqualFold(imageText(of), image)
	}
	if m.State == cloud.Failed {
		m.Message = failureOf(vm)
	}
	return m
}

// identify returns the ids of a machine in its scale set and of its Node. In a flexible scale set a machine is a separate virtual machine with a name. In a
// uniform one it has a number.
func (s *scaleSet) identify(vm *armcompute.VirtualMachineScaleSetVM) (id, providerID string) {
	id = value(vm.InstanceID)
	if m := singleID.FindStringSubmatch(value(vm.Properties.VirtualMachineResourceID)); m != nil {
		return m[3], s.providerID("virtualMachines/" + m[3])
	}
	if _, err := strconv.ParseUint(id, 10, 64); err == nil {
		name := s.name
		if m := uniformID.FindStringSubmatch(value(vm.ID)); m != nil {
			name = m[3]
		}
		return id, s.providerID("virtualMachineScaleSets/" + name + "/virtualMachines/" + id)
	}
	id = cmp.Or(id, value(vm.Name))
	return id, s.providerID("virtualMachines/" + id)
}

// providerID is that of Azure's cloud provider, with the resource group in lower case.
func (s *scaleSet) providerID(rest string) string {
	return fmt.Sprintf("azure:///subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/%s", s.subscription, strings.ToLower(s.group), rest)
}

// stateOf is the state of a machine.
func stateOf(vm *armcompute.VirtualMachineScaleSetVM) cloud.State {
	switch strings.ToLower(value(vm.Properties.ProvisioningState)) {
	case "creating":
		return cloud.Creating
	case "deleting":
		return cloud.Deleting
	case "failed", "canceled":
		return cloud.Failed
	}
	for _, status := range statusesOf(vm) {
		switch strings.ToLower(value(status.Code)) {
		case "powerstate/stopped", "powerstate/stopping", "powerstate/deallocated", "powerstate/deallocating":
			return cloud.Stopped
		}
	}
	return cloud.Running
}

func statusesOf(vm *armcompute.VirtualMachineScaleSetVM) []*armcompute.InstanceViewStatus {
	if vm.Properties.InstanceView == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(vm.Properties.InstanceView.Statuses), func(s *armcompute.InstanceViewStatus) bool { return s == nil })
}

// failureOf says why a machine failed. The code of its status is such as ProvisioningState/failed/AllocationFailed.
func failureOf(vm *armcompute.VirtualMachineScaleSetVM) string {
	for _, status := range statusesOf(vm) {
		if parts := failedStatus.FindStringSubmatch(value(status.Code)); parts != nil {
			return cloud.OneLine(cloud.CodeAndMessage(cmp.Or(parts[1], "Failed"), cmp.Or(value(status.Message), value(status.DisplayStatus))))
		}
	}
	return "its provisioning state is " + value(vm.Properties.ProvisioningState)
}

var failedStatus = regexp.MustCompile(`(?i)^ProvisioningState/failed/?(.*)$`)
