// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

// progress is the drain of one node, and prints what changes from one pass to the next, each thing once.
type progress struct {
	*draining
	name string
	// done is what was done to the node.
	done node.Done
	// recorded are the workloads in the node's record of evictions.
	recorded map[node.Workload]bool
	// left is what the conditions say of what is left, and leftAt since when; zero while that is of the beginning.
	left   string
	leftAt time.Time

	last *drain.Result
	// printed is what was last printed about a pod.
	printed map[types.UID]string
	// going holds the pods that are being evicted or deleted.
	going map[types.UID]types.NamespacedName
	// detaching holds the volumes that are waited for.
	detaching []string
}

func newProgress(d *draining, name string) *progress {
	return &progress{
		draining: d, name: name, recorded: map[node.Workload]bool{},
		printed: map[types.UID]string{}, going: map[types.UID]types.NamespacedName{},
	}
}

// show prints what is new in this pass.
func (p *progress) show(r drain.Result) {
	if p.last == nil {
		p.warnings(r)
	}
	p.last = &r
	there := map[types.UID]bool{}
	for i := range r.Pods {
		o := &r.Pods[i]
		there[o.UID] = o.State != drain.Gone
		p.pod(o)
	}
	p.gone(there)
	p.volumes(r.Attached)
}

// volumes prints which are waited for, and which are not any more.
func (p *progress) volumes(attached []string) {
	for _, name := range p.detaching {
		if !slices.Contains(attached, name) {
			fmt.Fprintf(p.Out, "volume/%s detached\n", name)
		}
	}
	for _, name := range attached {
		if !slices.Contains(p.detaching, name) {
			fmt.Fprintf(p.Out, "waiting for volume %s to be detached\n", name)
		}
	}
	p.detaching = attached
}

// gone prints the pods that have ended.
func (p *progress) gone(there map[types.UID]bool) {
	if !p.dryRun.None() {
		return
	}
	var names []string
	for uid, pod := range p.going {
		if !there[uid] {
			names = append(names, pod.Name)
			delete(p.going, uid)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(p.Out, "pod/%s %s\n", name, p.verb("evicted", "deleted"))
	}
}

// pod prints the state of a pod, if that is new.
func (p *progress) pod(o *drain.Outcome) {
	text := o.String()
	if p.printed[o.UID] == text && o.State != drain.Evicted {
		return
	}
	p.printed[o.UID] = text
	switch o.State {
	case drain.Evicted:
		p.going[o.UID] = o.Pod
		fmt.Fprintf(p.Out, "%s pod %s%s\n", p.verb("evicting", "deleting"), o.Pod, p.dryRun.Suffix())
	case drain.Terminating:
		if _, known := p.going[o.UID]; !known {
			p.going[o.UID] = o.Pod
			fmt.Fprintf(p.Out, "waiting for pod %s%s\n", o.Pod, p.dryRun.Suffix())
		}
	case drain.Blocked, drain.Failed:
		fmt.Fprintln(p.ErrOut, text)
	case drain.Skipped:
		if o.Reason == drain.ReasonDeletionOverdue || o.Reason == drain.ReasonReturned {
			fmt.Fprintln(p.ErrOut, text+", and is left")
			delete(p.going, o.UID)
		}
	}
}

// warnings prints what the flags give leave to, once for the node.
func (p *progress) warnings(r drain.Result) {
	if len(r.In(drain.Refused)) > 0 {
		return
	}
	for _, w := range leaves {
		var pods []string
		for i := range r.Pods {
			if o := &r.Pods[i]; o.State == drain.Skipped && o.Reason == w.reason || slices.Contains(o.Costs, w.reason) {
				pods = append(pods, o.Pod.String())
			}
		}
		if len(pods) > 0 {
			fmt.Fprintf(p.ErrOut, "Warning: %s: %s\n", w.text, strings.Join(pods, ", "))
		}
	}
}

// leaves are what flags give leave to.
var leaves = []struct {
	reason drain.Reason
	text   string
}{
	{drain.ReasonDaemonSet, "ignoring DaemonSet-managed pods"},
	{drain.ReasonDaemonSetUnread, "taking pods whose DaemonSet is gone"},
	{drain.ReasonLocalStorage, "taking pods with local storage"},
	{drain.ReasonUnmanaged, "taking pods that declare no controller"},
}

func (p *progress) verb(evict, del string) string {
	if p.options.DisableEviction {
		return del
	}
	return evict
}
