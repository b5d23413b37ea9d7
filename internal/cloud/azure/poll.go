// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// undone is what the token of an addition is followed by in the tag, once what has come to nothing of it is taken out of the capacity again.
const undone = "-undone"

// Poll asks how an operation stands.
func (s *scaleSet) Poll(ctx context.Context, o cloud.Operation) (cloud.Operation, cloud.Progress, error) {
	m, err := remember(o)
	if err != nil {
		return o, cloud.Progress{}, err
	}
	var progress cloud.Progress
	if !m.Ended && m.Failed == "" && m.Resume != "" {
		progress.After, err = s.follow(ctx, &m)
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
	next, failure := m.operation(o.Token)
	switch {
	case failure != nil:
		return o, cloud.Progress{}, failure
	case err != nil:
		return next, progress, again(err)
	case m.Failed != "" && progress.Done:
		progress.Done = false
		return next, progress, cloud.Errorf(m.Kind, "%s", m.Failed)
	default:
		return next, progress, nil
	}
}

// again makes of an answer to a question one that is no end of the operation that was asked about.
func again(err error) error {
	switch cloud.KindOf(err) {
	case cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed:
		return &cloud.Error{Kind: cloud.KindUnavailable, RetryAfter: cloud.RetryAfter(err), Err: err}
	default:
		return err
	}
}

// started is what a poller is taken up by later, and true where the operation has ended well already.
func started[T any](p *runtime.Poller[T]) (resume string, ended bool) {
	if p.Done() {
		return "", true
	}
	// Without it, the scale set is looked at.
	resume, _ = p.ResumeToken()
	return resume, false
}

// follow asks Azure how the operation stands, and when it is worth asking again. Where Azure does not know it any more, the operation is left
// without Resume.
func (s *scaleSet) follow(ctx context.Context, m *memory) (time.Duration, error) {
	if !s.mine(m.Resume) {
		m.Resume = ""
		return 0, nil
	}
	if len(m.Delete) > 0 {
		p, err := s.sets.BeginDeleteInstances(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{},
			&armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ResumeToken: m.Resume})
		return step(ctx, s.name, m, p, err)
	}
	p, err := s.sets.BeginUpdate(ctx, s.group, s.name, armcompute.VirtualMachineScaleSetUpdate{},
		&armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{ResumeToken: m.Resume})
	return step(ctx, s.name, m, p, err)
}

// step asks once.
func step[T any](ctx context.Context, name string, m *memory, p *runtime.Poller[T], err error) (time.Duration, error) {
	if err != nil {
		// The token can't be read.
		m.Resume = ""
		return 0, nil
	}
	response, err := p.Poll(ctx)
	if err != nil {
		err = refused(err, "asking about a change of scale set %s", name)
		if kind := cloud.KindOf(err); kind == cloud.KindThrottled || kind == cloud.KindUnavailable {
			return 0, err
		}
		// Azure does not know it any more, or does not let it be asked about.
		m.Resume = ""
		return 0, nil
	}
	defer response.Body.Close()
	if !p.Done() {
		return retryAfter(response), nil
	}
	if state := statusOf(response); strings.EqualFold(state, "Succeeded") {
		m.Ended = true
		return 0, nil
	}
	_, err = p.Result(ctx)
	if err == nil {
		m.Ended = true
		return 0, nil
	}
	s := answered(response).inner()
	if strings.EqualFold(s.Code, "OperationPreempted") || strings.EqualFold(statusOf(response), "Canceled") {
		// A later change goes on with it.
		m.Resume = ""
		return 0, nil
	}
	m.fail(fmt.Sprintf("changing scale set %s, %s", name, short(cmp.Or(s.Code, "Failed")+": "+s.Message)), ended(s.Code, s.Message))
	return 0, nil
}

func (m *memory) fail(why string, kind cloud.Kind) { m.Failed, m.Kind = why, kind }

// statusOf is the status of an operation in an answer; empty where the answer is the operation's result.
func statusOf(r *http.Response) string {
	body, err := runtime.Payload(r)
	if err != nil {
		return ""
	}
	var of struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(body, &of) != nil {
		return ""
	}
	return of.Status
}

// mine reports whether a resume token leads only to where this Cloud's requests go: they bear its rights.
func (s *scaleSet) mine(resume string) bool {
	var token any
	if json.Unmarshal([]byte(resume), &token) != nil {
		return false
	}
	var good func(any) bool
	good = func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				if !good(inner) {
					return false
				}
			}
		case []any:
			return !slices.ContainsFunc(v, func(inner any) bool { return !good(inner) })
		case string:
			if !strings.Contains(v, "//") && !strings.Contains(v, `\`) {
				return true
			}
			at, err := url.Parse(v)
			return err == nil && at.Scheme == s.endpoint.Scheme && at.User == nil && strings.EqualFold(at.Host, s.endpoint.Host)
		}
		return true
	}
	return good(token)
}

// pollAdd looks which machines are new, and puts right what has failed.
func (s *scaleSet) pollAdd(ctx context.Context, token string, m *memory, progress *cloud.Progress) error {
	defer func() { progress.Added = m.Added }()
	var set *armcompute.VirtualMachineScaleSet
	blind := m.Resume == "" && !m.Ended && m.Failed == ""
	if blind {
		// How it stands can only be seen: first of the scale set, so that the machines are not older news.
		var err error
		if set, err = s.get(ctx); err != nil {
			return err
		}
		blind = busy(set) == ""
	}
	machines, err := s.list(ctx, m.Failed != "" || blind)
	if err != nil {
		return err
	}
	news := m.new(machines, m.Ended || m.Failed != "" || blind)
	if blind {
		s.judge(set, token, m, news)
	}
	switch {
	case m.Failed != "":
		progress.Message = m.Failed
		progress.Done, err = s.undo(ctx, token, m)
		return err
	case m.Ended:
		progress.Done = true
	default:
		progress.Message = fmt.Sprintf("Azure adds %s to scale set %s, of which there are %d", count(m.Add), s.name, len(m.Added))
	}
	return nil
}

// judge finds out how an addition has ended, of a scale set with which Azure does nothing any more and its new machines.
func (s *scaleSet) judge(set *armcompute.VirtualMachineScaleSet, token string, m *memory, news []cloud.Machine) {
	if i := slices.IndexFunc(news, func(n cloud.Machine) bool { return n.State == cloud.Failed }); i >= 0 {
		code, _, _ := strings.Cut(news[i].Message, ":")
		m.fail(fmt.Sprintf("adding machines to scale set %s, %s", s.name, news[i].Message), ended(code, news[i].Message))
		return
	}
	switch {
	case len(news) >= m.Add:
		m.Ended = true
	case strings.EqualFold(value(set.Properties.ProvisioningState), "Failed"):
		m.fail(fmt.Sprintf("adding machines to scale set %s, its provisioning state is Failed", s.name), cloud.KindFailed)
	case !landed(set, token):
		m.fail(fmt.Sprintf("adding machines to scale set %s, Azure has not done it", s.name), cloud.KindFailed)
	default:
		// Those that are missing were there, and have been removed.
		m.Ended = true
	}
}

// new are the machines that were not there before, as many as the operation adds: those that were taken for its own before, and then the best and
// oldest. Their ids are kept. final is true once no more will come.
func (m *memory) new(machines []cloud.Machine, final bool) []cloud.Machine {
	before := unpack(m.Before)
	var news []cloud.Machine
	for _, machine := range machines {
		if !before(machine.ID) && machine.State != cloud.Deleting {
			news = append(news, machine)
		}
	}
	rank := func(machine cloud.Machine) int {
		switch {
		case slices.Contains(m.Added, machine.ID):
			return 0
		case machine.UpToDate:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(news, func(a, b cloud.Machine) int {
		return cmp.Or(rank(a)-rank(b), a.Created.Compare(b.Created), len(a.ID)-len(b.ID), strings.Compare(a.ID, b.ID))
	})
	if len(news) > m.Add && !final {
		// Azure may be making more than it keeps, and it is too early to tell which.
		news = slices.DeleteFunc(news, func(machine cloud.Machine) bool { return !slices.Contains(m.Added, machine.ID) })
	}
	news = news[:min(len(news), m.Add)]
	m.Added = nil
	for _, machine := range news {
		m.Added = append(m.Added, machine.ID)
	}
	return news
}

// undo takes what an addition has failed to make out of the scale set's capacity again, so that Azure does not make it later, and reports whether
// that is done. The capacity never goes below what machines there are, so that Azure deletes none.
func (s *scaleSet) undo(ctx context.Context, token string, m *memory) (bool, error) {
	set, err := s.get(ctx)
	switch {
	case err != nil:
		return false, err
	case landed(set, token+undone):
		return true, nil
	case busy(set) != "":
		return false, nil
	}
	// The etag was read first: what comes or goes after it makes the PATCH fail.
	machines, err := s.list(ctx, false)
	if err != nil {
		return false, err
	}
	there := 0
	for _, machine := range machines {
		if machine.State != cloud.Deleting {
			there++
		}
	}
	missing := m.Add - len(m.new(machines, true))
	capacity := max(value(set.SKU.Capacity)-int64(missing), int64(there))
	if capacity >= value(set.SKU.Capacity) || !landed(set, token) {
		return true, nil
	}
	err = s.patch(ctx, set, armcompute.VirtualMachineScaleSetUpdate{Tags: tagged(set, token+undone), SKU: resized(set, capacity)}, &memory{})
	if cloud.KindOf(err) == cloud.KindConflict {
		return false, nil
	}
	return err == nil, err
}

// pollDelete looks whether the machines are gone.
func (s *scaleSet) pollDelete(ctx context.Context, m *memory, progress *cloud.Progress) error {
	progress.Message = fmt.Sprintf("Azure deletes %s of scale set %s", count(len(m.Delete)), s.name)
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
		idle = busy(set) == ""
	}
	staying, leaving, err := s.remaining(ctx, m.Delete)
	if err != nil {
		return err
	}
	if len(staying)+len(leaving) == 0 {
		m.Failed, m.Kind = "", ""
		m.Ended, progress.Done = true, true
		return nil
	}
	if idle && len(leaving) == 0 {
		m.fail(fmt.Sprintf("deleting machines of scale set %s, Azure has left %s", s.name, count(len(staying))), cloud.KindFailed)
	}
	progress.Done = m.Failed != "" && len(leaving) == 0
	return nil
}

func count(machines int) string {
	if machines == 1 {
		return "one machine"
	}
	return strconv.Itoa(machines) + " machines"
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
	case strings.EqualFold(imageText(imageOf(set)), m.Image) || landed(set, token) && busy(set) == "":
		m.Ended, progress.Done = true, true
	case busy(set) == "":
		m.fail(fmt.Sprintf("setting the image of scale set %s, Azure has not done it", s.name), cloud.KindFailed)
		progress.Done = true
	}
	return nil
}
