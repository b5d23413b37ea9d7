// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

const (
	// tagOperation is the tag of a scale set that lists the tokens of the last changes made here, the latest first.
	tagOperation = "moult-operation"
	// tagTokens is how many tokens it lists: a tag's value has at most 256 characters.
	tagTokens = 7
)

// memory is what cloud.Operation.State keeps of an operation.
type memory struct {
	// The change: one of these is set.
	Add    int      `json:"add,omitempty"`
	Delete []string `json:"delete,omitempty"`
	Image  string   `json:"image,omitempty"`
	// Etag and Capacity are the scale set's before an addition or an image, and Newest is when its newest machine was made.
	Etag     string    `json:"etag,omitempty"`
	Capacity int64     `json:"capacity,omitempty"`
	Newest   time.Time `json:"newest,omitzero"`
	// Sent is true once Azure has accepted the change. Resume is the SDK's token to poll it; empty where it is not known.
	Sent   bool   `json:"sent,omitempty"`
	Resume string `json:"resume,omitempty"`
	// Ended is true once the change has succeeded. Failed and Kind are its error, while its effects are undone.
	Ended  bool       `json:"ended,omitempty"`
	Failed string     `json:"failed,omitempty"`
	Kind   cloud.Kind `json:"kind,omitempty"`
	// Added are the new machines.
	Added []string `json:"added,omitempty"`
}

func (m *memory) fail(why string, kind cloud.Kind) { m.Failed, m.Kind = why, kind }

// Prepare makes an operation of a change.
func (s *scaleSet) Prepare(ctx context.Context, set *cloud.Set, c cloud.Change) (cloud.Operation, error) {
	if err := c.Check(); err != nil {
		return cloud.Operation{}, err
	}
	if set.Unfit != "" {
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "preparing a change of scale set %s, %s", s.name, set.Unfit)
	}
	m := memory{}
	var err error
	switch {
	case len(c.Delete) > 0:
		m.Delete = slices.Compact(slices.Sorted(slices.Values(c.Delete)))
	case c.Image != "":
		m.Etag, m.Capacity = set.Version, int64(set.Capacity)
		if m.Image, err = Reference(s.subscription, s.group, c.Image); err != nil {
			err = cloud.Errorf(cloud.KindInvalid, "preparing a change of scale set %s, %w", s.name, err)
		}
	default:
		m.Etag, m.Capacity = set.Version, int64(set.Capacity)
		err = s.prepareAdd(ctx, set, c.Add, &m)
	}
	if err != nil {
		return cloud.Operation{}, err
	}
	return cloud.NewOperation(c.Token, m)
}

// Send sends an operation.
func (s *scaleSet) Send(ctx context.Context, o cloud.Operation) (cloud.Operation, error) {
	m := memory{}
	err := o.Read(&m)
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
	return cloud.NewOperation(o.Token, m)
}

// sendUpdate sends an addition or an image: one PATCH, which Azure accepts if the scale set is as it was described, and which leaves its token there.
func (s *scaleSet) sendUpdate(ctx context.Context, token string, m *memory) error {
	set, err := s.get(ctx)
	if err != nil {
		return err
	}
	if hasToken(set, token) {
		return nil
	}
	if m.Image != "" && strings.EqualFold(imageText(imageOf(set)), m.Image) {
		m.Ended = true
		return nil
	}
	if value(set.Etag) != m.Etag || set.SKU == nil || value(set.SKU.Capacity) != m.Capacity {
		return cloud.Errorf(cloud.KindConflict, "changing scale set %s, it was changed meanwhile", s.name)
	}
	update := armcompute.VirtualMachineScaleSetUpdate{}
	if m.Image != "" {
		update.Properties = &armcompute.VirtualMachineScaleSetUpdateProperties{
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{StorageProfile: storageUpdate(set, m.Image)},
		}
	} else {
		update.SKU = skuWithCapacity(set, m.Capacity+int64(m.Add))
	}
	err = s.patch(ctx, set, token, update, m)
	if cloud.KindOf(err) != cloud.KindConflict {
		return err
	}
	// This same PATCH, delivered twice, may have changed it.
	now, readErr := s.get(ctx)
	switch {
	case readErr != nil:
		return cloud.Errorf(cloud.KindUnavailable, "changing scale set %s, whether that was done is not known, %w", s.name, readErr)
	case hasToken(now, token):
		return nil
	default:
		return err
	}
}

// patch sends a PATCH with a token, on condition that the scale set is as it was read.
func (s *scaleSet) patch(ctx context.Context, set *armcompute.VirtualMachineScaleSet, token string, update armcompute.VirtualMachineScaleSetUpdate,
	m *memory,
) error {
	update.Tags = tagsWith(set, token)
	poller, err := s.sets.BeginUpdate(ctx, s.group, s.name, update, &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: set.Etag})
	if err != nil {
		return classify(err, "changing scale set %s", s.name)
	}
	m.Resume, m.Ended = resumeToken(poller)
	// Azure makes no machines while a request waits: an addition that seems to have ended has not.
	m.Ended = m.Ended && m.Add == 0
	return nil
}

// resumeToken returns what a poller is resumed by later, and true where the operation has succeeded already.
func resumeToken[T any](p *runtime.Poller[T]) (token string, ended bool) {
	if p.Done() {
		return "", true
	}
	token, _ = p.ResumeToken() // Without one, the scale set tells how the operation ends.
	return token, false
}

// Poll reads the progress of an operation: from Azure's own operation as long as it is known, and then from the scale set and its machines.
func (s *scaleSet) Poll(ctx context.Context, o cloud.Operation) (cloud.Operation, cloud.Progress, error) {
	m := memory{}
	err := o.Read(&m)
	if err != nil {
		return o, cloud.Progress{}, err
	}
	var progress cloud.Progress
	if m.Resume != "" && !m.Ended && m.Failed == "" {
		progress.After, err = s.resume(ctx, &m)
	}
	if err == nil {
		switch {
		case m.Add > 0:
			err = s.pollAdd(ctx, o.Token, &m, &progress)
		case len(m.Delete) > 0:
			err = s.pollDelete(ctx, &m, &progress)
		default:
			err = s.pollImage(ctx, o.Token, &m, &progress)
		}
	}
	next, failure := cloud.NewOperation(o.Token, m)
	switch {
	case failure != nil:
		return o, cloud.Progress{}, failure
	case err != nil:
		return next, progress, cloud.NotFinal(err)
	case m.Failed != "" && progress.Done:
		progress.Done = false
		return next, progress, cloud.Errorf(m.Kind, "%s", m.Failed)
	default:
		return next, progress, nil
	}
}

// resume polls Azure's operation once, and returns how long to wait before the next poll. It clears Resume where Azure does not know the operation.
func (s *scaleSet) resume(ctx context.Context, m *memory) (time.Duration, error) {
	if len(m.Delete) > 0 {
		p, err := s.sets.BeginDeleteInstances(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{},
			&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ResumeToken: m.Resume})
		return pollOnce(ctx, s.name, m, p, err)
	}
	p, err := s.sets.BeginUpdate(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetUpdate{},
		&armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{ResumeToken: m.Resume})
	return pollOnce(ctx, s.name, m, p, err)
}

func pollOnce[T any](ctx context.Context, name string, m *memory, p *runtime.Poller[T], err error) (time.Duration, error) {
	if err != nil {
		m.Resume = "" // The token can't be read.
		return 0, nil
	}
	response, err := p.Poll(ctx)
	if err != nil {
		err = classify(err, "polling a change of scale set %s", name)
		if kind := cloud.KindOf(err); !errors.Is(err, errElsewhere) && (kind == cloud.KindThrottled || kind == cloud.KindUnavailable) {
			return 0, err
		}
		m.Resume = ""
		return 0, nil
	}
	defer response.Body.Close()
	if !p.Done() {
		return retryAfter(response), nil
	}
	status := statusOf(response)
	if strings.EqualFold(status, "Succeeded") {
		m.Ended = true
		return 0, nil
	}
	if _, err = p.Result(ctx); err == nil {
		m.Ended = true
		return 0, nil
	}
	s := errorIn(response).inner()
	if strings.EqualFold(s.Code, "OperationPreempted") || strings.EqualFold(status, "Canceled") {
		m.Resume = "" // A later change continues it.
		return 0, nil
	}
	m.fail(fmt.Sprintf("changing scale set %s, %s", name, oneLine(cmp.Or(s.Code, "Failed")+": "+s.Message)), kindOfFailure(s.Code, s.Message))
	return 0, nil
}

// statusOf is the status of an operation in an answer; empty where the answer is the operation's result.
func statusOf(r *http.Response) string {
	var of struct {
		Status string `json:"status"`
	}
	if body, err := runtime.Payload(r); err != nil || json.Unmarshal(body, &of) != nil {
		return ""
	}
	return of.Status
}

// hasToken reports whether the change with a token is in the scale set.
func hasToken(set *armcompute.VirtualMachineScaleSet, token string) bool {
	tag, _ := tagOf(set, tagOperation)
	return slices.Contains(strings.Fields(tag), token)
}

// tagsWith are the tags of a scale set, with a token put in front of those of the changes before. A PATCH replaces them all.
func tagsWith(set *armcompute.VirtualMachineScaleSet, token string) map[string]*string {
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
