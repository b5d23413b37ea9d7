// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"io"
	"os"
	"sync"
	"testing"
)

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
