// SPDX-License-Identifier: Apache-2.0

package bottlerocket_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
)

const (
	refresh    = "refresh-updates"
	prepare    = "prepare-update"
	activate   = "activate-update"
	deactivate = "deactivate-update"
	reboot     = "reboot"
)

// The answers that are no success.
const (
	uninitialized = "404 Update status is uninitialized, refresh-updates to initialize it"
	locked        = "423 Unable to obtain shared lock for reading update status: Resource temporarily unavailable (os error 11)"
	lockHeld      = "423 Update lock held"
	disallowed    = "409 Update action not allowed according to update state"
	failed        = "500 Update dispatcher failed"
)

func expect[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func TestUpdateByAPI(t *testing.T) {
	t.Parallel()
	h := start(t, "1.20.0", "1.20.1", "1.18.0")
	all := []string{"1.20.1", "1.20.0", "1.18.0"}
	expect(t, "the status before the first command", uninitialized, h.call(http.MethodGet, "/updates/status"))

	s := status{State: "Available", Updates: all, Chosen: "1.20.1", Active: "1.19.0*", Command: `refresh Success 0 ""`}
	expect(t, "refreshed", s, h.command(refresh))
	s.State, s.Staging, s.Command = "Staged", "1.20.1", `prepare Success 0 "Starting update to 1.20.1\n"`
	expect(t, "prepared", s, h.command(prepare))
	s.State, s.Active, s.Staging, s.Command = "Ready", "1.19.0", "1.20.1*", `activate Success 0 ""`
	expect(t, "activated", s, h.command(activate))
	s.State, s.Active, s.Staging, s.Command = "Staged", "1.19.0*", "1.20.1", `deactivate Success 0 ""`
	expect(t, "deactivated", s, h.command(deactivate))
	s.State, s.Active, s.Staging, s.Command = "Ready", "1.19.0", "1.20.1*", `activate Success 0 ""`
	expect(t, "activated again", s, h.command(activate))
	s.Command = `refresh Success 0 ""`
	expect(t, "refreshed while it is ready", s, h.command(refresh))

	before := read(t, h, state.BootIDFile)
	expect(t, "the order to reboot", "204 ", h.post(reboot))
	h.reboots(1)
	expect(t, "the version after the boot", "1.20.1", h.version())
	if read(t, h, state.BootIDFile) == before {
		t.Error("the boot id is the same")
	}
	expect(t, "the status after the boot", uninitialized, h.call(http.MethodGet, "/updates/status"))
	expect(t, "what it shows then", status{State: "Idle", Updates: all, Active: "1.20.1*", Command: `refresh Success 0 ""`}, h.command(refresh))
}

func TestStatusIsOfSnakeCaseAndStrings(t *testing.T) {
	t.Parallel()
	h := start(t, "1.20.0")
	h.command(refresh)
	_, body, _ := strings.Cut(h.call(http.MethodGet, "/updates/status"), " ")
	body = regexp.MustCompile(`"timestamp":"[0-9T:-]{19}\.[0-9]{9}Z"`).ReplaceAllString(body, `"timestamp":"T"`)
	want := `{"update_state":"Available","available_updates":["1.20.0"],` +
		`"chosen_update":{"arch":"ARCH","version":"1.20.0","variant":"aws-k8s-1.37"},` +
		`"active_partition":{"image":{"arch":"ARCH","version":"1.19.0","variant":"aws-k8s-1.37"},"next_to_boot":true},"staging_partition":null,` +
		`"most_recent_command":{"cmd_type":"refresh","cmd_status":"Success","timestamp":"T","exit_status":0,"stderr":""}}`
	expect(t, "the status", strings.ReplaceAll(want, "ARCH", state.Arch()), body)
}

func TestOS(t *testing.T) {
	t.Parallel()
	h := start(t)
	all := map[string]string{
		"pretty_name": "Bottlerocket OS 1.19.0 (aws-k8s-1.37)", "variant_id": "aws-k8s-1.37", "version_id": "1.19.0",
		"build_id": state.BuildID, "arch": state.Arch(),
	}
	for _, tc := range []struct {
		query string
		want  map[string]string
	}{
		{"", all},
		{"?prefix=os", all},
		{"?prefix=version", map[string]string{"version_id": "1.19.0"}},
		{"?prefix=os.v", map[string]string{"version_id": "1.19.0", "variant_id": "aws-k8s-1.37"}},
		{"?prefix=nothing", map[string]string{}},
	} {
		answer := h.call(http.MethodGet, "/os"+tc.query)
		var got map[string]string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(answer, "200 ")), &got); err != nil {
			t.Fatalf("%s: %s", tc.query, answer)
		}
		expect(t, tc.query, tc.want, got)
	}
	expect(t, "an empty prefix", "400 Input 'prefix' cannot be empty", h.call(http.MethodGet, "/os?prefix="))
	for name, want := range map[string]string{"PRETTY_NAME": all["pretty_name"], "VERSION_ID": "1.19.0", "ID": "bottlerocket"} {
		got, err := h.OSRelease(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, name, want, got)
	}
}

func TestSocketsRights(t *testing.T) {
	t.Parallel()
	h := start(t)
	info, err := os.Stat(h.Root.Path(state.APISocket))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the mode", os.FileMode(0o660), info.Mode().Perm())
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		expect(t, "the group", uint32(274), sys.Gid)
	}
}

// Which command is allowed in which state, and what comes of one that is not.
func TestTransitions(t *testing.T) {
	t.Parallel()
	to := map[string][]string{
		"":          nil,
		"Idle":      {deactivate}, // it is refused, and the status is there all the same
		"Available": {refresh},
		"Staged":    {refresh, prepare},
		"Ready":     {refresh, prepare, activate},
	}
	for name, answers := range map[string]map[string]string{
		"":          {refresh: "204 ", prepare: disallowed, activate: disallowed, deactivate: disallowed},
		"Idle":      {refresh: "204 ", prepare: disallowed, activate: disallowed, deactivate: disallowed},
		"Available": {refresh: "204 ", prepare: "204 ", activate: disallowed, deactivate: disallowed},
		"Staged":    {refresh: "204 ", prepare: "204 ", activate: "204 ", deactivate: disallowed},
		"Ready":     {refresh: "204 ", prepare: disallowed, activate: disallowed, deactivate: "204 "},
	} {
		for action, want := range answers {
			h := start(t, "1.20.0")
			for _, before := range to[name] {
				h.post(before)
				h.settled()
			}
			if name != "" {
				expect(t, "the state", name, h.settled().State)
			}
			expect(t, name+": "+action, want, h.post(action))
			if want == disallowed {
				now := name
				if now == "" {
					now = "Idle"
				}
				expect(t, name+": the state after "+action, now, h.settled().State)
			}
			h.settled()
		}
	}
}

func TestWhatWasChosenIsGone(t *testing.T) {
	t.Parallel()
	h := start(t, "1.20.0")
	h.command(refresh)
	h.command(prepare)
	h.fault(state.NoUpdate, "")
	s := status{State: "Staged", Updates: []string{}, Active: "1.19.0*", Staging: "1.20.0", Command: `refresh Success 0 ""`}
	expect(t, "refreshed", s, h.command(refresh))
	expect(t, "prepare", "404 Previously chosen Update no longer exists", h.post(prepare))
}

// A command that can't do what it is to do was begun all the same, and is seen in the status alone.
func TestFailedCommands(t *testing.T) {
	t.Parallel()
	t.Run("refresh", func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		s := h.command(refresh)
		h.fault(state.RefreshFails, "no route to host")
		s.State, s.Command = "Idle", `refresh Failed 1 "no route to host\n"`
		expect(t, "the status, with what was chosen before", s, h.command(refresh))
		expect(t, "and it can't be prepared", disallowed, h.post(prepare))
		h.clear(state.RefreshFails)
		expect(t, "the state, when the repository is back", "Available", h.command(refresh).State)
	})
	t.Run("refresh while staged", func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.command(refresh)
		h.command(prepare)
		h.fault(state.RefreshFails, "")
		expect(t, "the state", "Staged", h.command(refresh).State)
	})
	t.Run("prepare", func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		s := h.command(refresh)
		h.fault(state.PrepareFails, "")
		s.Command = `prepare Failed 1 "Starting update to 1.20.0\nFailed writing update data to disk: Input/output error (os error 5)\n"`
		expect(t, "the status", s, h.command(prepare))
		h.clear(state.PrepareFails)
		expect(t, "the state, when the disk works", "Staged", h.command(prepare).State)
	})
	t.Run("activate", func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.command(refresh)
		s := h.command(prepare)
		h.fault(state.ActivateFails, "read only")
		s.Command = `activate Failed 1 "read only\n"`
		expect(t, "the status", s, h.command(activate))
		h.clear(state.ActivateFails)
		expect(t, "the state, when the disk works", "Ready", h.command(activate).State)
	})
}

// While a command runs nobody sees the status, and nobody else may do anything.
func TestCommandsTakeTheirTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		slow   state.Fault
		before []string
		action string
		after  string
	}{
		{state.RefreshSlow, nil, refresh, "Available"},
		{state.PrepareSlow, []string{refresh}, prepare, "Staged"},
		{state.ActivateSlow, []string{refresh, prepare}, activate, "Ready"},
	} {
		t.Run(tc.action, func(t *testing.T) {
			t.Parallel()
			h := start(t, "1.20.0")
			for _, action := range tc.before {
				h.command(action)
			}
			h.fault(tc.slow, "3s")
			began := time.Now()
			expect(t, "the answer", "204 ", h.post(tc.action))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it came after %s, as late as the end", took)
			}
			expect(t, "the status meanwhile", locked, h.call(http.MethodGet, "/updates/status"))
			for _, other := range []string{refresh, prepare, activate, deactivate} {
				expect(t, other+" meanwhile", lockHeld, h.post(other))
			}
			expect(t, "the state in the end", tc.after, h.settled().State)
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("it ended after %s", took)
			}
		})
	}
}

func TestFaultsOfTheAPI(t *testing.T) {
	t.Parallel()
	t.Run(string(state.LockHeld), func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.fault(state.LockHeld, "")
		expect(t, "the status", locked, h.call(http.MethodGet, "/updates/status"))
		expect(t, "a command", lockHeld, h.post(refresh))
		h.fault(state.LockHeld, "2s")
		expect(t, "a command, for some time", lockHeld, h.post(refresh))
		time.Sleep(2100 * time.Millisecond)
		expect(t, "a command, after that", "204 ", h.post(refresh))
		h.settled()
	})
	t.Run(string(state.Status500), func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.command(refresh)
		h.fault(state.Status500, "")
		expect(t, "the status", failed, h.call(http.MethodGet, "/updates/status"))
		expect(t, "a command", "204 ", h.post(prepare))
		h.clear(state.Status500)
		expect(t, "the state", "Staged", h.settled().State)
	})
	t.Run(string(state.StatusTruncated), func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.command(refresh)
		h.fault(state.StatusTruncated, "")
		got, err := h.try(http.MethodGet, "/updates/status")
		if err == nil || !strings.HasPrefix(got, `200 {"update_state"`) {
			t.Errorf("the status is %q, %v", got, err)
		}
	})
	t.Run(string(state.Command500), func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		h.fault(state.Command500, "")
		expect(t, "a command", failed, h.post(refresh))
		expect(t, "the status", uninitialized, h.call(http.MethodGet, "/updates/status"))
	})
	t.Run(string(state.CommandDies), func(t *testing.T) {
		t.Parallel()
		h := start(t, "1.20.0")
		before := h.command(refresh)
		h.fault(state.CommandDies, "prepare")
		expect(t, "the status, as if nothing had been asked", before, h.command(prepare))
		expect(t, "another command", `refresh Success 0 ""`, h.command(refresh).Command)
		h.clear(state.CommandDies)
		expect(t, "the state", "Staged", h.command(prepare).State)
	})
	t.Run(string(state.APIHangs), func(t *testing.T) {
		t.Parallel()
		h := start(t)
		h.fault(state.APIHangs, "")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host/os", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := h.client.Do(request); err == nil {
			response.Body.Close()
			t.Error("it has answered")
		}
	})
	t.Run(string(state.APIDrops), func(t *testing.T) {
		t.Parallel()
		h := start(t)
		h.fault(state.APIDrops, "")
		if got, err := h.try(http.MethodGet, "/os"); err == nil {
			t.Errorf("it answers %s", got)
		}
	})
}

func TestFaultsOfReboots(t *testing.T) {
	t.Parallel()
	updated := func(t *testing.T) *host {
		h := start(t, "1.20.0")
		for _, action := range []string{refresh, prepare, activate} {
			h.command(action)
		}
		return h
	}
	t.Run(string(state.RebootInhibited), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.RebootInhibited, "")
		if got := h.post(reboot); !strings.HasPrefix(got, `500 Failed to reboot, exit code: 1, stderr: Operation inhibited by "`) {
			t.Errorf("the order: %s", got)
		}
		time.Sleep(300 * time.Millisecond)
		expect(t, "the version", "1.19.0", h.version())
		expect(t, "what ignores inhibitors", ran{}, h.run("systemctl", "reboot"))
		h.reboots(1)
	})
	t.Run(string(state.RebootIgnored), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.RebootIgnored, "")
		expect(t, "the order", "204 ", h.post(reboot))
		time.Sleep(300 * time.Millisecond)
		expect(t, "the version", "1.19.0", h.version())
	})
	t.Run(string(state.RebootSlow), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.RebootSlow, "500ms")
		began := time.Now()
		expect(t, "the order", "204 ", h.post(reboot))
		h.reboots(1)
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
	t.Run(string(state.RebootUnanswered), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.RebootUnanswered, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://host/actions/reboot", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := h.client.Do(request); err == nil {
			response.Body.Close()
			t.Error("it has answered")
		}
		h.reboots(1)
		expect(t, "the version", "1.20.0", h.version())
	})
	t.Run(string(state.BootFails), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.BootFails, "")
		expect(t, "the order", "204 ", h.post(reboot))
		h.reboots(1)
		expect(t, "the version", "1.19.0", h.version())
		expect(t, "the status", uninitialized, h.call(http.MethodGet, "/updates/status"))
		h.clear(state.BootFails)
		for _, action := range []string{refresh, prepare, activate} {
			h.command(action)
		}
		h.post(reboot)
		h.reboots(2)
		expect(t, "the version, the second time", "1.20.0", h.version())
	})
	t.Run(string(state.BootSlow), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.BootSlow, "500ms")
		began := time.Now()
		h.post(reboot)
		h.reboots(1)
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
	t.Run(string(state.BootHangs), func(t *testing.T) {
		t.Parallel()
		h := updated(t)
		h.fault(state.BootHangs, "")
		h.post(reboot)
		time.Sleep(500 * time.Millisecond)
		boots, err := h.Boots(t.Context())
		if err != nil || len(boots) != 1 {
			t.Errorf("boots %v, %v", boots, err)
		}
		h.clear(state.BootHangs)
		h.reboots(1)
		expect(t, "the version", "1.20.0", h.version())
	})
	t.Run(string(state.StillNeeded), func(t *testing.T) {
		t.Parallel()
		h := startWith(t, bottlerocket.Options{Interface: v1alpha1.InterfaceSentinel})
		needed := func() bool {
			_, err := os.Stat(h.Root.Path("/run/reboot-required"))
			return err == nil
		}
		if err := h.NeedReboot(t.Context()); err != nil || !needed() {
			t.Fatal("no reboot is needed", err)
		}
		expect(t, "the order", ran{}, h.run("systemctl", "reboot"))
		h.reboots(1)
		if needed() {
			t.Error("a reboot is needed after the reboot")
		}
		h.fault(state.StillNeeded, "")
		expect(t, "the order", ran{}, h.run("systemctl", "reboot"))
		h.reboots(2)
		if !needed() {
			t.Error("no reboot is needed")
		}
	})
}

// What the host goes to is what its version lock and its wave let it go to.
func TestChoice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		releases []state.Release
		settings state.Settings
		updates  []string
		chosen   string
	}{
		{"the newest", bottlerocket.Releases("1.20.0", "1.21.0"), state.Settings{}, []string{"1.21.0", "1.20.0"}, "1.21.0"},
		{"none is newer", bottlerocket.Releases("1.18.0", "1.19.0"), state.Settings{}, []string{"1.19.0", "1.18.0"}, ""},
		{"locked", bottlerocket.Releases("1.20.0", "1.21.0"), state.Settings{VersionLock: "v1.20.0"}, []string{"1.21.0", "1.20.0"}, "1.20.0"},
		{"locked to an older one", bottlerocket.Releases("1.18.0", "1.21.0"), state.Settings{VersionLock: "1.18.0"}, []string{"1.21.0", "1.18.0"}, "1.18.0"},
		{"locked to what runs", bottlerocket.Releases("1.19.0", "1.21.0"), state.Settings{VersionLock: "1.19.0"}, []string{"1.21.0", "1.19.0"}, ""},
		{"locked to what there is not", bottlerocket.Releases("1.21.0"), state.Settings{VersionLock: "1.20.0"}, []string{"1.21.0"}, ""},
		{"its wave comes later", inWave("1.20.0", time.Hour), state.Settings{Seed: 1500}, []string{}, ""},
		{"its wave was before", inWave("1.20.0", -time.Hour), state.Settings{Seed: 1500}, []string{"1.20.0"}, "1.20.0"},
		{"it is in the first wave", inWave("1.20.0", time.Hour), state.Settings{Seed: 500}, []string{"1.20.0"}, "1.20.0"},
		{"waves are ignored", inWave("1.20.0", time.Hour), state.Settings{Seed: 1500, IgnoreWaves: true}, []string{"1.20.0"}, "1.20.0"},
		{"withdrawn", bottlerocket.Releases("1.18.0"), state.Settings{}, []string{"1.18.0"}, "1.18.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := startWith(t, bottlerocket.Options{
				Interface: v1alpha1.InterfaceUpdateAPI, Version: "1.19.0", Releases: tc.releases, Settings: tc.settings,
			})
			s := h.command(refresh)
			expect(t, "the updates", tc.updates, s.Updates)
			expect(t, "the chosen one", tc.chosen, s.Chosen)
		})
	}
}

// inWave is a release whose hosts with seeds over 1024 get it later than the others.
func inWave(version string, later time.Duration) []state.Release {
	r := bottlerocket.Releases(version)
	r[0].Waves = map[int]time.Time{1024: time.Now().Add(later)}
	return r
}

// The command that prepares is told nothing of what was chosen: a release of the meantime is written, under the other's name.
func TestPreparedIsNotWhatWasChosen(t *testing.T) {
	t.Parallel()
	h := start(t, "1.20.0")
	h.command(refresh)
	if err := h.Publish(t.Context(), bottlerocket.Releases("1.20.0", "1.21.0")); err != nil {
		t.Fatal(err)
	}
	expect(t, "what is staged, by the status", "1.20.0", h.command(prepare).Staging)
	h.command(activate)
	h.post(reboot)
	h.reboots(1)
	expect(t, "the version", "1.21.0", h.version())
}
