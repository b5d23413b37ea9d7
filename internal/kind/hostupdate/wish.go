// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Wish is what a rollout wants of hosts.
type Wish struct {
	// Version that they are to run; empty is the newest that each has to offer.
	Version string
	// DetectOnly touches none.
	DetectOnly bool
	// MinimumAge is how long a version must have been known before a host is brought to it.
	MinimumAge time.Duration
	// Releases says since when versions are known.
	Releases map[string]time.Time
}

// WishOf is what the spec of a rollout wants, of which these releases are known.
func WishOf(u *v1alpha1.HostUpdate, releases []v1alpha1.HostRelease) Wish {
	w := Wish{Releases: make(map[string]time.Time, len(releases))}
	for i := range releases {
		w.Releases[releases[i].Version] = releases[i].Since.Time
	}
	if u == nil {
		return w
	}
	w.Version, w.DetectOnly = u.Version, u.DetectOnly
	if u.MinimumAge != nil {
		w.MinimumAge = u.MinimumAge.Duration
	}
	return w
}

// Verdict is what a rollout makes of one host.
type Verdict struct {
	// State is Outdated or Updated.
	State v1alpha1.UnitState
	// Reason and Message say why an outdated host may not be told to update now.
	Reason  v1alpha1.Reason
	Message string
	// Version is what it would be brought to; empty where that has no name, or is not known.
	Version string
	// RetryAt is when the clock alone changes that.
	RetryAt time.Time
}

// Judge says whether a host whose node the rollout has not claimed is to be updated.
func (w *Wish) Judge(r *Report, now time.Time) Verdict {
	switch {
	case w.Version != "" && same(r.Version, w.Version):
		return Verdict{State: v1alpha1.UnitUpdated, Version: w.Version}
	case r.State == v1alpha1.HostStateError:
		return waits(v1alpha1.ReasonHostError, w.Version, r.failure())
	case r.Knows() && r.Update == v1alpha1.HostUpdateFalse && w.Version == "":
		return Verdict{State: v1alpha1.UnitUpdated, Version: r.Version}
	case !r.Knows() && w.newest(r.Version):
		return Verdict{State: v1alpha1.UnitUpdated, Version: r.Version}
	case !r.Knows():
		return waits(v1alpha1.ReasonHostSilent, w.Version, r.silence())
	case w.Version != "" && (r.Update == v1alpha1.HostUpdateFalse || !same(r.Target, w.Version)):
		return waits(v1alpha1.ReasonVersionNotOffered, w.Version, "the host "+r.runs()+r.offers()+", and is to be brought to "+w.Version)
	case w.DetectOnly:
		return waits(v1alpha1.ReasonDetectOnly, r.Target, "the host "+r.runs()+r.offers()+"; spec.hostUpdate.detectOnly leaves it at that")
	}
	return w.age(r, now)
}

// newest reports whether a host that has not said what it has to offer runs the newest version that is known: one that has just been
// brought to it, and is looking again.
func (w *Wish) newest(version string) bool {
	if _, known := w.Releases[version]; !known || w.Version != "" {
		return false
	}
	for release := range w.Releases {
		if CompareVersions(release, version) > 0 {
			return false
		}
	}
	return true
}

// Latest is the version that came to be known last, and since when; of several that did so at once the newest. It is empty where none is
// known.
func (w *Wish) Latest() (version string, since time.Time) {
	for release, at := range w.Releases {
		if c := at.Compare(since); version == "" || c > 0 || c == 0 && CompareVersions(release, version) > 0 {
			version, since = release, at
		}
	}
	return version, since
}

// Overtaken reports whether a host has said what it has to offer before this version came to be known, of which it says nothing: it
// may have it to offer by now. One whose versions have no name is not asked, nor one that has something to offer and does not say what.
func (w *Wish) Overtaken(r *Report, latest string, since time.Time) bool {
	if r.Version == "" || r.Update == v1alpha1.HostUpdateTrue && r.Target == "" {
		return false
	}
	if w.Version != "" || latest == "" || !r.Knows() || r.Checked.After(since) || r.Target == latest || r.Version == latest {
		return false
	}
	return !same(r.Target, latest) && !same(r.Version, latest) // To read versions costs more than all of the above.
}

// Unoffered reports whether a host that is updated does not run what a rollout brings its hosts to: it has nothing to offer. Where versions
// have no name that is not known.
func Unoffered(r *Report, revision string) bool {
	return revision != "" && !strings.HasPrefix(revision, numbered) && !same(r.Version, revision)
}

// Unoffered reports whether it is not known that an outdated host has what it is to be brought to.
func (v *Verdict) Unoffered() bool {
	return v.Reason == v1alpha1.ReasonHostSilent || v.Reason == v1alpha1.ReasonHostError || v.Reason == v1alpha1.ReasonVersionNotOffered
}

// age judges a host that has what it is to be brought to by how long that has been known.
func (w *Wish) age(r *Report, now time.Time) Verdict {
	v := Verdict{State: v1alpha1.UnitOutdated, Version: r.Target}
	if w.MinimumAge <= 0 || w.Version != "" {
		return v
	}
	if r.Target == "" {
		return waits(v1alpha1.ReasonReleaseTooYoung, "", "the host has an update without a name, so that nobody knows for how long it has been there; minimumAge is "+w.MinimumAge.String())
	}
	since, known := w.Releases[r.Target]
	if !known {
		since = w.unlisted(now)
	}
	if end := since.Add(w.MinimumAge); now.Before(end) {
		v = waits(v1alpha1.ReasonReleaseTooYoung, r.Target, fmt.Sprintf("%s has been known since %s, and minimumAge is %s: not before %s",
			r.Target, since.UTC().Format(time.RFC3339), w.MinimumAge, end.UTC().Format(time.RFC3339)))
		v.RetryAt = end
	}
	return v
}

// unlisted is since when a version counts as known for which there was no room among the releases: since the last of those was.
func (w *Wish) unlisted(now time.Time) time.Time {
	if len(w.Releases) < v1alpha1.MaxListedReleases {
		return now
	}
	var last time.Time
	for _, since := range w.Releases {
		if since.After(last) {
			last = since
		}
	}
	return last
}

func waits(reason v1alpha1.Reason, version, message string) Verdict {
	return Verdict{State: v1alpha1.UnitOutdated, Reason: reason, Version: version, Message: message}
}

// failure is what the agent says of an action that failed.
func (r *Report) failure() string {
	if r.Error != "" {
		return r.Error
	}
	if r.Active == "" || r.Active == v1alpha1.HostActionUnknown || r.Active == v1alpha1.HostActionStabilize {
		return "the host's agent could not find out whether there is an update, and does not say why"
	}
	return fmt.Sprintf("the host's agent says that %s has failed, and does not say why", r.Active)
}

// silence says what an agent was asked that has not said whether there is an update.
func (r *Report) silence() string {
	switch {
	case r.Fresh():
		return "the host's agent has not been asked yet whether there is an update"
	case r.Wanted != r.Active:
		return fmt.Sprintf("the host's agent has not taken up %s: does it run on the node?", r.Wanted)
	case r.State == v1alpha1.HostStateBusy:
		return fmt.Sprintf("the host's agent is busy with %s", r.Active)
	}
	return fmt.Sprintf("the host's agent has ended %s, and has not said whether there is an update", r.Active)
}

func (r *Report) runs() string {
	if r.Version == "" {
		return ""
	}
	return "runs " + r.Version + " and "
}

func (r *Report) offers() string {
	switch {
	case r.Update != v1alpha1.HostUpdateTrue:
		return "has no update to offer"
	case r.Target == "":
		return "has an update to offer whose version its agent does not name"
	}
	return "has " + r.Target + " to offer"
}
