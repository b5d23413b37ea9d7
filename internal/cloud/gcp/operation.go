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

// memory is what cloud.Operation.State keeps of an operation: one of Add, Delete and Image, and how far it is.
type memory struct {
	// Add holds the names of machines to make.
	Add []string `json:"add,omitempty"`
	// Delete holds those to delete, as ZONE/NAME.
	Delete []string `json:"delete,omitempty"`
	// Image is the template to set, on a group with this Fingerprint.
	Image       string `json:"image,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Taken is true once Compute Engine has accepted the change. Operation is its name for it; empty with Taken: the name is lost.
	Operation string `json:"operation,omitempty"`
	Taken     bool   `json:"taken,omitempty"`
	// Over is true once that operation is done. The group goes on making or deleting the machines.
	Over bool `json:"over,omitempty"`
	// Failure is the first error, and Kind its kind.
	Failure string     `json:"failure,omitempty"`
	Kind    cloud.Kind `json:"kind,omitempty"`
}

func remember(o cloud.Operation) (*memory, error) {
	m := &memory{}
	if err := o.Read(m); err != nil {
		return nil, err
	}
	if len(m.Add) == 0 && len(m.Delete) == 0 && m.Image == "" {
		return nil, cloud.Errorf(cloud.KindInvalid, "reading operation %s: there is nothing to do in it", o.Token)
	}
	return m, nil
}

// machines are the machines to delete, as their ids.
func (m *memory) machines() []string {
	ids := make([]string, len(m.Delete))
	for i, d := range m.Delete {
		zone, name, _ := strings.Cut(d, "/")
		ids[i] = machineID(zone, name)
	}
	return ids
}

// fail remembers what has gone wrong, as far as there is room for that.
func (m *memory) fail(kind cloud.Kind, text string) {
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	m.Kind, m.Failure = kind, text
}

// Prepare chooses the names of machines to add, so that they are known whatever happens to the answer.
func (s *scaleSet) Prepare(ctx context.Context, set *cloud.Set, c cloud.Change) (cloud.Operation, error) {
	if err := c.Check(); err != nil {
		return cloud.Operation{}, err
	}
	g, err := s.locate(ctx)
	if err != nil {
		return cloud.Operation{}, err
	}
	m := &memory{}
	switch {
	case set.Unfit != "" && len(c.Delete) == 0: // what was added before it became unfit can still be removed
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "changing group %s, %s", g, set.Unfit)
	case c.Add > 0:
		if set.Max > 0 && set.Capacity+c.Add > set.Max {
			return cloud.Operation{}, cloud.Errorf(cloud.KindFull, "adding %d to %d machines of group %s, whose autoscaler's maximum is %d",
				c.Add, set.Capacity, g, set.Max)
		}
		if c.Zone != "" && !g.regional && c.Zone != g.location {
			return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "adding machines in zone %s to group %s", c.Zone, g)
		}
		now, err := s.cloud.get(ctx, g)
		if err != nil {
			return cloud.Operation{}, err
		}
		m.Add = newNames(cmp.Or(now.BaseInstanceName, g.name), c.Token, c.Add)
	case len(c.Delete) > 0:
		for _, id := range c.Delete {
			zone, name, ok := machineOf(id)
			if !ok {
				return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "deleting machine %q of group %s, which has no zone yet", id, g)
			}
			m.Delete = append(m.Delete, zone+"/"+name)
		}
	default:
		m.Image, m.Fingerprint = s.cloud.template(c.Image), set.Version
		if !templateName.MatchString(m.Image) {
			return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "setting the image of group %s: %q is no instance template", g, c.Image)
		}
	}
	return cloud.NewOperation(c.Token, m)
}

// Send sends an operation with a request id, by which Compute Engine recognizes a repetition. It forgets such ids after a while. Then the names of new
// machines, or the fingerprint of the group, prevent a second effect.
func (s *scaleSet) Send(ctx context.Context, o cloud.Operation) (cloud.Operation, error) {
	m, err := remember(o)
	if err != nil || m.Taken {
		return o, err
	}
	g, err := s.locate(ctx)
	if err != nil {
		return o, err
	}
	c, request := s.cloud, requestID(g.String(), o.Token)
	var op *compute.Operation
	switch {
	case len(m.Add) > 0:
		op, err = c.create(ctx, g, m.Add, request)
		err = unlessDone("adding machines to group "+g.String(), err, func() (bool, error) {
			managed, err := c.list(ctx, g)
			return slices.ContainsFunc(managed, func(i *compute.ManagedInstance) bool { return slices.Contains(m.Add, i.Name) }), err
		})
	case len(m.Delete) > 0:
		op, err = c.remove(ctx, g, m.machines(), request)
		err = unlessDone("deleting machines of group "+g.String(), err, func() (bool, error) { return false, nil })
	default:
		op, err = c.set(ctx, g, m.Image, m.Fingerprint, request)
		err = unlessDone("setting the template of group "+g.String(), err, func() (bool, error) {
			now, err := c.get(ctx, g)
			return err == nil && c.templateOf(now) == m.Image, err
		})
	}
	if err != nil {
		return o, err
	}
	m.Taken = true
	if op != nil {
		m.Operation = op.Name
	}
	return cloud.NewOperation(o.Token, m)
}

// unlessDone looks, when a request was refused, whether that was because it had been done before.
func unlessDone(doing string, err error, look func() (bool, error)) error {
	if err == nil {
		return nil
	}
	err = classify(doing, err)
	if kind := cloud.KindOf(err); kind != cloud.KindConflict && kind != cloud.KindInvalid {
		return err
	}
	done, lookErr := look()
	switch {
	case lookErr != nil:
		return cloud.NotFinal(lookErr)
	case done:
		return nil
	}
	return err
}

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
	next, unwritten := cloud.NewOperation(o.Token, m)
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
			if err := operationError(op); err != nil {
				if m.Image != "" {
					return cloud.Progress{}, cloud.Errorf(cloud.KindOf(err), "%s, %w", description(g, m), err)
				}
				// The group itself tells what has come of it: some may have been done, or all of it by a request before this one.
				m.fail(cloud.KindOf(err), err.Error())
			}
		}
	}
	m.Over = true
	switch {
	case m.Image != "":
		return cloud.Progress{Done: true}, nil
	case len(m.Delete) > 0:
		return s.pollDelete(ctx, g, m)
	}
	return s.pollAdd(ctx, g, token, m)
}

// description says what an operation does.
func description(g group, m *memory) string {
	switch {
	case m.Image != "":
		return "setting the template of group " + g.String()
	case len(m.Delete) > 0:
		return "deleting machines of group " + g.String()
	}
	return "adding machines to group " + g.String()
}
