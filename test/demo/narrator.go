// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// narrator says what is being done, each step with the seconds since the beginning.
type narrator struct {
	out   io.Writer
	began time.Time
}

func newNarrator(out io.Writer) *narrator { return &narrator{out: out, began: time.Now()} }

func (s *narrator) begins(title string) {
	fmt.Fprintf(s.out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), title)
}

func (s *narrator) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// details is a writer for what belongs to a step: each line is indented.
func (s *narrator) details() io.Writer { return &indented{out: s.out} }

type indented struct {
	mu   sync.Mutex
	out  io.Writer
	rest []byte
}

func (w *indented) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		if _, err := fmt.Fprintf(w.out, "         %s\n", line); err != nil {
			return 0, err
		}
		w.rest = bytes.Clone(rest)
	}
}
