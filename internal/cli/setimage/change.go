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
	// pollEvery is how often a cloud is polled for the progress of a change.
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
	// notes gets what is waited for.
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
		if _, err := c.change(ctx, t, t.found.Image, c.image); err != nil {
			t.line.Message = err.Error()
			return c.putBack(ctx, fmt.Errorf("changing scale set %s, %w", t.name, err))
		}
		t.line.Outcome = Changed
	}
	return nil
}

// prepareAll looks at all sets, and makes ready what must be sent. Those that are being changed are waited for, all at the same time: a rollout adds
// and deletes machines again and again. Where another one can't be changed at all, that is said at once.
func (c *changer) prepareAll(ctx context.Context) (problems []error) {
	timed, cancel := c.within(ctx)
	defer cancel()
	failed := func(t *target, err error) {
		t.line.Message = err.Error()
		problems = append(problems, fmt.Errorf("scale set %s: %w", t.name, err))
	}
	for waiting := c.sets; ; ctx = timed {
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
			return problems
		}
		for _, t := range again {
			c.note(t, t.found.Busy)
		}
		if err := c.pause(timed, wait, nil); err != nil {
			for _, t := range again {
				failed(t, fmt.Errorf("%s, and %w: try again when that is over", t.line.Message, err))
			}
			return problems
		}
	}
}

// prepare reads a set for the first time, and prepares the requests for it.
func (c *changer) prepare(ctx context.Context, t *target) (err error) {
	t.found, t.op, err = c.look(ctx, t, "", c.image)
	t.line.OldImage = t.found.Image
	switch {
	case err == nil && t.op.Token == "":
		t.line.Outcome = Unchanged
	case err == nil:
		t.line.Outcome = WouldChange
	}
	return err
}

// errOtherImage is that another program or person has changed the image.
var errOtherImage = errors.New("another program or person has meanwhile set its image")

// look reads a set, and prepares its change from one image, or from any, to another. There is no operation where it has that already.
// KindConflict: it is being changed.
func (c *changer) look(ctx context.Context, t *target, from, to string) (now cloud.Set, op cloud.Operation, err error) {
	now, err = t.set.Describe(ctx)
	switch {
	case err != nil, has(&now, to):
	case from != "" && !has(&now, from):
		err = cloud.Errorf(cloud.KindInvalid, "%w to %s", errOtherImage, cmp.Or(now.ImageName, now.Image))
	case now.Unfit != "":
		err = cloud.Errorf(cloud.KindInvalid, "it can't be changed: %s", now.Unfit)
	case now.Busy != "":
		err = cloud.Errorf(cloud.KindConflict, "it is being changed (%s)", now.Busy)
	default:
		op, err = t.set.Prepare(ctx, &now, cloud.Change{Image: to, Token: c.token()})
	}
	return now, op, err
}

// note says that a set is waited for if it is being changed: once, and again when that is for another reason.
func (c *changer) note(t *target, busy string) {
	if busy != "" && busy != t.noted {
		t.noted = busy
		_, _ = fmt.Fprintf(c.notes, "scale set %s is being changed (%s): waiting until that is over\n", t.name, text.Clean(busy))
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
func has(s *cloud.Set, image string) bool {
	return strings.EqualFold(s.Image, image) || s.ImageID != "" && s.ImageID == image ||
		!strings.Contains(image, "/") && strings.HasSuffix(s.Image, "/"+image)
}

// change brings a set from one image to another by the operation that is prepared, or that it prepares, and waits for its end. A conflict has had no
// effect: the set is looked at again, as an autoscaler or a rollout may have added a machine. It is false where the set had the image already.
func (c *changer) change(ctx context.Context, t *target, from, to string) (changed bool, err error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	wait, unanswered := firstRetry, false
	for {
		next := wait
		if t.op.Token == "" {
			var now cloud.Set
			now, t.op, err = c.look(ctx, t, from, to)
			switch {
			case err == nil && t.op.Token == "":
				return false, nil
			case err == nil:
				continue // At once, before it is changed once more.
			case !passing(err):
				return false, err
			}
			c.note(t, now.Busy)
			next = pollEvery
		} else {
			t.tried, t.sent = true, true
			var sent cloud.Operation
			sent, err = t.set.Send(ctx, t.op)
			switch kind := cloud.KindOf(err); {
			case err == nil:
				t.op = sent
				return true, c.await(ctx, t)
			case kind == cloud.KindConflict:
				t.op, t.sent, unanswered, next = cloud.Operation{}, false, false, pollEvery
			case kind != cloud.KindThrottled && kind != cloud.KindUnavailable:
				// Only what is not answered, or not with sense, may have had an effect: this time, or an earlier one.
				t.sent = unanswered
				return false, err
			default:
				unanswered, wait = true, min(2*wait, lastRetry)
			}
		}
		if err := c.pause(ctx, max(next, cloud.RetryAfter(err)), err); err != nil {
			return false, err
		}
	}
}

// await polls an operation until it has ended.
func (c *changer) await(ctx context.Context, t *target) error {
	ends := []cloud.Kind{cloud.KindQuota, cloud.KindFull, cloud.KindInvalid, cloud.KindDenied, cloud.KindFailed}
	wait := firstRetry
	for t.op.Token != "" {
		polled, progress, err := t.set.Poll(ctx, t.op)
		next := pollEvery
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
// the program is interrupted.
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

// undo puts the old image back, unless another program or person has set another one since.
func (c *changer) undo(ctx context.Context, t *target) (Outcome, error) {
	given := t.given()
	t.op, t.noted = cloud.Operation{}, ""
	switch changed, err := c.change(ctx, t, c.image, t.found.Image); {
	case errors.Is(err, errOtherImage) && !given:
		return t.line.Outcome, nil
	case err != nil:
		return NotPutBack, err
	case !changed && t.line.Outcome != Changed:
		return t.line.Outcome, nil // The request has had no effect.
	}
	return PutBack, nil
}
