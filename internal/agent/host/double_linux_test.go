// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
)

var double struct {
	sync.Once
	dir     string
	program bottlerocket.Program
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if double.dir != "" {
		_ = os.RemoveAll(double.dir)
	}
	os.Exit(code)
}

// startDouble makes a host that runs 1.19.0, with a repository of these releases.
func startDouble(t *testing.T, hostInterface string, releases ...string) *bottlerocket.Directory {
	t.Helper()
	double.Do(func() {
		//nolint:usetesting // It outlives the test that comes first.
		if double.dir, double.err = os.MkdirTemp("", "moult-double-"); double.err == nil {
			double.program, double.err = bottlerocket.Build(t.Context(), double.dir)
		}
	})
	if double.err != nil {
		t.Fatal(double.err)
	}
	dir, err := os.MkdirTemp("/tmp", "host-") //nolint:usetesting // The path of t.TempDir is too long for sockets.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, err := double.program.StartIn(t.Context(), dir, bottlerocket.Options{
		Interface: hostInterface, Version: "1.19.0", Releases: bottlerocket.Releases(releases...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// apiOf is a new process that speaks to the double's Update API.
func apiOf(d *bottlerocket.Directory) *UpdateAPI {
	a := NewUpdateAPI(d.Root.Path(state.APISocket), d.Root.Path(state.BootIDFile))
	a.interval, a.requestLimit = 5*time.Millisecond, 5*time.Minute
	return a
}

// updogOf is a new process that runs the double's updog.
func updogOf(t *testing.T, d *bottlerocket.Directory) *Updog {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	return NewUpdog(string(d.Root), d.Root.Path(state.BootIDFile))
}

func fault(t *testing.T, d *bottlerocket.Directory, f state.Fault, value string) {
	t.Helper()
	if err := d.SetFault(t.Context(), f, value); err != nil {
		t.Fatal(err)
	}
}

func heal(t *testing.T, d *bottlerocket.Directory, f state.Fault) {
	t.Helper()
	if err := d.ClearFault(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// done counts what the host's journal has of these words.
func done(t *testing.T, d *bottlerocket.Directory, what string) int {
	t.Helper()
	journal, err := d.Journal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range journal {
		if entry.What == what || strings.HasPrefix(entry.What, what+" ") {
			n++
		}
	}
	return n
}

// rebooted waits until the host has another boot id, and has come up.
func rebooted(t *testing.T, d *bottlerocket.Directory, h Host, before string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		boots, err := d.Boots(ctx)
		failing(t, err, "")
		id, err := h.BootID()
		if err == nil && id != before && len(boots) > 0 && boots[len(boots)-1].BootID == id {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the host has not rebooted")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func checked(t *testing.T, h Host, version string, offer Offer) {
	t.Helper()
	if got, err := h.Version(t.Context()); got != version || err != nil {
		t.Errorf("the host runs %q, %v, want %q", got, err, version)
	}
	got, err := h.Check(t.Context())
	failing(t, err, "")
	if diff := cmp.Diff(offer, got); diff != "" {
		t.Error(diff)
	}
}

// TestDoubles brings hosts to a new version, each step of which is done twice, in the same process or in others.
func TestDoubles(t *testing.T) {
	for name, test := range map[string]struct {
		hostInterface string
		faults        []state.Fault
		// restarts has a new process for each call.
		restarts bool
		// images is how often updog may write the other partitions.
		images int
	}{
		"Update API":           {hostInterface: v1alpha1.InterfaceUpdateAPI, images: 1},
		"Update API, restarts": {hostInterface: v1alpha1.InterfaceUpdateAPI, restarts: true, images: 1},
		"updog":                {hostInterface: v1alpha1.InterfaceUpdog, images: 1},
		"updog, restarts":      {hostInterface: v1alpha1.InterfaceUpdog, restarts: true, images: 4},
		"old updog":            {hostInterface: v1alpha1.InterfaceUpdog, faults: []state.Fault{state.UpdogOld}, images: 1},
		"old updog, restarts":  {hostInterface: v1alpha1.InterfaceUpdog, faults: []state.Fault{state.UpdogOld}, restarts: true, images: 4},
	} {
		for _, version := range []string{"1.20.0", ""} {
			t.Run(strings.TrimSuffix(name+"/"+version, "/"), func(t *testing.T) {
				t.Parallel()
				d := startDouble(t, test.hostInterface, "1.19.0", "1.20.0")
				for _, f := range test.faults {
					fault(t, d, f, "")
				}
				h := process(t, d, test.hostInterface)
				next := func() Host {
					if test.restarts {
						return process(t, d, test.hostInterface)
					}
					return h
				}
				checked(t, next(), "1.19.0", Offer{true, "1.20.0"})
				for range 2 {
					failing(t, next().Prepare(t.Context(), version), "")
				}
				checked(t, next(), "1.19.0", Offer{true, "1.20.0"})
				for range 2 {
					failing(t, next().Perform(t.Context(), version), "")
				}
				before, err := h.BootID()
				failing(t, err, "")
				if n := done(t, d, state.EventReboot); n != 0 {
					t.Fatalf("the host was ordered to reboot %d times", n)
				}
				failing(t, next().Reboot(t.Context()), "")
				rebooted(t, d, h, before)
				checked(t, next(), "1.20.0", Offer{})
				if n := done(t, d, state.EventReboot); n != 1 {
					t.Errorf("the host was ordered to reboot %d times", n)
				}
				if n := done(t, d, "updog update-image"); n != test.images {
					t.Errorf("the image was written %d times, want %d", n, test.images)
				}
			})
		}
	}
}

// process is a new process on a host.
func process(t *testing.T, d *bottlerocket.Directory, hostInterface string) Host {
	t.Helper()
	if hostInterface == v1alpha1.InterfaceUpdog {
		return updogOf(t, d)
	}
	return apiOf(d)
}

// TestDoubleFaults has things go wrong at one step, and all go well once they are repaired.
func TestDoubleFaults(t *testing.T) {
	const api, updog = v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceUpdog
	type step func(context.Context, Host) error
	check := func(ctx context.Context, h Host) error { _, err := h.Check(ctx); return err }
	prepared := func(ctx context.Context, h Host) error { return h.Prepare(ctx, "1.20.0") }
	performed := func(ctx context.Context, h Host) error { return h.Perform(ctx, "1.20.0") }
	reboot := func(ctx context.Context, h Host) error { return h.Reboot(ctx) }
	for name, test := range map[string]struct {
		hostInterface string
		fault         state.Fault
		value         string
		before        []step
		step          step
		err           string
	}{
		"API, refresh fails":    {api, state.RefreshFails, "no route", nil, check, "the host's updater failed: no route"},
		"API, prepare fails":    {api, state.PrepareFails, "disk full", nil, prepared, "the host's updater failed: "},
		"API, activate fails":   {api, state.ActivateFails, "no GPT", []step{prepared}, performed, "the host's updater failed: no GPT"},
		"API, reboot inhibited": {api, state.RebootInhibited, "", []step{prepared, performed}, reboot, "the Update API answers 500: Failed to reboot, exit code: 1, stderr: Operation inhibited by"},
		"API, reboot ignored":   {api, state.RebootIgnored, "", []step{prepared, performed}, reboot, ""},
		"updog, refresh fails":  {updog, state.RefreshFails, "no route", nil, check, "updog check-update, exit status 1: no route"},
		"updog, prepare fails":  {updog, state.PrepareFails, "disk full", nil, prepared, "updog update-image, exit status 1: Starting update to 1.20.0 disk full"},
		"updog, activate fails": {updog, state.ActivateFails, "no GPT", []step{prepared}, performed, "updog update-apply, exit status 1: no GPT"},
		"updog, reboot ignored": {updog, state.RebootIgnored, "", []step{prepared, performed}, reboot, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDouble(t, test.hostInterface, "1.20.0")
			h := process(t, d, test.hostInterface)
			before, err := h.BootID()
			failing(t, err, "")
			for _, step := range test.before {
				failing(t, step(t.Context(), h), "")
			}
			fault(t, d, test.fault, test.value)
			failing(t, test.step(t.Context(), h), test.err)
			if id, err := h.BootID(); id != before || err != nil {
				t.Errorf("the host has rebooted: %v", err)
			}

			heal(t, d, test.fault)
			h = process(t, d, test.hostInterface)
			for _, step := range []step{check, prepared, performed, reboot} {
				failing(t, step(t.Context(), h), "")
			}
			rebooted(t, d, h, before)
			checked(t, h, "1.20.0", Offer{})
		})
	}
}

// TestDoubleUnanswered has a host that is gone before it has answered the order to reboot.
func TestDoubleUnanswered(t *testing.T) {
	t.Parallel()
	d := startDouble(t, v1alpha1.InterfaceUpdateAPI, "1.20.0")
	h := apiOf(d)
	failing(t, h.Prepare(t.Context(), "1.20.0"), "")
	failing(t, h.Perform(t.Context(), "1.20.0"), "")
	before, err := h.BootID()
	failing(t, err, "")
	fault(t, d, state.RebootUnanswered, "")
	h.requestLimit = 500 * time.Millisecond
	failing(t, h.Reboot(t.Context()), "")
	rebooted(t, d, h, before)
}

// TestDoubleBootFails has a new version that does not boot: the host comes back with the old one, and knows nothing of the update.
func TestDoubleBootFails(t *testing.T) {
	for _, hostInterface := range []string{v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceUpdog} {
		t.Run(hostInterface, func(t *testing.T) {
			t.Parallel()
			d := startDouble(t, hostInterface, "1.20.0")
			h := process(t, d, hostInterface)
			fault(t, d, state.BootFails, "")
			for range 2 {
				failing(t, h.Prepare(t.Context(), "1.20.0"), "")
				failing(t, h.Perform(t.Context(), "1.20.0"), "")
				before, err := h.BootID()
				failing(t, err, "")
				failing(t, h.Reboot(t.Context()), "")
				rebooted(t, d, h, before)
				h = process(t, d, hostInterface)
				checked(t, h, "1.19.0", Offer{true, "1.20.0"})
			}
		})
	}
}

// TestDoubleRollback returns a host to the version before, and back again. It can't return to what was overwritten, or has not booted.
func TestDoubleRollback(t *testing.T) {
	t.Parallel()
	d := startDouble(t, v1alpha1.InterfaceUpdog, "1.20.0")
	h := updogOf(t, d)
	const refused = "signpost rollback-to-inactive, exit status 1: Inactive partition is not valid"
	failing(t, h.Rollback(t.Context()), refused)
	failing(t, h.Prepare(t.Context(), "1.20.0"), "")
	failing(t, h.Rollback(t.Context()), refused)
	failing(t, h.Perform(t.Context(), "1.20.0"), "")
	for _, version := range []string{"1.20.0", "1.19.0", "1.20.0"} {
		before, err := h.BootID()
		failing(t, err, "")
		failing(t, h.Reboot(t.Context()), "")
		rebooted(t, d, h, before)
		if got, err := h.Version(t.Context()); got != version || err != nil {
			t.Errorf("the host runs %q, %v, want %q", got, err, version)
		}
		for range 2 {
			failing(t, h.Rollback(t.Context()), "")
		}
		h = updogOf(t, d)
	}
	failing(t, h.Revert(t.Context()), "")
	failing(t, h.Rollback(t.Context()), refused)
}

// TestDoubleOther publishes another version while one is prepared, and while it must be booted next.
func TestDoubleOther(t *testing.T) {
	for _, hostInterface := range []string{v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceUpdog} {
		t.Run(hostInterface, func(t *testing.T) {
			t.Parallel()
			d := startDouble(t, hostInterface, "1.20.0")
			h := process(t, d, hostInterface)
			for _, version := range []string{"1.20.0", "1.21.0", "1.22.0"} {
				if err := d.Publish(t.Context(), bottlerocket.Releases(version)); err != nil {
					t.Fatal(err)
				}
				failing(t, h.Prepare(t.Context(), version), "")
				if version == "1.20.0" {
					continue // the next one comes while it is staged, the one after that while that is to be booted
				}
				failing(t, h.Perform(t.Context(), version), "")
			}
			if err := h.Prepare(t.Context(), "1.20.0"); !errors.Is(err, ErrOther) {
				t.Errorf("error %v, want ErrOther", err)
			}
			if hostInterface == v1alpha1.InterfaceUpdog {
				// What was tried is not what was wanted, and so is tried again.
				failing(t, h.Prepare(t.Context(), "1.22.0"), "")
				failing(t, h.Perform(t.Context(), "1.22.0"), "")
			}
			if err := h.Perform(t.Context(), "1.20.0"); !errors.Is(err, ErrOther) {
				t.Errorf("error %v, want ErrOther", err)
			}
			before, err := h.BootID()
			failing(t, err, "")
			failing(t, h.Reboot(t.Context()), "")
			rebooted(t, d, h, before)
			checked(t, h, "1.22.0", Offer{})
		})
	}
}

// TestDoubleSlow ends a process while the image is written; the next one waits for it.
func TestDoubleSlow(t *testing.T) {
	t.Parallel()
	d := startDouble(t, v1alpha1.InterfaceUpdateAPI, "1.20.0")
	fault(t, d, state.PrepareSlow, "500ms")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- apiOf(d).Prepare(ctx, "1.20.0") }()
	// The refresh is over, and the image is being written.
	for done(t, d, "updog") < 1 || !busy(t, d) {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	failing(t, apiOf(d).Prepare(t.Context(), "1.20.0"), "")
	if n := done(t, d, "updog update-image"); n != 1 {
		t.Errorf("the image was written %d times", n)
	}
}

// busy tells whether a command goes on.
func busy(t *testing.T, d *bottlerocket.Directory) bool {
	t.Helper()
	_, err := apiOf(d).status(t.Context())
	var answer *answerError
	return errors.As(err, &answer) && answer.code == http.StatusLocked
}

// TestDoubleSentinel reboots a host because of its sentinel.
func TestDoubleSentinel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	t.Parallel()
	d := startDouble(t, v1alpha1.InterfaceSentinel)
	s := NewSentinel(SentinelOptions{
		File: "/run/reboot-required", RebootCommand: []string{"systemctl", "reboot"}, Root: string(d.Root), BootIDFile: d.Root.Path(state.BootIDFile),
	})
	checked(t, s, "", Offer{})
	if err := d.NeedReboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	checked(t, s, "", Offer{Available: true})
	failing(t, s.Prepare(t.Context(), ""), "")
	failing(t, s.Perform(t.Context(), ""), "")
	before, err := s.BootID()
	failing(t, err, "")
	fault(t, d, state.RebootIgnored, "")
	failing(t, s.Reboot(t.Context()), "")
	heal(t, d, state.RebootIgnored)
	failing(t, s.Reboot(t.Context()), "")
	rebooted(t, d, s, before)
	checked(t, s, "", Offer{})
}
