// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exchange is a request that is expected, and the answer.
type exchange struct {
	request string
	code    int
	body    string
	// fault is what goes wrong with the answer: "hangs", "drops" or "truncated".
	fault string
	// again has the exchange repeated for as long as such requests come.
	again bool
}

// script is an Update API that expects requests in an order.
type script struct {
	mu    sync.Mutex
	rest  []exchange
	wrong []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := s.next(r.Method + " " + r.URL.Path)
	switch x.fault {
	case "hangs":
		<-r.Context().Done()
		return
	case "drops":
		panic(http.ErrAbortHandler)
	case "truncated":
		w.Header().Set("Content-Length", fmt.Sprint(len(x.body)))
		_, _ = w.Write([]byte(x.body[:len(x.body)/2]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(x.code)
	_, _ = w.Write([]byte(x.body))
}

func (s *script) next(request string) exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 1 && s.rest[0].again && s.rest[0].request != request {
		s.rest = s.rest[1:]
	}
	if len(s.rest) == 0 || s.rest[0].request != request {
		s.wrong = append(s.wrong, request)
		return exchange{code: http.StatusTeapot, body: "not expected"}
	}
	x := s.rest[0]
	if !x.again {
		s.rest = s.rest[1:]
	}
	return x
}

// serve has the exchanges served at a socket, and tells at the end of the test whether they all were asked for.
func serve(t *testing.T, exchanges ...exchange) *UpdateAPI {
	t.Helper()
	s := &script{rest: exchanges}
	socket := listenAt(t, s)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.rest) == 1 && s.rest[0].again {
			s.rest = nil
		}
		for _, x := range s.rest {
			t.Errorf("%s was not asked for", x.request)
		}
		for _, request := range s.wrong {
			t.Errorf("%s was asked for", request)
		}
	})
	request := 10 * time.Second
	if slices.ContainsFunc(exchanges, func(x exchange) bool { return x.fault == "hangs" }) {
		request = time.Second // Its end is waited for.
	}
	a := NewUpdateAPI(socket, "")
	a.interval, a.requestLimit = time.Millisecond, request
	a.commandLimit = 10 * time.Second
	return a
}

func listenAt(t *testing.T, handler http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "host-") //nolint:usetesting // The path of t.TempDir is too long for sockets.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "api.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return socket
}

const (
	getStatus      = "GET /updates/status"
	postRefresh    = "POST /actions/refresh-updates"
	postPrepare    = "POST /actions/prepare-update"
	postActivate   = "POST /actions/activate-update"
	postDeactivate = "POST /actions/deactivate-update"
	postReboot     = "POST /actions/reboot"

	lockedText   = "Unable to obtain shared lock for reading update status: EAGAIN: Try again"
	notYetText   = "Update status is uninitialized, refresh-updates to initialize it"
	notNowText   = "Update action not allowed according to update state"
	lockHeldText = "Update lock held"
)

// status is an answer to getStatus: the state, the version chosen, the version staged, and of the last command the kind, when it
// ended and how.
func status(state, chosen, staged, kind, at string, failure ...string) exchange {
	image := func(version string) string {
		return fmt.Sprintf(`{"arch":"x86_64","version":%q,"variant":"aws-k8s-1.30"}`, version)
	}
	body := map[string]string{
		"update_state": fmt.Sprintf("%q", state), "available_updates": `["1.3.0","1.2.0"]`, "chosen_update": "null",
		"active_partition":  fmt.Sprintf(`{"image":%s,"next_to_boot":%t}`, image("1.1.0"), state != stateReady),
		"staging_partition": "null", "most_recent_command": "null",
	}
	if chosen != "" {
		body["chosen_update"] = image(chosen)
	}
	if staged != "" {
		body["staging_partition"] = fmt.Sprintf(`{"image":%s,"next_to_boot":%t}`, image(staged), state == stateReady)
	}
	if kind != "" {
		how, code, stderr := "Success", "0", `""`
		if len(failure) > 0 {
			how, code, stderr = "Failed", "1", fmt.Sprintf("%q", failure[0])
		}
		body["most_recent_command"] = fmt.Sprintf(`{"cmd_type":%q,"cmd_status":%q,"timestamp":"2026-11-21T20:00:%sZ","exit_status":%s,"stderr":%s}`,
			kind, how, at, code, stderr)
	}
	var fields []string
	for key, value := range body {
		fields = append(fields, fmt.Sprintf("%q:%s", key, value))
	}
	return exchange{request: getStatus, code: http.StatusOK, body: "{" + strings.Join(fields, ",") + "}"}
}

var (
	// never is the status of a host that had no command since it booted.
	never = exchange{request: getStatus, code: http.StatusNotFound, body: notYetText}
	// locked is the status while a command goes on.
	locked = exchange{request: getStatus, code: http.StatusLocked, body: lockedText}
)

func taken(request string) exchange { return exchange{request: request, code: http.StatusNoContent} }

func refused(request string, code int, text string) exchange {
	return exchange{request: request, code: code, body: text}
}

func forever(x exchange) exchange {
	x.again = true
	return x
}

func faulty(x exchange, fault string) exchange {
	x.fault = fault
	return x
}

// failing checks an error: empty is none.
func failing(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want != "":
		t.Errorf("no error, want %q", want)
	case err != nil && want == "":
		t.Errorf("error %q, want none", err)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("error %q, want %q in it", err, want)
	}
}

func TestUpdateAPICheck(t *testing.T) {
	idle := status("Idle", "", "", "refresh", "01")
	found := status("Available", "1.3.0", "", "refresh", "02")
	for name, test := range map[string]struct {
		exchanges []exchange
		want      Offer
		err       string
	}{
		"the first command since the boot": {
			exchanges: []exchange{never, taken(postRefresh), locked, locked, found}, want: Offer{true, "1.3.0"},
		},
		"no update": {
			exchanges: []exchange{idle, taken(postRefresh), locked, status("Idle", "", "", "refresh", "02")},
		},
		"the status is still the old one": {
			exchanges: []exchange{idle, taken(postRefresh), idle, locked, idle, found}, want: Offer{true, "1.3.0"},
		},
		"another command goes on before": {
			exchanges: []exchange{locked, locked, status("Staged", "1.3.0", "1.3.0", "prepare", "01"), taken(postRefresh), status("Staged", "1.3.0", "1.3.0", "refresh", "02")},
			want:      Offer{true, "1.3.0"},
		},
		"another command comes first": {
			exchanges: []exchange{
				idle, refused(postRefresh, 423, lockHeldText), locked, status("Staged", "1.3.0", "1.3.0", "prepare", "02"),
				taken(postRefresh), locked, status("Staged", "1.3.0", "1.3.0", "refresh", "03"),
			},
			want: Offer{true, "1.3.0"},
		},
		"another command came and went": {
			exchanges: []exchange{idle, refused(postRefresh, 423, lockHeldText), idle, taken(postRefresh), found}, want: Offer{true, "1.3.0"},
		},
		"another command came in between": {
			exchanges: []exchange{idle, taken(postRefresh), locked, status("Idle", "", "", "deactivate", "02")},
			err:       "another command of the Update API came in between",
		},
		"the command failed": {
			exchanges: []exchange{idle, taken(postRefresh), locked, status("Idle", "1.3.0", "", "refresh", "02", "Metadata error:\n  Failed to fetch timestamp.json\n")},
			err:       "the host's updater failed: Metadata error: Failed to fetch timestamp.json",
		},
		"the command failed without a word": {
			exchanges: []exchange{
				idle, taken(postRefresh),
				{request: getStatus, code: 200, body: `{"update_state":"Idle","most_recent_command":{"cmd_type":"refresh","cmd_status":"Unknown","timestamp":"x","exit_status":null,"stderr":null}}`},
			},
			err: "the host's updater failed: Unknown",
		},
		"the command is refused": {
			exchanges: []exchange{idle, refused(postRefresh, 409, notNowText)},
			err:       "the Update API answers 409: " + notNowText,
		},
		"the command can't be begun": {
			exchanges: []exchange{
				idle, refused(postRefresh, 500, "Update dispatcher failed"), idle, refused(postRefresh, 500, "Update dispatcher failed"), idle, taken(postRefresh), found,
			},
			want: Offer{true, "1.3.0"},
		},
		"the command can never be begun": {
			exchanges: []exchange{
				idle, refused(postRefresh, 500, "Update dispatcher failed"), idle, refused(postRefresh, 500, "Update dispatcher failed"), idle,
				refused(postRefresh, 500, "Update dispatcher failed"), idle, refused(postRefresh, 500, "Update dispatcher failed"), idle,
				refused(postRefresh, 500, "Update dispatcher failed"),
			},
			err: "the Update API answers 500: Update dispatcher failed",
		},
		"the status can't be read": {
			exchanges: []exchange{forever(refused(getStatus, 500, "Unable to read status"))},
			err:       "the Update API answers 500: Unable to read status",
		},
		"the status can't be read for a while": {
			exchanges: []exchange{
				refused(getStatus, 500, ""), refused(getStatus, 500, ""), idle, taken(postRefresh), faulty(found, "truncated"), faulty(found, "drops"), locked, found,
			},
			want: Offer{true, "1.3.0"},
		},
		"the answer to the command is lost": {
			exchanges: []exchange{idle, faulty(taken(postRefresh), "drops"), locked, locked, found}, want: Offer{true, "1.3.0"},
		},
		"answers that break off": {
			exchanges: []exchange{forever(faulty(found, "truncated"))},
			err:       "reading the answer of GET /updates/status, unexpected EOF",
		},
		"no JSON": {
			exchanges: []exchange{forever(exchange{request: getStatus, code: 200, body: "<html>"})},
			err:       "reading the answer of GET /updates/status, invalid character",
		},
		"silence for a while": {
			exchanges: []exchange{faulty(idle, "hangs"), idle, taken(postRefresh), found}, want: Offer{true, "1.3.0"},
		},
		"silence": {
			exchanges: []exchange{forever(faulty(idle, "hangs"))},
			err:       "/updates/status: the Update API does not answer within 1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := serve(t, test.exchanges...).Check(t.Context())
			failing(t, err, test.err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUpdateAPIPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		version   string
		exchanges []exchange
		err       string
		other     bool
	}{
		"from nothing": {
			version: "1.3.0",
			exchanges: []exchange{
				never, never, taken(postRefresh), locked, status("Available", "1.3.0", "", "refresh", "01"),
				status("Available", "1.3.0", "", "refresh", "01"), taken(postPrepare), locked, locked, locked, status("Staged", "1.3.0", "1.3.0", "prepare", "02"),
			},
		},
		"whatever there is": {
			exchanges: []exchange{
				status("Idle", "", "", "refresh", "01"), status("Idle", "", "", "refresh", "01"), taken(postRefresh), status("Available", "1.3.0", "", "refresh", "02"),
				status("Available", "1.3.0", "", "refresh", "02"), taken(postPrepare), status("Staged", "1.3.0", "1.3.0", "prepare", "03"),
			},
		},
		"staged already":                    {version: "1.3.0", exchanges: []exchange{status("Staged", "1.3.0", "1.3.0", "prepare", "01")}},
		"to be booted next already":         {version: "1.3.0", exchanges: []exchange{status("Ready", "1.4.0", "1.3.0", "activate", "01")}},
		"under way since a process before":  {version: "1.3.0", exchanges: []exchange{locked, locked, status("Staged", "1.3.0", "1.3.0", "prepare", "01")}},
		"whatever there is, staged already": {exchanges: []exchange{status("Staged", "1.3.0", "1.3.0", "prepare", "01"), status("Staged", "1.3.0", "1.3.0", "prepare", "01"), taken(postRefresh), status("Staged", "1.3.0", "1.3.0", "refresh", "02")}},
		"another one is staged": {
			version: "1.3.0",
			exchanges: []exchange{
				status("Staged", "1.2.0", "1.2.0", "prepare", "01"), status("Staged", "1.2.0", "1.2.0", "prepare", "01"), taken(postRefresh), status("Staged", "1.3.0", "1.2.0", "refresh", "02"),
				status("Staged", "1.3.0", "1.2.0", "refresh", "02"), taken(postPrepare), locked, status("Staged", "1.3.0", "1.3.0", "prepare", "03"),
			},
		},
		"another one must be booted next": {
			version: "1.3.0",
			exchanges: []exchange{
				status("Ready", "1.2.0", "1.2.0", "activate", "01"), status("Ready", "1.2.0", "1.2.0", "activate", "01"), taken(postRefresh), status("Ready", "1.3.0", "1.2.0", "refresh", "02"),
				status("Ready", "1.3.0", "1.2.0", "refresh", "02"), taken(postDeactivate), status("Staged", "1.3.0", "1.2.0", "deactivate", "03"),
				status("Staged", "1.3.0", "1.2.0", "deactivate", "03"), taken(postPrepare), locked, status("Staged", "1.3.0", "1.3.0", "prepare", "04"),
			},
		},
		"another one is offered": {
			version:   "1.3.0",
			exchanges: []exchange{never, never, taken(postRefresh), status("Available", "1.4.0", "", "refresh", "01")},
			err:       "the host does not offer the wanted version: 1.3.0 is wanted, and it offers 1.4.0", other: true,
		},
		"none is offered": {
			version:   "1.3.0",
			exchanges: []exchange{never, never, taken(postRefresh), status("Idle", "", "", "refresh", "01")},
			err:       "the host does not offer the wanted version: 1.3.0 is wanted, and it offers none", other: true,
		},
		"none is offered any more": {
			exchanges: []exchange{never, never, taken(postRefresh), status("Idle", "", "", "refresh", "01")},
			err:       "the host does not offer the wanted version: any is wanted, and it offers none", other: true,
		},
		"another one is fetched": {
			version: "1.3.0",
			exchanges: []exchange{
				never, never, taken(postRefresh), status("Available", "1.3.0", "", "refresh", "01"),
				status("Available", "1.3.0", "", "refresh", "01"), taken(postPrepare), status("Staged", "1.4.0", "1.4.0", "prepare", "02"),
			},
			err: "the host does not offer the wanted version: 1.3.0 is wanted, and it offers 1.4.0", other: true,
		},
		"it fails": {
			version: "1.3.0",
			exchanges: []exchange{
				never, never, taken(postRefresh), status("Available", "1.3.0", "", "refresh", "01"),
				status("Available", "1.3.0", "", "refresh", "01"), taken(postPrepare), locked, status("Available", "1.3.0", "", "prepare", "02", "Failed writing update data to disk: No space left"),
			},
			err: "the host's updater failed: Failed writing update data to disk: No space left",
		},
		"the update is gone": {
			version: "1.3.0",
			exchanges: []exchange{
				never, never, taken(postRefresh), status("Available", "1.3.0", "", "refresh", "01"),
				status("Available", "1.3.0", "", "refresh", "01"), refused(postPrepare, 404, "Previously chosen Update no longer exists"),
			},
			err: "the Update API answers 404: Previously chosen Update no longer exists",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := serve(t, test.exchanges...).Prepare(t.Context(), test.version)
			failing(t, err, test.err)
			if got := errors.Is(err, ErrOther); got != test.other {
				t.Errorf("ErrOther %t, want %t", got, test.other)
			}
		})
	}
}

func TestUpdateAPIPerform(t *testing.T) {
	staged := status("Staged", "1.3.0", "1.3.0", "prepare", "01")
	for name, test := range map[string]struct {
		version   string
		exchanges []exchange
		err       string
		other     bool
	}{
		"staged":             {version: "1.3.0", exchanges: []exchange{staged, staged, taken(postActivate), locked, status("Ready", "1.3.0", "1.3.0", "activate", "02")}},
		"whatever is staged": {exchanges: []exchange{staged, staged, taken(postActivate), status("Ready", "1.3.0", "1.3.0", "activate", "02")}},
		"ready already":      {version: "1.3.0", exchanges: []exchange{status("Ready", "1.3.0", "1.3.0", "activate", "02")}},
		"under way":          {version: "1.3.0", exchanges: []exchange{locked, status("Ready", "1.3.0", "1.3.0", "activate", "02")}},
		"another command comes in between": {
			version:   "1.3.0",
			exchanges: []exchange{staged, staged, taken(postActivate), locked, status("Ready", "1.3.0", "1.3.0", "refresh", "03")},
			err:       "another command of the Update API came in between",
		},
		"another is staged": {version: "1.4.0", exchanges: []exchange{staged}, err: "the host does not offer the wanted version: 1.3.0 is prepared", other: true},
		"lost by a reboot": {
			version: "1.3.0",
			exchanges: []exchange{
				never, never, never, taken(postRefresh), status("Available", "1.3.0", "", "refresh", "01"),
				status("Available", "1.3.0", "", "refresh", "01"), taken(postPrepare), status("Staged", "1.3.0", "1.3.0", "prepare", "02"),
				status("Staged", "1.3.0", "1.3.0", "prepare", "02"), taken(postActivate), status("Ready", "1.3.0", "1.3.0", "activate", "03"),
			},
		},
		"it fails": {
			version:   "1.3.0",
			exchanges: []exchange{staged, staged, taken(postActivate), locked, status("Staged", "1.3.0", "1.3.0", "activate", "02", "Could not mark inactive partition for boot")},
			err:       "the host's updater failed: Could not mark inactive partition for boot",
		},
		"it is refused": {
			version: "1.3.0", exchanges: []exchange{staged, staged, refused(postActivate, 409, notNowText)}, err: "the Update API answers 409: " + notNowText,
		},
		"nothing comes of it": {
			version: "1.3.0", exchanges: []exchange{staged, staged, taken(postActivate), status("Staged", "1.3.0", "1.3.0", "activate", "02")},
			err: "the Update API has activated the update, and is in the state Staged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := serve(t, test.exchanges...).Perform(t.Context(), test.version)
			failing(t, err, test.err)
			if got := errors.Is(err, ErrOther); got != test.other {
				t.Errorf("ErrOther %t, want %t", got, test.other)
			}
		})
	}
}

func TestUpdateAPIRevert(t *testing.T) {
	ready := status("Ready", "1.3.0", "1.3.0", "activate", "01")
	for name, test := range map[string]struct {
		exchanges []exchange
		err       string
	}{
		"ready":                  {exchanges: []exchange{ready, ready, taken(postDeactivate), locked, status("Staged", "1.3.0", "1.3.0", "deactivate", "02")}},
		"staged":                 {exchanges: []exchange{status("Staged", "1.3.0", "1.3.0", "prepare", "01")}},
		"nothing since the boot": {exchanges: []exchange{never}},
		"it is being made ready": {exchanges: []exchange{locked, ready, ready, taken(postDeactivate), status("Staged", "1.3.0", "1.3.0", "deactivate", "02")}},
		"it fails": {
			exchanges: []exchange{ready, ready, taken(postDeactivate), status("Ready", "1.3.0", "1.3.0", "deactivate", "02", "no GPT")},
			err:       "the host's updater failed: no GPT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing(t, serve(t, test.exchanges...).Revert(t.Context()), test.err)
		})
	}
}

// TestNoWayBack: only updog's hosts have signpost.
func TestNoWayBack(t *testing.T) {
	failing(t, (&UpdateAPI{}).Rollback(t.Context()), "the Update API offers no way to the other partitions")
	failing(t, (&Sentinel{}).Rollback(t.Context()), "this host has no other partitions that are known")
}

func TestUpdateAPIReboot(t *testing.T) {
	for name, test := range map[string]struct {
		exchange exchange
		err      string
	}{
		"taken":           {exchange: taken(postReboot)},
		"gone before":     {exchange: faulty(taken(postReboot), "drops")},
		"no answer to it": {exchange: faulty(taken(postReboot), "hangs")},
		"refused": {
			exchange: refused(postReboot, 500, "Failed to reboot, exit code: 1, stderr: Operation inhibited by \"updog\"\n"),
			err:      `the Update API answers 500: Failed to reboot, exit code: 1, stderr: Operation inhibited by "updog"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing(t, serve(t, test.exchange).Reboot(t.Context()), test.err)
		})
	}
}

func TestUpdateAPIVersion(t *testing.T) {
	const system = `{"pretty_name":"Bottlerocket OS 1.2.0 (aws-k8s-1.30)","variant_id":"aws-k8s-1.30","version_id":"1.2.0","build_id":"1","arch":"x86_64"}`
	for name, test := range map[string]struct {
		exchange exchange
		want     string
		err      string
	}{
		"there":     {exchange: exchange{request: "GET /os", code: 200, body: system}, want: "1.2.0"},
		"not there": {exchange: exchange{request: "GET /os", code: 200, body: "{}"}, err: "the answer has no version_id"},
		"no":        {exchange: exchange{request: "GET /os", code: 500}, err: "reading the host's version, the Update API answers 500: Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, test.exchange).Version(t.Context())
			failing(t, err, test.err)
			if got != test.want {
				t.Errorf("version %q, want %q", got, test.want)
			}
		})
	}
}

// TestUpdateAPIBudget has commands take longer than they may.
func TestUpdateAPIBudget(t *testing.T) {
	idle := status("Idle", "", "", "refresh", "01")
	for name, test := range map[string]struct {
		exchanges []exchange
		err       string
	}{
		"going on":         {[]exchange{idle, taken(postRefresh), forever(locked)}, "it is not done after 1s, the Update API answers 423: " + lockedText},
		"another going on": {[]exchange{forever(locked)}, "it is not done after 1s, the Update API answers 423: " + lockedText},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, test.exchanges...)
			a.commandLimit, a.interval = time.Second, 100*time.Millisecond
			_, err := a.Check(t.Context())
			failing(t, err, test.err)
		})
	}
}

// TestUpdateAPICancelled ends the context while an answer is waited for, and while a command is.
func TestUpdateAPICancelled(t *testing.T) {
	idle := status("Idle", "", "", "refresh", "01")
	for name, exchanges := range map[string][]exchange{
		"an answer": {faulty(idle, "hangs")},
		"a command": {idle, taken(postRefresh), forever(locked)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t, exchanges...)
			a.requestLimit, a.interval = time.Hour, 20*time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := a.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want the context's", err)
			}
		})
	}
}

func TestUpdateAPINotThere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api.sock")
	a := NewUpdateAPI(socket, "")
	a.interval = time.Millisecond
	_, err := a.Check(t.Context())
	failing(t, err, `Get "http://localhost/updates/status": dial unix `+socket+": connect: no such file or directory")
	failing(t, a.Reboot(t.Context()), `Post "http://localhost/actions/reboot": dial unix`)
}
