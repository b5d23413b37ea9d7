// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/internal/kind/hostupdate"
)

func readHost(n *corev1.Node) (hostupdate.Report, bool) { return hostupdate.Read(n) }

func TestBackoffs(t *testing.T) {
	b := newBackoffs()
	clock := now
	var waits []time.Duration
	for range 8 {
		at := b.failed("n", clock)
		waits = append(waits, at.Sub(clock))
		if again := b.failed("n", clock.Add(time.Second)); !again.Equal(at) {
			t.Errorf("a second look puts it off to %s", again)
		}
		clock = at
		b.asked("n")
	}
	want := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute}
	if !slices.Equal(waits, want) {
		t.Errorf("it waits %v", waits)
	}
	b.well("n")
	if at := b.failed("n", clock); at.Sub(clock) != time.Minute {
		t.Errorf("after it was well it waits %s", at.Sub(clock))
	}
	b.asked("other") // Of which nothing is known.
	if at := b.failed("other", clock); at.Sub(clock) != time.Minute {
		t.Errorf("another waits %s", at.Sub(clock))
	}
}
