// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/drain"
)

// progress tells what changes from one pass over a node to the next, each thing once.
type progress struct {
	out, errOut io.Writer
	// deletes is true when pods are deleted, not evicted.
	deletes bool
	// suffix follows what is only said.
	suffix string

	last *drain.Result
	// told is what was last said of a pod.
	told map[types.UID]string
	// going holds the pods that were told to go.
	going map[types.UID]types.NamespacedName
	// detaching holds the volumes that are waited for.
	detaching []string
}

func newProgress(c *command, o *drain.Options) *progress {
	return &progress{
		out: c.Out, errOut: c.ErrOut,
		deletes: o.DisableEviction, suffix: c.dryRun.suffix(),
		told:  map[types.UID]string{},
		going: map[types.UID]types.NamespacedName{},
	}
}

// show tells what is new in this pass.
func (p *progress) show(r drain.Result) {
	if p.last == nil {
		p.warn(r)
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

// volumes tells which are waited for, and which are not any more.
func (p *progress) volumes(attached []string) {
	for _, name := range p.detaching {
		if !slices.Contains(attached, name) {
			fmt.Fprintf(p.out, "volume/%s detached\n", name)
		}
	}
	for _, name := range attached {
		if !slices.Contains(p.detaching, name) {
			fmt.Fprintf(p.out, "waiting for volume %s to be detached\n", name)
		}
	}
	p.detaching = attached
}

// gone tells of the pods that have ended.
func (p *progress) gone(there map[types.UID]bool) {
	if p.suffix != "" {
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
		fmt.Fprintf(p.out, "pod/%s %s\n", name, p.verb("evicted", "deleted"))
	}
}

// pod tells how a pod stands, if that is new.
func (p *progress) pod(o *drain.Outcome) {
	text := o.String()
	if p.told[o.UID] == text && o.State != drain.Evicted {
		return
	}
	p.told[o.UID] = text
	switch o.State {
	case drain.Evicted:
		p.going[o.UID] = o.Pod
		fmt.Fprintf(p.out, "%s pod %s%s\n", p.verb("evicting", "deleting"), o.Pod, p.suffix)
	case drain.Terminating:
		if _, known := p.going[o.UID]; !known {
			p.going[o.UID] = o.Pod
			fmt.Fprintf(p.out, "waiting for pod %s%s\n", o.Pod, p.suffix)
		}
	case drain.Blocked, drain.Failed:
		fmt.Fprintln(p.errOut, text)
	case drain.Skipped:
		if o.Reason == drain.ReasonDeletionOverdue || o.Reason == drain.ReasonReturned {
			fmt.Fprintln(p.errOut, text+", and is left")
			delete(p.going, o.UID)
		}
	}
}

// warn tells what the flags give leave to, once for the node.
func (p *progress) warn(r drain.Result) {
	if len(r.In(drain.Refused)) > 0 {
		return
	}
	for _, w := range warnings {
		var pods []string
		for i := range r.Pods {
			if o := &r.Pods[i]; o.State == drain.Skipped && o.Reason == w.reason || slices.Contains(o.Costs, w.reason) {
				pods = append(pods, o.Pod.String())
			}
		}
		if len(pods) > 0 {
			fmt.Fprintf(p.errOut, "Warning: %s: %s\n", w.text, strings.Join(pods, ", "))
		}
	}
}

var warnings = []struct {
	reason drain.Reason
	text   string
}{
	{drain.ReasonDaemonSet, "ignoring DaemonSet-managed pods"},
	{drain.ReasonDaemonSetUnread, "taking pods whose DaemonSet is gone"},
	{drain.ReasonLocalStorage, "taking pods with local storage"},
	{drain.ReasonUnmanaged, "taking pods that declare no controller"},
}

func (p *progress) verb(evict, del string) string {
	if p.deletes {
		return del
	}
	return evict
}
