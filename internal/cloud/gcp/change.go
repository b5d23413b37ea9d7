// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// Plan implements cloud.Driver. It chooses the names of machines to add, so that they are known whatever happens to the answer.
func (s *scaleSet) Plan(ctx context.Context, set *cloud.Set, m *memory) error {
	g, now, err := s.read(ctx)
	if err != nil {
		return err
	}
	m.Group = g.String()
	switch {
	case m.Add > 0:
		m.Base = cmp.Or(now.BaseInstanceName, g.name)
	case m.Image != "":
		template := s.cloud.template(m.Image)
		if !templateName.MatchString(template) {
			return cloud.Errorf(cloud.KindInvalid, "setting the image of group %s: %q is no instance template", g, m.Image)
		}
		m.Image, m.Fingerprint = template, set.Version
	}
	for _, id := range m.Delete {
		if _, ok := machineOf(id); !ok {
			return cloud.Errorf(cloud.KindInvalid, "deleting machine %q of group %s, which has no zone yet", id, g)
		}
	}
	return nil
}

// Submit implements cloud.Driver. Compute Engine recognizes a repeated request by its id, for a while. Later the names of new machines, or the template of the
// group, prevent a second effect.
func (s *scaleSet) Submit(ctx context.Context, m *memory) (err error) {
	g, _ := groupOf(m.Group, groupName)
	c, doing, request, names := s.cloud, description(g, m), requestID(g.String(), m.Token), newNames(m.Base, m.Token, m.Add)
	var op *compute.Operation
	switch {
	case m.Add > 0:
		op, err = c.create(ctx, doing, g, names, request)
	case m.Image != "":
		now, unread := c.get(ctx, g)
		if unread != nil || c.templateOf(now) == m.Image {
			return unread
		}
		op, err = c.set(ctx, doing, g, m.Image, m.Fingerprint, request)
	default:
		op, err = c.remove(ctx, doing, g, m.Delete, request)
	}
	if err == nil {
		m.Operation = op.Name
		return nil
	}
	if kind := cloud.KindOf(err); m.Add == 0 || kind != cloud.KindConflict && kind != cloud.KindInvalid {
		return err
	}
	// The names may be refused because an earlier request has made the machines.
	managed, unknown := c.list(ctx, g)
	if unknown != nil {
		return cloud.Errorf(cloud.KindUnavailable, "%w", unknown)
	}
	if slices.ContainsFunc(managed, func(i *compute.ManagedInstance) bool { return slices.Contains(names, i.Name) }) {
		return nil
	}
	return err
}

// Follow implements cloud.Driver. It reads the operation and, once that is done, the machines: an operation is done when the group has accepted it.
func (s *scaleSet) Follow(ctx context.Context, m *memory) (over bool, err error) {
	g, _ := groupOf(m.Group, groupName)
	if m.Operation != "" {
		op, err := s.cloud.operation(ctx, g, m.Operation)
		switch {
		case cloud.KindOf(err) == cloud.KindNotFound: // Compute Engine forgets operations after a while.
		case err != nil || op.Status != "DONE":
			return false, err
		default:
			// The group shows the effect: it may have done a part, or all of it by an earlier request.
			if kind, why := operationError(op); why != "" {
				m.Fail(kind, description(g, m)+", "+why)
			}
		}
		if m.Operation = ""; s.seen != nil {
			return false, nil // What the look has read is older.
		}
	}
	if m.Image != "" {
		return true, nil
	}
	managed, err := s.list(ctx, g)
	if cloud.IgnoreNotFound(err) != nil { // A group that is gone has no machines.
		return false, err
	}
	if m.Add > 0 {
		return s.followAdd(ctx, g, m, managed)
	}
	return followDelete(g, m, managed), nil
}

// followAdd reads whether the machines were made. A group tries forever to make a machine that can't be made, so followAdd removes it from the group. If others
// deleted some machines, the operation succeeds with the rest.
func (s *scaleSet) followAdd(ctx context.Context, g group, m *memory, managed []*compute.ManagedInstance) (over bool, err error) {
	names := newNames(m.Base, m.Token, m.Add)
	var failed []string
	busy, failure := false, ""
	m.Added = nil
	for _, i := range managed {
		if !slices.Contains(names, i.Name) {
			continue
		}
		id, placed := machineOf(i.Instance)
		why := lastError(i)
		if placed {
			m.Added = append(m.Added, id.String())
		}
		switch {
		case stateOf(i) == cloud.Deleting, !placed:
			busy = true
		case isMade(i):
		case why != "":
			failed, failure = append(failed, id.String()), why
		default:
			busy = true
		}
	}
	switch {
	case len(failed) > 0:
		recorded := m.Failure != ""
		m.Fail(cloud.KindOfAnswer(rules, failure, cloud.KindFailed), description(g, m)+", "+failure)
		if recorded { // After the removal the group no longer says the reason.
			slices.Sort(failed)
			_, err = s.cloud.remove(ctx, "removing machines that group "+g.String()+" can't make", g, failed,
				requestID(append([]string{g.String(), m.Token, "undo"}, failed...)...))
		}
		return false, err
	case busy:
		return false, nil
	case len(m.Added) == m.Add:
		m.Kind, m.Failure = "", ""
	case len(m.Added) == 0 && m.Failure == "":
		m.Fail(cloud.KindFailed, description(g, m)+", it has none of them")
	}
	return true, nil
}

// followDelete reports whether the machines are gone. It fails if the group keeps a machine.
func followDelete(g group, m *memory, managed []*compute.ManagedInstance) (over bool) {
	over = true
	why := ""
	for _, i := range managed {
		id, _ := machineOf(i.Instance)
		if !slices.Contains(m.Delete, id.String()) {
			continue
		}
		over = false
		why = cmp.Or(why, lastError(i))
		if stateOf(i) != cloud.Deleting {
			if why != "" || m.Failure == "" {
				m.Fail(cloud.KindOfAnswer(rules, why, cloud.KindFailed), fmt.Sprintf("%s, it keeps %s, %s", description(g, m), id.name, cmp.Or(why, "and does not say why")))
			}
			return true
		}
	}
	if over {
		m.Kind, m.Failure = "", ""
	}
	return over
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
