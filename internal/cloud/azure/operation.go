// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

const (
	// tagOperation is the tag that names the last changes of a scale set that were made by this package, the latest first.
	tagOperation = "moult-operation"
	// tagTokens is how many of them: a tag's value has at most 256 characters.
	tagTokens = 7
	// atOnce is how many machines one change adds or deletes.
	atOnce = 100
)

// Prepare makes an operation of a change. For an addition it lists the machines that are there.
func (s *scaleSet) Prepare(ctx context.Context, set *cloud.Set, c cloud.Change) (cloud.Operation, error) {
	m := memory{Etag: set.Version, Capacity: int64(set.Capacity)}
	given := 0
	for _, is := range []bool{c.Add != 0, len(c.Delete) > 0, c.Image != ""} {
		if is {
			given++
		}
	}
	switch {
	case c.Token == "" || given != 1 || c.Add < 0 || c.Add > atOnce || len(c.Delete) > atOnce:
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid,
			"preparing a change of scale set %s, it must have a token, and be one thing, of at most %d machines", s.name, atOnce)
	case set.Unfit != "":
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "preparing a change of scale set %s, %s", s.name, set.Unfit)
	case c.Add > 0:
		if set.Max > 0 && set.Capacity+c.Add > set.Max {
			return cloud.Operation{}, cloud.Errorf(cloud.KindFull,
				"scale set %s has %d machines, and %d at most: there is no room for %d more", s.name, set.Capacity, set.Max, c.Add)
		}
		machines, err := s.list(ctx, false)
		if err != nil {
			return cloud.Operation{}, err
		}
		ids := make([]string, 0, len(machines))
		for _, machine := range machines {
			ids = append(ids, machine.ID)
		}
		m.Add, m.Before = c.Add, pack(ids)
	case c.Image != "":
		image, err := Reference(s.subscription, s.group, c.Image)
		if err != nil {
			return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "preparing a change of scale set %s, %w", s.name, err)
		}
		m.Image = image
	default:
		m.Delete = slices.Compact(slices.Sorted(slices.Values(c.Delete)))
		// Nothing of the scale set is needed to delete machines.
		m.Etag, m.Capacity = "", 0
	}
	return m.operation(c.Token)
}

// Send sends an operation.
func (s *scaleSet) Send(ctx context.Context, o cloud.Operation) (cloud.Operation, error) {
	m, err := remember(o)
	if err != nil || m.Sent {
		return o, err
	}
	if len(m.Delete) > 0 {
		err = s.sendDelete(ctx, &m)
	} else {
		err = s.sendUpdate(ctx, o.Token, &m)
	}
	if err != nil {
		return o, err
	}
	m.Sent = true
	return m.operation(o.Token)
}

// sendUpdate sends an addition or an image: one PATCH, which Azure takes if the scale set is as it was described, and which leaves its token there.
func (s *scaleSet) sendUpdate(ctx context.Context, token string, m *memory) error {
	set, err := s.get(ctx)
	if err != nil {
		return err
	}
	if landed(set, token) {
		return nil
	}
	if m.Image != "" && strings.EqualFold(imageText(imageOf(set)), m.Image) {
		m.Ended = true
		return nil
	}
	if value(set.Etag) != m.Etag || set.SKU == nil || value(set.SKU.Capacity) != m.Capacity {
		return cloud.Errorf(cloud.KindConflict, "changing scale set %s, somebody else has changed it meanwhile", s.name)
	}
	update := armcompute.VirtualMachineScaleSetUpdate{Tags: tagged(set, token)}
	if m.Image != "" {
		update.Properties = &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{
				StorageProfile: storage(set, m.Image),
			},
		}
	} else {
		update.SKU = resized(set, m.Capacity+int64(m.Add))
	}
	err = s.patch(ctx, set, update, m)
	if cloud.KindOf(err) != cloud.KindConflict {
		return err
	}
	// It may be this very PATCH, delivered twice, that has changed it.
	now, readErr := s.get(ctx)
	switch {
	case readErr != nil:
		return cloud.Errorf(cloud.KindUnavailable, "changing scale set %s, whether that was done is not known, %w", s.name, readErr)
	case landed(now, token):
		return nil
	default:
		return err
	}
}

// patch sends a PATCH that is for the scale set as it was read.
func (s *scaleSet) patch(ctx context.Context, set *armcompute.VirtualMachineScaleSet, update armcompute.VirtualMachineScaleSetUpdate, m *memory) error {
	poller, err := s.sets.BeginUpdate(ctx, s.group, s.name, update, &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: set.Etag})
	if err != nil {
		return refused(err, "changing scale set %s", s.name)
	}
	m.Resume, m.Ended = started(poller)
	// Machines are not made while a request waits: one that says so is no proof.
	m.Ended = m.Ended && m.Add == 0
	return nil
}

// sendDelete sends a deletion. Sent again, it is for those that are there still.
func (s *scaleSet) sendDelete(ctx context.Context, m *memory) error {
	err := s.postDelete(ctx, m, m.Delete, true)
	kind := cloud.KindOf(err)
	if kind != cloud.KindInvalid && kind != cloud.KindNotFound && kind != cloud.KindConflict {
		return err
	}
	// Azure refuses all where one is gone.
	staying, leaving, listErr := s.remaining(ctx, m.Delete)
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
		return refused(err, "deleting machines of scale set %s", s.name)
	}
	if all {
		m.Resume, m.Ended = started(poller)
	}
	return nil
}

// remaining are those of these machines that are there still, and those that are being deleted.
func (s *scaleSet) remaining(ctx context.Context, ids []string) (staying, leaving []string, err error) {
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

// landed reports whether the change with a token is in the scale set.
func landed(set *armcompute.VirtualMachineScaleSet, token string) bool {
	tag, _ := tagOf(set, tagOperation)
	return slices.Contains(strings.Fields(tag), token)
}

// tagged are the tags of a scale set, with a token put in front of those of the changes before. A PATCH replaces them all.
func tagged(set *armcompute.VirtualMachineScaleSet, token string) map[string]*string {
	tags := maps.Clone(set.Tags)
	if tags == nil {
		tags = map[string]*string{}
	}
	before, _ := tagOf(set, tagOperation)
	maps.DeleteFunc(tags, func(key string, _ *string) bool { return strings.EqualFold(key, tagOperation) })
	tokens := append([]string{token}, strings.Fields(before)...)
	text := strings.Join(tokens[:min(len(tokens), tagTokens)], " ")
	tags[tagOperation] = &text
	return tags
}

// resized is the size of a scale set's machines, and how many they are to be. Nothing else of what they are made of is in the PATCH, so that Azure
// does not take it for a new model.
func resized(set *armcompute.VirtualMachineScaleSet, capacity int64) *armcompute.SKU {
	sku := *set.SKU
	sku.Capacity = &capacity
	return &sku
}
