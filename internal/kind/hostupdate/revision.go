// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
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
