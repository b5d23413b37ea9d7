// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// Machines implements cloud.ScaleSet.
func (s *scaleSet) Machines(ctx context.Context) ([]cloud.Machine, error) {
	return s.machinesSeen.Read(s.name, func() ([]cloud.Machine, error) { return s.list(ctx) })
}

// list reads all machines. Those of a flexible scale set are virtual machines of their own, and are listed as such.
func (s *scaleSet) list(ctx context.Context) ([]cloud.Machine, error) {
	set, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	var machines []cloud.Machine
	add := func(vm *armcompute.VirtualMachineScaleSetVM) {
		if vm != nil && vm.Properties != nil {
			machines = append(machines, s.machine(vm, set))
		}
	}
	if isFlexible(set) {
		options := &armcompute.VirtualMachinesClientListOptions{
			Filter: to.Ptr("'virtualMachineScaleSet/id' eq '" + cloud.Value(set.ID) + "'"), Expand: to.Ptr(armcompute.ExpandTypeForListVMsInstanceView),
		}
		err = each(ctx, s.singles.NewListPager(s.group, options), func(page armcompute.VirtualMachinesClientListResponse) {
			for _, vm := range page.Value {
				add(asMember(vm))
			}
		})
	} else {
		options := &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: to.Ptr("instanceView")}
		err = each(ctx, s.machines.NewListPager(s.group, s.name, options), func(page armcompute.VirtualMachineScaleSetVMsClientListResponse) {
			for _, vm := range page.Value {
				add(vm)
			}
		})
	}
	if err != nil {
		return nil, classify("listing the machines of scale set "+s.name, err)
	}
	return machines, nil
}

// each reads all pages.
func each[T any](ctx context.Context, pager *runtime.Pager[T], do func(T)) error {
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		do(page)
	}
	return nil
}

func isFlexible(set *armcompute.VirtualMachineScaleSet) bool {
	return cloud.Value(set.Properties.OrchestrationMode) == armcompute.OrchestrationModeFlexible
}

// asMember is a virtual machine of a flexible scale set as one of a uniform set. Its name is its id.
func asMember(vm *armcompute.VirtualMachine) *armcompute.VirtualMachineScaleSetVM {
	p := cloud.Value(vm).Properties
	if p == nil {
		return nil
	}
	return &armcompute.VirtualMachineScaleSetVM{
		InstanceID: vm.Name, Name: vm.Name, Location: vm.Location, Zones: vm.Zones,
		Properties: &armcompute.VirtualMachineScaleSetVMProperties{
			ProvisioningState: p.ProvisioningState, TimeCreated: p.TimeCreated, OSProfile: p.OSProfile, StorageProfile: p.StorageProfile,
			InstanceView: &armcompute.VirtualMachineScaleSetVMInstanceView{Statuses: cloud.Value(p.InstanceView).Statuses},
		},
	}
}

// machine is a machine as a rollout needs it. The image of the scale set is compared if Azure does not report whether a machine has the latest model.
func (s *scaleSet) machine(vm *armcompute.VirtualMachineScaleSetVM, set *armcompute.VirtualMachineScaleSet) cloud.Machine {
	p := vm.Properties
	m := cloud.Machine{
		Created:   cloud.Value(p.TimeCreated),
		State:     stateOf(vm),
		NodeName:  strings.ToLower(cloud.Value(cloud.Value(p.OSProfile).ComputerName)),
		Protected: cloud.Value(cloud.Value(p.ProtectionPolicy).ProtectFromScaleSetActions),
	}
	m.ID, m.ProviderID = s.identify(vm)
	if len(vm.Zones) > 0 {
		// As in the label that Azure's cloud provider gives to nodes of a zone.
		m.Zone = strings.ToLower(strings.ReplaceAll(cloud.Value(vm.Location), " ", "")) + "-" + cloud.Value(vm.Zones[0])
	}
	if p.LatestModelApplied != nil {
		m.UpToDate = *p.LatestModelApplied
	} else if p.StorageProfile != nil {
		m.UpToDate = strings.EqualFold(imageText(p.StorageProfile.ImageReference), imageText(imageOf(set)))
	}
	if m.State == cloud.Failed {
		m.Message = failureOf(vm)
	}
	return m
}

// identify returns the id of a machine in its scale set, and the provider id of its Node. In a uniform scale set a machine has a number. In a flexible one it
// is a separate virtual machine with a name.
func (s *scaleSet) identify(vm *armcompute.VirtualMachineScaleSetVM) (id, providerID string) {
	id = cloud.Value(vm.InstanceID)
	in := ""
	if _, err := strconv.ParseUint(id, 10, 64); err == nil {
		in = "virtualMachineScaleSets/" + s.name + "/"
	}
	return id, fmt.Sprintf("azure:///subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/%svirtualMachines/%s",
		s.subscription, strings.ToLower(s.group), in, id)
}

// stateOf is the state of a machine.
func stateOf(vm *armcompute.VirtualMachineScaleSetVM) cloud.State {
	switch strings.ToLower(cloud.Value(vm.Properties.ProvisioningState)) {
	case "creating":
		return cloud.Creating
	case "deleting":
		return cloud.Deleting
	case "failed", "canceled":
		return cloud.Failed
	}
	for _, status := range cloud.Value(vm.Properties.InstanceView).Statuses {
		switch strings.ToLower(cloud.Value(cloud.Value(status).Code)) {
		case "powerstate/stopped", "powerstate/stopping", "powerstate/deallocated", "powerstate/deallocating":
			return cloud.Stopped
		}
	}
	return cloud.Running
}

// failureOf says why a machine failed. The code of its status is such as ProvisioningState/failed/AllocationFailed.
func failureOf(vm *armcompute.VirtualMachineScaleSetVM) string {
	for _, status := range cloud.Value(vm.Properties.InstanceView).Statuses {
		if parts := failedStatus.FindStringSubmatch(cloud.Value(cloud.Value(status).Code)); parts != nil {
			return cloud.OneLine(cloud.CodeAndMessage(cmp.Or(parts[1], "Failed"), cmp.Or(cloud.Value(status.Message), cloud.Value(status.DisplayStatus))))
		}
	}
	return "its provisioning state is " + cloud.Value(vm.Properties.ProvisioningState)
}

var failedStatus = regexp.MustCompile(`(?i)^ProvisioningState/failed/?(.*)$`)

// idOf is how provider ids begin.
const idOf = `(?i)^azure:///subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/Microsoft\.Compute`

var (
	// uniformID is the id of a machine of a uniform scale set: subscription, group, scale set, instance.
	uniformID = regexp.MustCompile(idOf + `/virtualMachineScaleSets/([\w-][\w.-]{0,79})/virtualMachines/([^/]+)$`)
	// singleID is the id of a machine that may be in a flexible one: subscription, group, name.
	singleID = regexp.MustCompile(idOf + `/virtualMachines/([^/]+)$`)
)

// Find implements cloud.Cloud. The provider id of a machine names its uniform scale set. For other ids Find lists all machines of the resource group.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]string, error) {
	found := make(map[string]string, len(providerIDs))
	singles := map[string]string{} // provider ids by the machine's name in lower case
	for _, providerID := range providerIDs {
		if m := uniformID.FindStringSubmatch(providerID); m != nil && c.isOwn(m) {
			found[providerID] = m[3]
		} else if m := singleID.FindStringSubmatch(providerID); m != nil && c.isOwn(m) {
			singles[strings.ToLower(m[3])] = providerID
		}
	}
	if len(singles) == 0 {
		return found, nil
	}
	err := each(ctx, c.singles.NewListPager(c.group, nil), func(page armcompute.VirtualMachinesClientListResponse) {
		for _, m := range page.Value {
			set := cloud.Value(cloud.Value(cloud.Value(m).Properties).VirtualMachineScaleSet).ID
			if providerID, ok := singles[strings.ToLower(cloud.Value(cloud.Value(m).Name))]; ok && set != nil {
				found[providerID] = cloud.LastPart(*set)
			}
		}
	})
	if err != nil {
		err = classify("listing the machines of resource group "+c.group, err)
	}
	return found, err
}

// isOwn reports whether an id's subscription and group are this Cloud's.
func (c *Cloud) isOwn(id []string) bool {
	return strings.EqualFold(id[1], c.subscription) && strings.EqualFold(id[2], c.group)
}
