// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// doubt is how long the agent waits before it reports that the host failed to reboot. The error may only mean that the host goes down
// and lost the connection.
const doubt = 15 * time.Second

// lookLimit is how long a host that runs the right version may look for updates before the agent reports that the host has rebooted. The node is
// out of service meanwhile.
const lookLimit = 15 * time.Second

// work is an action or check of the host in progress.
type work struct {
	// action is the wanted action; empty for a periodic check.
	action v1alpha1.HostAction
	cancel context.CancelFunc
	// done receives one outcome.
	done chan outcome
	// dropped is true when the outcome is not wanted any more.
	dropped bool
}

// outcome is the result of work: its error, and its findings about the host.
type outcome struct {
	// runs is the version that the host runs; empty where versions have no name.
	runs string
	// offer is what the host offers, or nil if that was not found out.
	offer *host.Offer
	err   error
}

// errWithdrawn says that the order to reboot was withdrawn before it was carried out.
var errWithdrawn = errors.New("the order was withdrawn")

// matches reports whether the Node still asks for this work.
func (w *work) matches(s *nodeState) bool {
	if w.action == "" {
		return s.mayCheck()
	}
	return s.next() == act && s.wanted == w.action
}

// begin starts the wanted action on the host, or a periodic check if action is empty. acknowledged is true if this process has just acknowledged it.
func (a *Agent) begin(ctx context.Context, action v1alpha1.HostAction, s *nodeState, acknowledged bool) {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{action: action, cancel: cancel, done: make(chan outcome, 1)}
	a.work = w
	a.running.Go(func() { w.done <- a.do(ctx, action, s, acknowledged) })
}

// do does the work. It returns when the work is done or has failed, or the context ends.
func (a *Agent) do(ctx context.Context, action v1alpha1.HostAction, s *nodeState, acknowledged bool) outcome {
	if a.hostErr != nil {
		return outcome{err: a.hostErr}
	}
	version := strings.TrimPrefix(s.version, "v")
	if action == "" && s.wanted == v1alpha1.HostActionReset && s.state == v1alpha1.HostStateError {
		action = v1alpha1.HostActionReset // It has failed, and any next reboot would boot what it must revert.
	}
	switch action {
	case v1alpha1.HostActionPrepare:
		return outcome{err: a.host.Prepare(ctx, version)}
	case v1alpha1.HostActionPerform:
		return outcome{err: a.host.Perform(ctx, version)}
	case v1alpha1.HostActionRollback:
		return outcome{err: a.rollBack(ctx, s)}
	case v1alpha1.HostActionReboot:
		return a.rebootOrVerify(ctx, s, acknowledged)
	case v1alpha1.HostActionReset:
		if err := a.host.Revert(ctx); err != nil {
			return outcome{err: fmt.Errorf("reverting the update, %w", err)}
		}
	}
	return a.look(ctx)
}

// rollBack makes the next boot use the other partitions, if they hold the wanted version: what the host ran before.
func (a *Agent) rollBack(ctx context.Context, s *nodeState) error {
	if s.version == "" || strings.TrimPrefix(s.previous, "v") != strings.TrimPrefix(s.version, "v") {
		return fmt.Errorf("the other partitions hold %s, and %s is wanted", cmp.Or(s.previous, "an unknown version"), cmp.Or(s.version, "none"))
	}
	return a.host.Rollback(ctx)
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
	return outcome{runs: runs, offer: &offer}
}

// rebootOrVerify orders the reboot if the host is still in the boot in which the order was acknowledged. In a later boot it verifies what the
// host runs. It also verifies if another agent recorded no boot id, so that the host never reboots twice.
func (a *Agent) rebootOrVerify(ctx context.Context, s *nodeState, acknowledged bool) outcome {
	boot, err := a.host.BootID()
	switch {
	case err != nil:
		return outcome{err: fmt.Errorf("reading the boot id, %w", err)}
	case s.boot == boot:
		return outcome{err: a.reboot(ctx, s, acknowledged)}
	}
	return a.verify(ctx, s)
}

// reboot orders the host to reboot, if the operator still wants that. It returns only if the host has refused, or the order was withdrawn.
// The operator, not the agent, limits how long the host may take to go down.
func (a *Agent) reboot(ctx context.Context, s *nodeState, acknowledged bool) error {
	if s.claimError != nil {
		return fmt.Errorf("not rebooting, %w", s.claimError)
	}
	now := s
	if !acknowledged { // An earlier process did, and the watch may be late.
		var err error
		if now, err = a.readAgain(ctx); err != nil {
			return err
		}
	}
	if now == nil || now.protocol != s.protocol || now.next() != act || now.active != v1alpha1.HostActionReboot || now.boot != s.boot {
		return errWithdrawn
	}
	a.log.Info("rebooting", "intent", now.intent(), "boot", now.boot, "runs", now.runs, "goal", cmp.Or(now.version, now.target))
	err := a.host.Reboot(ctx)
	if err == nil {
		<-ctx.Done() // The host has taken the order, and goes down.
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.clock.After(a.doubt):
		return fmt.Errorf("ordering the reboot, %w", err)
	}
}

// readAgain reads the Node from the API server, because the watch may be late. It retries until the server answers. It returns nil if there is no
// Node, or the Node has no label.
func (a *Agent) readAgain(ctx context.Context) (s *nodeState, err error) {
	err = apiBackoff().DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		n, err := a.client.get(ctx)
		switch {
		case apierrors.IsNotFound(err):
			a.observed.set(nil, "")
		case err != nil:
			a.log.Info("the Node can't be read before the reboot", "error", err)
			return false, nil
		default:
			a.observed.set(n, n.ResourceVersion)
			s, _ = readNode(n)
		}
		return true, nil
	})
	return s, err
}

// verify checks after a reboot whether the host runs the right version. It retries, because the host may not answer soon after a boot.
func (a *Agent) verify(ctx context.Context, s *nodeState) (o outcome) {
	limited, cancel := context.WithTimeout(ctx, a.options.RebootGrace)
	defer cancel()
	_ = backoff(time.Second, 30*time.Second).DelayFunc().Until(limited, true, true, func(context.Context) (answered bool, _ error) {
		if o, answered = a.verifyOnce(ctx, s); !answered {
			a.log.Info("what the host runs after the reboot is not known yet", "error", o.err)
		}
		return answered, nil
	})
	return o
}

// verifyOnce is one attempt of verify. It returns false if the host does not answer. It also looks for updates, so that the operator need not
// order that after the reboot.
func (a *Agent) verifyOnce(ctx context.Context, s *nodeState) (outcome, bool) {
	runs, err := a.host.Version(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("reading the version after the reboot, %w", err)}, false
	}
	goal := cmp.Or(s.version, s.target)
	named := runs != "" && goal != ""
	if named && strings.TrimPrefix(runs, "v") != strings.TrimPrefix(goal, "v") {
		return outcome{err: fmt.Errorf("after the reboot the host runs %s, not %s", runs, goal)}, true
	}
	limit := a.options.RebootGrace
	if named {
		limit = a.lookLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	offer, err := a.host.Check(ctx)
	switch {
	case named && err != nil:
		a.log.Info("whether there is another update is not known yet", "error", err)
		return outcome{runs: runs}, true
	case err != nil:
		return outcome{err: fmt.Errorf("looking for updates after the reboot, %w", err)}, false
	case !named && offer.Available: // Without a goal, or if versions have no name, the host must offer no update any more.
		return outcome{err: fmt.Errorf("after the reboot the host still needs %s", cmp.Or(offer.Version, "to reboot"))}, true
	}
	return outcome{runs: runs, offer: &offer}, true
}
