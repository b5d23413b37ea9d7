// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
)

// The states of the Update API.
const (
	stateStaged = "Staged"
	stateReady  = "Ready"
)

// updateStatus is what GET /updates/status answers.
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

// chosen is the version that the host would be updated to; empty if there is none.
func (s *updateStatus) chosen() string {
	if s.Chosen == nil {
		return ""
	}
	return bareVersion(s.Chosen.Version)
}

// staged is the version on the other partitions; empty if there is none.
func (s *updateStatus) staged() string {
	if (s.State != stateStaged && s.State != stateReady) || s.Staging == nil {
		return ""
	}
	return bareVersion(s.Staging.Image.Version)
}

// isStaged tells whether a version is staged, and none is to be booted next.
func (s *updateStatus) isStaged() bool { return s.State == stateStaged && s.Staging != nil }

// isActive tells whether a version is to be booted next.
func (s *updateStatus) isActive() bool {
	return s.State == stateReady && s.Staging != nil && s.Staging.NextToBoot
}

// stands tells whether the version is staged, or to be booted next.
func (s *updateStatus) stands(version string) bool {
	return version != "" && s.staged() == version
}

// last is when the last command ended, as the API writes it; empty if there was none.
func (s *updateStatus) last() string {
	if s.Last == nil {
		return ""
	}
	return s.Last.Timestamp
}

// interferes says what came in between that is not the command which is waited for.
func (s *updateStatus) interferes() error {
	if s.Last == nil {
		return errors.New("the Update API has forgotten all commands")
	}
	return fmt.Errorf("another command was carried out in between: %s", s.Last.Kind)
}

// failure is why the command failed, nil if it did not.
func (c *commandResult) failure() error {
	if c.Status == "Success" {
		return nil
	}
	how := cmp.Or(c.Status, "no status")
	if c.ExitStatus != nil {
		how = "exit status " + strconv.Itoa(*c.ExitStatus)
	}
	said := "and said nothing"
	if c.Stderr != nil && brief(*c.Stderr) != "" {
		said = brief(*c.Stderr)
	}
	return fmt.Errorf("the host's updater failed (%s): %s", how, said)
}
