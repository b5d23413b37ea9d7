// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The states of the Update API.
const (
	stateStaged = "Staged"
	stateReady  = "Ready"
)

// updateStatus is the answer to GET /updates/status.
type updateStatus struct {
	State string `json:"update_state"`
	// Chosen is the update that the API has chosen for the host, if any.
	Chosen  updateImage `json:"chosen_update"`
	Staging struct {
		Image updateImage `json:"image"`
	} `json:"staging_partition"`
	Last commandResult `json:"most_recent_command"`
}

type updateImage struct {
	Version string `json:"version"`
}

// commandResult is how a command ended.
type commandResult struct {
	Kind      string `json:"cmd_type"`
	Status    string `json:"cmd_status"`
	Timestamp string `json:"timestamp"`
	Stderr    string `json:"stderr"`
}

// staged returns the version on the other partitions; empty if there is none.
func (s *updateStatus) staged() string {
	if s.State != stateStaged && s.State != stateReady {
		return ""
	}
	return s.Staging.Image.Version
}

// failure returns why the command failed, or nil.
func (c *commandResult) failure() error {
	if c.Status == "Success" {
		return nil
	}
	return fmt.Errorf("the host's updater failed: %s", cmp.Or(brief(c.Stderr), c.Status, "no status"))
}

// updateCommand is a command of the Update API: the path to which it is posted, and its name in the status.
type updateCommand struct{ path, kind string }

var (
	refresh    = updateCommand{"/actions/refresh-updates", "refresh"}
	prepare    = updateCommand{"/actions/prepare-update", "prepare"}
	activate   = updateCommand{"/actions/activate-update", "activate"}
	deactivate = updateCommand{"/actions/deactivate-update", "deactivate"}
)

// command runs a command, and returns the status after it. The API answers before the command runs. When the command has ended, the time
// of the most recent command in the status changes. While a command runs, the API answers 423 to every request.
func (a *UpdateAPI) command(ctx context.Context, c updateCommand) (*updateStatus, error) {
	var before, after *updateStatus
	limit := a.commandLimit
	if c == prepare {
		limit *= downloads
	}
	err := a.poll(ctx, a.commandLimit, func() (begun bool, err error) {
		if before, err = a.status(ctx); err != nil {
			return false, err
		}
		err = a.request(ctx, http.MethodPost, c.path, nil)
		if _, isRefused := errors.AsType[*answerError](err); isRefused {
			return false, err // Perhaps only for now.
		}
		return true, nil // The API runs the command, or the answer was lost. The status shows which.
	})
	if err == nil {
		err = a.poll(ctx, limit, func() (ended bool, err error) {
			after, err = a.status(ctx)
			return err == nil && after.Last.Timestamp != before.Last.Timestamp, err
		})
	}
	switch {
	case err != nil:
		return nil, err
	case after.Last.Kind != c.kind:
		return nil, errors.New("another command of the Update API came in between")
	}
	return after, after.Last.failure()
}

// downloads is how many times longer a command may take that downloads the update.
const downloads = 6

// idleStatus returns the status when no command runs any more, such as a download that the previous process began. It is empty if no command ran
// since the boot.
func (a *UpdateAPI) idleStatus(ctx context.Context) (status *updateStatus, err error) {
	err = a.poll(ctx, downloads*a.commandLimit, func() (bool, error) {
		status, err = a.status(ctx)
		return err == nil, err
	})
	return status, err
}

// maxFailures is how many failed requests end a poll. The answer that a command still runs is not a failure.
const maxFailures = 5

// poll calls a function until it is done, or the time limit has passed. It ends at once if an answer refuses the request for good.
func (a *UpdateAPI) poll(ctx context.Context, limit time.Duration, try func() (done bool, err error)) error {
	var last error
	failures := 0
	err := wait.PollUntilContextTimeout(ctx, a.interval, limit, true, func(context.Context) (done bool, err error) {
		if done, last = try(); done {
			return true, nil
		}
		answer, isAnswer := errors.AsType[*answerError](last)
		isBusy := isAnswer && answer.code == http.StatusLocked
		if last != nil && !isBusy {
			failures++
		}
		if failures >= maxFailures || isAnswer && !isBusy && answer.code < http.StatusInternalServerError {
			return false, last
		}
		return false, nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return fmt.Errorf("it is not done after %s, %w", limit, cmp.Or(last, err))
	}
	return err
}

// status reads the status. It is empty if no command ran since the boot.
func (a *UpdateAPI) status(ctx context.Context) (*updateStatus, error) {
	status := &updateStatus{}
	err := a.request(ctx, http.MethodGet, "/updates/status", status)
	if answer, ok := errors.AsType[*answerError](err); ok && answer.code == http.StatusNotFound {
		err = nil
	}
	return status, err
}

// answerError is an answer that refuses.
type answerError struct {
	code int
	text string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the Update API answers %d: %s", e.code, cmp.Or(e.text, http.StatusText(e.code)))
}

// request sends a request, and reads the JSON document of the answer unless into is nil.
func (a *UpdateAPI) request(ctx context.Context, method, path string, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.requestLimit, fmt.Errorf("%s: the Update API does not answer within %s", path, a.requestLimit))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		return &answerError{code: response.StatusCode, text: brief(string(body))}
	}
	if err == nil && into != nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("reading the answer of %s %s, %w", method, path, cmp.Or(context.Cause(ctx), err))
	}
	return nil
}
