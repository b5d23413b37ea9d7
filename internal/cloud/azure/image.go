// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// The paths that references of shared images begin with, in lower case.
const (
	communityPrefix    = "/communitygalleries/"
	sharedPrefix       = "/sharedgalleries/"
	subscriptionPrefix = "/subscriptions/"
)

// Reference is the full form of a reference of an image, and an error for one that is none. These are references:
//
//	NAME                                        an image resource in the subscription and group
//	/subscriptions/...                          an image resource, a gallery's image, or a version of one
//	/CommunityGalleries/..., /SharedGalleries/...
//	PUBLISHER:OFFER:SKU:VERSION                 an image of the marketplace
func Reference(subscription, group, image string) (string, error) {
	lower := strings.ToLower(image)
	switch {
	case image == "" || strings.ContainsAny(image, " \t\n?#%\"'<>\\") || strings.Contains(image, "//") || strings.HasSuffix(image, "/"):
	case strings.HasPrefix(lower, subscriptionPrefix) && strings.Contains(lower, "/providers/microsoft.compute/"):
		return image, nil
	case strings.HasPrefix(lower, communityPrefix), strings.HasPrefix(lower, sharedPrefix):
		return image, nil
	case strings.Contains(image, ":"):
		parts := strings.Split(image, ":")
		if len(parts) == 4 && !strings.Contains(image, "::") && parts[0] != "" && parts[3] != "" && !strings.Contains(image, "/") {
			return image, nil
		}
	case !strings.Contains(image, "/"):
		return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/images/%s", subscription, group, image), nil
	}
	return "", fmt.Errorf("image %q is neither a name, nor the id of an image, nor publisher:offer:sku:version", image)
}

// imageText is the reference of an image as one string; empty for none.
func imageText(r *armcompute.ImageReference) string {
	switch {
	case r == nil:
		return ""
	case value(r.ID) != "":
		return *r.ID
	case value(r.SharedGalleryImageID) != "":
		return *r.SharedGalleryImageID
	case value(r.CommunityGalleryImageID) != "":
		return *r.CommunityGalleryImageID
	case value(r.Publisher) != "":
		return strings.Join([]string{*r.Publisher, value(r.Offer), value(r.SKU), value(r.Version)}, ":")
	default:
		return ""
	}
}

// imageName is the last part of a reference.
func imageName(image string) string {
	return image[strings.LastIndexAny(image, "/:")+1:]
}

// imageReference is what a full reference is to Azure, and takes away what another kind of reference has left in the scale set's one.
func imageReference(image string, before *armcompute.ImageReference) *armcompute.ImageReference {
	r := &armcompute.ImageReference{}
	lower := strings.ToLower(image)
	switch {
	case strings.HasPrefix(lower, communityPrefix):
		r.CommunityGalleryImageID = &image
	case strings.HasPrefix(lower, sharedPrefix):
		r.SharedGalleryImageID = &image
	case strings.HasPrefix(lower, subscriptionPrefix):
		r.ID = &image
	default:
		parts := strings.SplitN(image+":::", ":", 5)
		r.Publisher, r.Offer, r.SKU, r.Version = &parts[0], &parts[1], &parts[2], &parts[3]
	}
	if before == nil {
		return r
	}
	for _, field := range []struct{ now, before **string }{
		{&r.CommunityGalleryImageID, &before.CommunityGalleryImageID}, {&r.SharedGalleryImageID, &before.SharedGalleryImageID}, {&r.ID, &before.ID},
		{&r.Publisher, &before.Publisher}, {&r.Offer, &before.Offer}, {&r.SKU, &before.SKU}, {&r.Version, &before.Version},
	} {
		if *field.now == nil && *field.before != nil {
			*field.now = azcore.NullValue[*string]()
		}
	}
	return r
}

// storageUpdate is what a PATCH that sets the image of a scale set says of storage: all that it has beside the image, because Azure has reset disks that such
// a PATCH did not name. The OS disk is left out where it is ephemeral: it can't be changed, and Azure takes any mention of it for a new model.
func storageUpdate(set *armcompute.VirtualMachineScaleSet, image string) *armcompute.VirtualMachineScaleSetUpdateStorageProfile {
	update := &armcompute.VirtualMachineScaleSetUpdateStorageProfile{ImageReference: imageReference(image, imageOf(set))}
	if set.Properties == nil || set.Properties.VirtualMachineProfile == nil || set.Properties.VirtualMachineProfile.StorageProfile == nil {
		return update
	}
	now := set.Properties.VirtualMachineProfile.StorageProfile
	update.DataDisks, update.DiskAPIVersion, update.DiskControllerType = now.DataDisks, now.DiskAPIVersion, now.DiskControllerType
	if disk := now.OSDisk; disk != nil && disk.DiffDiskSettings == nil {
		update.OSDisk = &armcompute.VirtualMachineScaleSetUpdateOSDisk{
			Caching: disk.Caching, DeleteOption: disk.DeleteOption, DiskSizeGB: disk.DiskSizeGB, Image: disk.Image, ManagedDisk: disk.ManagedDisk,
			StorageFaultDomainAlignment: disk.StorageFaultDomainAlignment, VhdContainers: disk.VhdContainers,
			WriteAcceleratorEnabled: disk.WriteAcceleratorEnabled,
		}
	}
	return update
}

// pollImage looks whether the image is set.
func (s *scaleSet) pollImage(ctx context.Context, token string, m *memory, progress *cloud.Progress) error {
	progress.Message = fmt.Sprintf("Azure sets the image of scale set %s", s.name)
	if m.Ended || m.Failed != "" {
		progress.Done = true
		return nil
	}
	if m.Resume != "" {
		return nil
	}
	set, err := s.get(ctx)
	switch {
	case err != nil:
		return err
	case strings.EqualFold(imageText(imageOf(set)), m.Image) || hasToken(set, token) && busyReason(set) == "":
		m.Ended, progress.Done = true, true
	case busyReason(set) == "":
		m.fail(fmt.Sprintf("setting the image of scale set %s, Azure has not done it", s.name), cloud.KindFailed)
		progress.Done = true
	}
	return nil
}
