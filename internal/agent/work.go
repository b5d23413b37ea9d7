// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
)

// doubt is how long an agent waits after a host has refused to reboot before it reports that: the answer may be lost because the host
// goes down.
const doubt = 15 * time.Second

// work is what the host is about to do, or does.
type work struct {
	// action is what was taken up; empty for a periodic check.
	action v1alpha1.HostAction
	cancel context.CancelFunc
	// done gets one outcome.
	done chan outcome
	// dropped is true when the outcome is not wanted any more.
	dropped bool
}

// outcome is how work ended.
type outcome struct {
	found *finding
	err   error
}

// errWithdrawn says that the order to reboot was withdrawn before it was carried out.
var errWithdrawn = errors.New("the order was withdrawn")

// matches reports whether the Node still says that this work is under way.
func (w *work) matches(s *nodeState) bool {
	if w.action == "" {
		return s.mayCheck()
	}
	return s.next() == carryOn && s.active == w.action
}

// begin has the host do what was taken up, or look for updates if action is empty.
func (a *Agent) begin(ctx context.Context, action v1alpha1.HostAction, s *nodeState) {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{action: action, cancel: cancel, done: make(chan outcome, 1)}
	a.work = w
	go func() { w.done <- a.do(ctx, action, s) }()
}

// do does the work. It returns when that is done, has failed, or the context ends.
func (a *Agent) do(ctx context.Context, action v1alpha1.HostAction, s *nodeState) outcome {
	if a.hostErr != nil {
		return outcome{err: a.hostErr}
	}
	version := strings.TrimPrefix(s.version, "v")
	update := cmp.Or(version, "the update")
	switch action {
	case v1alpha1.HostActionPrepare:
		return outcome{err: wrap("preparing "+update, a.host.Prepare(ctx, version))}
	case v1alpha1.HostActionPerform:
		return outcome{err: wrap("performing "+update, a.host.Perform(ctx, version))}
	case v1alpha1.HostActionReboot:
		boot, err := a.host.BootID()
		if err != nil {
			return outcome{err: fmt.Errorf("reading the boot id, %w", err)}
		}
		if step := s.rebootStep(boot); step != order {
			return a.verify(ctx, s, step)
		}
		return outcome{err: a.reboot(ctx, s, boot)}
	case v1alpha1.HostActionReset:
		if err := a.host.Revert(ctx); err != nil {
			return outcome{err: wrap("reverting the update", err)}
		}
	}
	return a.look(ctx)
}

// wrap says of an error what was being done; nil stays nil.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, %w", doing, err)
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

// reboot orders the host to reboot, if the operator still wants that. It returns only if the host has refused, or the order is not wanted any
// more. The operator decides how long the host may take to go down.
func (a *Agent) reboot(ctx context.Context, s *nodeState, boot string) error {
	if s.claimError != nil {
		return fmt.Errorf("not rebooting, %w", s.claimError)
	}
	now, err := a.readAgain(ctx)
	if err != nil {
		return err
	}
	if now == nil || now.protocol != s.protocol || now.next() != carryOn || now.active != v1alpha1.HostActionReboot || now.boot != boot {
		return errWithdrawn
	}
	a.log.Info("rebooting", "intent", now.intent(), "boot", boot, "runs", now.runs, "goal", now.goal())
	ordering, cancel := context.WithCancel(ctx)
	answered, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		answered <- a.host.Reboot(ordering)
	}()
	defer func() { cancel(); <-over }()
	grace := a.clock.NewTimer(a.options.RebootGrace)
	defer grace.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-answered:
			if err == nil {
				continue // The host has taken the order, and goes down.
			}
			if !sleep(ctx, a.clock, a.doubt) {
				return ctx.Err()
			}
			return fmt.Errorf("telling the host to reboot, %w", err)
		case <-grace.C():
			a.log.Info("the host was told to reboot and is still up", "after", a.options.RebootGrace.String())
		}
	}
}

// readAgain reads the Node from the API server, until that answers: the watch may be behind. It returns nil where there is no Node, or none with
// a label.
func (a *Agent) readAgain(ctx context.Context) (*nodeState, error) {
	pause := apiBackoff()
	for {
		n, err := a.client.get(ctx)
		switch {
		case err == nil && n == nil:
			a.observed.set(nil, "")
			return nil, nil
		case err == nil:
			a.observed.set(n, n.ResourceVersion)
			s, _ := readNode(n)
			return s, nil
		}
		next := pause.Step()
		a.log.Info("the Node can't be read before the reboot", "error", err, "again", next.Round(time.Millisecond).String())
		if !sleep(ctx, a.clock, next) {
			return nil, ctx.Err()
		}
	}
}

// verify finds out, after a reboot, whether the host runs what it should. So soon after a boot the host may not answer yet.
func (a *Agent) verify(ctx context.Context, s *nodeState, step rebootStep) outcome {
	pause := backoff(time.Second, 30*time.Second)
	until := a.clock.Now().Add(a.options.RebootGrace)
	for {
		o, answered := a.verifyOnce(ctx, s, step)
		if answered || ctx.Err() != nil {
			return o
		}
		next := pause.Step()
		if a.clock.Now().Add(next).After(until) {
			return o
		}
		a.log.Info("what the host runs after the reboot is not known yet", "error", o.err, "again", next.Round(time.Millisecond).String())
		if !sleep(ctx, a.clock, next) {
			return outcome{err: ctx.Err()}
		}
	}
}

// verifyOnce is one attempt of verify. It returns false if the host does not answer.
func (a *Agent) verifyOnce(ctx context.Context, s *nodeState, step rebootStep) (outcome, bool) {
	runs, err := a.host.Version(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("reading the version after the reboot, %w", err)}, false
	}
	subject := "after the reboot the host"
	if step == verifyOnly {
		subject = "another agent took up the reboot without saying in which boot, and the host"
	}
	if goal := s.goal(); runs != "" && goal != "" {
		if strings.TrimPrefix(runs, "v") != strings.TrimPrefix(goal, "v") {
			return outcome{err: fmt.Errorf("%s runs %s, not %s", subject, runs, goal)}, true
		}
		return outcome{found: &finding{runs: runs}}, true
	}
	offer, err := a.host.Check(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("looking for updates after the reboot, %w", err)}, false
	}
	switch {
	case offer.Available && offer.Version != "":
		return outcome{err: fmt.Errorf("%s runs %s and still offers %s", subject, runs, offer.Version)}, true
	case offer.Available:
		return outcome{err: fmt.Errorf("%s still needs to reboot", subject)}, true
	}
	return outcome{found: &finding{runs: runs}}, true
}

// sleep waits; it returns false if the context ends before.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
