// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

const (
	// tagOperation is the tag of a scale set that lists the tokens of the last changes, the latest first.
	tagOperation = "moult-operation"
	// tagTokens is how many tokens it lists: a tag's value has at most 256 characters.
	tagTokens = 7
)

// memory is what is kept of an operation.
type memory struct {
	cloud.Memory
	// Etag is the scale set's before an addition or an image, and Newest is when its newest machine was made.
	Etag   string    `json:"etag,omitempty"`
	Newest time.Time `json:"newest,omitzero"`
	// Resume is the SDK's token to poll Azure's own operation; empty where it is not known.
	Resume string `json:"resume,omitempty"`
	// Again is how often a deletion was sent again.
	Again int `json:"again,omitempty"`
}

// Plan implements cloud.Driver.
func (s *scaleSet) Plan(ctx context.Context, set *cloud.Set, m *memory) (err error) {
	m.Etag = set.Version
	switch {
	case m.Add > 0:
		machines, err := s.Machines(ctx)
		for _, machine := range machines {
			if machine.Created.IsZero() {
				return cloud.Errorf(cloud.KindInvalid, "Azure does not say when machine %s of scale set %s was made, so a new one would not be known", machine.ID, s.name)
			}
			if machine.Created.After(m.Newest) {
				m.Newest = machine.Created
			}
		}
		return err
	case m.Image != "":
		if m.Image, err = fullReference(s.subscription, s.group, m.Image); err != nil {
			return cloud.Errorf(cloud.KindInvalid, "setting the image of scale set %s, %w", s.name, err)
		}
	}
	return nil
}

// Submit implements cloud.Driver. An addition or an image is one PATCH, which Azure accepts only if the scale set has not changed since it was described.
func (s *scaleSet) Submit(ctx context.Context, m *memory) error {
	if len(m.Delete) > 0 {
		return s.submitDelete(ctx, m)
	}
	set, err := s.get(ctx)
	switch {
	case err != nil:
		return err
	case hasToken(set, m.Token), m.Image != "" && strings.EqualFold(imageText(imageOf(set)), m.Image):
		return nil
	case cloud.Value(set.Etag) != m.Etag || set.SKU == nil:
		return cloud.Errorf(cloud.KindConflict, "changing scale set %s, it was changed meanwhile", s.name)
	}
	update := armcompute.VirtualMachineScaleSetUpdate{}
	if m.Image != "" {
		update.Properties = &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: storageUpdate(set, m.Image)},
		}
	} else {
		update.SKU = skuWithCapacity(set, cloud.Value(set.SKU.Capacity)+int64(m.Add))
	}
	if m.Resume, err = s.patch(ctx, set, m.Token, update); cloud.KindOf(err) != cloud.KindConflict {
		return err
	}
	// This same PATCH may have been delivered twice.
	switch now, unknown := s.get(ctx); {
	case unknown != nil:
		return cloud.Errorf(cloud.KindUnavailable, "%w", unknown)
	case hasToken(now, m.Token):
		return nil
	}
	return err
}

// Follow implements cloud.Driver. The scale set and its machines show the progress.
func (s *scaleSet) Follow(ctx context.Context, m *memory) (over bool, err error) {
	switch {
	case m.Add > 0:
		return s.followAdd(ctx, m)
	case m.Image != "":
		return s.followImage(ctx, m)
	}
	return s.followDelete(ctx, m)
}

// patch sends a PATCH with a token, on condition that the scale set is as it was read. It returns the SDK's token to poll Azure's operation.
func (s *scaleSet) patch(ctx context.Context, set *armcompute.VirtualMachineScaleSet, token string, update armcompute.VirtualMachineScaleSetUpdate,
) (resume string, err error) {
	update.Tags = tagsWith(set, token)
	poller, err := s.sets.BeginUpdate(ctx, s.group, s.name, update, &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: set.Etag})
	if err != nil {
		return "", classify("changing scale set "+s.name, err)
	}
	resume, _ = poller.ResumeToken() // Azure may have ended the operation, or give none.
	return resume, nil
}

// failure polls Azure's own operation once, and reports whether it is over, and why it failed. If Azure no longer knows it, or the credentials may not read it,
// it is over without a reason.
func (s *scaleSet) failure(ctx context.Context, m *memory) (over bool, why string, err error) {
	if m.Resume == "" {
		return true, "", nil
	}
	if m.Add > 0 {
		p, err := s.sets.BeginUpdate(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetUpdate{},
			&armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{ResumeToken: m.Resume})
		return pollOnce(ctx, p, err)
	}
	p, err := s.sets.BeginDeleteInstances(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{},
		&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ResumeToken: m.Resume})
	return pollOnce(ctx, p, err)
}

func pollOnce[T any](ctx context.Context, p *runtime.Poller[T], err error) (over bool, why string, _ error) {
	if err != nil {
		return true, "", nil // The token can't be read.
	}
	response, err := p.Poll(ctx)
	if err != nil {
		err = classify("polling a change", err)
		if kind := cloud.KindOf(err); kind == cloud.KindThrottled || kind == cloud.KindUnavailable {
			return false, "", err
		}
		return true, "", nil
	}
	defer response.Body.Close()
	if p.Done() {
		if _, err = p.Result(ctx); err != nil {
			why = textOf(err)
		}
	}
	return p.Done(), why, nil
}

// hasToken reports whether the change with a token is in the scale set.
func hasToken(set *armcompute.VirtualMachineScaleSet, token string) bool {
	tag, _ := tagOf(set, tagOperation)
	return slices.Contains(strings.Fields(tag), token)
}

// tagsWith are the tags of a scale set, with a token before those of earlier changes. A PATCH replaces all tags.
func tagsWith(set *armcompute.VirtualMachineScaleSet, token string) map[string]*string {
	before, _ := tagOf(set, tagOperation)
	tokens := append([]string{token}, strings.Fields(before)...)
	text := strings.Join(tokens[:min(len(tokens), tagTokens)], " ")
	tags := map[string]*string{tagOperation: &text}
	for key, tag := range set.Tags {
		if !strings.EqualFold(key, tagOperation) {
			tags[key] = tag
		}
	}
	return tags
}

// skuWithCapacity is the SKU of a scale set with another capacity. A PATCH has nothing else of the model, so that Azure does not see a new model.
func skuWithCapacity(set *armcompute.VirtualMachineScaleSet, capacity int64) *armcompute.SKU {
	sku := *set.SKU
	sku.Capacity = &capacity
	return &sku
}
