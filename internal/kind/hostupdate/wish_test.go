// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Hosts that have looked for updates.
func found(version, target string) Report {
	r := Report{Wanted: "stabilize", Active: "stabilize", State: "ready", Update: "false", Version: version}
	if target != "" {
		r.Update, r.Target = "true", target
	}
	return r
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	unnamed := found("", "x")
	unnamed.Target = ""
	failed := found("1.0.0", "1.1.0")
	failed.State, failed.Error = "error", "the repository is away"
	mute := failed
	mute.Error = ""
	asked := Report{Wanted: "stabilize", Active: "unknown", State: "unknown", Update: "unknown", Version: "1.0.0"}
	busy := Report{Wanted: "stabilize", Active: "stabilize", State: "busy", Update: "unknown"}
	vague := Report{Wanted: "stabilize", Active: "stabilize", State: "ready", Update: "unknown"}
	known := map[string]time.Time{"1.1.0": now.Add(-time.Hour)}
	full := map[string]time.Time{}
	for i := range v1alpha1.MaxListedReleases {
		full[fmt.Sprintf("2.%d.0", i)] = now.Add(-time.Duration(i+1) * time.Hour)
	}
	silent := func(message string) Verdict {
		return Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostSilent, Message: message}
	}
	for _, tc := range []struct {
		name string
		wish Wish
		host Report
		want Verdict
	}{
		{"newest, and there is one", Wish{}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"newest, and there is none", Wish{}, found("1.1.0", ""), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"newest without a name", Wish{}, unnamed, Verdict{State: v1alpha1.UnitOutdated}},
		{"not asked yet", Wish{}, Report{}, silent("the host's agent has not been asked yet whether there is an update")},
		{"asked", Wish{}, asked, silent("the host's agent has not taken up stabilize: does it run on the node?")},
		{"asked, and it runs the newest that is known", Wish{Releases: map[string]time.Time{"1.0.0": now, "0.9.0": now}}, asked, Verdict{State: v1alpha1.UnitUpdated, Version: "1.0.0"}},
		{"asked, and another is known", Wish{Releases: map[string]time.Time{"1.0.0": now, "1.1.0": now}}, asked, silent("the host's agent has not taken up stabilize: does it run on the node?")},
		{"busy", Wish{}, busy, silent("the host's agent is busy with stabilize")},
		{"it does not say", Wish{}, vague, silent("the host's agent has ended stabilize, and has not said whether there is an update")},
		{"in the middle of something", Wish{}, Report{Wanted: "prepare-update", Active: "prepare-update", State: "busy", Update: "true", Target: "1.1.0"}, silent("the host's agent is busy with prepare-update")},
		{"the agent failed", Wish{}, failed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostError, Message: "the repository is away"}},
		{"and does not say why", Wish{}, mute, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostError,
			Message: "the host's agent could not find out whether there is an update, and does not say why"}},
		{"detect only", Wish{DetectOnly: true}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonDetectOnly, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has 1.1.0 to offer; spec.hostUpdate.detectOnly leaves it at that"}},
		{"detect only, and there is none", Wish{DetectOnly: true}, found("1.1.0", ""), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"pinned, and it is offered", Wish{Version: "v1.1.0"}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"pinned to one below", Wish{Version: "1.0.0"}, found("1.2.0", "1.0.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.0.0"}},
		{"pinned, and it runs", Wish{Version: "1.1.0"}, found("1.1.0", "1.2.0"), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"pinned, and it runs, though the agent failed", Wish{Version: "1.0.0"}, failed, Verdict{State: v1alpha1.UnitUpdated, Version: "1.0.0"}},
		{"pinned, and another is offered", Wish{Version: "1.1.0"}, found("1.0.0", "1.2.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has 1.2.0 to offer, and is to be brought to 1.1.0"}},
		{"pinned, and none is offered", Wish{Version: "1.1.0"}, found("1.0.0", ""), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has no update to offer, and is to be brought to 1.1.0"}},
		{"pinned, and nobody names what is offered", Wish{Version: "1.1.0"}, unnamed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host has an update to offer whose version its agent does not name, and is to be brought to 1.1.0"}},
		{"old enough", Wish{MinimumAge: time.Hour, Releases: known}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"too young", Wish{MinimumAge: 2 * time.Hour, Releases: known}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung, Version: "1.1.0",
			Message: "1.1.0 has been known since 2026-11-20T11:00:00Z, and minimumAge is 2h0m0s: not before 2026-11-20T13:00:00Z", RetryAt: now.Add(time.Hour)}},
		{"found this moment", Wish{MinimumAge: time.Hour}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung, Version: "1.1.0",
			Message: "1.1.0 has been known since 2026-11-20T12:00:00Z, and minimumAge is 1h0m0s: not before 2026-11-20T13:00:00Z", RetryAt: now.Add(time.Hour)}},
		{"no room for it among the releases, and old enough", Wish{MinimumAge: time.Hour, Releases: full}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"of unknown age", Wish{MinimumAge: time.Hour}, unnamed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung,
			Message: "the host has an update without a name, so that nobody knows for how long it has been there; minimumAge is 1h0m0s"}},
	} {
		if diff := cmp.Diff(tc.want, tc.wish.Judge(&tc.host, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestWishOf(t *testing.T) {
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	got := WishOf(&v1alpha1.HostUpdate{DetectOnly: true, MinimumAge: &metav1.Duration{Duration: time.Hour}}, []v1alpha1.HostRelease{{Version: "1.1.0", Since: metav1.Time{Time: since}}})
	want := Wish{DetectOnly: true, MinimumAge: time.Hour, Releases: map[string]time.Time{"1.1.0": since}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRevision(t *testing.T) {
	needs := found("", "x")
	needs.Target = ""
	for _, tc := range []struct {
		name    string
		version string
		hosts   []Report
		before  string
		updated bool
		want    string
	}{
		{"pinned", "1.5.0", []Report{found("1.0.0", "2.0.0")}, "", false, "1.5.0"},
		{"the newest that is offered", "", []Report{found("1.0.0", "1.1.0"), found("1.0.5", "1.0.6")}, "1.0.0", false, "1.1.0"},
		{"the newest that runs", "", []Report{found("1.10.0", ""), found("1.9.0", "")}, "", false, "1.10.0"},
		{"no hosts", "", nil, "", true, ""},
		{"no hosts any more", "", nil, "1.0.0", true, ""},
		{"no hosts for a while", "", nil, "reboot-2", true, "reboot-2"},
		{"nothing is needed", "", []Report{found("", "")}, "", false, "reboot-0"},
		{"the first time", "", []Report{found("", ""), needs}, "", false, "reboot-1"},
		{"the first time that is seen", "", []Report{needs}, "reboot-0", true, "reboot-1"},
		{"while it goes on", "", []Report{needs}, "reboot-1", false, "reboot-1"},
		{"once it is done", "", []Report{found("", "")}, "reboot-1", true, "reboot-1"},
		{"the second time", "", []Report{needs}, "reboot-1", true, "reboot-2"},
		{"some are to go back", "", []Report{found("1.1.0", "1.0.0"), found("1.1.0", "")}, "1.1.0", true, "1.0.0"},
		{"some to one version, and some to another", "", []Report{found("1.1.0", "0.9.0"), found("1.1.0", "1.0.0")}, "1.1.0", true, "1.0.0"},
		{"some are back", "", []Report{found("1.1.0", "1.0.0"), found("1.0.0", "")}, "1.0.0", false, "1.0.0"},
		{"all are back", "", []Report{found("1.0.0", ""), found("1.0.0", "")}, "1.0.0", false, "1.0.0"},
		{"some are to go back, and some further", "", []Report{found("1.1.0", "1.0.0"), found("1.1.0", "1.2.0")}, "1.1.0", false, "1.2.0"},
		{"what is older for others is no way back", "", []Report{found("1.1.0", ""), found("0.9.0", "1.0.0")}, "1.1.0", false, "1.1.0"},
		{"after versions with names", "", []Report{needs}, "1.0.0", false, "reboot-1"},
	} {
		hosts := make([]*Report, len(tc.hosts))
		for i := range tc.hosts {
			hosts[i] = &tc.hosts[i]
		}
		w := Wish{Version: tc.version}
		if got := w.Revision(slices.Values(hosts), tc.before, tc.updated); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestLatest(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := Wish{}
	if version, _ := w.Latest(); version != "" {
		t.Errorf("of none it is %s", version)
	}
	w.Releases = map[string]time.Time{"1.2.0": now.Add(-time.Hour), "1.0.0": now, "1.1.0": now, "0.9.0": now.Add(-time.Minute)}
	if version, since := w.Latest(); version != "1.1.0" || !since.Equal(now) {
		t.Errorf("it is %s since %s", version, since)
	}
}

func TestOvertaken(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(r Report, checked time.Time) Report {
		r.Checked = checked
		return r
	}
	busy := found("1.0.0", "")
	busy.State = "busy"
	nameless, something := found("", ""), found("1.0.0", "")
	something.Update = v1alpha1.HostUpdateTrue
	for _, tc := range []struct {
		name   string
		pinned string
		host   Report
		want   bool
	}{
		{"nothing to offer", "", at(found("1.0.0", ""), now.Add(-time.Minute)), true},
		{"nobody knows when it looked", "", found("1.0.0", ""), true},
		{"it looked in the same second", "", at(found("1.0.0", ""), now), true},
		{"it has looked since", "", at(found("1.0.0", ""), now.Add(time.Second)), false},
		{"it offers another", "", found("1.0.0", "1.0.5"), true},
		{"it offers that one", "", found("1.0.0", "1.1.0"), false},
		{"it runs that one", "", found("1.1.0", ""), false},
		{"it runs a newer one", "", found("1.2.0", ""), true},
		{"it is looking", "", busy, false},
		{"nobody says what it runs", "", nameless, false},
		{"it offers something", "", something, false},
		{"pinned", "1.0.0", found("1.0.0", ""), false},
	} {
		w := Wish{Version: tc.pinned}
		if got := w.Overtaken(&tc.host, "1.1.0", now); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		if w.Overtaken(&tc.host, "", time.Time{}) {
			t.Errorf("%s, by none", tc.name)
		}
	}
}

// It is asked about each host in each look: of one that runs or offers that version no version is read.
func TestOvertakenIsCheap(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var w Wish
	for name, r := range map[string]Report{"outdated": found("1.0.0", "1.1.0"), "updated": found("1.1.0", ""), "on its way back": found("1.1.0", "1.0.0")} {
		if n := testing.AllocsPerRun(100, func() { w.Overtaken(&r, "1.1.0", now) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestUnoffered(t *testing.T) {
	for _, tc := range []struct {
		name, runs, revision string
		want                 bool
	}{
		{"it runs it", "v1.1.0", "1.1.0", false},
		{"it runs another", "1.0.0", "1.1.0", true},
		{"nobody says what it runs", "", "1.1.0", true},
		{"without names", "", "reboot-2", false},
		{"no hosts", "1.0.0", "", false},
	} {
		r := found(tc.runs, "")
		if got := Unoffered(&r, tc.revision); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestRevisionOf(t *testing.T) {
	for _, tc := range [][3]string{ // version, the rollout's revision, the claim's
		{"1.1.0", "1.2.0", "1.1.0"},
		{"", "reboot-3", "reboot-3"},
		{"", "1.2.0", "reboot-1.2.0"},
		{"", "", "reboot-update"},
	} {
		revision := RevisionOf(tc[0], tc[1])
		if revision != tc[2] || VersionOf(&v1alpha1.Claim{Revision: revision}) != tc[0] {
			t.Errorf("%q of %q is %q, which is version %q", tc[0], tc[1], revision, VersionOf(&v1alpha1.Claim{Revision: revision}))
		}
	}
}
