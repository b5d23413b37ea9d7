// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Hosts that have looked for updates.
func found(version, target string) Report {
	r := Report{Wanted: "stabilize", Active: "stabilize", State: "ready", Update: "false", Version: version}
	if target != "" {
		r.Update, r.Target = "true", target
	}
	return r
}

// wanted is what a rollout wants of hosts, and since when releases are known.
type wanted struct {
	Version    string
	DetectOnly bool
	MinimumAge time.Duration
	Releases   map[string]time.Time
}

func (w wanted) world(now time.Time) *World {
	made := &World{Now: now, Host: v1alpha1.HostUpdate{Version: w.Version, DetectOnly: w.DetectOnly, MinimumAge: &metav1.Duration{Duration: w.MinimumAge}}}
	for version, since := range w.Releases {
		made.Releases = append(made.Releases, v1alpha1.HostRelease{Version: version, Since: metav1.Time{Time: since}})
	}
	return made
}

func TestVerdict(t *testing.T) {
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
	silent := func(message string) Verdict {
		return Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostSilent, Message: message}
	}
	for _, tc := range []struct {
		name string
		wish wanted
		host Report
		want Verdict
	}{
		{"newest, and there is one", wanted{}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"newest, and there is none", wanted{}, found("1.1.0", ""), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"newest without a name", wanted{}, unnamed, Verdict{State: v1alpha1.UnitOutdated}},
		{"not asked yet", wanted{}, Report{}, silent("the host's agent has not been asked yet whether there is an update")},
		{"asked", wanted{}, asked, silent("the host's agent has not answered stabilize: does it run on the node?")},
		{"busy", wanted{}, busy, silent("the host's agent is busy with stabilize")},
		{"it does not say", wanted{}, vague, silent("the host's agent has ended stabilize, and has not said whether there is an update")},
		{"in the middle of something", wanted{}, Report{Wanted: "prepare-update", Active: "prepare-update", State: "busy", Update: "true", Target: "1.1.0"}, silent("the host's agent is busy with prepare-update")},
		{"the agent failed", wanted{}, failed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostError, Message: "the repository is away"}},
		{"and does not say why", wanted{}, mute, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonHostError,
			Message: "the host's agent does not say why"}},
		{"detect only", wanted{DetectOnly: true}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonDetectOnly, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has 1.1.0 to offer; spec.hostUpdate.detectOnly keeps it from being updated"}},
		{"detect only, and there is none", wanted{DetectOnly: true}, found("1.1.0", ""), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"pinned, and it is offered", wanted{Version: "v1.1.0"}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"pinned to one below", wanted{Version: "1.0.0"}, found("1.2.0", "1.0.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.0.0"}},
		{"pinned, and it runs", wanted{Version: "1.1.0"}, found("1.1.0", "1.2.0"), Verdict{State: v1alpha1.UnitUpdated, Version: "1.1.0"}},
		{"pinned, and it runs, though the agent failed", wanted{Version: "1.0.0"}, failed, Verdict{State: v1alpha1.UnitUpdated, Version: "1.0.0"}},
		{"pinned, and another is offered", wanted{Version: "1.1.0"}, found("1.0.0", "1.2.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has 1.2.0 to offer; the rollout wants 1.1.0"}},
		{"pinned, and none is offered", wanted{Version: "1.1.0"}, found("1.0.0", ""), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host runs 1.0.0 and has no update to offer; the rollout wants 1.1.0"}},
		{"pinned, and no one names what is offered", wanted{Version: "1.1.0"}, unnamed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonVersionNotOffered, Version: "1.1.0",
			Message: "the host offers an update, and its agent does not name the version; the rollout wants 1.1.0"}},
		{"old enough", wanted{MinimumAge: time.Hour, Releases: known}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Version: "1.1.0"}},
		{"too young", wanted{MinimumAge: 2 * time.Hour, Releases: known}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung, Version: "1.1.0",
			Message: "1.1.0 has been known since 2026-11-20T11:00:00Z, and minimumAge is 2h0m0s: not before 2026-11-20T13:00:00Z", RetryAt: now.Add(time.Hour)}},
		{"found this moment", wanted{MinimumAge: time.Hour}, found("1.0.0", "1.1.0"), Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung, Version: "1.1.0",
			Message: "1.1.0 has been known since 2026-11-20T12:00:00Z, and minimumAge is 1h0m0s: not before 2026-11-20T13:00:00Z", RetryAt: now.Add(time.Hour)}},
		{"of unknown age", wanted{MinimumAge: time.Hour}, unnamed, Verdict{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonReleaseTooYoung,
			Message: "the host has an update without a name, so its age is unknown; minimumAge is 1h0m0s"}},
	} {
		if diff := cmp.Diff(tc.want, tc.wish.world(now).verdict(&tc.host)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A host that was updated stays so while its agent fails to look for updates.
func TestVerdictOfAFailedLook(t *testing.T) {
	w := &World{Revision: "1.1.0"}
	for name, tc := range map[string]struct {
		version, update string
		checked         bool
		want            v1alpha1.UnitState
	}{
		"runs the revision":             {"1.1.0", "true", true, v1alpha1.UnitUpdated},
		"has never looked":              {"1.1.0", "true", false, v1alpha1.UnitOutdated},
		"runs another":                  {"1.0.0", "true", true, v1alpha1.UnitOutdated},
		"needed no reboot, has no name": {"", "false", true, v1alpha1.UnitUpdated},
	} {
		r := Report{Wanted: "stabilize", Active: "stabilize", State: "error", Version: tc.version, Update: tc.update}
		if tc.checked {
			r.Checked = time.Now()
		}
		if got := w.verdict(&r).State; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The number of the revision also grows while the turn of a host has failed, and that host is tried again then.
func TestRevisionAfterAFailure(t *testing.T) {
	node := func(name, update string) *corev1.Node {
		p := v1alpha1.HostProtocols[2]
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{p.InterfaceLabel: "sentinel"}, Annotations: map[string]string{
			p.Wanted: "stabilize", p.Active: "stabilize", p.State: "ready", p.Update: update,
		}}}
	}
	nr := &v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}}}
	nr.UID, nr.Status.Revision, nr.Status.Counts = "own", "reboot-1", &v1alpha1.UnitCounts{Total: 2, Updated: 1, Failed: 1}
	for update, want := range map[string]v1alpha1.UnitState{"false": v1alpha1.UnitFailed, "true": v1alpha1.UnitOutdated} {
		w, err := NewWorld(nr, nil)
		if err != nil {
			t.Fatal(err)
		}
		failed, other := node("failed", "true"), node("other", update)
		w.Revision = "reboot-1"
		claim := v1alpha1.Claim{UID: nr.UID, Revision: "reboot-1", Attempt: w.attempt(failed, ""), Failed: &v1alpha1.ClaimFailure{Skipped: true}}
		w.Fleet.Nodes = map[string]*rollout.Node{"failed": {Claims: []v1alpha1.Claim{claim}}}
		units := w.Units([]*corev1.Node{failed, other})
		if got := units[0].Unit.State; got != want || (w.Revision == "reboot-2") != (update == "true") {
			t.Errorf("another that says %s: %s, revision %s", update, got, w.Revision)
		}
	}
}

func TestRevision(t *testing.T) {
	needs := found("", "x")
	needs.Target = ""
	for _, tc := range []struct {
		name    string
		hosts   []Report
		before  string
		updated bool
		want    string
		turns   []string
	}{
		{"the newest that is offered", []Report{found("1.0.0", "1.1.0"), found("1.0.5", "1.0.6")}, "1.0.0", false, "1.1.0", nil},
		{"the newest that runs", []Report{found("1.10.0", ""), found("1.9.0", "")}, "", false, "1.10.0", nil},
		{"no hosts", nil, "", true, "", nil},
		{"no hosts any more", nil, "1.0.0", true, "", nil},
		{"no hosts for a while", nil, "reboot-2", true, "reboot-2", nil},
		{"nothing is needed", []Report{found("", "")}, "", false, "reboot-0", nil},
		{"the first time", []Report{found("", ""), needs}, "", false, "reboot-1", nil},
		{"the first time that is seen", []Report{needs}, "reboot-0", true, "reboot-1", nil},
		{"while it goes on", []Report{needs}, "reboot-1", false, "reboot-1", nil},
		{"once it is done", []Report{found("", "")}, "reboot-1", true, "reboot-1", nil},
		{"the second time", []Report{needs}, "reboot-1", true, "reboot-2", nil},
		{"some are to go back", []Report{found("1.1.0", "1.0.0"), found("1.1.0", "")}, "1.1.0", true, "1.0.0", nil},
		{"some to one version, and some to another", []Report{found("1.1.0", "0.9.0"), found("1.1.0", "1.0.0")}, "1.1.0", true, "1.0.0", nil},
		{"some are back", []Report{found("1.1.0", "1.0.0"), found("1.0.0", "")}, "1.0.0", false, "1.0.0", nil},
		{"all are back", []Report{found("1.0.0", ""), found("1.0.0", "")}, "1.0.0", false, "1.0.0", nil},
		{"some are to go back, and some further", []Report{found("1.1.0", "1.0.0"), found("1.1.0", "1.2.0")}, "1.1.0", false, "1.2.0", nil},
		{"what is older for others is no way back", []Report{found("1.1.0", ""), found("0.9.0", "1.0.0")}, "1.1.0", false, "1.1.0", nil},
		{"a turn has begun since the status was written", []Report{needs}, "reboot-1", true, "reboot-2", []string{"reboot-2"}},
		{"a turn goes on", []Report{needs}, "reboot-1", true, "reboot-1", []string{"reboot-1"}},
		{"after versions with names", []Report{needs}, "1.0.0", false, "reboot-1", nil},
	} {
		hosts := make([]*Report, len(tc.hosts))
		for i := range tc.hosts {
			hosts[i] = &tc.hosts[i]
		}
		if got := revisionOf(hosts, tc.before, slices.ContainsFunc(hosts, func(r *Report) bool { return r.Update == v1alpha1.HostUpdateTrue }), tc.updated, tc.turns); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestLatest(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if version, _ := newestRelease(nil); version != "" {
		t.Errorf("of none it is %s", version)
	}
	known := map[string]time.Time{"1.2.0": now.Add(-time.Hour), "1.0.0": now, "1.1.0": now, "0.9.0": now.Add(-time.Minute)}
	if version, since := newestRelease(wanted{Releases: known}.world(now).Releases); version != "1.1.0" || !since.Equal(now) {
		t.Errorf("it is %s since %s", version, since)
	}
}

func TestOvertaken(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(r Report, checked time.Time) Report {
		r.Checked = checked
		return r
	}
	busy := at(found("1.0.0", ""), now.Add(-time.Minute))
	busy.State = "busy"
	nameless, something := at(found("", ""), now), at(found("1.0.0", ""), now)
	something.Update = v1alpha1.HostUpdateTrue
	for _, tc := range []struct {
		name   string
		pinned string
		host   Report
		want   bool
	}{
		{"nothing to offer", "", at(found("1.0.0", ""), now.Add(-time.Minute)), true},
		{"no one knows when it looked", "", found("1.0.0", ""), false},
		{"it looked in the same second", "", at(found("1.0.0", ""), now), true},
		{"it has looked since", "", at(found("1.0.0", ""), now.Add(time.Second)), false},
		{"it offers another", "", at(found("1.0.0", "1.0.5"), now), true},
		{"it offers that one", "", at(found("1.0.0", "1.1.0"), now), false},
		{"it runs that one", "", at(found("1.1.0", ""), now), false},
		{"it runs a newer one", "", at(found("1.2.0", ""), now), true},
		{"it is looking", "", busy, false},
		{"no one says what it runs", "", nameless, false},
		{"it offers something", "", something, false},
		{"pinned", "1.0.0", at(found("1.0.0", ""), now), false},
	} {
		w := wanted{Version: tc.pinned}.world(now)
		w.newest, w.newestSince = "1.1.0", now
		if got := w.isOvertaken(&tc.host); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		if w.newest = ""; w.isOvertaken(&tc.host) {
			t.Errorf("%s, by none", tc.name)
		}
	}
}

// It is asked about each host in each look: of one that runs or offers that version no version is read.
func TestOvertakenIsCheap(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := World{newest: "1.1.0", newestSince: now}
	for name, r := range map[string]Report{"outdated": found("1.0.0", "1.1.0"), "updated": found("1.1.0", ""), "on its way back": found("1.1.0", "1.0.0")} {
		if n := testing.AllocsPerRun(100, func() { w.isOvertaken(&r) }); n > 0 {
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
		{"no one says what it runs", "", "1.1.0", true},
		{"without names", "", "reboot-2", false},
		{"no hosts", "1.0.0", "", false},
	} {
		w := World{Revision: tc.revision}
		if got := w.RunsAnotherVersion(&Unit{Report: found(tc.runs, "")}); got != tc.want {
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
