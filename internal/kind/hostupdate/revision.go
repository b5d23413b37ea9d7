// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"iter"
	"strconv"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// numbered begins the revision of hosts whose versions have no name.
const numbered = "reboot-"

// revisionOf is what all hosts are brought to where no version is pinned: the newest that any of them offers or runs. But where the newest only runs,
// and hosts offer an older version than theirs, as by a version-lock, it is the newest of those. Where versions have no name it is "reboot-" with a
// number that counts how often the hosts were all brought to it: it goes up when one needs it again after none did. That takes the revision before,
// whether none needed it then, and the revisions of turns. Without any host it is empty.
func revisionOf(reports iter.Seq[*Report], before string, complete bool, turns []string) string {
	newest, asked, hosts := "", false, false
	seen := map[string]bool{"": true}
	offered := map[[2]string]bool{} // By what the host runs and what it offers.
	for r := range reports {
		hosts = true
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
		asked = asked || r.Knows() && r.Update == v1alpha1.HostUpdateTrue
	}
	if newest != "" {
		return cmp.Or(newestDowngrade(offered, newest), newest)
	}
	count := 0
	for _, revision := range append(turns, before) { // A turn may have begun since the status was written.
		if text, ok := strings.CutPrefix(revision, numbered); ok {
			n, _ := strconv.Atoi(text)
			count = max(count, n)
		}
	}
	if !hosts && count == 0 {
		return ""
	}
	if asked && (complete && len(turns) == 0 || count == 0) {
		count++
	}
	return numbered + strconv.Itoa(count)
}

// newestDowngrade is the newest version that hosts offer which run a newer one; empty where there is none, or where a host offers the newest of all.
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

// RevisionOf is what one host is brought to whose turn begins: the version, or where that has no name what the rollout brings its hosts to.
func RevisionOf(version, rollout string) string {
	if version != "" {
		return version
	}
	if strings.HasPrefix(rollout, numbered) {
		return rollout
	}
	return numbered + cmp.Or(rollout, "update")
}

// VersionOf is the version that a claim brings its host to; empty where that has no name.
func VersionOf(c *v1alpha1.Claim) string {
	if strings.HasPrefix(c.Revision, numbered) {
		return ""
	}
	return c.Revision
}
