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
	"net/url"
	"strconv"
	"strings"
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
	State   string           `json:"update_state"`
	Chosen  *updateImage     `json:"chosen_update"`
	Staging *updatePartition `json:"staging_partition"`
	Last    *commandResult   `json:"most_recent_command"`
}

type updateImage struct {
	Version string `json:"version"`
}

type updatePartition struct {
	Image      updateImage `json:"image"`
	NextToBoot bool        `json:"next_to_boot"`
}

// commandResult is how a command ended.
type commandResult struct {
	Kind       string  `json:"cmd_type"`
	Status     string  `json:"cmd_status"`
	Timestamp  string  `json:"timestamp"`
	ExitStatus *int    `json:"exit_status"`
	Stderr     *string `json:"stderr"`
}

// chosen returns the version that the API has chosen for the host; empty if there is none.
func (s *updateStatus) chosen() string {
	if s.Chosen == nil {
		return ""
	}
	return strings.TrimPrefix(s.Chosen.Version, "v")
}

// staged returns the version on the other partitions; empty if there is none.
func (s *updateStatus) staged() string {
	if (s.State != stateStaged && s.State != stateReady) || s.Staging == nil {
		return ""
	}
	return strings.TrimPrefix(s.Staging.Image.Version, "v")
}

// lastEnd returns when the last command ended, as the API writes it; empty if there was none.
func (s *updateStatus) lastEnd() string {
	if s.Last == nil {
		return ""
	}
	return s.Last.Timestamp
}

// failure returns why the command failed, or nil.
func (c *commandResult) failure() error {
	if c.Status == "Success" {
		return nil
	}
	how := cmp.Or(c.Status, "no status")
	if c.ExitStatus != nil {
		how = "exit status " + strconv.Itoa(*c.ExitStatus)
	}
	said := ""
	if c.Stderr != nil {
		said = brief(*c.Stderr)
	}
	return fmt.Errorf("the host's updater failed (%s): %s", how, cmp.Or(said, "no output"))
}

// updateCommand is a command of the Update API.
type updateCommand struct {
	// path is where it is posted.
	path string
	// kind is its name in the status.
	kind string
	// doing begins its errors.
	doing string
}

var (
	refresh    = updateCommand{"/actions/refresh-updates", "refresh", "looking for updates"}
	prepare    = updateCommand{"/actions/prepare-update", "prepare", "fetching the update"}
	activate   = updateCommand{"/actions/activate-update", "activate", "activating the update"}
	deactivate = updateCommand{"/actions/deactivate-update", "deactivate", "reverting the update"}
)

// command runs a command, and returns the status after it. The API answers before the command runs. When the command has ended, the time
// of the most recent command in the status changes. While a command runs, the API answers 423 to every request.
func (a *UpdateAPI) command(ctx context.Context, c updateCommand, budget time.Duration) (*updateStatus, error) {
	var before, after *updateStatus
	err := a.poll(ctx, budget, func() (done bool, err error) {
		if before == nil {
			status, err := a.status(ctx)
			if err != nil {
				return false, err
			}
			err = a.request(ctx, http.MethodPost, c.path, a.requestLimit, nil)
			if answer := (*answerError)(nil); errors.As(err, &answer) {
				return false, err // The API has refused the command, perhaps for now.
			}
			before = status // The API runs the command, or the answer was lost. The status shows which.
			return false, nil
		}
		if after, err = a.status(ctx); err != nil {
			return false, err
		}
		return after.lastEnd() != before.lastEnd(), nil
	})
	switch {
	case err != nil:
	case after.Last == nil || after.Last.Kind != c.kind:
		err = errors.New("another command of the Update API came in between")
	default:
		err = after.Last.failure()
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %w", c.doing, err)
	}
	return after, nil
}

// idleStatus returns the status when no command runs any more. It is empty if no command ran since the boot.
func (a *UpdateAPI) idleStatus(ctx context.Context) (status *updateStatus, err error) {
	err = a.poll(ctx, a.prepareLimit, func() (bool, error) {
		status, err = a.status(ctx)
		return err == nil, err
	})
	return status, err
}

// maxFailures is how many failed requests end a poll. The answer that a command still runs is not a failure.
const maxFailures = 5

// poll calls a function until it is done or budget has passed. It ends at once if an answer refuses the request for good.
func (a *UpdateAPI) poll(ctx context.Context, budget time.Duration, try func() (done bool, err error)) error {
	var last error
	failures := 0
	err := wait.PollUntilContextTimeout(ctx, a.interval, budget, true, func(context.Context) (done bool, err error) {
		if done, last = try(); done {
			return true, nil
		}
		var answer *answerError
		isAnswer := errors.As(last, &answer)
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
	case !wait.Interrupted(err):
		return err
	case last != nil:
		return fmt.Errorf("it is not done after %s, %w", budget, last)
	}
	return fmt.Errorf("it is not done after %s", budget)
}

// status reads the status. It is empty if no command ran since the boot.
func (a *UpdateAPI) status(ctx context.Context) (*updateStatus, error) {
	status := &updateStatus{}
	err := a.request(ctx, http.MethodGet, "/updates/status", a.requestLimit, status)
	if answer := (*answerError)(nil); errors.As(err, &answer) && answer.code == http.StatusNotFound {
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

// errSlow is the cause when a request times out.
var errSlow = errors.New("the Update API does not answer")

// maxBody bounds what is read of an answer.
const maxBody = 1 << 20

// request sends a request, and reads the JSON document of the answer unless into is nil.
func (a *UpdateAPI) request(ctx context.Context, method, path string, timeout time.Duration, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %s", errSlow, timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://host"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	var body []byte
	if err == nil {
		defer func() { _ = response.Body.Close() }()
		body, err = io.ReadAll(io.LimitReader(response.Body, maxBody))
	}
	if err != nil {
		// The client repeats the method and a URL that means nothing.
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("%s %s, %w", method, path, cmp.Or(context.Cause(ctx), err))
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &answerError{code: response.StatusCode, text: brief(string(body))}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading the answer of %s %s, %w", method, path, err)
	}
	return nil
}
