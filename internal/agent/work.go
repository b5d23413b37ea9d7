// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// doubt is how long an agent waits after a host has refused to reboot before it says so: the answer may be lost because the host
// goes down.
const doubt = 15 * time.Second

// work is what the host is about to do, or does.
type work struct {
	// action is what was taken up; empty for a check that nobody asked for.
	action v1alpha1.HostAction
	cancel context.CancelFunc
	// done gets one outcome.
	done chan outcome
	// dropped is true when nobody wants the outcome any more.
	dropped bool
}

// outcome is how work ended.
type outcome struct {
	found *finding
	err   error
}

// errWithdrawn says that the order to reboot was taken back before it was carried out.
var errWithdrawn = errors.New("the order was taken back")

// fits reports whether the work is still what is said to be under way.
func (w *work) fits(s *said) bool {
	if w.action == "" {
		return s.mayCheck()
	}
	return s.next() == carryOn && s.active == w.action
}

// begin has the host do what was taken up, or look for updates if action is empty.
func (a *Agent) begin(ctx context.Context, action v1alpha1.HostAction, s *said) {
	working, cancel := context.WithCancel(ctx)
	w := &work{action: action, cancel: cancel, done: make(chan outcome, 1)}
	a.work = w
	go func() {
		o := a.do(working, action, s)
		w.done <- o
	}()
}

// do is the work. It returns when that is done, has failed, or the context ends.
func (a *Agent) do(ctx context.Context, action v1alpha1.HostAction, s *said) outcome {
	switch action {
	case v1alpha1.HostActionPrepare:
		return outcome{err: a.host.Prepare(ctx, s.version)}
	case v1alpha1.HostActionPerform:
		return outcome{err: a.host.Perform(ctx, s.version)}
	case v1alpha1.HostActionReboot:
		boot, err := a.host.BootID()
		if err != nil {
			return outcome{err: fmt.Errorf("reading the boot id, %w", err)}
		}
		if step := s.reboot(boot); step != order {
			return a.verify(ctx, s, step)
		}
		return outcome{err: a.reboot(ctx, s, boot)}
	case v1alpha1.HostActionReset:
		if err := a.host.Revert(ctx); err != nil {
			return outcome{err: err}
		}
	}
	return a.look(ctx)
}

// look finds out what the host runs and offers.
func (a *Agent) look(ctx context.Context) outcome {
	offer, err := a.host.Check(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("looking for updates, %w", err)}
	}
	runs, err := a.host.Version(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("reading the version, %w", err)}
	}
	return outcome{found: &finding{runs: runs, offer: offer}}
}

// reboot tells the host to reboot, if the operator still wants it, and returns only if it has refused, or nobody wants that any more. How long
// it may take to go down is for the operator to say.
func (a *Agent) reboot(ctx context.Context, s *said, boot string) error {
	if s.unreadable != nil {
		return fmt.Errorf("not rebooting, %w", s.unreadable)
	}
	now, err := a.ask(ctx)
	if err != nil {
		return err
	}
	if now == nil || now.protocol != s.protocol || now.next() != carryOn || now.active != v1alpha1.HostActionReboot || now.boot != boot {
		return errWithdrawn
	}
	a.log.Info("rebooting", "intent", now.intent(), "boot", boot, "runs", now.runs, "goal", now.goal())
	telling, cancel := context.WithCancel(ctx)
	told, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		told <- a.host.Reboot(telling)
	}()
	defer func() { cancel(); <-over }()
	grace := a.options.Clock.NewTimer(a.options.RebootGrace)
	defer grace.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-told:
			if err == nil {
				continue // It has taken the order, and goes down.
			}
			if !sleep(ctx, a.options.Clock, a.doubt) {
				return ctx.Err()
			}
			return fmt.Errorf("telling the host to reboot, %w", err)
		case <-grace.C():
			a.log.Warn("the host has been told to reboot and is still up", "after", a.options.RebootGrace)
		}
	}
}

// ask reads the Node anew until the API server answers.
func (a *Agent) ask(ctx context.Context) (*said, error) {
	pause := apiBackoff()
	for {
		n, err := a.reads.get(ctx)
		if err == nil {
			if n == nil {
				return nil, nil
			}
			s, _ := hear(n)
			return s, nil
		}
		wait := pause.next(a.options.Random)
		a.log.Warn("the Node can't be read before the reboot", "error", err, "again", wait.Round(time.Millisecond))
		if !sleep(ctx, a.options.Clock, wait) {
			return nil, ctx.Err()
		}
	}
}

// verify finds out, after a reboot, whether the host is what it was to become. What it asks may not be up yet, so soon after a boot.
func (a *Agent) verify(ctx context.Context, s *said, step rebootStep) outcome {
	pause := backoff{first: time.Second, most: 30 * time.Second}
	until := a.options.Clock.Now().Add(a.options.RebootGrace)
	for {
		o, certain := a.judge(ctx, s, step)
		if o.err == nil || certain || ctx.Err() != nil {
			return o
		}
		wait := pause.next(a.options.Random)
		if a.options.Clock.Now().Add(wait).After(until) {
			return o
		}
		a.log.Warn("what the host runs after the reboot is not known yet", "error", o.err, "again", wait.Round(time.Millisecond))
		if !sleep(ctx, a.options.Clock, wait) {
			return outcome{err: ctx.Err()}
		}
	}
}

// judge is one attempt of verify. It returns true if the answer is certain.
func (a *Agent) judge(ctx context.Context, s *said, step rebootStep) (outcome, bool) {
	runs, err := a.host.Version(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("reading the version after the reboot, %w", err)}, false
	}
	why := "after the reboot the host"
	if step == verifyOnly {
		why = "another agent took up the reboot without saying in which boot, and the host"
	}
	if goal := s.goal(); runs != "" && goal != "" {
		if !same(runs, goal) {
			return outcome{err: fmt.Errorf("%s runs %s, not %s", why, runs, goal)}, true
		}
		return outcome{found: &finding{runs: runs}}, true
	}
	offer, err := a.host.Check(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("looking for updates after the reboot, %w", err)}, false
	}
	switch {
	case offer.Available && offer.Version != "":
		return outcome{err: fmt.Errorf("%s runs %s and still offers %s", why, runs, offer.Version)}, true
	case offer.Available:
		return outcome{err: fmt.Errorf("%s still needs to reboot", why)}, true
	}
	return outcome{found: &finding{runs: runs}}, true
}

// same reports whether two names are of one version: they may differ by a leading v.
func same(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// useless is a host of which nothing can be asked, for a reason.
type useless struct{ reason error }

var _ host.Host = useless{}

func (u useless) Version(context.Context) (string, error)   { return "", u.reason }
func (u useless) BootID() (string, error)                   { return "", u.reason }
func (u useless) Check(context.Context) (host.Offer, error) { return host.Offer{}, u.reason }
func (u useless) Prepare(context.Context, string) error     { return u.reason }
func (u useless) Perform(context.Context, string) error     { return u.reason }
func (u useless) Revert(context.Context) error              { return u.reason }
func (u useless) Reboot(context.Context) error              { return u.reason }
