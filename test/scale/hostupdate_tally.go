// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
)

// hostProtocol is what the nodes speak, and hostInterface by what their agents reach the hosts.
var hostProtocol = v1alpha1.HostProtocols[0]

const hostInterface = v1alpha1.InterfaceUpdateAPI

// The stages' traces: what operator and agent have said to each other on each Node, change by change, as wanted, active, state
// and whether there is an update; a Node with an exclamation mark is cordoned.
var (
	traceFound = []string{
		"stabilize,unknown,unknown unknown",
		"stabilize,stabilize,busy unknown",
		"stabilize,stabilize,ready true",
	}
	traceUpdate = []string{
		"prepare-update,stabilize,ready true",
		"prepare-update,prepare-update,busy true",
		"prepare-update,prepare-update,ready true",
		"perform-update,prepare-update,ready true",
		"perform-update,perform-update,busy true",
		"perform-update,perform-update,ready true",
		"perform-update,perform-update,ready true !",
		"reboot-update,perform-update,ready true !",
		"reboot-update,reboot-update,busy true !",
		"reboot-update,reboot-update,ready true !",
		"reboot-update,reboot-update,ready true",
		"stabilize,unknown,unknown unknown",
		"stabilize,stabilize,busy unknown",
		"stabilize,stabilize,ready false",
	}
)

// standing is how a Node stands.
func standing(n *corev1.Node) string {
	text := fmt.Sprintf("%s,%s,%s %s", n.Annotations[hostProtocol.Wanted], n.Annotations[hostProtocol.Active],
		n.Annotations[hostProtocol.State], n.Annotations[hostProtocol.Update])
	if n.Spec.Unschedulable {
		text += " !"
	}
	return text
}

// hostTally keeps a journal of what was said on each Node.
type hostTally struct {
	mu    sync.Mutex
	hosts map[string]*journal
	// standings counts Nodes by how they stand.
	standings map[string]int
}

// journal is that of one Node.
type journal struct {
	last  string
	trace []string
	boot  string
	boots int
}

func newHostTally() *hostTally {
	return &hostTally{hosts: map[string]*journal{}, standings: map[string]int{}}
}

// see takes note of a Node as it became.
func (t *hostTally) see(_ watch.EventType, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, boot := standing(n), n.Status.NodeInfo.BootID
	j, known := t.hosts[n.Name]
	if !known {
		t.hosts[n.Name] = &journal{last: now, boot: boot}
		t.standings[now]++
		return
	}
	if boot != j.boot {
		j.boot = boot
		j.boots++
	}
	if now != j.last {
		t.standings[j.last]--
		t.standings[now]++
		j.last = now
		j.trace = append(j.trace, now)
	}
}

// begin forgets what was said so far.
func (t *hostTally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, j := range t.hosts {
		j.trace, j.boots = nil, 0
	}
}

// at is how many Nodes stand so.
func (t *hostTally) at(standing string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.standings[standing]
}

// progress says in a line how Nodes stand.
func (t *hostTally) progress() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := slices.SortedFunc(maps.Keys(t.standings), func(a, b string) int {
		return cmp.Or(-cmp.Compare(t.standings[a], t.standings[b]), cmp.Compare(a, b))
	})
	var parts []string
	for _, kind := range kinds {
		if n := t.standings[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, kind))
		}
	}
	return strings.Join(parts, "; ")
}

// verify returns which Nodes had another trace since begin, or were not rebooted so many times.
func (t *hostTally) verify(want []string, boots int) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	others := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(t.hosts)) {
		j := t.hosts[name]
		if !slices.Equal(j.trace, want) {
			trace := strings.Join(j.trace, " → ")
			others[trace] = append(others[trace], name)
		}
		if j.boots != boots {
			problems = append(problems, fmt.Errorf("node %s has told of %d new boots, and should of %d", name, j.boots, boots))
		}
	}
	for _, trace := range slices.Sorted(maps.Keys(others)) {
		names := others[trace]
		problems = append(problems, fmt.Errorf("%d nodes, such as %s, had another trace: %s", len(names), names[0], trace))
	}
	return problems
}
