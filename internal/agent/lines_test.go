// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// lines is a log of which tests wait for lines.
type lines struct {
	mu    sync.Mutex
	all   []string
	hooks []*hook
}

type hook struct {
	text string
	left int
	do   func()
}

// logger writes to the lines, debug messages too.
func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, line string) { l.add(line) }, funcr.Options{Verbosity: 1})
}

func (l *lines) add(line string) {
	var due []func()
	l.mu.Lock()
	l.all = append(l.all, line)
	for _, h := range l.hooks {
		if strings.Contains(line, h.text) {
			if h.left--; h.left == 0 {
				due = append(due, h.do)
			}
		}
	}
	l.mu.Unlock()
	for _, do := range due {
		do()
	}
}

// after has something done when so many lines with a text have come, before the logger goes on.
func (l *lines) after(text string, count int, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, &hook{text, count, do})
}

// with are the lines with a text.
func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}
