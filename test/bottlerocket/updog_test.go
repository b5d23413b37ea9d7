// SPDX-License-Identifier: Apache-2.0

package bottlerocket_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
)

func startUpdog(t *testing.T, releases ...string) *host {
	t.Helper()
	return startWith(t, bottlerocket.Options{
		Interface: v1alpha1.InterfaceUpdog, Version: "1.19.0", Releases: bottlerocket.Releases(releases...),
	})
}

func TestUpdog(t *testing.T) {
	t.Parallel()
	h := startUpdog(t, "1.20.0", "1.18.0", "1.21.0")
	release, err := json.MarshalIndent(bottlerocket.Releases("1.21.0", "1.20.0")[0], "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	all, err := json.MarshalIndent(bottlerocket.Releases("1.21.0", "1.20.0", "1.18.0"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		want ran
	}{
		{"check-update", ran{Stdout: "aws-k8s-1.37 1.21.0\n"}},
		{"whats", ran{Stdout: "aws-k8s-1.37 1.21.0\n"}},
		{"check-update --json", ran{Stdout: string(release) + "\n"}},
		{"-j check-update --log-level debug", ran{Stdout: string(release) + "\n"}},
		{"check-update --all", ran{Stderr: "aws-k8s-1.37 1.21.0\naws-k8s-1.37 1.20.0\naws-k8s-1.37 1.18.0\n"}},
		{"whats -a -j", ran{Stdout: string(all) + "\n"}},
		{"check-update --variant aws-k8s-1.36", ran{Code: 1, Stderr: "No update available\n"}},
		{"prepare", ran{}},
		{"update-image -i 1.17.0", ran{Stderr: "No update required\n"}},
		{"update-image -i 1.20.0", ran{Stdout: "Update applied: aws-k8s-1.37 1.20.0\n", Stderr: "Starting update to 1.20.0\n"}},
		{"update-image", ran{Stdout: "Update applied: aws-k8s-1.37 1.21.0\n", Stderr: "Starting update to 1.21.0\n"}},
		{"update-image --json", ran{Stdout: string(release) + "\n", Stderr: "Starting update to 1.21.0\n"}},
		{"update-apply", ran{}},
		{"update-apply", ran{Code: 1, Stderr: "Could not mark inactive partition for boot: Inactive partition /dev/nvme0n1 is already marked for upgrade\n"}},
		{"update-revert", ran{}},
		{"update-apply", ran{}},
	} {
		expect(t, "updog "+tc.args, tc.want, h.run("updog", strings.Fields(tc.args)...))
	}
	for _, args := range []string{"", "hunt", "check-update twice", "update-image -i", "update-image -i v1.20.0", "update-image -t now", "--what"} {
		got := h.run("updog", strings.Fields(args)...)
		if got.Code != 1 || !strings.HasPrefix(got.Stderr, "USAGE:\n    updog <SUBCOMMAND> <OPTIONS>\n") || got.Stdout != "" {
			t.Errorf("updog %s: %+v", args, got)
		}
	}
	expect(t, "the version before the reboot", "1.19.0", h.version())
	expect(t, "shutdown", ran{}, h.run("shutdown", "-r", "now"))
	h.reboots(1)
	expect(t, "the version", "1.21.0", h.version())
	expect(t, "no update", ran{Code: 1, Stderr: "No update available\n"}, h.run("updog", "check-update"))
	expect(t, "no update to write", ran{Stderr: "No update required\n"}, h.run("updog", "update-image"))
	invalid := ran{Code: 1, Stderr: "Could not mark inactive partition for boot: Inactive partition /dev/nvme0n1 is already marked for upgrade\n"}
	expect(t, "nothing to apply", invalid, h.run("updog", "update-apply"))
}

func TestUpdogReboots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, first, then string }{
		{"update-apply -r", "update-image", "update-apply -r"},
		{"update -r", "check-update", "update -r"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := startUpdog(t, "1.20.0")
			for _, args := range []string{tc.first, tc.then} {
				if got := h.run("updog", strings.Fields(args)...); got.Code != 0 {
					t.Fatalf("updog %s: %+v", args, got)
				}
			}
			h.reboots(1)
			expect(t, "the version", "1.20.0", h.version())
		})
	}
}

func TestFaultsOfUpdog(t *testing.T) {
	t.Parallel()
	t.Run(string(state.NoUpdate), func(t *testing.T) {
		t.Parallel()
		h := startUpdog(t, "1.20.0")
		h.fault(state.NoUpdate, "")
		expect(t, "check-update", ran{Code: 1, Stderr: "No update available\n"}, h.run("updog", "check-update"))
		expect(t, "all", ran{Stdout: "[]\n"}, h.run("updog", "whats", "--all", "--json"))
	})
	t.Run(string(state.RefreshFails), func(t *testing.T) {
		t.Parallel()
		h := startUpdog(t, "1.20.0")
		h.fault(state.RefreshFails, "")
		if got := h.run("updog", "check-update"); got.Code != 1 || got.Stdout != "" || !strings.HasPrefix(got.Stderr, "Metadata error: Failed to fetch") {
			t.Errorf("check-update: %+v", got)
		}
	})
	t.Run(string(state.PrepareFails), func(t *testing.T) {
		t.Parallel()
		h := startUpdog(t, "1.20.0")
		h.fault(state.PrepareFails, "disk full")
		expect(t, "update-image", ran{Code: 1, Stderr: "Starting update to 1.20.0\ndisk full\n"}, h.run("updog", "update-image"))
		want := ran{Code: 1, Stderr: "Could not mark inactive partition for boot: Inactive partition /dev/nvme0n1 has not been marked valid for upgrade\n"}
		expect(t, "update-apply", want, h.run("updog", "update-apply"))
	})
	t.Run(string(state.ActivateFails), func(t *testing.T) {
		t.Parallel()
		h := startUpdog(t, "1.20.0")
		h.run("updog", "update-image")
		h.fault(state.ActivateFails, "read only")
		expect(t, "update-apply", ran{Code: 1, Stderr: "read only\n"}, h.run("updog", "update-apply", "-r"))
	})
	t.Run(string(state.UpdogOld), func(t *testing.T) {
		t.Parallel()
		h := startUpdog(t, "1.20.0")
		h.fault(state.UpdogOld, "")
		expect(t, "check-update", ran{Stdout: "aws-k8s-1.37 1.20.0 (v0.0)\n"}, h.run("updog", "check-update"))
		for _, args := range []string{"check-update --json", "update-revert"} {
			if got := h.run("updog", strings.Fields(args)...); got.Code != 1 || !strings.HasPrefix(got.Stderr, "USAGE:") {
				t.Errorf("updog %s: %+v", args, got)
			}
		}
		h.run("updog", "update-image")
		h.fault(state.RebootSlow, "1h")
		cmd := h.Command(t.Context(), "updog", "update-apply", "-r")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for {
			orders, err := h.Orders(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(orders) > 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: terminated" {
			t.Errorf("it ended with %v", err)
		}
	})
}

// What an agent does: it runs updog with the host's root as its own.
func TestUpdogInAChroot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may change its root directory")
	}
	h := startUpdog(t, "1.20.0")
	for args, want := range map[string]string{"check-update": "aws-k8s-1.37 1.20.0\n", "update -r": "Update applied: aws-k8s-1.37 1.20.0\n"} {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/updog", strings.Fields(args)...)
		cmd.Dir, cmd.Env = "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: string(h.Root)}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "updog "+args, want, string(out))
	}
	h.reboots(1)
	expect(t, "the version", "1.20.0", h.version())
}

// Every fault is shown by a test.
func TestFaultsAreTested(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, file := range []string{"updateapi_test.go", "updog_test.go"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(data)
	}
	source, err := os.ReadFile("state/fault.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(source)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), " Fault = "); ok {
			if n++; !strings.Contains(tests.String(), "state."+name) {
				t.Errorf("no test names %s", name)
			}
		}
	}
	expect(t, "the faults that are listed", n, len(state.Faults))
}
