// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// PhaseOf returns the phase of a turn in progress by its claim, and when it began.
func PhaseOf(c *v1alpha1.Claim) (v1alpha1.Phase, metav1.Time) {
	switch {
	case c.Soaking != nil:
		return v1alpha1.PhaseSoaking, *c.Soaking
	case c.Changed != nil:
		return v1alpha1.PhaseVerifying, *c.Changed
	case c.Rebooting != nil:
		return v1alpha1.PhaseChanging, *c.Rebooting
	case c.Cordoned != nil:
		return v1alpha1.PhaseDraining, *c.Cordoned
	}
	return v1alpha1.PhasePreparing, c.Since
}

// Phase returns the phase of a unit's turn, when it began, and what the turn waits for.
func Phase(t *Unit) (v1alpha1.Phase, time.Time, string) {
	if t.Claim == nil {
		return v1alpha1.PhaseClaimed, t.Unit.Since, t.Message // The node is about to be adopted, or its claims can't be read.
	}
	phase, since := PhaseOf(t.Claim)
	return phase, since.Time, t.Message
}

// Awaits says what a turn waits for, by the node, its host and the claim. It returns "" if these do not show it, such as during a drain.
func Awaits(n *corev1.Node, r *Report, c *v1alpha1.Claim, hooks v1alpha1.RebootHooks) string {
	switch phase, _ := PhaseOf(c); phase {
	case v1alpha1.PhasePreparing:
		if c.Back {
			return awaitsHooks("the host is about to return to "+c.Revision+"; ", n, hooks.BeforeReboot)
		}
		return r.prepares(n, hooks.BeforeReboot)
	case v1alpha1.PhaseDraining:
		switch {
		case r.Wanted != v1alpha1.HostActionRollback:
		case r.Wanted != r.Active:
			return r.notTakenUp() + " yet"
		default:
			return "the host makes its other partitions, with " + c.Revision + ", what it boots next"
		}
	case v1alpha1.PhaseChanging:
		return r.reboots(n, c)
	case v1alpha1.PhaseVerifying:
		if why := notReady(n); why != "" {
			return why
		}
		return awaitsHooks("the host has rebooted; ", n, hooks.AfterReboot)
	}
	return ""
}

// prepares says what a host that has no order to reboot does.
func (r *Report) prepares(n *corev1.Node, hooks []string) string {
	what := cmp.Or(n.Annotations[v1alpha1.AnnotationHostWanted], r.Target, "the update")
	switch {
	case r.Wanted != v1alpha1.HostActionPrepare && r.Wanted != v1alpha1.HostActionPerform:
		return ""
	case r.Wanted != r.Active:
		return r.notTakenUp() + " yet"
	case r.State == v1alpha1.HostStateError:
		return r.failed()
	case r.State == v1alpha1.HostStateBusy && r.Wanted == v1alpha1.HostActionPrepare:
		return "the host fetches " + what
	case r.State == v1alpha1.HostStateBusy:
		return "the host makes " + what + " what it boots next"
	case r.Wanted == v1alpha1.HostActionPerform:
		return awaitsHooks("the host is about to reboot; ", n, hooks)
	}
	return ""
}

// reboots says what a host that has the order to reboot does.
func (r *Report) reboots(n *corev1.Node, c *v1alpha1.Claim) string {
	same, _ := compareBoot(n, c)
	why := notReady(n)
	switch {
	case same && r.Active != v1alpha1.HostActionReboot:
		return r.notTakenUp() + " yet"
	case same && r.State == v1alpha1.HostStateError:
		return r.failed()
	case why != "":
		return "the host reboots: " + why
	case same:
		return "the host is to reboot, and has not gone down yet"
	case r.State == v1alpha1.HostStateBusy || r.Active != v1alpha1.HostActionReboot:
		return "the host has rebooted, and its agent has not said yet what it runs"
	}
	return ""
}

func (r *Report) notTakenUp() string { return "the host's agent has not taken up " + string(r.Wanted) }

// failed says that the last action of the agent has failed, and why.
func (r *Report) failed() string { return string(r.Active) + " failed: " + r.said() }

// Unset returns the annotations whose value on the node is not "true".
func Unset(n *corev1.Node, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return n.Annotations[key] == "true" })
}

// awaitsHooks says after what the turn waits for which hooks, or "" if all have answered.
func awaitsHooks(after string, n *corev1.Node, keys []string) string {
	missing := Unset(n, keys)
	if len(missing) == 0 {
		return ""
	}
	return after + "annotations " + strings.Join(missing, ", ") + " of the Node must become true before"
}

// notReady says since when a node is not ready; "" when it is ready.
func notReady(n *corev1.Node) string {
	switch ready, since := nodeturn.Ready(n); {
	case ready:
		return ""
	case since.IsZero():
		return "not ready"
	default:
		return "not ready since " + since.UTC().Format(time.RFC3339)
	}
}
