// SPDX-License-Identifier: Apache-2.0

package bottlerocket_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
)

var built struct {
	sync.Once
	dir     string
	program bottlerocket.Program
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func program(t *testing.T) bottlerocket.Program {
	t.Helper()
	built.Do(func() {
		//nolint:usetesting // It outlives the test that comes first.
		if built.dir, built.err = os.MkdirTemp("", "moult-double-"); built.err == nil {
			built.program, built.err = bottlerocket.Build(t.Context(), built.dir)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.program
}

// start makes a host of version 1.19.0, whose repository has these releases.
func start(t *testing.T, releases ...string) *host {
	t.Helper()
	return startWith(t, bottlerocket.Options{
		Interface: v1alpha1.InterfaceUpdateAPI, Version: "1.19.0", Releases: bottlerocket.Releases(releases...),
	})
}

func startWith(t *testing.T, o bottlerocket.Options) *host {
	t.Helper()
	// A short path, for sockets.
	dir, err := os.MkdirTemp("/tmp", "br-") //nolint:usetesting // The path of t.TempDir is too long for sockets.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := program(t).StartIn(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &host{Directory: d, t: t, client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.Root.Path(state.APISocket))
		},
	}}}
}

// host is a host that is asked things.
type host struct {
	*bottlerocket.Directory
	t      *testing.T
	client *http.Client
}

func (h *host) fault(f state.Fault, value string) {
	h.t.Helper()
	if err := h.SetFault(h.t.Context(), f, value); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) clear(f state.Fault) {
	h.t.Helper()
	if err := h.ClearFault(h.t.Context(), f); err != nil {
		h.t.Fatal(err)
	}
}

// call is a request, and its answer as "code body".
func (h *host) call(method, path string) string {
	h.t.Helper()
	answer, err := h.try(method, path)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer
}

func (h *host) try(method, path string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://host"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := h.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, body), err
}

func (h *host) post(action string) string {
	h.t.Helper()
	return h.call(http.MethodPost, "/actions/"+action)
}

// command gives a command and waits for its end.
func (h *host) command(action string) status {
	h.t.Helper()
	if got := h.post(action); got != "204 " {
		h.t.Fatalf("%s: %s", action, got)
	}
	return h.settled()
}

// status is what is looked at of the status.
type status struct {
	State   string
	Updates []string
	// Chosen, Active and Staging are versions, the latter with "*" where it is next to boot.
	Chosen, Active, Staging string
	// Command is the last one with its status, exit status and standard error.
	Command string
}

// settled waits until no command runs, and returns the status.
func (h *host) settled() status {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		answer := h.call(http.MethodGet, "/updates/status")
		if answer[:3] == "200" {
			return h.parse(answer[4:])
		}
		if answer[:3] != "423" || time.Now().After(deadline) {
			h.t.Fatalf("the status: %s", answer)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (h *host) parse(body string) status {
	h.t.Helper()
	type image struct{ Arch, Version, Variant string }
	type partition struct {
		Image      image
		NextToBoot bool `json:"next_to_boot"`
	}
	var raw struct {
		State   string     `json:"update_state"`
		Updates []string   `json:"available_updates"`
		Chosen  *image     `json:"chosen_update"`
		Active  *partition `json:"active_partition"`
		Staging *partition `json:"staging_partition"`
		Command *struct {
			Type       string    `json:"cmd_type"`
			Status     string    `json:"cmd_status"`
			Timestamp  time.Time `json:"timestamp"`
			ExitStatus *int      `json:"exit_status"`
			Stderr     *string   `json:"stderr"`
		} `json:"most_recent_command"`
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&raw); err != nil {
		h.t.Fatalf("%v: %s", err, body)
	}
	text := func(p *partition) string {
		switch {
		case p == nil:
			return ""
		case p.NextToBoot:
			return p.Image.Version + "*"
		default:
			return p.Image.Version
		}
	}
	s := status{State: raw.State, Updates: raw.Updates, Active: text(raw.Active), Staging: text(raw.Staging)}
	if raw.Chosen != nil {
		s.Chosen = raw.Chosen.Version
	}
	if c := raw.Command; c != nil {
		if time.Since(c.Timestamp) > time.Minute {
			h.t.Errorf("the last command was at %s", c.Timestamp)
		}
		s.Command = fmt.Sprintf("%s %s %d %q", c.Type, c.Status, *c.ExitStatus, *c.Stderr)
	}
	return s
}

// ran is what came of a program.
type ran struct {
	Code           int
	Stdout, Stderr string
}

func (h *host) run(name string, args ...string) ran {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := h.Command(h.t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// reboots waits for a boot after this many.
func (h *host) reboots(already int) {
	h.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		boots, err := h.Boots(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		if len(boots) > already {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%d boots, and no more", len(boots))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (h *host) version() string {
	h.t.Helper()
	v, err := h.OSRelease(h.t.Context(), "VERSION_ID")
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

func read(t *testing.T, h *host, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(h.Root), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
