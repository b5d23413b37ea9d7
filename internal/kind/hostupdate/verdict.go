// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Verdict is what a rollout wants of one host.
type Verdict struct {
	// State is Outdated or Updated.
	State v1alpha1.UnitState
	// Reason and Message say why an outdated host may not be updated now.
	Reason  v1alpha1.Reason
	Message string
	// Version is the version that the host would get; empty if the version has no name or is not known.
	Version string
	// Back is true when the host gets the version by its other partitions.
	Back bool
	// RetryAt is when the clock alone changes the verdict.
	RetryAt time.Time
}

// verdict says whether a host must be updated.
func (w *World) verdict(r *Report) Verdict {
	pin := w.Host.Version
	switch {
	case pin != "" && sameVersion(r.Version, pin):
		return Verdict{State: v1alpha1.UnitUpdated, Version: pin}
	case w.goesBack(r): // Also where its agent can't look for updates.
		return Verdict{State: v1alpha1.UnitOutdated, Version: pin, Back: true}
	case pin == "" && r.State == v1alpha1.HostStateError && !r.Checked.IsZero() && (sameVersion(r.Version, w.Revision) || r.Update == v1alpha1.HostUpdateFalse):
		// It remains updated although its agent fails to look for updates: it runs the revision, or offered none in its last answer. Otherwise a broken
		// update server would send the canary on from host to host.
		return Verdict{State: v1alpha1.UnitUpdated, Version: r.Version}
	case r.State == v1alpha1.HostStateError:
		return waits(v1alpha1.ReasonHostError, pin, r.said())
	case r.Knows() && r.Update == v1alpha1.HostUpdateFalse && pin == "":
		return Verdict{State: v1alpha1.UnitUpdated, Version: r.Version}
	case !r.Knows():
		return waits(v1alpha1.ReasonHostSilent, pin, r.silence())
	case pin != "" && (r.Update == v1alpha1.HostUpdateFalse || !sameVersion(r.Target, pin)):
		return waits(v1alpha1.ReasonVersionNotOffered, pin, "the host "+r.runs()+r.offers()+"; the rollout wants "+pin)
	case w.Host.DetectOnly:
		return waits(v1alpha1.ReasonDetectOnly, r.Target, "the host "+r.runs()+r.offers()+"; spec.hostUpdate.detectOnly keeps it from being updated")
	}
	return w.age(r)
}

// newestRelease returns the version that was discovered last, and when. If several were discovered together, it is the newest of them.
func newestRelease(releases []v1alpha1.HostRelease) (version string, since time.Time) {
	if len(releases) == 0 {
		return "", since
	}
	newest := slices.MaxFunc(releases, func(a, b v1alpha1.HostRelease) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), CompareVersions(a.Version, b.Version))
	})
	return newest.Version, newest.Since.Time
}

// isOvertaken reports whether a host answered before the newest release was discovered, and may offer that release by now. It is false for
// hosts whose versions have no name, and for agents that do not report when they checked.
func (w *World) isOvertaken(r *Report) bool {
	hasNames := r.Version != "" && (r.Target != "" || r.Update != v1alpha1.HostUpdateTrue)
	if !hasNames || r.Checked.IsZero() || r.Checked.After(w.newestSince) || !r.Knows() || w.Host.Version != "" || w.newest == "" {
		return false
	}
	return !sameVersion(r.Target, w.newest) && !sameVersion(r.Version, w.newest)
}

// unoffered are the reasons of outdated hosts that are not known to offer the version.
var unoffered = []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostError, v1alpha1.ReasonVersionNotOffered}

// age judges a host that offers the version, by minimumAge. A version that is not among the releases counts as new.
func (w *World) age(r *Report) Verdict {
	v := Verdict{State: v1alpha1.UnitOutdated, Version: r.Target}
	least := w.Host.MinimumAge
	if least == nil || least.Duration <= 0 || w.Host.Version != "" {
		return v
	}
	if r.Target == "" {
		return waits(v1alpha1.ReasonReleaseTooYoung, "", "the host has an update without a name, so its age is unknown; minimumAge is "+least.Duration.String())
	}
	since := w.Now
	if i := slices.IndexFunc(w.Releases, func(known v1alpha1.HostRelease) bool { return known.Version == r.Target }); i >= 0 {
		since = w.Releases[i].Since.Time
	}
	if end := since.Add(least.Duration); w.Now.Before(end) {
		v = waits(v1alpha1.ReasonReleaseTooYoung, r.Target, fmt.Sprintf("%s has been known since %s, and minimumAge is %s: not before %s",
			r.Target, since.UTC().Format(time.RFC3339), least.Duration, end.UTC().Format(time.RFC3339)))
		v.RetryAt = end
	}
	return v
}

func waits(reason v1alpha1.Reason, version, message string) Verdict {
	return Verdict{State: v1alpha1.UnitOutdated, Reason: reason, Version: version, Message: message}
}

// silence says why it is not known whether there is an update.
func (r *Report) silence() string {
	switch {
	case r.MustBeAsked():
		return "the host's agent has not been asked yet whether there is an update"
	case r.Wanted != r.Active:
		return "the host's agent has not answered " + string(r.Wanted) + ": does it run on the node?"
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
		return "offers an update, and its agent does not name the version"
	}
	return "has " + r.Target + " to offer"
}
