// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
)

const (
	// maxMachines is how many machines one change adds or deletes at most. It bounds Operation.State.
	maxMachines = 100
	// maxText bounds the text of a cloud that is kept.
	maxText = 500
)

// Operation is a change under way. It is plain data, and the caller keeps it.
type Operation struct {
	// Token is the change's.
	Token string
	// State is what the cloud's driver keeps of it, as JSON.
	State string
}

// Driver makes the changes of one scale set in one cloud. M is its memory of an operation, which is stored as JSON.
type Driver[M any] interface {
	Describe(ctx context.Context) (Set, error)
	Machines(ctx context.Context) ([]Machine, error)
	// Plan completes the memory of a change that the set allows. It may read, and changes nothing.
	Plan(ctx context.Context, s *Set, m M) error
	// Submit sends the operation, as ScaleSet.Send. It is called until it succeeds once.
	Submit(ctx context.Context, m M) error
	// Follow reads after Submit whether the operation is over. It has failed if Memory.Fail was called. No error of Follow ends the operation.
	Follow(ctx context.Context, m M) (over bool, err error)
}

// Memory is what is kept of an operation in every cloud. A driver's own memory embeds it.
type Memory struct {
	Change
	// Sent is true once Submit has succeeded.
	Sent bool `json:"sent,omitempty"`
	// Added are the known IDs of machines that were added.
	Added []string `json:"added,omitempty"`
	// Kind and Failure say why the operation failed. The driver may still be undoing a part of it.
	Kind    Kind   `json:"kind,omitempty"`
	Failure string `json:"failure,omitempty"`
}

func (m *Memory) memory() *Memory { return m }

// Fail records why the operation fails. A kind that does not end an operation becomes KindFailed.
func (m *Memory) Fail(kind Kind, text string) {
	if !kind.ends() {
		kind = KindFailed
	}
	m.Kind, m.Failure = kind, OneLine(text)
}

// OneLine returns a text in one line of bounded length.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

// memoryOf is a pointer to a driver's memory.
type memoryOf[M any] interface {
	*M
	memory() *Memory
}

// NewScaleSet makes a ScaleSet of a driver.
func NewScaleSet[M any, P memoryOf[M]](d Driver[P]) ScaleSet { return &scaleSet[M, P]{d} }

type scaleSet[M any, P memoryOf[M]] struct{ Driver[P] }

// Prepare implements ScaleSet.
func (s *scaleSet[M, P]) Prepare(ctx context.Context, set *Set, c Change) (Operation, error) {
	c.Delete = slices.Compact(slices.Sorted(slices.Values(c.Delete)))
	if err := cmp.Or(c.check(), c.checkSet(set)); err != nil {
		return Operation{}, err
	}
	m := P(new(M))
	m.memory().Change = c
	if err := s.Plan(ctx, set, m); err != nil {
		return Operation{}, err
	}
	return newOperation(c.Token, m), nil
}

// Send implements ScaleSet.
func (s *scaleSet[M, P]) Send(ctx context.Context, o Operation) (Operation, error) {
	m, err := s.read(o)
	if err != nil || m.memory().Sent {
		return o, err
	}
	if err := s.Submit(ctx, m); err != nil {
		return o, err
	}
	m.memory().Sent = true
	return newOperation(o.Token, m), nil
}

// Poll implements ScaleSet.
func (s *scaleSet[M, P]) Poll(ctx context.Context, o Operation) (Operation, Progress, error) {
	m, err := s.read(o)
	if err != nil {
		return o, Progress{}, err
	}
	kept := m.memory()
	if !kept.Sent {
		return o, Progress{}, nil
	}
	over, err := s.Follow(ctx, m)
	next, p := newOperation(o.Token, m), Progress{Added: kept.Added}
	switch {
	case KindOf(err).ends(): // No error of a request ends an operation.
		err = &Error{Kind: KindUnavailable, RetryAfter: RetryAfter(err), Err: err}
	case err == nil && over && kept.Failure != "":
		err = Errorf(kept.Kind, "%s", kept.Failure)
	}
	p.Done = over && err == nil
	return next, p, err
}

// read reads what was kept of an operation.
func (s *scaleSet[M, P]) read(o Operation) (P, error) {
	m := P(new(M))
	if err := json.Unmarshal([]byte(o.State), m); err != nil {
		return nil, Errorf(KindInvalid, "reading operation %s, %w", o.Token, err)
	}
	kept := m.memory()
	kept.Token = o.Token
	if kept.Failure != "" {
		kept.Fail(kept.Kind, kept.Failure)
	}
	return m, kept.check()
}

func newOperation(token string, memory any) Operation {
	text, _ := json.Marshal(memory) // Plain data can always be encoded.
	return Operation{Token: token, State: string(text)}
}

// check returns an error unless exactly one of Add, Delete and Image is set, within bounds, and there is a token.
func (c *Change) check() error {
	set := 0
	for _, is := range []bool{c.Add != 0, len(c.Delete) > 0, c.Image != ""} {
		if is {
			set++
		}
	}
	if set != 1 || c.Token == "" || c.Add < 0 || c.Add > maxMachines || len(c.Delete) > maxMachines {
		return Errorf(KindInvalid, "a change must have a token, and be one of add, delete and image, of at most %d machines", maxMachines)
	}
	return nil
}

// checkSet says why the change can't be made in a set. Machines can be deleted from a set that is unfit: they may have been added before it became so.
func (c *Change) checkSet(s *Set) error {
	switch {
	case s.Unfit != "" && len(c.Delete) == 0:
		return Errorf(KindInvalid, "changing scale set %s, %s", s.Name, s.Unfit)
	case c.Add > 0 && s.Max > 0 && s.Capacity+c.Add > s.Max:
		return Errorf(KindFull, "adding %d machines to scale set %s, it has %d of at most %d", c.Add, s.Name, s.Capacity, s.Max)
	case len(c.Delete) > 0 && s.Min > 0 && s.Capacity-len(c.Delete) < s.Min:
		return Errorf(KindInvalid, "deleting %d machines of scale set %s, it has %d of at least %d: lower its minimum, or let machines be added first",
			len(c.Delete), s.Name, s.Capacity, s.Min)
	}
	return nil
}

// LastPart is the short name of an image: the last part of its reference.
func LastPart(reference string) string { return reference[strings.LastIndexAny(reference, "/:")+1:] }
