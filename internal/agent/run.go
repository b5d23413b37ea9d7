// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"moult.dev/moult/api/v1alpha1"
)

// Run acts until the context ends, and then returns nil when the host's call under way has come back. It returns an error only
// if a new process may fare better.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		(&watcher{a.options.Clock, a.options.Random, a.reads, a.sight, a.log}).run(ctx)
	}()
	defer func() {
		cancel()
		if a.work != nil && a.ended == nil {
			<-a.work.done
		}
		<-watched
	}()
	a.check = a.options.Clock.NewTimer(time.Duration(a.options.Random() * float64(min(firstCheck, a.options.CheckInterval))))
	defer a.check.Stop()
	for {
		now := a.options.Clock.Now()
		a.busySince.Store(&now)
		a.advance(ctx)
		a.busySince.Store(nil)
		if a.moved != nil && a.work == nil {
			return a.moved
		}
		var done chan outcome
		if a.work != nil && a.ended == nil {
			done = a.work.done
		}
		var retry <-chan time.Time
		if a.retry != nil {
			retry = a.retry.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.sight.changed:
		case o := <-done:
			if err := a.finish(o); err != nil {
				return err
			}
		case <-retry:
			a.retry = nil
			a.refresh(ctx)
		case <-a.check.C():
			a.log.Debug("a check is due")
			a.due = true
		}
	}
}

// Alive returns an error if Run has not come round for too long. It may be called at any time.
func (a *Agent) Alive() error {
	since := a.busySince.Load()
	if since == nil {
		return nil
	}
	if busy := a.options.Clock.Since(*since); busy > stuck {
		return fmt.Errorf("one round takes for %s", busy.Round(time.Second))
	}
	return nil
}

// advance does all that can be done at once.
func (a *Agent) advance(ctx context.Context) {
	for ctx.Err() == nil {
		s := a.hear()
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
			if !a.acknowledge(ctx, s) {
				return
			}
		case carryOn:
			a.begin(ctx, s.active, s)
			return
		case idle:
			a.ponder(s)
			if a.due && s.mayCheck() {
				a.begin(ctx, "", s)
			} else if a.due {
				a.checkLater()
			}
			return
		}
	}
}

// hear is what is said on the Node as it is now, or nil if the agent is not to act on it.
func (a *Agent) hear() *said {
	a.moved = nil
	n, synced := a.sight.now()
	switch {
	case !synced:
		return nil
	case n == nil:
		a.hush("there is no such Node")
		return nil
	}
	s, ok := hear(n)
	if !ok {
		a.hush("no label of the Node names an interface of its host")
		return nil
	}
	face := faceOf(s.protocol, s.hostInterface)
	if a.host == nil {
		a.meet(s, face)
	}
	if s.protocol.InterfaceLabel != a.label || face != a.face {
		// The same pod may be the one for the new label, too.
		a.moved = fmt.Errorf("the interface of the host was %s by label %s, and is now %s by label %s, which a new process is to find", a.face, a.label, face, s.protocol.InterfaceLabel)
		a.hush(a.moved.Error())
		return nil
	}
	if a.quiet != "" {
		a.log.Info("acting again", "intent", s.intent())
		a.quiet = ""
	}
	return s
}

// meet makes the host.
func (a *Agent) meet(s *said, face string) {
	a.label, a.face, a.quiet = s.protocol.InterfaceLabel, face, ""
	var err error
	switch face {
	case v1alpha1.InterfaceUpdog, v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceSentinel:
		a.host, err = a.options.Host(s.protocol, face)
	default:
		err = fmt.Errorf("label %s has the value %q, which names no interface that this agent knows: these are %s, %s and %s",
			a.label, s.hostInterface, v1alpha1.InterfaceUpdog, v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceSentinel)
	}
	if err != nil {
		a.log.Error("the host can't be reached", "error", err)
		a.host = useless{err}
	}
	a.log.Info("listening", "label", a.label, "interface", face, "intent", s.intent())
}

// dogswatch begins the keys of the protocol whose label may have any value.
const dogswatch = "thar.amazonaws.com/"

// faceOf is the interface that a label's value stands for; what stands for none is itself.
func faceOf(protocol v1alpha1.HostProtocol, hostInterface string) string {
	switch hostInterface {
	case v1alpha1.InterfaceUpdog, v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceSentinel:
		return hostInterface
	}
	if strings.HasPrefix(protocol.InterfaceLabel, dogswatch) {
		return v1alpha1.InterfaceUpdog
	}
	return hostInterface
}

// hush says once why the agent does not act.
func (a *Agent) hush(why string) {
	if a.quiet != why {
		a.quiet = why
		a.log.Warn("not acting", "because", why)
	}
}

// ponder says once that what is wanted is nothing that an agent can do.
func (a *Agent) ponder(s *said) {
	if s.wanted != "" && !known(s.wanted) && s.wanted != a.odd {
		a.log.Warn("what is wanted is not known, and not done", "intent", s.intent())
	}
	if a.odd = s.wanted; known(s.wanted) {
		a.odd = ""
	}
}

// acknowledge says that what is wanted is taken up. It returns false if that must wait.
func (a *Agent) acknowledge(ctx context.Context, s *said) bool {
	boot := ""
	if s.wanted == v1alpha1.HostActionReboot {
		var err error
		if boot, err = a.host.BootID(); err != nil {
			a.log.Error("the boot id can't be read", "error", err)
		}
	}
	return a.say(ctx, s, s.taken(boot), "taken up") != later
}

// finish takes the outcome of the work under way. It returns an error if a new process may fare better.
func (a *Agent) finish(o outcome) error {
	a.ended = &o
	w := a.work
	if w.dropped {
		return nil
	}
	switch {
	case !looks(w.action) && w.action != "":
	case o.err == nil:
		a.failures = 0
		a.checks.reset()
	default:
		a.failures++
	}
	if !errors.Is(o.err, syscall.ECONNREFUSED) {
		a.refused = time.Time{}
		return nil
	}
	now := a.options.Clock.Now()
	if a.refused.IsZero() {
		a.refused = now
	}
	if now.Sub(a.refused) >= deadSocket && w.action != v1alpha1.HostActionReboot {
		return fmt.Errorf("the host has refused connections since %s, a new process may find another socket: %w", a.refused.UTC().Format(time.RFC3339), o.err)
	}
	return nil
}

// conclude looks after the work under way. It returns false if there is still something to wait for.
func (a *Agent) conclude(ctx context.Context, s *said) bool {
	w := a.work
	if !w.dropped && (s == nil || !w.fits(s)) {
		w.dropped = true
		w.cancel()
		if w.action != "" && a.ended == nil {
			a.log.Info("no longer wanted", "action", w.action)
		}
	}
	switch {
	case a.ended == nil:
		return false
	case w.dropped:
		a.forget()
		return true
	case a.retry != nil:
		return false
	case errors.Is(a.ended.err, errWithdrawn):
		a.forget()
		a.refresh(ctx)
		return a.retry == nil
	}
	words, log := a.result(s)
	answer := a.say(ctx, s, words, log)
	if answer == written {
		a.forget()
	}
	return answer != later
}

// result is what to say of work that has ended, and how the log calls it.
func (a *Agent) result(s *said) (words, string) {
	o, now := a.ended, a.options.Clock.Now()
	if a.work.action != "" {
		if o.err != nil {
			a.log.Error("failed", "action", a.work.action, "error", o.err)
			return s.failed(o.err), "failed"
		}
		return s.succeeded(o.found, now), "done"
	}
	switch {
	case o.err == nil:
		return s.checked(o.found, now), "checked"
	case a.failures < failedChecks || s.state == v1alpha1.HostStateError:
		a.log.Warn("a check has failed", "failures", a.failures, "error", o.err)
		return newWords(), ""
	}
	a.log.Error("checks fail again and again", "failures", a.failures, "error", o.err)
	return s.failed(o.err), "checked"
}

// forget ends what there was to do. The next check is due an interval after this one, and sooner after one that failed.
func (a *Agent) forget() {
	a.work.cancel()
	a.work, a.ended = nil, nil
	a.checkLater()
}

// checkLater sets the time of the next check.
func (a *Agent) checkLater() {
	a.due = false
	wait := spread(a.options.CheckInterval, checkShare, a.options.Random)
	if a.failures > 0 {
		wait = a.checks.next(a.options.Random)
	}
	a.check.Stop()
	a.check = a.options.Clock.NewTimer(wait)
}

// answer is how a write went.
type answer int

const (
	// written: it is on the Node.
	written answer = iota
	// again: somebody else wrote, and the Node has been read anew.
	again
	// later: the API server has not taken it. The Node is read anew after a while.
	later
)

// say writes words on the Node, unless they are there already.
func (a *Agent) say(ctx context.Context, s *said, w words, log string) answer {
	w = s.unsaid(w)
	if w.empty() {
		a.log.Debug("nothing to say", "intent", s.intent())
		return written
	}
	body, err := s.patch(w)
	if err != nil {
		a.log.Error("words can't be written", "error", err)
		a.tryLater()
		return later
	}
	n, err := a.writes.patch(ctx, body)
	switch {
	case err == nil:
		a.pause.reset()
		a.conflicts = 0
		a.sight.see(n)
		if now, ok := hear(n); ok {
			a.log.Info(log, "action", now.active, "intent", now.intent(), "runs", now.runs, "target", now.target)
		}
		return written
	case ctx.Err() != nil:
		return later
	case apierrors.IsConflict(err):
		a.conflicts++
		if a.conflicts >= manyConflicts {
			a.conflicts = 0
			a.tryLater()
			return later
		}
		a.refresh(ctx)
		if a.retry == nil {
			return again
		}
		return later
	}
	a.log.Warn("the Node can't be written to", "error", err, "again", a.tryLater())
	return later
}

// refresh reads the Node anew.
func (a *Agent) refresh(ctx context.Context) {
	n, err := a.reads.get(ctx)
	switch {
	case err == nil && n == nil:
		a.sight.miss(nil)
	case err == nil:
		a.sight.see(n)
	case ctx.Err() == nil:
		a.log.Warn("the Node can't be read", "error", err, "again", a.tryLater())
	}
}

// tryLater lets the next request wait, longer after each failure, and returns for how long.
func (a *Agent) tryLater() time.Duration {
	wait := a.pause.next(a.options.Random)
	a.retry = a.options.Clock.NewTimer(wait)
	return wait.Round(time.Millisecond)
}
