// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// numbered is the prefix of the revision of hosts whose versions have no name.
const numbered = "reboot-"

// revisionOf returns the revision to which all hosts are brought if no version is pinned: the newest version that a host offers or runs.
// Exception: no host offers the newest version, and some offer an older version than they run (a version-lock). Then the revision is the newest
// version so offered. If versions have no name, it is "reboot-" and a number. The number grows when a host needs a reboot, which
// asked says, after a time when no host needed one: before is the previous revision, complete says that no host needed it any more, and turns are
// the revisions of turns in progress. Without any host the revision is empty.
func revisionOf(reports []*Report, before string, asked, complete bool, turns []string) string {
	newest := ""
	seen := map[string]bool{"": true}
	offered := map[[2]string]bool{} // By what the host runs and what it offers.
	for _, r := range reports {
		for _, version := range [...]string{r.Target, r.Version} {
			if seen[version] {
				continue
			}
			if seen[version] = true; newest == "" || CompareVersions(version, newest) > 0 {
				newest = version
			}
		}
		if r.Target != "" && r.Update == v1alpha1.HostUpdateTrue {
			offered[[2]string{r.Version, r.Target}] = true
		}
	}
	if newest != "" {
		return cmp.Or(newestDowngrade(offered, newest), newest)
	}
	count := 0
	for _, revision := range append(turns, before) { // A turn may have begun since the status was written.
		if text, ok := strings.CutPrefix(revision, numbered); ok {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil { // A Node may have any text.
				count = max(count, int(n))
			}
		}
	}
	if len(reports) == 0 && count == 0 {
		return ""
	}
	if asked && (complete && len(turns) == 0 || count == 0) {
		count++
	}
	return numbered + strconv.Itoa(count)
}

// newestDowngrade returns the newest version that is offered by hosts which run a newer one. It is "" if there is none, or a host offers newest.
func newestDowngrade(offered map[[2]string]bool, newest string) (back string) {
	for pair := range offered {
		runs, target := pair[0], pair[1]
		if sameVersion(target, newest) {
			return ""
		}
		if runs != "" && CompareVersions(target, runs) < 0 && (back == "" || CompareVersions(target, back) > 0) {
			back = target
		}
	}
	return back
}

// RevisionOf returns the revision of a turn that begins: the version, or the rollout's revision if the version has no name.
func RevisionOf(version, rollout string) string {
	if version != "" {
		return version
	}
	if strings.HasPrefix(rollout, numbered) {
		return rollout
	}
	return numbered + cmp.Or(rollout, "update")
}

// VersionOf returns the version to which a claim brings its host; "" if versions have no name.
func VersionOf(c *v1alpha1.Claim) string {
	if strings.HasPrefix(c.Revision, numbered) {
		return ""
	}
	return c.Revision
}

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
