// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/cloud"
)

const (
	// pollEvery is how often a cloud is asked how a change stands, where it does not say when it is worth asking again.
	pollEvery = 2 * time.Second
	// firstRetry is how long to wait before what was not answered is tried again; then twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// changer sets one image on several scale sets, all or none of them.
type changer struct {
	clock clock.Clock
	// token makes tokens of changes.
	token func() string
	// image is the reference that the sets are to have.
	image string
	// timeout bounds the change of one set, and putting it back; before that, how long all sets together are waited for.
	timeout time.Duration
	// notes is told what is waited for.
	notes  io.Writer
	dryRun bool
	sets   []*target
}

// target is one scale set.
type target struct {
	name  string
	set   cloud.ScaleSet
	found cloud.Set
	op    cloud.Operation
	line  Line
	// tried is true from when the change was sent, and sent is true while the set may have it by that.
	tried, sent bool
	// noted is what was last said of waiting for it.
	noted string
}

// run changes them. The error says what kept it from that; the lines say more.
func (c *changer) run(ctx context.Context) error {
	for _, t := range c.sets {
		t.line = Line{Name: t.name, NewImage: c.image, Outcome: NotChanged}
	}
	if problems := c.prepareAll(ctx); len(problems) > 0 {
		for _, t := range c.sets {
			if t.line.Outcome == WouldChange {
				t.line.Outcome = NotChanged
			}
		}
		return failure{fmt.Errorf("nothing was changed: %w", errors.Join(problems...)), exitNothing}
	}
	if c.dryRun {
		return nil
	}
	for _, t := range c.sets {
		if t.line.Outcome == Unchanged {
			continue
		}
		if err := c.change(ctx, t); err != nil {
			t.line.Message = err.Error()
			return c.putBack(ctx, fmt.Errorf("changing scale set %s, %w", t.name, err))
		}
		t.line.Outcome = Changed
	}
	return nil
}

// prepareAll looks at all sets, and makes ready what is to be sent. Those that are being changed are waited for, all at the same time: a rollout adds
// and deletes machines again and again. Where another one can't be changed at all, that is said at once.
func (c *changer) prepareAll(ctx context.Context) (problems []error) {
	timed, cancel := c.within(ctx)
	defer cancel()
	failed := func(t *target, err error) {
		t.line.Message = err.Error()
		problems = append(problems, fmt.Errorf("scale set %s: %w", t.name, err))
	}
	for waiting := c.sets; len(waiting) > 0 && len(problems) == 0; ctx = timed {
		var again []*target
		wait := pollEvery
		for _, t := range waiting {
			t.line.Message = ""
			switch err := c.prepare(ctx, t); {
			case err == nil:
			case c.dryRun && cloud.KindOf(err) == cloud.KindConflict:
				failed(t, fmt.Errorf("%w: without --dry-run that is waited for", err))
			case cloud.KindOf(err) == cloud.KindConflict || t.noted != "" && passing(err):
				t.line.Message = err.Error()
				again, wait = append(again, t), max(wait, cloud.RetryAfter(err))
			default:
				failed(t, err)
			}
		}
		if waiting = again; len(again) == 0 || len(problems) > 0 {
			break
		}
		for _, t := range again {
			c.note(t, &t.found)
		}
		if err := c.pause(timed, wait, nil); err != nil {
			for _, t := range again {
				failed(t, fmt.Errorf("%s, and %w: try again when that is over", t.line.Message, err))
			}
		}
	}
	return problems
}

// prepare looks at a set, and makes ready what is to be sent. KindConflict: it is being changed.
func (c *changer) prepare(ctx context.Context, t *target) (err error) {
	if t.found, err = t.set.Describe(ctx); err != nil {
		return err
	}
	t.line.OldImage = t.found.Image
	switch {
	case c.has(&t.found, c.image):
		t.line.Outcome = Unchanged
		return nil
	case t.found.Unfit != "":
		return cloud.Errorf(cloud.KindInvalid, "it can't be changed: %s", t.found.Unfit)
	case t.found.Busy != "":
		return busy(&t.found)
	}
	t.op, err = t.set.Prepare(ctx, &t.found, cloud.Change{Image: c.image, Token: c.token()})
	if err == nil {
		t.line.Outcome = WouldChange
	}
	return err
}

// busy is the error that a set is being changed.
func busy(s *cloud.Set) error {
	return cloud.Errorf(cloud.KindConflict, "it is being changed (%s)", s.Busy)
}

// note says that a set is waited for if it is being changed: once, and again when that is for another reason.
func (c *changer) note(t *target, s *cloud.Set) {
	if s.Busy != "" && s.Busy != t.noted {
		t.noted = s.Busy
		_, _ = fmt.Fprintf(c.notes, "scale set %s is being changed (%s): waiting until that is over\n", t.name, text.Clean(s.Busy))
	}
}

// passing reports whether an error may be none the next time.
func passing(err error) bool {
	return slices.Contains([]cloud.Kind{cloud.KindThrottled, cloud.KindUnavailable, cloud.KindConflict}, cloud.KindOf(err))
}

// within is a context that ends when the time for one thing is over.
func (c *changer) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("it took longer than %s", c.timeout))
}

// has reports whether a set makes machines of this image already. Azure writes the same id in different cases, Google takes the name of a
// template for its path, and AWS shows an AMI as the version of a launch template that has it.
func (*changer) has(s *cloud.Set, image string) bool {
	return strings.EqualFold(s.Image, image) || s.ImageID != "" && s.ImageID == image ||
		!strings.Contains(image, "/") && strings.HasSuffix(s.Image, "/"+image)
}

// change sends what was prepared, and waits for its end.
func (c *changer) change(ctx context.Context, t *target) error {
	ctx, cancel := c.within(ctx)
	defer cancel()
	if err := c.send(ctx, t); err != nil {
		return err
	}
	return c.await(ctx, t)
}

// send sends an operation until the cloud has taken it, or has said that it never will.
func (c *changer) send(ctx context.Context, t *target) error {
	wait, unanswered := firstRetry, false
	for {
		t.tried, t.sent = true, true
		sent, err := t.set.Send(ctx, t.op)
		switch kind := cloud.KindOf(err); {
		case err == nil:
			t.op = sent
			return nil
		case kind == cloud.KindConflict:
			// It has had no effect. What else was changed is in nobody's way, as when an autoscaler or a rollout has added a machine.
			t.sent, unanswered = false, false
			if again, err := c.again(ctx, t, err); err != nil || !again {
				return err
			}
			continue // At once, before it is changed once more.
		case kind != cloud.KindThrottled && kind != cloud.KindUnavailable:
			// Only what is not answered, or not with sense, may have had an effect: this time, or an earlier one.
			t.sent = unanswered
			return err
		}
		unanswered = true
		if err := c.pause(ctx, max(wait, cloud.RetryAfter(err)), err); err != nil {
			return err
		}
		wait = min(2*wait, lastRetry)
	}
}

// again prepares a change anew, after a conflict, of a set that somebody has changed meanwhile or is changing still. It is false where that was to
// the same image.
func (c *changer) again(ctx context.Context, t *target, last error) (bool, error) {
	for {
		if err := c.pause(ctx, max(pollEvery, cloud.RetryAfter(last)), last); err != nil {
			return false, err
		}
		now, err := t.set.Describe(ctx)
		switch {
		case err != nil:
		case c.has(&now, c.image):
			t.op = cloud.Operation{}
			return false, nil
		case now.Image != t.found.Image:
			return false, fmt.Errorf("another program or person has meanwhile set its image to %s", cmp.Or(now.ImageName, now.Image))
		case now.Busy != "":
			c.note(t, &now)
			err = busy(&now)
		default:
			if t.op, err = t.set.Prepare(ctx, &now, cloud.Change{Image: c.image, Token: c.token()}); err == nil {
				return true, nil
			}
		}
		if !passing(err) {
			return false, fmt.Errorf("it was changed meanwhile; looking at it again, %w", err)
		}
		last = err
	}
}

// await polls an operation until it has ended.
func (c *changer) await(ctx context.Context, t *target) error {
	ends := []cloud.Kind{cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed}
	wait := firstRetry
	for t.op.Token != "" {
		polled, progress, err := t.set.Poll(ctx, t.op)
		next := cmp.Or(progress.After, pollEvery)
		switch {
		case slices.Contains(ends, cloud.KindOf(err)):
			return err
		case err != nil:
			next, wait = max(wait, cloud.RetryAfter(err)), min(2*wait, lastRetry)
		case progress.Done:
			return nil
		default:
			t.op, wait = polled, firstRetry
		}
		if err := c.pause(ctx, next, err); err != nil {
			return err
		}
	}
	return nil
}

// pause waits. It fails with what was last heard when the time for that is over.
func (c *changer) pause(ctx context.Context, wait time.Duration, last error) error {
	if ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-c.clock.After(wait):
			return nil
		}
	}
	if last != nil {
		return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
	}
	return context.Cause(ctx)
}

// putBack gives the sets that have, or may have, the new image their old one, the last changed first, after this error. It also runs when
// the program is told to end.
func (c *changer) putBack(ctx context.Context, because error) error {
	ctx = context.WithoutCancel(ctx)
	var left []string
	for _, t := range slices.Backward(c.sets) {
		if t.line.Outcome == WouldChange {
			t.line.Outcome = NotChanged
		}
		if !t.given() && !c.shares(t) {
			continue
		}
		outcome, err := c.undo(ctx, t)
		t.line.Outcome = outcome
		if err != nil {
			left = append(left, t.name)
			t.line.Message = strings.TrimPrefix(t.line.Message+"; putting the old image back, "+err.Error(), "; ")
		}
	}
	if len(left) > 0 {
		return failure{fmt.Errorf("%w; look at %s: the old image could not be put back", because, strings.Join(left, ", ")), exitMixed}
	}
	return failure{fmt.Errorf("nothing is changed: %w", because), exitNothing}
}

// given reports whether a set has, or may have, the new image because it was sent that.
func (t *target) given() bool { return t.sent || t.line.Outcome == Changed }

// shares reports whether a set may have the new image because that was sent to another one: on AWS, groups at $Latest of a launch template have the
// version that is made of it for any group.
func (c *changer) shares(t *target) bool {
	template, _, _ := strings.Cut(t.found.Image, ":")
	return machine.MatchString(c.image) && slices.ContainsFunc(c.sets, func(o *target) bool { return o.tried && strings.HasPrefix(o.found.Image, template+":") })
}

// undo puts the old image back, unless somebody else has set another one since.
func (c *changer) undo(ctx context.Context, t *target) (Outcome, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	back := &changer{clock: c.clock, token: c.token, image: t.found.Image, timeout: c.timeout, notes: c.notes}
	u := &target{name: t.name, set: t.set}
	wait := firstRetry
	for {
		err := back.prepare(ctx, u)
		switch {
		case err != nil:
		case back.has(&u.found, t.found.Image) && t.line.Outcome != Changed:
			return t.line.Outcome, nil // What was sent has had no effect.
		case back.has(&u.found, t.found.Image):
			return PutBack, nil
		case !c.has(&u.found, c.image) && !t.given():
			return t.line.Outcome, nil
		case !c.has(&u.found, c.image):
			return NotPutBack, fmt.Errorf("another program or person has meanwhile set its image to %s", cmp.Or(u.found.ImageName, u.found.Image))
		default:
			if err = back.change(ctx, u); err == nil {
				return PutBack, nil
			}
		}
		if !passing(err) {
			return NotPutBack, err
		}
		next := pollEvery
		if c.note(u, &u.found); cloud.KindOf(err) != cloud.KindConflict {
			next, wait = wait, min(2*wait, lastRetry)
		}
		if err := c.pause(ctx, max(next, cloud.RetryAfter(err)), err); err != nil {
			return NotPutBack, err
		}
	}
}
