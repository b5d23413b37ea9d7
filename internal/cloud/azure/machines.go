// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// Machines reads all machines of the scale set.
func (s *scaleSet) Machines(ctx context.Context, _ ...string) ([]cloud.Machine, error) {
	return s.list(ctx, true)
}

// list reads all machines, with what they say of themselves where that is asked for, which costs Azure more.
func (s *scaleSet) list(ctx context.Context, views bool) ([]cloud.Machine, error) {
	options := &armcompute.VirtualMachineScaleSetVMsClientListOptions{}
	if views {
		view := "instanceView"
		options.Expand = &view
	}
	var all []*armcompute.VirtualMachineScaleSetVM
	untold := false
	for pager := s.machines.NewListPager(s.group, s.name, options); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, classify(err, "listing the machines of scale set %s", s.name)
		}
		for _, vm := range page.Value {
			if vm == nil || vm.Properties == nil {
				continue
			}
			untold = untold || vm.Properties.LatestModelApplied == nil
			all = append(all, vm)
		}
	}
	image := ""
	if untold {
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

// machine is a machine as Azure shows it. image is what the scale set makes new ones of, for one of which Azure does not tell.
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
		m.Zone = zoneLabel(value(vm.Location), value(vm.Zones[0]))
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
		m.Message = troubleOf(vm)
	}
	return m
}

// identify is how a machine is named in its scale set, and as a Node. One of a flexible scale set is a virtual machine of its own, named by its
// name; one of a uniform one has a number.
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

// providerID is as Azure's cloud provider writes it: with the resource group in lower case.
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
	var statuses []*armcompute.InstanceViewStatus
	for _, status := range vm.Properties.InstanceView.Statuses {
		if status != nil {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// troubleOf says what is wrong with a machine that has failed. Its status's code is such as ProvisioningState/failed/AllocationFailed.
func troubleOf(vm *armcompute.VirtualMachineScaleSetVM) string {
	for _, status := range statusesOf(vm) {
		rest, ok := strings.CutPrefix(strings.ToLower(value(status.Code)), "provisioningstate/failed")
		if !ok {
			continue
		}
		code := value(status.Code)[len(value(status.Code))-len(rest):]
		return oneLine(strings.TrimSuffix(cmp.Or(strings.TrimPrefix(code, "/"), "Failed")+": "+cmp.Or(value(status.Message), value(status.DisplayStatus)), ": "))
	}
	return "its provisioning state is " + value(vm.Properties.ProvisioningState)
}
