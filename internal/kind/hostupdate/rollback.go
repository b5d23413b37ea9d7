// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

// keepRolledBack keeps a rolled back rollout at the last complete version, as if spec.hostUpdate.version named it. The rollback ends when hosts offer
// a newer version than the one that failed, and none that answers offers that one any more, the spec names another, or the strategy has no rollback any more.
func (w *World) keepRolledBack(offered bool) {
	failed, to, s := w.Rollout.Status.RolledBack, w.Rollout.Status.LastComplete, w.Rollout.Spec.Strategy
	pin := w.Host.Version
	if failed == "" || to == "" || s == nil || !s.Rollback ||
		pin != "" && !sameVersion(pin, failed) || pin == "" && CompareVersions(w.Revision, failed) > 0 && !offered {
		return
	}
	w.RolledBack, w.Host.Version, w.Revision = failed, to, to
}

// Irreversible says why the rollout can't be rolled back from its revision; "" if it can. need is how many hosts must have failed with it. These are
// hosts that the kubelet has seen run it, or that did not come back from the reboot into it: no agent alone can cause a rollback.
func (w *World) Irreversible(all []*Unit, need int) string {
	to := w.Rollout.Status.LastComplete
	switch {
	case w.RolledBack != "":
		return "it was rolled back from " + w.RolledBack + " already"
	case to == "" || sameVersion(to, w.Revision):
		return "no earlier version is known that all hosts ran"
	}
	for _, t := range all {
		c := t.Claim
		if t.Counted && !t.Unit.OptedOut && sameVersion(t.Report.Version, w.Revision) && !t.Report.hasWayBack() && !t.Report.offersVersion(to) {
			return "the host of Node " + t.Node.Name + " has no agent with a way to its other partitions (interface " + t.Report.Interface + ")"
		}
		if t.Unit.State == v1alpha1.UnitFailed && c != nil && !c.Skipped() && sameVersion(VersionOf(c), w.Revision) &&
			(c.Changed != nil && sameVersion(t.Report.Booted, w.Revision) || c.Rebooting != nil && notReady(t.Node) != "") {
			need--
		}
	}
	if need > 0 {
		return "too few hosts failed after they had booted " + w.Revision
	}
	return ""
}

// goesBack reports whether a host runs the version from which the rollout was rolled back, and returns by its other partitions.
func (w *World) goesBack(r *Report) bool {
	return w.RolledBack != "" && sameVersion(r.Version, w.RolledBack) && r.hasWayBack() && !r.offersVersion(w.Host.Version) &&
		r.Answers(v1alpha1.HostActionStabilize) && !w.Host.DetectOnly
}

// hasWayBack reports whether the agent can make the host boot its other partitions: by signpost, which updog's agents run. An agent that reports when it
// checked is Moult's.
func (r *Report) hasWayBack() bool {
	return !slices.Contains([]string{v1alpha1.InterfaceUpdateAPI, v1alpha1.InterfaceSentinel}, r.Interface) && !r.Checked.IsZero()
}

func (r *Report) offersVersion(version string) bool {
	return r.Update == v1alpha1.HostUpdateTrue && sameVersion(r.Target, version)
}
