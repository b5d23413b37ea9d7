// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// UpdateAPISocket is where Bottlerocket's API is served.
const UpdateAPISocket = "/run/api.sock"

// UpdateAPIOptions say where the Update API is, and how long it may take. Each duration that is 0 has its default.
type UpdateAPIOptions struct {
	// Socket is the path of its Unix socket. Default UpdateAPISocket.
	Socket string
	// Clock must be given.
	Clock clock.Clock
	// Refresh is how long finding updates may take. Default 10s.
	Refresh time.Duration
	// Prepare is how long fetching one may take. Default 10m.
	Prepare time.Duration
	// Activate is how long it may take to make the next boot use it, or to revert that. Default 5s.
	Activate time.Duration
	// Request is how long one answer may take. Default 10s; the answer to the order to reboot may take three times as long.
	Request time.Duration
	// Poll is the time between two looks at how a command goes on; it grows to 20 times that. Default 100ms.
	Poll time.Duration
	// BootIDFile holds the boot id. Default DefaultBootIDFile.
	BootIDFile string
}

// UpdateAPI is a Bottlerocket host that is updated by its Update API.
//
// The API remembers what is done, until the host reboots. The UpdateAPI itself remembers nothing.
type UpdateAPI struct {
	boot
	options UpdateAPIOptions
	client  *http.Client
}

var _ Host = (*UpdateAPI)(nil)

// NewUpdateAPI makes one. No request is sent before the first call.
func NewUpdateAPI(o UpdateAPIOptions) *UpdateAPI {
	o.Socket = cmp.Or(o.Socket, UpdateAPISocket)
	o.Refresh = cmp.Or(o.Refresh, 10*time.Second)
	o.Prepare = cmp.Or(o.Prepare, 10*time.Minute)
	o.Activate = cmp.Or(o.Activate, 5*time.Second)
	o.Request = cmp.Or(o.Request, 10*time.Second)
	o.Poll = cmp.Or(o.Poll, 100*time.Millisecond)
	var dialer net.Dialer
	return &UpdateAPI{boot: boot{o.BootIDFile}, options: o, client: &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", o.Socket)
			},
			// Calls are hours apart, and the API may have been restarted since the last one.
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Version returns the version_id of GET /os.
func (a *UpdateAPI) Version(ctx context.Context) (string, error) {
	var system struct {
		VersionID string `json:"version_id"`
	}
	if err := a.get(ctx, "/os", &system); err != nil {
		return "", fmt.Errorf("asking the host for its version, %w", err)
	}
	if system.VersionID == "" {
		return "", errors.New("asking the host for its version, the answer has no version_id")
	}
	return bareVersion(system.VersionID), nil
}

// Check refreshes the list of updates. The host offers the one that its API has chosen by its settings and its wave.
func (a *UpdateAPI) Check(ctx context.Context) (Offer, error) {
	status, err := a.command(ctx, refresh, a.options.Refresh)
	if err != nil {
		return Offer{}, err
	}
	return Offer{Available: status.Chosen != nil, Version: status.chosen()}, nil
}

// Prepare stages the version. One that is staged already, or that the next boot uses, is prepared.
func (a *UpdateAPI) Prepare(ctx context.Context, version string) error {
	// The previous process may have ended while its command went on.
	status, err := a.idleStatus(ctx)
	if err != nil {
		return err
	}
	if version != "" && status.staged() == version {
		return nil
	}
	if status, err = a.command(ctx, refresh, a.options.Refresh); err != nil {
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
		if _, err := a.command(ctx, deactivate, a.options.Activate); err != nil {
			return err
		}
	}
	if status, err = a.command(ctx, prepare, a.options.Prepare); err != nil {
		return err
	}
	// It may have chosen anew in the meantime.
	if staged := status.staged(); staged != chosen {
		return otherVersion(chosen, staged)
	}
	return nil
}

// Perform activates the version. What a reboot in between has removed is prepared again.
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
	if status, err = a.command(ctx, activate, a.options.Activate); err != nil {
		return err
	}
	if status.State != stateReady || status.Staging == nil || !status.Staging.NextToBoot {
		return fmt.Errorf("the Update API has activated the update, and is in the state %s", status.State)
	}
	return nil
}

// Revert deactivates what the next boot would use. It stays staged.
func (a *UpdateAPI) Revert(ctx context.Context) error {
	status, err := a.idleStatus(ctx)
	if err == nil && status.State == stateReady {
		_, err = a.command(ctx, deactivate, a.options.Activate)
	}
	return err
}

// Reboot orders the reboot. A connection that breaks before the answer, or an answer that does not come, is taken for the reboot itself.
func (a *UpdateAPI) Reboot(ctx context.Context) error {
	err := a.post(ctx, "/actions/reboot", 3*a.options.Request)
	if err == nil || (ctx.Err() == nil && isConnectionLost(err)) {
		return nil
	}
	return err
}

// isConnectionLost reports whether the other side was reached, and then went away or was silent.
func isConnectionLost(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	return isEOF(err) || errors.Is(err, errSlow) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
