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

// Plan implements cloud.Driver. It chooses the names of machines to add, so that they are known whatever happens to the answer.
func (s *scaleSet) Plan(ctx context.Context, set *cloud.Set, m *memory) error {
	g, err := s.locate(ctx)
	if err != nil {
		return err
	}
	switch {
	case m.Add > 0:
		now, err := s.cloud.get(ctx, g)
		if err != nil {
			return err
		}
		m.Base = cmp.Or(now.BaseInstanceName, g.name)
	case m.Image != "":
		template := s.cloud.template(m.Image)
		if !templateName.MatchString(template) {
			return cloud.Errorf(cloud.KindInvalid, "setting the image of group %s: %q is no instance template", g, m.Image)
		}
		m.Image, m.Fingerprint = template, set.Version
	}
	for _, id := range m.Delete {
		if _, _, ok := machineOf(id); !ok {
			return cloud.Errorf(cloud.KindInvalid, "deleting machine %q of group %s, which has no zone yet", id, g)
		}
	}
	return nil
}

// Submit implements cloud.Driver. Compute Engine recognizes a repeated request by its id, for a while. Later the names of new machines, or the fingerprint
// of the group, prevent a second effect.
func (s *scaleSet) Submit(ctx context.Context, m *memory) error {
	g, err := s.locate(ctx)
	if err != nil {
		return err
	}
	c, request := s.cloud, requestID(g.String(), m.Token)
	var op *compute.Operation
	var isDone func() (bool, error)
	switch {
	case m.Add > 0:
		names := newNames(m.Base, m.Token, m.Add)
		op, err = c.create(ctx, g, names, request)
		isDone = func() (bool, error) {
			managed, err := c.list(ctx, g)
			return slices.ContainsFunc(managed, func(i *compute.ManagedInstance) bool { return slices.Contains(names, i.Name) }), err
		}
	case m.Image != "":
		op, err = c.set(ctx, g, m.Image, m.Fingerprint, request)
		isDone = func() (bool, error) {
			now, err := c.get(ctx, g)
			return err == nil && c.templateOf(now) == m.Image, err
		}
	default:
		op, err = c.remove(ctx, g, m.Delete, request)
		isDone = func() (bool, error) { return false, nil }
	}
	if err == nil {
		m.Operation = op.Name
		return nil
	}
	// A request may be refused because an earlier one was successful.
	err = classify(description(g, m), err)
	if kind := cloud.KindOf(err); kind != cloud.KindConflict && kind != cloud.KindInvalid {
		return err
	}
	done, unknown := isDone()
	switch {
	case unknown != nil:
		return cloud.Errorf(cloud.KindUnavailable, "%w", unknown)
	case done:
		return nil
	}
	return err
}

// Follow implements cloud.Driver. It reads the operation and, once that is done, the machines: an operation is done when the group has accepted it.
func (s *scaleSet) Follow(ctx context.Context, m *memory) (cloud.Progress, error) {
	g, err := s.locate(ctx)
	if err != nil {
		return cloud.Progress{}, err
	}
	if !m.Over && m.Operation != "" {
		op, err := s.cloud.operation(ctx, g, m.Operation)
		if err != nil {
			err = classify("reading operation "+m.Operation, err)
			if cloud.IgnoreNotFound(err) != nil { // Compute Engine forgets operations after a while.
				return cloud.Progress{}, err
			}
		} else if op.Status != "DONE" {
			return cloud.Progress{Message: fmt.Sprintf("operation %s is %s", m.Operation, strings.ToLower(cmp.Or(op.Status, "pending")))}, nil
		} else if err := operationError(op); err != nil {
			// The group shows the effect: it may have done a part, or all of it by an earlier request.
			m.Fail(cloud.KindOf(err), description(g, m)+", "+err.Error())
		}
	}
	m.Over = true
	if m.Image != "" {
		return cloud.Progress{Done: true}, nil
	}
	managed, err := s.cloud.list(ctx, g)
	switch {
	case err == nil && m.Add > 0:
		return s.followAdd(ctx, g, m, managed)
	case err == nil:
		return followDelete(g, m, managed), nil
	case cloud.KindOf(err) != cloud.KindNotFound:
		return cloud.Progress{}, err
	case m.Add > 0:
		m.Fail(cloud.KindFailed, description(g, m)+", the group is gone")
	}
	return cloud.Progress{Done: true}, nil // Its machines are gone as well.
}

// followAdd reads whether the machines were made. A group tries forever to make a machine that can't be made, so followAdd removes it from the group. If others
// deleted some machines, the operation succeeds with the rest.
func (s *scaleSet) followAdd(ctx context.Context, g group, m *memory, managed []*compute.ManagedInstance) (cloud.Progress, error) {
	names := newNames(m.Base, m.Token, m.Add)
	var failed []string
	busy, failure := 0, ""
	m.Added = nil
	for _, i := range managed {
		if !slices.Contains(names, i.Name) {
			continue
		}
		zone, name, placed := machineOf(i.Instance)
		why := lastError(i)
		switch {
		case i.CurrentAction == "DELETING" || i.CurrentAction == "ABANDONING":
			busy++
		case i.InstanceStatus == "" && why != "" && placed:
			failed, failure = append(failed, machineID(zone, name)), why
		case i.InstanceStatus == "" || !placed:
			busy++
		default:
			m.Added = append(m.Added, machineID(zone, name))
		}
	}
	switch {
	case len(failed) > 0:
		recorded := m.Failure != ""
		m.Fail(cloud.KindOfAnswer(rules, failure, cloud.KindFailed), description(g, m)+", "+failure)
		if recorded { // After the removal the group no longer says the reason.
			slices.Sort(failed)
			if _, err := s.cloud.remove(ctx, g, failed, requestID(append([]string{g.String(), m.Token, "undo"}, failed...)...)); err != nil {
				return cloud.Progress{}, classify("removing machines that group "+g.String()+" can't make", err)
			}
		}
		return cloud.Progress{Message: fmt.Sprintf("%d of %d machines can't be made and are removed, %s", len(failed), m.Add, failure)}, nil
	case busy > 0:
		return cloud.Progress{Message: fmt.Sprintf("%d of %d machines are made", len(m.Added), m.Add)}, nil
	case len(m.Added) == m.Add:
		m.Kind, m.Failure = "", ""
	case len(m.Added) == 0 && m.Failure == "":
		m.Fail(cloud.KindFailed, description(g, m)+", it has none of them")
	}
	return cloud.Progress{Done: true, Message: fmt.Sprintf("%d of %d machines are made", len(m.Added), m.Add)}, nil
}

// followDelete reads whether the machines are gone. It fails if the group keeps a machine.
func followDelete(g group, m *memory, managed []*compute.ManagedInstance) cloud.Progress {
	left, why := 0, ""
	for _, i := range managed {
		zone, name, ok := machineOf(i.Instance)
		if !ok || !slices.Contains(m.Delete, machineID(zone, name)) {
			continue
		}
		left++
		why = cmp.Or(why, lastError(i))
		if i.CurrentAction != "DELETING" && i.CurrentAction != "ABANDONING" {
			if why != "" || m.Failure == "" {
				m.Fail(cloud.KindOfAnswer(rules, why, cloud.KindFailed), fmt.Sprintf("%s, it keeps %s, %s", description(g, m), name, cmp.Or(why, "and does not say why")))
			}
			return cloud.Progress{Done: true}
		}
	}
	if left == 0 {
		m.Kind, m.Failure = "", ""
		return cloud.Progress{Done: true}
	}
	return cloud.Progress{Message: strings.TrimSuffix(fmt.Sprintf("%d of %d machines are being deleted, %s", left, len(m.Delete), why), ", ")}
}

// description is what an operation does.
func description(g group, m *memory) string {
	switch {
	case m.Image != "":
		return "setting the template of group " + g.String()
	case len(m.Delete) > 0:
		return "deleting machines of group " + g.String()
	}
	return "adding machines to group " + g.String()
}
