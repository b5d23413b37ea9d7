// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New starts a cluster for a test and stops it when the test ends. Where machines are asked for and not possible it skips the test, or
// fails it if the environment variable MOULT_REQUIRE_MACHINES is 1.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Machines > 0 {
		if err := CanRunMachines(); err != nil {
			if os.Getenv("MOULT_REQUIRE_MACHINES") == "1" {
				t.Fatalf("no machines: %v", err)
			}
			t.Skipf("no machines: %v", err)
		}
	}
	var log *testLog
	if o.Log == nil {
		log = &testLog{t: t}
		o.Log = log
	}
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
		if log != nil {
			log.close()
		}
	})
	return c
}

// SharedDir is the environment variable that names the directory of the cluster that Shared returns.
const SharedDir = "MOULT_TEST_CLUSTER"

// Shared returns a cluster without machines and with an audit log, with that many simulated nodes. It is the one in the
// directory that the environment variable SharedDir names, or else a new one for this test. One test at a time may use
// it. When the test ends, Shared deletes all nodes. The test deletes all else that is not in a namespace of its own.
func Shared(t testing.TB, nodes int) *Cluster {
	t.Helper()
	dir := os.Getenv(SharedDir)
	if dir == "" {
		return New(t, Options{Nodes: nodes, AuditLog: true})
	}
	c, err := Connect(dir)
	if err != nil {
		t.Fatalf("connecting to the cluster in %s=%s: %v", SharedDir, dir, err)
	}
	t.Cleanup(func() {
		all := c.client.CoreV1().Nodes()
		if err := all.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Errorf("deleting the nodes: %v", err)
		}
	})
	if err := c.AddNodes(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	return c
}

// testLog writes lines into a test's log until the test ends, after which that is not allowed any more.
type testLog struct {
	mu sync.Mutex
	t  testing.TB
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		l.t.Logf("%s", bytes.TrimRight(p, "\n"))
	}
	return len(p), nil
}

func (l *testLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = nil
}

// lockedWriter lets several goroutines write to one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// buildLog is where the progress of builds goes: to be seen at once, and not with a test's log when that has ended.
func buildLog(w io.Writer) io.Writer {
	if locked, ok := w.(*lockedWriter); ok {
		if _, ok := locked.w.(*testLog); ok {
			return os.Stderr
		}
	}
	return w
}
