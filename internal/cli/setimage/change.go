// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/cloud"
)

// pollInterval is the shortest time between two requests about one scale set.
const pollInterval = 2 * time.Second

// errOtherImage says that another program or person has changed the image.
var errOtherImage = errors.New("another program or person has meanwhile set its image")

// changer sets one image on several scale sets, on all or on none.
type changer struct {
	clock clock.Clock
	// image is the new image.
	image string
	// timeout limits the change of one scale set, and restoring its image. Before that, it limits how long scale sets that are being changed are
	// waited for.
	timeout time.Duration
	// notes receives a line for each scale set that is waited for.
	notes  io.Writer
	dryRun bool
	sets   []*target
}

// target is one scale set.
type target struct {
	set cloud.ScaleSet
	// op is the prepared or sent change. It has no Token if there is none.
	op   cloud.Operation
	line Line
	// sent is true while the scale set may have the new image because a change was sent.
	sent bool
}

// add adds a scale set.
func (c *changer) add(name string, set cloud.ScaleSet) {
	c.sets = append(c.sets, &target{set: set, line: Line{Name: name, NewImage: c.image, Outcome: NotChanged}})
}

// run changes the scale sets. The error says why it failed; the lines have the outcome of each scale set.
func (c *changer) run(ctx context.Context) error {
	if err := c.prepareAll(ctx); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	for _, t := range c.sets {
		switch {
		case t.op.Token == "":
			t.line.Outcome = Unchanged
			continue
		case c.dryRun:
			t.line.Outcome = WouldChange
			continue
		}
		if _, err := c.change(ctx, t, t.line.OldImage, c.image); err != nil {
			t.line.Message = err.Error()
			return c.restore(ctx, fmt.Errorf("changing scale set %s, %w", t.line.Name, err))
		}
		t.line.Outcome = Changed
	}
	return nil
}

// prepareAll prepares the change of each scale set. If all can be changed, it waits for those that are being changed now.
func (c *changer) prepareAll(ctx context.Context) error {
	failed := func(t *target, err error) error {
		t.line.Message = err.Error()
		return fmt.Errorf("scale set %s: %w", t.line.Name, err)
	}
	var problems []error
	var busy []*target
	for _, t := range c.sets {
		err := c.prepare(ctx, t, "", c.image)
		switch {
		case cloud.KindOf(err) == cloud.KindConflict && !c.dryRun:
			busy = append(busy, t)
		case err != nil:
			problems = append(problems, failed(t, err))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	ctx, cancel := c.limit(ctx)
	defer cancel()
	for _, t := range busy {
		if err := c.prepareWhenIdle(ctx, t, "", c.image); err != nil {
			return failed(t, err)
		}
	}
	return nil
}

// prepare reads a scale set, and prepares its change from one image to another. Empty means from any image. There is no operation if the
// scale set has the image already. KindConflict: the scale set is being changed.
func (c *changer) prepare(ctx context.Context, t *target, from, to string) error {
	t.op = cloud.Operation{}
	now, err := t.set.Describe(ctx)
	if err != nil {
		return err
	}
	if from == "" {
		t.line.OldImage = now.Image
	}
	switch {
	case hasImage(&now, to):
		return nil
	case from != "" && !hasImage(&now, from):
		return cloud.Errorf(cloud.KindInvalid, "%w to %s", errOtherImage, cmp.Or(now.ImageName, now.Image))
	case now.Unfit != "":
		return cloud.Errorf(cloud.KindInvalid, "it can't be changed: %s", now.Unfit)
	case now.Busy != "":
		return cloud.Errorf(cloud.KindConflict, "it is being changed (%s)", now.Busy)
	}
	t.op, err = t.set.Prepare(ctx, &now, cloud.Change{Image: to, Token: strings.ToLower(rand.Text())})
	return err
}

// prepareWhenIdle is prepare, repeated while the scale set is being changed or the cloud does not answer. It writes a note for each new reason.
func (c *changer) prepareWhenIdle(ctx context.Context, t *target, from, to string) error {
	noted := ""
	return c.repeat(ctx, func() (bool, error) {
		err := c.prepare(ctx, t, from, to)
		if cloud.KindOf(err) == cloud.KindConflict && err.Error() != noted {
			noted = err.Error()
			_, _ = fmt.Fprintf(c.notes, "scale set %s: %s: waiting until that is over\n", t.line.Name, text.Clean(noted))
		}
		return err == nil, err
	})
}

// isTransient reports whether the next try may succeed.
func isTransient(err error) bool {
	return slices.Contains([]cloud.Kind{cloud.KindThrottled, cloud.KindUnavailable, cloud.KindConflict}, cloud.KindOf(err))
}

// hasImage reports whether a scale set makes machines of an image. Azure ignores case. Google takes the end of a template's path, or its URL. AWS shows
// an AMI as the version of a launch template that has it.
func hasImage(s *cloud.Set, image string) bool {
	return strings.EqualFold(s.Image, image) || s.ImageID != "" && s.ImageID == image ||
		strings.HasSuffix(s.Image, "/"+image) || strings.HasSuffix(image, "/"+s.Image)
}

// change brings a scale set from one image to another, and waits for the end of the change. It returns false if the scale set had the image already.
// After a conflict the change is prepared again: an autoscaler or a rollout may have added a machine.
func (c *changer) change(ctx context.Context, t *target, from, to string) (changed bool, err error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	err = c.repeat(ctx, func() (bool, error) {
		if t.op.Token == "" {
			if err := c.prepareWhenIdle(ctx, t, from, to); err != nil || t.op.Token == "" {
				return true, err
			}
		}
		sent, err := t.set.Send(ctx, t.op)
		switch {
		case err == nil:
			t.op, t.sent, changed = sent, true, true
		case cloud.KindOf(err) == cloud.KindConflict:
			t.op = cloud.Operation{} // An earlier request may still have had an effect.
		case isTransient(err):
			t.sent = true
		}
		return err == nil, err // A request that was refused had no effect. An earlier one may have had one.
	})
	if err != nil || !changed {
		return false, err
	}
	return true, c.repeat(ctx, func() (bool, error) {
		polled, progress, err := t.set.Poll(ctx, t.op)
		if err == nil {
			t.op = polled
		}
		return err == nil && progress.Done, err
	})
}

// repeat tries until it is done, or fails with an error that the next try would not mend. It pauses after each try. If the context ends, it
// returns the cause, with the error of the last try.
func (c *changer) repeat(ctx context.Context, try func() (done bool, err error)) error {
	for {
		done, err := try()
		if done || err != nil && !isTransient(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-c.clock.After(max(pollInterval, cloud.RetryAfter(err))):
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// limit returns a context that ends after the timeout.
func (c *changer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("it took longer than %s", c.timeout))
}

// restore restores the old image of the scale sets that have, or may have, the new one, the last changed first. It returns the error that made
// this necessary. It also runs when the program is interrupted.
func (c *changer) restore(ctx context.Context, because error) error {
	ctx = context.WithoutCancel(ctx)
	var failed []string
	for _, t := range slices.Backward(c.sets) {
		isOurs := t.sent || t.line.Outcome == Changed
		// On AWS, groups that use $Latest of one launch template all use a version that is made for one of them.
		if !isOurs && !strings.HasPrefix(c.image, "ami-") {
			continue
		}
		t.op = cloud.Operation{}
		changed, err := c.change(ctx, t, c.image, t.line.OldImage)
		switch {
		case errors.Is(err, errOtherImage) && !isOurs:
			// Another program has set its image, which stays.
		case err != nil:
			failed = append(failed, t.line.Name)
			t.line.Outcome = NotPutBack
			t.line.Message = strings.TrimPrefix(t.line.Message+"; restoring the old image, "+err.Error(), "; ")
		case changed || t.line.Outcome == Changed:
			t.line.Outcome = PutBack
		}
	}
	if len(failed) > 0 {
		return mixedError{fmt.Errorf("%w; look at %s: the old image could not be restored", because, strings.Join(failed, ", "))}
	}
	return fmt.Errorf("nothing is changed: %w", because)
}

// Outcome is what happened to one scale set.
type Outcome string

// The outcomes of a scale set.
const (
	// Changed: it had another image, and has the new one.
	Changed Outcome = "Changed"
	// Unchanged: it had the new image before.
	Unchanged Outcome = "Unchanged"
	// WouldChange: without --dry-run it would be changed.
	WouldChange Outcome = "WouldChange"
	// NotChanged: it is as it was, because a scale set could not be changed.
	NotChanged Outcome = "NotChanged"
	// PutBack: it was changed, and has its old image again, because a scale set could not be changed or the program was interrupted.
	PutBack Outcome = "PutBack"
	// NotPutBack: it was or may have been changed, and its old image could not be restored. A person must look.
	NotPutBack Outcome = "NotPutBack"
)

// Line is the outcome of one scale set.
type Line struct {
	Name string `json:"name"`
	// OldImage and NewImage are references, in the cloud's form.
	OldImage string  `json:"oldImage,omitempty"`
	NewImage string  `json:"newImage"`
	Outcome  Outcome `json:"outcome"`
	// Message says why it was not changed.
	Message string `json:"message,omitempty"`
}

// Report is the outcome of all scale sets.
type Report struct {
	Image     string `json:"image"`
	DryRun    bool   `json:"dryRun,omitempty"`
	ScaleSets []Line `json:"scaleSets"`
}

// write writes the report as a table, or in a structured format.
func (r *Report) write(to io.Writer, o *flags.Output) error {
	if o.Structured() {
		return o.PrintAs(to, "ImageReport", r)
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "SCALE SET\tOLD IMAGE\tNEW IMAGE\tOUTCOME\tMESSAGE")
	for _, l := range r.ScaleSets {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.Name, path.Base(cmp.Or(l.OldImage, "-")), path.Base(l.NewImage), l.Outcome, text.Clean(l.Message))
	}
	return table.Flush()
}

// mixedError says that scale sets may have different images.
type mixedError struct{ error }

// ExitCode is the exit code of the program.
func (mixedError) ExitCode() int { return 3 }
