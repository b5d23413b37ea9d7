// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// Poll asks about the operation and, once that is done, about the machines: Compute Engine calls an operation done when the group has taken it in.
func (s *scaleSet) Poll(ctx context.Context, o cloud.Operation) (cloud.Operation, cloud.Progress, error) {
	m, err := remember(o)
	if err != nil {
		return o, cloud.Progress{}, err
	}
	g, err := s.locate(ctx)
	if err != nil {
		return o, cloud.Progress{}, cloud.NotFinal(err)
	}
	var p cloud.Progress
	p, err = s.poll(ctx, g, o.Token, m)
	next, unwritten := m.operation(o.Token)
	if unwritten != nil {
		return o, cloud.Progress{}, unwritten
	}
	return next, p, err
}

func (s *scaleSet) poll(ctx context.Context, g group, token string, m *memory) (cloud.Progress, error) {
	if !m.Taken {
		return cloud.Progress{Message: "it was not sent yet"}, nil
	}
	if !m.Over && m.Operation != "" {
		op, err := s.cloud.operation(ctx, g, m.Operation)
		switch {
		case err != nil:
			err = classify("reading operation "+m.Operation, err)
			if cloud.KindOf(err) != cloud.KindNotFound { // those are forgotten after a while
				return cloud.Progress{}, cloud.NotFinal(err)
			}
		case op.Status != "DONE":
			return cloud.Progress{Message: fmt.Sprintf("operation %s is %s", m.Operation, strings.ToLower(cmp.Or(op.Status, "pending")))}, nil
		default:
			if err := ended(op); err != nil {
				if m.Image != "" {
					return cloud.Progress{}, cloud.Errorf(cloud.KindOf(err), "%s, %w", doing(g, m), err)
				}
				// The group itself tells what has come of it: some may have been done, or all of it by a request before this one.
				m.fails(cloud.KindOf(err), err.Error())
			}
		}
	}
	m.Over = true
	switch {
	case m.Image != "":
		return cloud.Progress{Done: true}, nil
	case len(m.Delete) > 0:
		return s.deleted(ctx, g, m)
	}
	return s.added(ctx, g, token, m)
}

// doing says what an operation does.
func doing(g group, m *memory) string {
	switch {
	case m.Image != "":
		return "setting the template of group " + g.String()
	case len(m.Delete) > 0:
		return "deleting machines of group " + g.String()
	}
	return "adding machines to group " + g.String()
}

// deleted looks whether machines are gone.
func (s *scaleSet) deleted(ctx context.Context, g group, m *memory) (cloud.Progress, error) {
	managed, err := s.cloud.list(ctx, g)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return cloud.Progress{Done: true}, nil // and its machines with it
	}
	if err != nil {
		return cloud.Progress{}, cloud.NotFinal(err)
	}
	ids := m.machines()
	left, said := 0, ""
	for _, i := range managed {
		zone, name, ok := machineOf(i.Instance)
		if !ok || !slices.Contains(ids, machineID(zone, name)) {
			continue
		}
		code, text := trouble(i)
		if i.CurrentAction != "DELETING" && i.CurrentAction != "ABANDONING" {
			kind := m.Kind
			if code != "" {
				kind = failed(code)
			}
			return cloud.Progress{}, cloud.Errorf(cmp.Or(kind, cloud.KindFailed), "%s, it keeps %s, %s", doing(g, m), name,
				cmp.Or(text, m.Failure, "and does not say why"))
		}
		left++
		said = cmp.Or(said, text)
	}
	if left == 0 {
		return cloud.Progress{Done: true}, nil
	}
	message := fmt.Sprintf("%d of %d machines are being deleted", left, len(ids))
	if said != "" {
		message += ", " + said
	}
	return cloud.Progress{Message: message}, nil
}

// added looks whether machines were made. The group goes on trying for ever to make one that can't be made: such a one is taken out of it again. What
// is left of an operation that has failed are the machines that were made, which it gives beside the error. One whose machines somebody else has deleted
// has ended well, with those that are left.
func (s *scaleSet) added(ctx context.Context, g group, token string, m *memory) (cloud.Progress, error) {
	managed, err := s.cloud.list(ctx, g)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return cloud.Progress{}, cloud.Errorf(cloud.KindFailed, "%s, it is gone", doing(g, m))
	}
	if err != nil {
		return cloud.Progress{}, cloud.NotFinal(err)
	}
	known := m.Failure != ""
	made, hopeless, busy := m.sort(managed)
	if len(hopeless) > 0 && !known {
		// Once they are removed nothing tells the reason any more: it is written down before.
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines can't be made, %s", len(hopeless), len(m.Add), m.Failure)}, nil
	}
	if len(hopeless) > 0 {
		slices.Sort(hopeless)
		request := requestID(append([]string{g.String(), token, "undo"}, hopeless...)...)
		if _, err := s.cloud.remove(ctx, g, hopeless, request); err != nil {
			return cloud.Progress{Added: made}, cloud.NotFinal(classify("removing machines that group "+g.String()+" can't make", err))
		}
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines can't be made and are removed, %s", len(hopeless), len(m.Add), m.Failure)}, nil
	}
	if busy > 0 {
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines are made", len(made), len(m.Add))}, nil
	}
	if len(made) == 0 {
		return cloud.Progress{}, cloud.Errorf(cmp.Or(m.Kind, cloud.KindFailed), "%s, %s", doing(g, m), cmp.Or(m.Failure, "it has none of them"))
	}
	short := len(m.Add) - len(made)
	if short > 0 && m.Failure != "" {
		return cloud.Progress{Added: made}, cloud.Errorf(m.Kind, "%s, %d of %d could not be made, %s", doing(g, m), short, len(m.Add), m.Failure)
	}
	p := cloud.Progress{Done: true, Added: made}
	if short > 0 {
		p.Message = fmt.Sprintf("%d of %d machines are not there any more", short, len(m.Add))
	}
	return p, nil
}

// sort parts the machines to add into those that were made, those that can't be, and the number of those of which that is not known yet. It remembers
// why one can't be.
func (m *memory) sort(managed []*compute.ManagedInstance) (made, hopeless []string, busy int) {
	for _, i := range managed {
		if !slices.Contains(m.Add, i.Name) {
			continue
		}
		zone, name, placed := machineOf(i.Instance)
		code, text := trouble(i)
		switch {
		case i.CurrentAction == "DELETING" || i.CurrentAction == "ABANDONING":
			busy++
		case i.InstanceStatus == "" && text != "" && placed:
			hopeless = append(hopeless, machineID(zone, name))
			m.fails(failed(code), text)
		case i.InstanceStatus == "" || !placed:
			busy++
		default:
			made = append(made, machineID(zone, name))
		}
	}
	return made, hopeless, busy
}
