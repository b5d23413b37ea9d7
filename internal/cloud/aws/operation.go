// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"time"

	"moult.dev/moult/internal/cloud"
)

// patience is how long to wait before the next poll.
const patience = 5 * time.Second

// verb is how an operation is done.
type verb string

const (
	// launch adds machines by LaunchInstances, and scale by SetDesiredCapacity.
	launch verb = "launch"
	scale  verb = "scale"
	// terminate deletes machines.
	terminate verb = "delete"
	// image sets the launch template, of a version that there is, or of one that is made for it.
	image verb = "image"
)

// memory is what is kept of an operation.
type memory struct {
	Verb verb `json:"verb"`
	// Sent is true once AWS has taken it.
	Sent bool `json:"sent,omitempty"`
	// Machines are those that are added or deleted, as far as they are known, and Activities those that delete them, in the same order.
	Machines   []string `json:"machines,omitempty"`
	Activities []string `json:"activities,omitempty"`
	// Kind and Error say what AWS has refused of it for good.
	Kind  cloud.Kind `json:"kind,omitempty"`
	Error string     `json:"error,omitempty"`

	// Add is how many machines are added, and Zone where.
	Add  int    `json:"add,omitempty"`
	Zone string `json:"zone,omitempty"`

	// Capacity was the group's, Before its machines, and Activity its last activity.
	Capacity int      `json:"capacity,omitempty"`
	Before   []string `json:"before,omitempty"`
	Activity string   `json:"activity,omitempty"`

	// From is the launch template that the group had, as written, and Source its version. Template and Version are what it gets, or Image is
	// the AMI of a new version.
	From     string `json:"from,omitempty"`
	Source   string `json:"source,omitempty"`
	Template string `json:"template,omitempty"`
	Version  string `json:"version,omitempty"`
	Image    string `json:"image,omitempty"`
}

// fail keeps what AWS has refused for good, with a kind that says so.
func (m *memory) fail(err error) {
	m.Kind, m.Error = cloud.KindOf(err), err.Error()
	switch m.Kind {
	case cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied:
	default:
		m.Kind = cloud.KindFailed
	}
}

// failed is that error again, nil where there is none.
func (m *memory) failed() error {
	if m.Kind == "" {
		return nil
	}
	return cloud.Errorf(m.Kind, "%s", m.Error)
}

// Prepare implements cloud.ScaleSet.
func (s *scaleSet) Prepare(ctx context.Context, set *cloud.Set, c cloud.Change) (cloud.Operation, error) {
	err := c.Check()
	var m *memory
	switch {
	case err != nil:
	case c.Add > 0:
		m, err = s.prepareAdd(ctx, set, c)
	case len(c.Delete) > 0:
		m, err = s.prepareDelete(ctx, c)
	default:
		m, err = s.prepareImage(ctx, set, c)
	}
	if err != nil {
		return cloud.Operation{}, err
	}
	return cloud.NewOperation(c.Token, m)
}

// Send implements cloud.ScaleSet.
func (s *scaleSet) Send(ctx context.Context, o cloud.Operation) (cloud.Operation, error) {
	m := &memory{}
	err := o.Read(m)
	if err != nil || m.Sent {
		return o, err
	}
	switch m.Verb {
	case launch:
		err = s.sendLaunch(ctx, o.Token, m)
	case scale:
		err = s.sendScale(ctx, m)
	case terminate:
		err = s.sendDelete(ctx, m)
	case image:
		err = s.sendImage(ctx, o.Token, m)
	default:
		err = cloud.Errorf(cloud.KindInvalid, "sending operation %s, it is a %q", o.Token, m.Verb)
	}
	if err != nil {
		return o, sendError(err)
	}
	m.Sent = true
	return cloud.NewOperation(o.Token, m)
}

// Poll implements cloud.ScaleSet. Of an operation whose answer was lost it finds that out by sending it again.
func (s *scaleSet) Poll(ctx context.Context, o cloud.Operation) (cloud.Operation, cloud.Progress, error) {
	o, err := s.Send(ctx, o)
	if cloud.KindOf(err) == cloud.KindConflict {
		return o, cloud.Progress{}, &cloud.Error{Kind: cloud.KindFailed, Err: err}
	}
	if err != nil {
		return o, cloud.Progress{}, err
	}
	m := &memory{}
	if err := o.Read(m); err != nil {
		return o, cloud.Progress{}, err
	}
	switch m.Verb {
	case scale:
		p, err := s.pollScale(ctx, m)
		return o, p, err
	case terminate:
		p, err := s.pollDelete(ctx, m)
		return o, p, err
	}
	// The others are done when they are sent.
	err = m.failed()
	return o, cloud.Progress{Done: err == nil, Added: m.Machines, Message: m.Error}, err
}
