// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// fullReference returns the full form of a reference of an image. These are references:
//
//	NAME                                        an image resource in the subscription and group
//	/subscriptions/...                          an image resource, a gallery's image, or a version of one
//	/CommunityGalleries/..., /SharedGalleries/...
//	PUBLISHER:OFFER:SKU:VERSION                 an image of the marketplace
func fullReference(subscription, group, image string) (string, error) {
	switch {
	case fullForm.MatchString(image):
		return image, nil
	case imageResource.MatchString(image):
		return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/images/%s", subscription, group, image), nil
	}
	return "", fmt.Errorf("image %q is neither a name, nor the id of an image, nor publisher:offer:sku:version", image)
}

// part is a part of a reference, between slashes or colons.
const part = `[^/:\s?#%"'<>\\]+`

var (
	imageResource = regexp.MustCompile(`^` + part + `$`)
	fullForm      = regexp.MustCompile(`(?i)^(/subscriptions(/` + part + `)+/providers/Microsoft\.Compute(/` + part + `)+|` +
		`/(Community|Shared)Galleries(/` + part + `)+|` + part + `(:` + part + `){3})$`)
)

// imageText is the reference of an image as one string; empty for none.
func imageText(r *armcompute.ImageReference) string {
	if r == nil {
		return ""
	}
	if cloud.Value(r.Publisher) != "" {
		return strings.Join([]string{*r.Publisher, cloud.Value(r.Offer), cloud.Value(r.SKU), cloud.Value(r.Version)}, ":")
	}
	return cmp.Or(cloud.Value(r.ID), cloud.Value(r.SharedGalleryImageID), cloud.Value(r.CommunityGalleryImageID))
}

// imageReference is a full reference in Azure's form. Fields that only the scale set's present reference (before) has are removed.
func imageReference(image string, before *armcompute.ImageReference) *armcompute.ImageReference {
	r := &armcompute.ImageReference{}
	switch kind, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(image), "/"), "/"); kind {
	case "communitygalleries":
		r.CommunityGalleryImageID = &image
	case "sharedgalleries":
		r.SharedGalleryImageID = &image
	case "subscriptions":
		r.ID = &image
	default:
		parts := strings.SplitN(image+":::", ":", 5)
		r.Publisher, r.Offer, r.SKU, r.Version = &parts[0], &parts[1], &parts[2], &parts[3]
	}
	before = cmp.Or(before, &armcompute.ImageReference{})
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

// storageUpdate is the storage part of a PATCH that sets the image. It repeats the disks of the scale set, because Azure resets disks that such a PATCH
// does not name. It leaves out an ephemeral OS disk: that can't be changed, and any mention of it is a new model.
func storageUpdate(set *armcompute.VirtualMachineScaleSet, image string) *armcompute.VirtualMachineScaleSetUpdateStorageProfile {
	update := &armcompute.VirtualMachineScaleSetUpdateStorageProfile{ImageReference: imageReference(image, imageOf(set))}
	now := cloud.Value(storageOf(set))
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

// followImage reads whether the image is set.
func (s *scaleSet) followImage(ctx context.Context, m *memory) (over bool, err error) {
	set, err := s.get(ctx)
	if err != nil {
		return false, err
	}
	idle := busyReason(set) == ""
	if strings.EqualFold(imageText(imageOf(set)), m.Image) || idle && hasToken(set, m.Token) {
		return true, nil
	}
	if idle {
		m.Fail(cloud.KindFailed, "setting the image of scale set "+s.name+", Azure has not done it")
	}
	return idle, nil
}
