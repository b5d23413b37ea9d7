// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"moult.dev/moult/api/v1alpha1"
)

// Run acts until the context ends. It then returns nil, after the present call to the host has returned. It returns an error only if a
// new process may succeed.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); a.running.Wait() }()
	if a.options.RequirePolicy {
		if err := a.requirePolicy(ctx); err != nil {
			return err
		}
	}
	a.running.Go(func() { a.client.watch(ctx, a.observed) })
	a.check = a.clock.After(a.firstCheck)
	for {
		a.advance(ctx)
		if a.moved != nil && a.work == nil {
			return a.moved
		}
		var done chan outcome
		if a.work != nil && a.ended == nil {
			done = a.work.done
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.observed.changed:
		case err := <-a.client.refused:
			if _, synced := a.observed.get(); !synced {
				return err // A pod that fails is seen, and one that waits for its Node is not.
			}
		case o := <-done:
			if err := a.finish(o); err != nil {
				return err
			}
		case <-a.retry:
			a.retry = nil
		case <-a.check:
			a.due = true
		}
	}
}

// advance performs steps until it must wait for something.
func (a *Agent) advance(ctx context.Context) {
	acknowledged := false
	for ctx.Err() == nil {
		s := a.current()
		if a.work != nil {
			if !a.conclude(ctx, s) {
				return
			}
			continue
		}
		if s == nil || a.retry != nil {
			return
		}
		switch s.next() {
		case acknowledge:
			if acknowledged = a.acknowledge(ctx, s); !acknowledged {
				return
			}
		case act:
			a.begin(ctx, s.wanted, s, acknowledged)
			return
		case idle:
			if a.due && s.mayCheck() {
				a.begin(ctx, "", s, false)
			} else if a.due {
				a.checkLater()
			}
			return
		}
	}
}

// current returns what is on the Node now, or nil if the agent must not act on it.
func (a *Agent) current() *nodeState {
	a.moved = nil
	n, synced := a.observed.get()
	switch {
	case !synced:
		return nil
	case n == nil:
		a.logInactive("there is no such Node")
		return nil
	}
	s, ok := readNode(n)
	if !ok {
		a.logInactive("no label of the Node names an interface of its host")
		return nil
	}
	selector := s.protocol.InterfaceLabel + "=" + s.hostInterface
	if a.selector == "" {
		a.selector, a.inactive = selector, ""
		if a.host, a.hostErr = a.options.Host(s.protocol, s.hostInterface); a.hostErr != nil {
			a.log.Error(a.hostErr, "the host can't be reached")
		}
		a.log.Info("listening", "label", selector, "intent", s.intent())
	}
	if selector != a.selector {
		// A new process of this pod can handle the new label.
		a.moved = fmt.Errorf("the interface of the host was %s, and is now %s, which needs a new process", a.selector, selector)
		a.logInactive(a.moved.Error())
		return nil
	}
	if s.wanted != "" && !isKnown(s.wanted) {
		a.logInactive("the wanted action is not known: " + string(s.wanted))
	} else if a.inactive != "" {
		a.log.Info("acting again", "intent", s.intent())
		a.inactive = ""
	}
	return s
}

// logInactive logs once why the agent does not act.
func (a *Agent) logInactive(why string) {
	if a.inactive != why {
		a.inactive = why
		a.log.Info("not acting", "because", why)
	}
}

// acknowledge acknowledges the wanted action on the Node. It returns false if the write must wait.
func (a *Agent) acknowledge(ctx context.Context, s *nodeState) bool {
	boot := ""
	if a.hostErr == nil {
		boot, _ = a.host.BootID() // rebootOrVerify reports the error.
	}
	return a.write(ctx, s, s.acknowledgement(boot))
}

// finish stores the outcome of the work, and counts failed checks. It returns an error if a new process may succeed.
func (a *Agent) finish(o outcome) error {
	a.ended = &o
	if a.work.dropped || a.work.action != "" && !isCheck(a.work.action) {
		return nil
	}
	if o.err == nil {
		a.failures = 0
		return nil
	}
	if a.failures++; a.failures == 1 {
		a.checks = backoff(min(time.Minute, a.options.CheckInterval), a.options.CheckInterval)
	}
	if a.failures >= refusedChecks && errors.Is(o.err, syscall.ECONNREFUSED) {
		return fmt.Errorf("the host has refused connections in %d checks, a new process may find another socket: %w", a.failures, o.err)
	}
	return nil
}

// conclude cancels unwanted work, and writes the result of ended work. Then it sets the time of the next check. It returns false if it must still wait.
func (a *Agent) conclude(ctx context.Context, s *nodeState) bool {
	w := a.work
	if !w.dropped && (s == nil || !w.matches(s)) {
		w.dropped = true
		w.cancel()
		a.log.Info("no longer wanted", "action", w.action)
	}
	switch {
	case a.ended == nil:
		return false
	case w.dropped || errors.Is(a.ended.err, errWithdrawn):
	case a.retry != nil || !a.write(ctx, s, a.result(s)):
		return false
	}
	w.cancel()
	a.work, a.ended = nil, nil
	a.checkLater()
	return true
}

// result returns what to write about work that has ended.
func (a *Agent) result(s *nodeState) change {
	o := a.ended
	switch {
	case o.err == nil:
		return s.success(a.work.action, *o, a.clock.Now())
	case a.work.action == "" && (a.failures < failedChecks || s.state == v1alpha1.HostStateError):
		a.log.Info("a check has failed", "error", o.err, "failures", a.failures)
		return nil
	}
	a.log.Error(o.err, "failed", "action", a.work.action, "failures", a.failures)
	return s.report(a.work.action, v1alpha1.HostStateError, o.err.Error())
}

// checkLater sets the next check: sooner after a failure.
func (a *Agent) checkLater() {
	a.due = false
	next := wait.Jitter(a.options.CheckInterval, checkJitter)
	if a.failures > 0 {
		next = a.checks.Step()
	}
	a.check = a.clock.After(next)
}

// write writes a change on the Node, unless the Node already has it. It returns false if the write fails. After a conflict the agent decides again
// when the watch shows the newer Node. After another error it sets the retry timer.
func (a *Agent) write(ctx context.Context, s *nodeState, c change) bool {
	c = s.missing(c)
	if len(c) == 0 {
		return true
	}
	n, err := a.client.patch(ctx, s.patch(c))
	switch {
	case err == nil:
		a.pause = apiBackoff()
		a.observed.set(n, n.ResourceVersion)
		if now, ok := readNode(n); ok {
			a.log.Info("wrote to the Node", "action", now.active, "intent", now.intent(), "runs", now.runs, "target", now.target)
		}
		return true
	case !apierrors.IsConflict(err) && ctx.Err() == nil:
		next := a.pause.Step()
		a.retry = a.clock.After(next)
		a.log.Info("the Node can't be written to", "error", err, "again", next.Round(time.Millisecond).String())
	}
	return false
}
