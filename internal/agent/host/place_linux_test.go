// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMountNamespace runs commands and looks for files in the mount namespace of another process, as in that of a host's first.
func TestMountNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("entering a mount namespace needs root")
	}
	dir := t.TempDir()
	other := exec.CommandContext(t.Context(), "sh", "-c", "mount --make-rprivate / && mount -t tmpfs none "+dir+" && touch "+dir+"/needed && ln -s "+dir+"/needed "+dir+"/link && echo up && read x")
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Skipf("there can be no mount namespace here: %v", err)
	}
	defer func() {
		_ = stdin.Close()
		_ = other.Wait()
	}()
	if up := bufio.NewScanner(stdout); !up.Scan() || up.Text() != "up" {
		t.Fatal("the other process has not come up")
	}

	p := place{mounts: fmt.Sprintf("/proc/%d/ns/mnt", other.Process.Pid)}
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for _, name := range []string{"needed", "link"} {
				if there, err := p.exists(filepath.Join(dir, name)); !there || err != nil {
					t.Errorf("%s is not there: %v", name, err)
				}
				// No other thread has moved.
				if there, err := (place{}).exists(filepath.Join(dir, name)); there || err != nil {
					t.Errorf("%s is here: %v", name, err)
				}
			}
			if o, err := p.run(t.Context(), "ls", dir); err != nil || o.stdout != "link\nneeded\n" {
				t.Errorf("it holds %+v, %v", o, err)
			}
		})
	}
	wait.Wait()

	_, err = place{mounts: "/proc/self/ns/none"}.exists(dir)
	failing(t, err, "opening /proc/self/ns/none")
	s := NewSentinel(SentinelOptions{File: filepath.Join(dir, "needed")})
	if s.at.mounts != initMounts {
		t.Errorf("the sentinel looks at %+v", s.at)
	}
	s.at = p
	if offer, err := s.Check(t.Context()); !offer.Available || err != nil {
		t.Errorf("the sentinel says %+v, %v", offer, err)
	}
}

// TestRunKilled ends a command that does not end when it is told to, nor does what it has started.
func TestRunKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	p := place{grace: 200 * time.Millisecond}
	_, err := p.runWithin(t.Context(), 3*time.Second, "sh", "-c", "trap '' TERM; sleep 60 & echo $! >"+file+"; wait")
	failing(t, err, "running sh, it has not ended within 3s")
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		// One that has ended stays as a zombie where no one waits for it.
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("what it has started goes on: %s, %v", stat, err)
		}
	}
}

// TestChroot runs commands and looks for files in a directory that holds a root.
func TestChroot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	root := t.TempDir()
	write(t, filepath.Join(root, "run/reboot-required"), "")
	if err := os.MkdirAll(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	// As it is on Debian: a link that leads elsewhere, seen from outside.
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	s := NewSentinel(SentinelOptions{Root: root})
	if offer, err := s.Check(t.Context()); !offer.Available || err != nil {
		t.Errorf("the sentinel says %+v, %v", offer, err)
	}
	_, err := s.at.run(t.Context(), "/bin/none")
	failing(t, err, "running /bin/none, fork/exec /bin/none: no such file or directory")
	_, err = place{root: filepath.Join(root, "none")}.exists("/")
	failing(t, err, "entering "+root+"/none, no such file or directory")
}
