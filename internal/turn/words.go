// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// Digest identifies values, which must be such as always marshal: strings and API types.
func Digest(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

// longest is how much of a message a claim keeps, in bytes.
const longest = 1024

// Short is a message as a claim keeps it.
func Short(message string) string {
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:longest-len("…")], "") + "…"
}

// Stamp is a time as the API stores it, in seconds.
func Stamp(t time.Time) *metav1.Time { return &metav1.Time{Time: t.UTC().Truncate(time.Second)} }

// Oldest keeps the first of a list, by age.
func Oldest(list []v1alpha1.UnitStatus) []v1alpha1.UnitStatus {
	slices.SortFunc(list, func(a, b v1alpha1.UnitStatus) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return list[:min(len(list), v1alpha1.MaxListedUnits)]
}

// Average is how long turns take on average, in which the latest counts most, in seconds; before is 0 for the first.
func Average(before int32, took time.Duration) int32 {
	seconds := int32(min(max(1, took.Round(time.Second)/time.Second), math.MaxInt32))
	if before > 0 {
		seconds = int32((int64(before)*3 + int64(seconds) + 2) / 4)
	}
	return seconds
}

// Waiting lists the nodes that come next, and counts those that wait, failed ones too, by their reason. Of those that have failed the list says
// nothing.
func Waiting(d *rollout.Decision, failed map[string]bool, g *status.Progress) (list []v1alpha1.UnitStatus, reasons map[v1alpha1.Reason]int) {
	reasons = map[v1alpha1.Reason]int{}
	for i := range d.Waiting {
		wait := &d.Waiting[i]
		reasons[wait.Reason]++
		if wait.Holds || failed[wait.Node] || wait.Reason == v1alpha1.ReasonOptedOut {
			continue
		}
		if g.Wait == "" {
			g.Wait, g.WaitMessage = wait.Reason, wait.Message
		}
		if len(list) < v1alpha1.MaxListedUnits {
			list = append(list, v1alpha1.UnitStatus{Node: wait.Node, Reason: wait.Reason, Message: wait.Message})
		}
	}
	return list, reasons
}

// TaintOf is the key of the taint that nodes carry which are still to be updated.
func TaintOf(name string) string { return "noderollout" + v1alpha1.TaintOutdatedSuffix + "/" + name }

// Healthy makes a fleet one by which a changed node is healthy: with what spec.health asks for as one more budget.
func Healthy(f rollout.Fleet, h *v1alpha1.NodeHealth) rollout.Fleet {
	if h == nil {
		return f
	}
	own := rollout.Budget{Name: "spec.health", MinReady: time.Duration(h.MinReadySeconds) * time.Second, Health: h.NodesGate}
	f.Budgets = append([]rollout.Budget{own}, f.Budgets...)
	return f
}
