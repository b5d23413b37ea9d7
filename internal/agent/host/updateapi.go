// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
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
	// Time limits to find updates, to fetch an update, to activate or deactivate it, and to answer a request. The answer to the order to
	// reboot may take three times as long.
	refreshLimit, prepareLimit, activateLimit, requestLimit time.Duration
	// interval is the time between two requests for the status of a command.
	interval time.Duration
}

var _ Host = (*UpdateAPI)(nil)

// NewUpdateAPI makes an UpdateAPI for this Unix socket. It sends no request before the first call.
func NewUpdateAPI(socket, bootIDFile string) *UpdateAPI {
	var dialer net.Dialer
	return &UpdateAPI{
		boot: boot{bootIDFile}, refreshLimit: 10 * time.Second, prepareLimit: 10 * time.Minute, activateLimit: 5 * time.Second, requestLimit: 10 * time.Second,
		interval: 500 * time.Millisecond,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, "unix", socket)
				},
				// Calls are hours apart, and the API may have been restarted since the last one.
				DisableKeepAlives: true,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Version returns the version_id of GET /os.
func (a *UpdateAPI) Version(ctx context.Context) (string, error) {
	var system struct {
		VersionID string `json:"version_id"`
	}
	if err := a.request(ctx, http.MethodGet, "/os", a.requestLimit, &system); err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	if system.VersionID == "" {
		return "", errors.New("reading the host's version, the answer has no version_id")
	}
	return strings.TrimPrefix(system.VersionID, "v"), nil
}

// Check refreshes the list of updates. The host offers the update that its API chooses by settings and wave.
func (a *UpdateAPI) Check(ctx context.Context) (Offer, error) {
	status, err := a.command(ctx, refresh, a.refreshLimit)
	if err != nil {
		return Offer{}, err
	}
	return Offer{Available: status.Chosen != nil, Version: status.chosen()}, nil
}

// Prepare stages the version. It does nothing if the version is already staged or activated.
func (a *UpdateAPI) Prepare(ctx context.Context, version string) error {
	// The previous process may have ended while its command went on.
	status, err := a.idleStatus(ctx)
	if err != nil {
		return err
	}
	if version != "" && status.staged() == version {
		return nil
	}
	if status, err = a.command(ctx, refresh, a.refreshLimit); err != nil {
		return err
	}
	chosen := status.chosen()
	if chosen == "" || (version != "" && chosen != version) {
		return otherVersion(version, chosen)
	}
	if status.staged() == chosen {
		return nil
	}
	// The next boot uses another version. The API prepares nothing until that is reverted.
	if status.State == stateReady {
		if _, err := a.command(ctx, deactivate, a.activateLimit); err != nil {
			return err
		}
	}
	if status, err = a.command(ctx, prepare, a.prepareLimit); err != nil {
		return err
	}
	// The API may have changed its choice in between.
	if staged := status.staged(); staged != chosen {
		return otherVersion(chosen, staged)
	}
	return nil
}

// Perform activates the version. It prepares the update again if a reboot has removed it.
func (a *UpdateAPI) Perform(ctx context.Context, version string) error {
	status, err := a.idleStatus(ctx)
	if err != nil {
		return err
	}
	if status.staged() == "" {
		if err := a.Prepare(ctx, version); err != nil {
			return err
		}
		if status, err = a.idleStatus(ctx); err != nil {
			return err
		}
	}
	if staged := status.staged(); version != "" && staged != version {
		return fmt.Errorf("%w: %s is prepared", ErrOther, staged)
	}
	if status.State == stateReady {
		return nil
	}
	if status, err = a.command(ctx, activate, a.activateLimit); err != nil {
		return err
	}
	if status.State != stateReady || status.Staging == nil || !status.Staging.NextToBoot {
		return fmt.Errorf("the Update API has activated the update, and is in the state %s", status.State)
	}
	return nil
}

// Revert deactivates the update. The update stays staged.
func (a *UpdateAPI) Revert(ctx context.Context) error {
	status, err := a.idleStatus(ctx)
	if err == nil && status.State == stateReady {
		_, err = a.command(ctx, deactivate, a.activateLimit)
	}
	return err
}

// Reboot orders the reboot. If the connection breaks, or no answer comes, it assumes that the host reboots.
func (a *UpdateAPI) Reboot(ctx context.Context) error {
	err := a.request(ctx, http.MethodPost, "/actions/reboot", 3*a.requestLimit, nil)
	if err == nil || (ctx.Err() == nil && isConnectionLost(err)) {
		return nil
	}
	return err
}

// isConnectionLost reports whether the API was reached, and then closed the connection or did not answer.
func isConnectionLost(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, errSlow, syscall.ECONNRESET, syscall.EPIPE}, func(lost error) bool {
		return errors.Is(err, lost)
	})
}
