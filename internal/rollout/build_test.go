// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"flag"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// own is the rollout that decides in most tests.
const own types.UID = "own"

var (
	// noon is a Friday.
	noon   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	update = flag.Bool("update", false, "write the golden files anew")
)

// unit makes a unit in this state.
func unit(node string, state v1alpha1.UnitState, change ...func(*Unit)) Unit {
	u := Unit{Node: node, State: state, Since: noon.Add(-time.Minute)}
	for _, c := range change {
		c(&u)
	}
	return u
}

func outdated(node string, change ...func(*Unit)) Unit {
	return unit(node, v1alpha1.UnitOutdated, change...)
}

func failed(node string) Unit {
	return unit(node, v1alpha1.UnitFailed, because(v1alpha1.ReasonJobFailed, node+" broke"))
}

func ranked(rank uint64) func(*Unit) { return func(u *Unit) { u.Rank = rank } }

func because(reason v1alpha1.Reason, message string) func(*Unit) {
	return func(u *Unit) { u.Reason, u.Message = reason, message }
}

func optsOut(u *Unit) { u.OptedOut = true }

func inTurn(u *Unit) { u.InTurn = true }

func down(u *Unit) { u.Down = true }

func excused(u *Unit) { u.Excused = true }

// claimed is a node with these claims.
func claimed(claims ...v1alpha1.Claim) *Node { return &Node{Claims: claims} }

func nodesOf(nodes map[string]*Node) Fleet { return Fleet{Nodes: nodes} }

// exclusive and shared are claims of the rollout of this name, made an hour ago.
func exclusive(name types.UID) v1alpha1.Claim {
	return v1alpha1.Claim{Rollout: "Plan/fleet/" + string(name), UID: name, Since: metav1.Time{Time: noon.Add(-time.Hour)}}
}

func shared(name types.UID) v1alpha1.Claim {
	c := exclusive(name)
	c.Shared = true
	return c
}

// window makes a window on these days; see mustWindow for one with a zone.
func window(t testing.TB, start, end string, days ...string) []CronWindow {
	t.Helper()
	return mustWindow(t, days, start, end, "UTC")
}

func mustWindow(t testing.TB, days []string, start, end, zone string) []CronWindow {
	t.Helper()
	w, err := NewWindow(days, start, end, zone)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// opensNext is the first instant at or after t at which one of the windows is open; zero if there is none.
func opensNext(windows []CronWindow, t time.Time) time.Time {
	if open, next := openAt(windows, t); !open {
		return next
	}
	return t
}

// isOpen reports whether one of the windows is open at t.
func isOpen(windows []CronWindow, t time.Time) bool {
	return slices.ContainsFunc(windows, func(w CronWindow) bool { return w.Contains(t) })
}

var everyDay = []string{"su", "mo", "tu", "we", "th", "fr", "sa"}
