// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownerVariable makes this test's executable the owner of a cluster, to be killed.
const ownerVariable = "MOULT_TEST_CLUSTER_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		own()
	}
	os.Exit(m.Run())
}

// own starts a cluster, says which, and waits to be killed.
func own() {
	o := Options{Nodes: 2}
	if CanRunMachines() == nil {
		o.Machines = 1
	}
	c, err := Start(waitContext(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if o.Machines > 0 {
		if _, err := c.AddMachine(waitContext(), MachineOptions{Name: "added"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println(c.record.ID)
	select {}
}

// TestNothingStaysBehind kills what should have stopped a cluster in order.
func TestNothingStaysBehind(t *testing.T) {
	for _, test := range []struct {
		name string
		kill func(t *testing.T, owner *exec.Cmd, rec *record)
	}{
		{"after the owner is killed", func(t *testing.T, owner *exec.Cmd, _ *record) {
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}},
		{"after owner and supervisor are killed and another cluster starts", func(t *testing.T, owner *exec.Cmd, rec *record) {
			if err := syscall.Kill(rec.Supervisor.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the supervisor to end", func() error {
				if rec.Supervisor.alive() {
					return errors.New("it runs")
				}
				return nil
			})
			reg, err := openRegistry()
			if err != nil {
				t.Fatal(err)
			}
			if err := reg.sweep(t.Context()); err != nil { // as Start does first
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			owner, rec := startOwner(t)
			test.kill(t, owner, rec)
			_ = owner.Wait() // it was killed
			eventually(t, "all to be gone", func() error { return remains(rec) })
		})
	}
}

// startOwner starts a cluster that belongs to another process.
func startOwner(t *testing.T) (*exec.Cmd, *record) {
	t.Helper()
	owner := exec.Command(selfExecutable)
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	output, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill() })
	scanner := bufio.NewScanner(output)
	if !scanner.Scan() {
		t.Fatal("the owner has not started a cluster")
	}
	reg, err := openRegistry()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := reg.load(scanner.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := remains(rec); err == nil {
		t.Fatal("the cluster runs, and leaves no trace to look for")
	}
	return owner, rec
}

// remains says what is left of a cluster.
func remains(rec *record) error {
	reg, err := openRegistry()
	if err != nil {
		return err
	}
	var errs []error
	for _, process := range append(rec.Processes, rec.Supervisor) {
		if process.alive() {
			errs = append(errs, fmt.Errorf("process %d runs", process.PID))
		}
	}
	for _, path := range append([]string{rec.Dir, reg.path(rec.ID), reg.socket(rec.ID)}, rec.Cgroups...) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s exists", path))
		}
	}
	for _, port := range rec.Ports {
		address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		if conn, err := net.DialTCP("tcp", nil, &address); err == nil {
			conn.Close()
			errs = append(errs, fmt.Errorf("port %d is listened on", port))
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, link := range links {
		if strings.Contains(link.Name, rec.ID) {
			errs = append(errs, fmt.Errorf("interface %s exists", link.Name))
		}
	}
	return errors.Join(append(errs, processesOf(rec))...)
}

// processesOf looks for processes that the record may have missed: each was told
// the state directory, or has something of it mounted.
func processesOf(rec *record) error {
	var errs []error
	for _, file := range []string{"cmdline", "mountinfo"} {
		paths, err := filepath.Glob("/proc/[0-9]*/" + file)
		if err != nil {
			return err
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(data), filepath.Base(rec.Dir)) {
				errs = append(errs, fmt.Errorf("%s names %s", path, rec.Dir))
			}
		}
	}
	return errors.Join(errs...)
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	if err := poll(waitContext(), 100*time.Millisecond, func() (bool, error) {
		last = check()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("waiting for %s: %v", what, last)
	}
}

// waitContext bounds what a test waits for.
func waitContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(startTimeout(0)+time.Minute, cancel)
	return ctx
}
