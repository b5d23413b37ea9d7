// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// updateCommand is a command of the Update API.
type updateCommand struct {
	// path it is posted to.
	path string
	// kind is its name in the status.
	kind string
	// doing is said of it in errors.
	doing string
	// done tells from the status whether it has been carried out, where another command has ended since; nil if that can't be told.
	done func(*updateStatus) bool
}

var (
	refresh    = updateCommand{"/actions/refresh-updates", "refresh", "looking for updates", nil}
	prepare    = updateCommand{"/actions/prepare-update", "prepare", "fetching the update", (*updateStatus).isStaged}
	activate   = updateCommand{"/actions/activate-update", "activate", "activating the update", (*updateStatus).isActive}
	deactivate = updateCommand{"/actions/deactivate-update", "deactivate", "taking back the update", (*updateStatus).isStaged}
)

// maxFailures is how many requests may fail in the course of one command before it is given up.
const maxFailures = 5

// maxSilent is how often in a row the status may be free to read, and tell nothing new, after a command was taken. What carried it out has
// died then.
const maxSilent = 10

// maxLost is how often that may be before the command is given up. No command does harm if it is given once more.
const maxLost = 2

// maxBody bounds what is read of an answer.
const maxBody = 1 << 20

// answerError is an answer that says no.
type answerError struct {
	code int
	text string
}

func (e *answerError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("the Update API answers %d %s", e.code, http.StatusText(e.code))
	}
	return fmt.Sprintf("the Update API answers %d: %s", e.code, e.text)
}

// command has a command carried out, and returns the status after it. The API answers before it has done anything; the status tells
// by the time of the most recent command when it is done. While any command goes on the API answers 423 to everything.
func (a *UpdateAPI) command(ctx context.Context, c updateCommand, budget time.Duration) (*updateStatus, error) {
	status, err := a.commanded(ctx, c, budget)
	if err != nil {
		return nil, fmt.Errorf("%s, %w", c.doing, err)
	}
	return status, nil
}

func (a *UpdateAPI) commanded(ctx context.Context, c updateCommand, budget time.Duration) (*updateStatus, error) {
	// Somebody else's command may take its own time, and this one gets all of its own after it.
	before, err := a.settled(ctx, budget)
	if err != nil {
		return nil, err
	}
	w := a.wait(budget)
	give, taken, silent, lost := true, false, 0, 0
	for {
		if give {
			give = false
			switch err := a.post(ctx, c.path, a.options.Request); {
			case err == nil:
				taken = true
			case isBusy(err):
				w.why = err
			default:
				if err := w.failed(err); err != nil {
					return nil, err
				}
			}
		}
		if err := w.pause(ctx); err != nil {
			return nil, err
		}
		status, err := a.status(ctx)
		switch {
		case isBusy(err):
			// Its own going on, or another's. It was taken, or the answer lost, or another came first: the status tells later.
			w.why, silent = err, 0
		case err != nil:
			if err := w.failed(err); err != nil {
				return nil, err
			}
		case status.last() == before.last():
			if give = !taken; give {
				continue
			}
			// What was taken holds the lock until it has told its end: nothing goes on any more, if this stays so.
			if silent++; silent < maxSilent {
				continue
			}
			if lost++; lost == maxLost {
				return nil, errors.New("the command was taken, and nothing came of it")
			}
			give, taken, silent = true, false, 0
		case status.Last == nil || status.Last.Kind != c.kind:
			if taken && c.done != nil && c.done(status) {
				return status, nil
			}
			w.why = status.interferes()
			before, give = status, !taken
		default:
			return status, status.Last.failure()
		}
	}
}

// settled is the status once no command goes on. That of an API which has had no command since the boot is empty.
func (a *UpdateAPI) settled(ctx context.Context, budget time.Duration) (*updateStatus, error) {
	w := a.wait(budget)
	for {
		status, err := a.status(ctx)
		switch {
		case err == nil:
			return status, nil
		case isBusy(err):
			w.why = err
		default:
			if err := w.failed(err); err != nil {
				return nil, err
			}
		}
		if err := w.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// waiting is the patience with one command.
type waiting struct {
	options  *UpdateAPIOptions
	budget   time.Duration
	end      time.Time
	next     time.Duration
	failures int
	// why is what was last in the way.
	why error
}

func (a *UpdateAPI) wait(budget time.Duration) *waiting {
	return &waiting{options: &a.options, budget: budget, end: a.options.Clock.Now().Add(budget), next: a.options.Poll}
}

// failed returns the error if it is final: an answer that says no, or one failure too many.
func (w *waiting) failed(err error) error {
	var answer *answerError
	if errors.As(err, &answer) && answer.code < http.StatusInternalServerError {
		return err
	}
	if w.failures++; w.failures >= maxFailures {
		return err
	}
	w.why = err
	return nil
}

// pause waits until the next look, and fails at the end of the budget.
func (w *waiting) pause(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	left := w.end.Sub(w.options.Clock.Now())
	if left <= 0 {
		if w.why != nil {
			return fmt.Errorf("it is not done after %s, %w", w.budget, w.why)
		}
		return fmt.Errorf("it is not done after %s", w.budget)
	}
	timer := w.options.Clock.NewTimer(min(w.next, left))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
	}
	w.next = min(w.next*3/2, 20*w.options.Poll)
	return nil
}

// isBusy tells whether the answer is that a command goes on.
func isBusy(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.code == http.StatusLocked
}

// status asks for the status; an empty one if there is none since the boot.
func (a *UpdateAPI) status(ctx context.Context) (*updateStatus, error) {
	var status updateStatus
	err := a.get(ctx, "/updates/status", &status)
	if answer := (*answerError)(nil); errors.As(err, &answer) && answer.code == http.StatusNotFound {
		return &updateStatus{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// get asks for something in JSON.
func (a *UpdateAPI) get(ctx context.Context, path string, into any) error {
	body, err := a.ask(ctx, http.MethodGet, path, a.options.Request)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the answer of GET %s, %w", path, err)
	}
	return nil
}

// post gives a command.
func (a *UpdateAPI) post(ctx context.Context, path string, timeout time.Duration) error {
	_, err := a.ask(ctx, http.MethodPost, path, timeout)
	return err
}

// errSlow is why a request is given up.
var errSlow = errors.New("the Update API does not answer")

func (a *UpdateAPI) ask(ctx context.Context, method, path string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %s", errSlow, timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://host"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, a.lost(ctx, method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, a.lost(ctx, method, path, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, &answerError{code: response.StatusCode, text: brief(string(body))}
	}
	return body, nil
}

// lost is said of a request that has no answer, or none that is whole.
func (a *UpdateAPI) lost(ctx context.Context, method, path string, err error) error {
	// The client repeats the method and a URL that means nothing.
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case isEOF(err):
		err = fmt.Errorf("the connection broke, %w", err)
	}
	return fmt.Errorf("%s %s, %w", method, path, err)
}

// isEOF tells whether an answer ended too soon.
func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
