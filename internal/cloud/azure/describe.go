// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// Describe implements cloud.ScaleSet.
func (s *scaleSet) Describe(ctx context.Context) (cloud.Set, error) {
	set, err := s.get(ctx)
	if err != nil {
		return cloud.Set{}, err
	}
	return describe(s.name, set), nil
}

func (s *scaleSet) get(ctx context.Context) (*armcompute.VirtualMachineScaleSet, error) {
	return s.seen.Read(s.name, func() (*armcompute.VirtualMachineScaleSet, error) {
		answer, err := s.sets.Get(ctx, s.group, s.name, nil)
		if err != nil {
			return nil, classify("reading scale set "+s.name, err)
		}
		if answer.Properties == nil {
			return nil, cloud.Errorf(cloud.KindUnavailable, "reading scale set %s, the answer has no properties", s.name)
		}
		return &answer.VirtualMachineScaleSet, nil
	})
}

func describe(name string, set *armcompute.VirtualMachineScaleSet) cloud.Set {
	image := imageText(imageOf(set))
	described := cloud.Set{
		Name: name, Image: image, ImageName: cloud.LastPart(image), Model: model(set), Version: cloud.Value(set.Etag), Busy: busyReason(set), Unfit: unfitReason(set),
		Overprovisions: cloud.Value(set.Properties.Overprovision), Capacity: int(cloud.Value(cloud.Value(set.SKU).Capacity)),
	}
	if cloud.Value(set.Properties.SinglePlacementGroup) && !isFlexible(set) {
		described.Max = 100 // Azure puts no more machines in a single placement group.
	}
	if tag, ok := tagOf(set, cloud.TagMax); ok {
		described.LimitTo(tag)
	}
	return described
}

// storageOf is the storage of new machines; nil for none.
func storageOf(set *armcompute.VirtualMachineScaleSet) *armcompute.VirtualMachineScaleSetStorageProfile {
	return cloud.Value(cloud.Value(set.Properties).VirtualMachineProfile).StorageProfile
}

// imageOf is the reference of the image that new machines are made of; nil for none.
func imageOf(set *armcompute.VirtualMachineScaleSet) *armcompute.ImageReference {
	return cloud.Value(storageOf(set)).ImageReference
}

// model is a hash of what new machines are made of.
func model(set *armcompute.VirtualMachineScaleSet) string {
	sku, profile := cloud.Value(set.SKU), set.Properties.VirtualMachineProfile
	if profile != nil {
		profile = to.Ptr(*profile)
		profile.TimeCreated = nil
	}
	text, _ := json.Marshal(struct { // Plain data always encodes.
		Size, Tier string
		Profile    *armcompute.VirtualMachineScaleSetVMProfile
	}{cloud.Value(sku.Name), cloud.Value(sku.Tier), profile})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// busyReason says that Azure is changing a scale set.
func busyReason(set *armcompute.VirtualMachineScaleSet) string {
	switch state := cloud.Value(set.Properties.ProvisioningState); strings.ToLower(state) {
	case "", "succeeded", "failed", "canceled":
		return ""
	default:
		return "its provisioning state is " + state
	}
}

// unfitReason says why a scale set must not be touched.
func unfitReason(set *armcompute.VirtualMachineScaleSet) string {
	p := set.Properties
	policy := cloud.Value(p.UpgradePolicy)
	mode := cloud.Value(policy.Mode)
	switch _, ofAKS := tagOf(set, "aks-managed-poolName"); {
	case ofAKS:
		return "it is a node pool of AKS, which alone may change it"
	case mode != "" && mode != armcompute.UpgradeModeManual:
		return fmt.Sprintf("its upgrade policy is %s, so that Azure replaces or updates machines by itself: it must be Manual", mode)
	case cloud.Value(cloud.Value(policy.AutomaticOSUpgradePolicy).EnableAutomaticOSUpgrade):
		return "automatic OS upgrades are on, so that Azure exchanges the disks of machines by itself: they must be off"
	case cloud.Value(cloud.Value(cloud.Value(p.ResiliencyPolicy).AutomaticZoneRebalancingPolicy).Enabled):
		return "automatic zone rebalancing is on, so that Azure deletes machines by itself: it must be off"
	case p.VirtualMachineProfile == nil, cloud.Value(set.SKU).Capacity == nil:
		return "it has no machine profile, so that Azure can't add machines to it"
	}
	return ""
}

// tagOf is a tag of a scale set, whose name may be in any case of letters.
func tagOf(set *armcompute.VirtualMachineScaleSet, name string) (string, bool) {
	for key, tag := range set.Tags {
		if strings.EqualFold(key, name) {
			return cloud.Value(tag), true
		}
	}
	return "", false
}
