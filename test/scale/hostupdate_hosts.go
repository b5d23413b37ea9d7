// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"

	"moult.dev/moult/internal/agent/host"
)

// What hosts run at first, and what they have to offer.
const (
	oldRelease = "1.19.5"
	newRelease = "1.20.0"
)

// osImage is how a kubelet tells of a release.
func osImage(release string) string { return "Bottlerocket OS " + release + " (aws-k8s-1.37)" }

// playedHost is a host of which there is only what its agent sees. It counts what it is told.
type playedHost struct {
	// ordered has a value when the host is to go down.
	ordered chan struct{}

	mu       sync.Mutex
	boot     string
	running  string
	prepared string
	next     string
	counts   hostCounts
}

// hostCounts say what a host was told.
type hostCounts struct{ checks, prepared, performed, orders, boots int }

var _ host.Host = (*playedHost)(nil)

func newPlayedHost(boot string) *playedHost {
	return &playedHost{ordered: make(chan struct{}, 1), boot: boot, running: oldRelease, next: oldRelease}
}

// Version is what runs.
func (h *playedHost) Version(context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running, nil
}

// BootID is that of the present boot.
func (h *playedHost) BootID() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot, nil
}

// Check offers the one release that there is.
func (h *playedHost) Check(context.Context) (host.Offer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.checks++
	if h.running == newRelease {
		return host.Offer{}, nil
	}
	return host.Offer{Available: true, Version: newRelease}, nil
}

// Prepare takes no time.
func (h *playedHost) Prepare(_ context.Context, version string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version != "" && version != newRelease {
		return host.ErrOther
	}
	h.counts.prepared++
	h.prepared = newRelease
	return nil
}

// Perform takes no time either.
func (h *playedHost) Perform(_ context.Context, version string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.prepared == "":
		return fmt.Errorf("nothing is prepared")
	case version != "" && version != h.prepared:
		return host.ErrOther
	}
	h.counts.performed++
	h.next = h.prepared
	return nil
}

// Revert takes no time.
func (h *playedHost) Revert(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = ""
	return nil
}

// Reboot ends with the process that calls it, as it does on a host that goes down.
func (h *playedHost) Reboot(ctx context.Context) error {
	h.mu.Lock()
	h.counts.orders++
	h.mu.Unlock()
	select {
	case h.ordered <- struct{}{}:
	default: // It is about to go down.
	}
	<-ctx.Done()
	return ctx.Err()
}

// start boots the host, and returns what its kubelet has to tell.
func (h *playedHost) start() (boot, image string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.ordered: // What was ordered in the boot before.
	default:
	}
	h.counts.boots++
	h.boot, h.running, h.prepared = string(uuid.NewUUID()), h.next, ""
	return h.boot, osImage(h.running)
}

func (h *playedHost) counted() hostCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}
