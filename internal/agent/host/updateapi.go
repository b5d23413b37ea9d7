// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// UpdateAPISocket is where Bottlerocket's API is served.
const UpdateAPISocket = "/run/api.sock"

// UpdateAPI is a Bottlerocket host that is updated by its Update API.
//
// The API remembers what was done until the host reboots. The UpdateAPI itself keeps no state.
type UpdateAPI struct {
	boot
	client *http.Client
	// Time limits of a request, and of a command with its effect.
	requestLimit, commandLimit time.Duration
	// interval is the time between two requests for the status of a command.
	interval time.Duration
}

var _ Host = (*UpdateAPI)(nil)

// NewUpdateAPI makes an UpdateAPI for this Unix socket. It sends no request before the first call.
func NewUpdateAPI(socket, bootIDFile string) *UpdateAPI {
	var dialer net.Dialer
	return &UpdateAPI{
		boot: boot{bootIDFile}, requestLimit: 10 * time.Second, commandLimit: 10 * time.Minute, interval: 500 * time.Millisecond,
		client: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
			// Calls are hours apart, and the API may have been restarted since the last one.
			DisableKeepAlives: true,
		}},
	}
}

// Version returns the version_id of GET /os.
func (a *UpdateAPI) Version(ctx context.Context) (string, error) {
	var system struct {
		VersionID string `json:"version_id"`
	}
	if err := a.request(ctx, http.MethodGet, "/os", &system); err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	if system.VersionID == "" {
		return "", errors.New("reading the host's version, the answer has no version_id")
	}
	return system.VersionID, nil
}

// Check refreshes the list of updates. The host offers the update that its API chooses by settings and wave.
func (a *UpdateAPI) Check(ctx context.Context) (Offer, error) {
	status, err := a.command(ctx, refresh)
	if err != nil {
		return Offer{}, err
	}
	return Offer{Available: status.Chosen.Version != "", Version: status.Chosen.Version}, nil
}

// Prepare stages the version. It does nothing if the version is already staged or activated.
func (a *UpdateAPI) Prepare(ctx context.Context, version string) error {
	_, err := a.stage(ctx, version)
	return err
}

// stage is Prepare. It returns the status after it.
func (a *UpdateAPI) stage(ctx context.Context, version string) (*updateStatus, error) {
	// A command of the previous process may still run.
	status, err := a.idleStatus(ctx)
	if err != nil || version != "" && status.staged() == version {
		return status, err
	}
	if status, err = a.command(ctx, refresh); err != nil {
		return nil, err
	}
	chosen := status.Chosen.Version
	switch {
	case chosen == "" || version != "" && chosen != version:
		return nil, otherVersion(version, chosen)
	case status.staged() == chosen:
		return status, nil
	case status.State == stateReady:
		// The next boot uses another version. The API prepares nothing until that is reverted.
		if _, err := a.command(ctx, deactivate); err != nil {
			return nil, err
		}
	}
	status, err = a.command(ctx, prepare)
	if err == nil && status.staged() != chosen { // The API has changed its choice in between.
		err = otherVersion(chosen, status.staged())
	}
	return status, err
}

// Perform activates the version. It prepares the update again if a reboot has removed it.
func (a *UpdateAPI) Perform(ctx context.Context, version string) error {
	status, err := a.idleStatus(ctx)
	if err == nil && status.staged() == "" {
		status, err = a.stage(ctx, version)
	}
	switch {
	case err != nil:
		return err
	case version != "" && status.staged() != version:
		return fmt.Errorf("%w: %s is prepared", ErrOther, status.staged())
	case status.State == stateReady:
		return nil
	}
	status, err = a.command(ctx, activate)
	if err == nil && status.State != stateReady {
		err = fmt.Errorf("the Update API has activated the update, and is in the state %s", status.State)
	}
	return err
}

// Rollback fails. The API goes to the other partitions only with an update that it has prepared since the boot.
func (a *UpdateAPI) Rollback(context.Context) error {
	return errors.New("the Update API offers no way to the other partitions")
}

// Revert deactivates the update. The update stays staged.
func (a *UpdateAPI) Revert(ctx context.Context) error {
	status, err := a.idleStatus(ctx)
	if err == nil && status.State == stateReady {
		_, err = a.command(ctx, deactivate)
	}
	return err
}

// Reboot orders the reboot. It fails if the API refuses, or can't be reached. If the answer is lost, the host may have accepted the order.
func (a *UpdateAPI) Reboot(ctx context.Context) error {
	err := a.request(ctx, http.MethodPost, "/actions/reboot", nil)
	_, isRefused := errors.AsType[*answerError](err)
	op, isNetwork := errors.AsType[*net.OpError](err)
	if isRefused || isNetwork && op.Op == "dial" {
		return err
	}
	return ctx.Err()
}
