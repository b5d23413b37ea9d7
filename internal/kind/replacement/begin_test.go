// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/rollout"
)

func TestJudgeNode(t *testing.T) {
	failure := &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "no", Time: metav1.Time{Time: now.Add(-time.Minute)}}
	type want struct {
		State   v1alpha1.UnitState
		Reason  v1alpha1.Reason
		Step    Step
		Counted bool
	}
	for name, tc := range map[string]struct {
		node   string
		change func(*scene)
		want   want
	}{
		"outdated":     {"n-old", func(*scene) {}, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"up to date":   {"n-other", func(*scene) {}, want{v1alpha1.UnitUpdated, "", StepNone, true}},
		"OS image":     {"n-other", func(s *scene) { s.MatchOSImage = true; s.Nodes["n-other"].Status.NodeInfo.OSImage = "one" }, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"no OS image":  {"n-old", func(s *scene) { s.MatchOSImage = true; s.Nodes["n-old"].Status.NodeInfo.OSImage = "" }, want{v1alpha1.UnitUpdated, "", StepNone, true}},
		"stranger":     {"n-other", func(s *scene) { s.Nodes["n-other"].Spec.ProviderID = "sky://elsewhere" }, want{v1alpha1.UnitOutdated, "", StepNone, false}},
		"other set":    {"n-old", func(s *scene) { s.ScaleSets = []string{"others"} }, want{v1alpha1.UnitOutdated, "", StepNone, false}},
		"not selected": {"n-old", func(s *scene) { s.Nodes["n-old"].Selected = false }, want{v1alpha1.UnitOutdated, "", StepNone, false}},
		"detect only":  {"n-old", func(s *scene) { s.DetectOnly = true }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonDetectOnly, StepNone, true}},
		"unfit":        {"n-old", func(s *scene) { s.set.Unfit = "it rolls by itself" }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonScaleSetUnfit, StepNone, true}},
		"denied":       {"n-old", func(s *scene) { s.set.Reason = v1alpha1.ReasonCloudDenied }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonCloudDenied, StepNone, true}},
		"blind":        {"n-old", func(s *scene) { s.Unreadable = v1alpha1.ReasonCloudDenied }, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"blind, waves": {"n-old", func(s *scene) {
			s.Unreadable, s.Strategy = v1alpha1.ReasonCloudDenied, &v1alpha1.Strategy{Waves: make([]v1alpha1.Wave, 1)}
		}, want{v1alpha1.UnitOutdated, v1alpha1.ReasonCloudDenied, StepNone, true}},
		"busy":       {"n-old", func(s *scene) { s.set.Busy = "updating" }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonScaleSetBusy, StepNone, true}},
		"busy by us": {"n-old", func(s *scene) { s.set.Busy = "updating"; s.set.Operations = make([]v1alpha1.CloudOperation, 1) }, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"just added": {"n-old", func(s *scene) {
			s.machine("old").Created = now
			s.set.Operations = []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationAdd, Since: metav1.Time{Time: now.Add(-time.Minute)}}}
		}, want{v1alpha1.UnitOutdated, v1alpha1.ReasonScaleSetBusy, StepNone, true}},
		"duplicate":            {"n-old", func(s *scene) { s.double("old") }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonMachineUnknown, StepNone, true}},
		"protected":            {"n-old", func(s *scene) { s.machine("old").Protected = true }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonMachineProtected, StepNone, true}},
		"set aside":            {"n-old", func(s *scene) { s.aside() }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonMachineProtected, StepNone, true}},
		"control plane":        {"n-old", func(s *scene) { s.labels("node-role.kubernetes.io/control-plane") }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonMachineProtected, StepNone, true}},
		"control plane, known": {"n-old", func(s *scene) { s.labels("node-role.kubernetes.io/master"); s.ControlPlane = true }, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"going":                {"n-old", func(s *scene) { s.machine("old").State = cloud.Deleting }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonScaleSetBusy, StepNone, true}},
		"full":                 {"n-old", func(s *scene) { s.set.Max = 4 }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonScaleSetFull, StepNone, true}},
		"no quota":             {"n-old", func(s *scene) { s.set.NoRoom = v1alpha1.ReasonCloudQuota }, want{v1alpha1.UnitOutdated, v1alpha1.ReasonCloudQuota, StepNone, true}},
		"marked":               {"n-old", func(s *scene) { s.Nodes["n-old"].Marked = true }, want{v1alpha1.UnitOutdated, "", StepRelease, true}},
		"unreadable":           {"n-old", func(s *scene) { s.Nodes["n-old"].Marked, s.Nodes["n-old"].Unreadable = true, true }, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"shielded":             {"n-other", func(s *scene) { s.Nodes["n-other"].NoScaleDown = true }, want{v1alpha1.UnitUpdated, "", StepRelease, true}},
		"claimed":              {"n-old", func(s *scene) { s.claim(func(*v1alpha1.Claim) {}) }, want{v1alpha1.UnitOutdated, "", StepRelease, true}},
		"failed":               {"n-old", func(s *scene) { s.claim(func(c *v1alpha1.Claim) { c.Failed = failure }) }, want{v1alpha1.UnitFailed, v1alpha1.ReasonReplacementFailed, StepNone, true}},
		"failed for something else": {"n-old", func(s *scene) {
			s.claim(func(c *v1alpha1.Claim) { c.Failed, c.Attempt = failure, "1" })
		}, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"tried again": {"n-old", func(s *scene) {
			s.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3, Backoff: &metav1.Duration{Duration: time.Second}}}
			s.claim(func(c *v1alpha1.Claim) { c.Failed, c.Failures = failure, 1 })
		}, want{v1alpha1.UnitOutdated, "", StepNone, true}},
		"failed, and image back": {"n-old", func(s *scene) {
			s.machine("old").UpToDate = true
			s.claim(func(c *v1alpha1.Claim) { c.Failed = failure })
		}, want{v1alpha1.UnitUpdated, "", StepRelease, true}},
		"failed, and over": {"n-old", func(s *scene) { s.Ending = true; s.claim(func(c *v1alpha1.Claim) { c.Failed = failure }) }, want{v1alpha1.UnitOutdated, "", StepRelease, true}},
	} {
		s := newScene(v1alpha1.MachineAdding)
		tc.change(s)
		p := s.JudgeNode(s.Nodes[tc.node], s.Rooms(nil))
		if diff := cmp.Diff(tc.want, want{p.Unit.State, p.Unit.Reason, p.Step, p.Counted}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A failed turn uses no budget, so the next one must ask for it: when it begins, and when it claims the node.
func TestFailedIsNotClaimed(t *testing.T) {
	s := newScene(v1alpha1.MachineClaiming)
	s.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 3, Backoff: &metav1.Duration{Duration: time.Second}}}
	s.claim(func(c *v1alpha1.Claim) {
		c.Machine, c.Failures = "old", 1
		c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Time: metav1.Time{Time: now.Add(-time.Minute)}}
	})
	p := s.JudgeNode(s.Nodes["n-old"], s.Rooms(nil))
	s.Judge([]*Turn{s.turn})
	if p.Unit.Claimed || s.turn.Unit.Claimed || !p.Unit.Retried || !s.turn.Unit.Retried {
		t.Errorf("to begin: %+v; to claim: %+v", p.Unit, s.turn.Unit)
	}
}

// A turn that is tried again counts the failures before it, until something else is asked for.
func TestBeginCountsFailures(t *testing.T) {
	for attempt, want := range map[string]int32{"2": 3, "1": 0} {
		s := newScene(v1alpha1.MachineAdding)
		s.claim(func(c *v1alpha1.Claim) { c.Failures, c.Attempt = 3, attempt })
		p := s.JudgeNode(s.Nodes["n-old"], s.Rooms(nil))
		if got := s.Begin(p, "next", false).Failures; got != want {
			t.Errorf("attempt %s: %d failures, want %d", attempt, got, want)
		}
	}
}

func TestRooms(t *testing.T) {
	const tooFew = "scale set pool has 4 machines, and its minimum is 4: none can be deleted before another is added; lower its minimum, or raise its maximum and surge"
	turn := func(phase v1alpha1.MachinePhase, change ...func(*Turn)) *Turn {
		t := &Turn{MachineTurn: v1alpha1.MachineTurn{ScaleSet: "pool", Phase: phase, Replacement: "x"}}
		for _, how := range change {
			how(t)
		}
		return t
	}
	first := func(t *Turn) { t.DeletesFirst = true }
	for name, tc := range map[string]struct {
		change func(*scene)
		turns  []*Turn
		want   Room
	}{
		"one":                           {func(*scene) {}, nil, Room{N: 1}},
		"taken":                         {func(*scene) {}, []*Turn{turn(v1alpha1.MachineDeleting)}, Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: "scale set pool has 1 machines more than before, and surge allows 1"}},
		"kept":                          {func(*scene) {}, []*Turn{turn(v1alpha1.MachineDiscarding)}, Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: "scale set pool has 1 machines more than before, and surge allows 1"}},
		"soaks":                         {func(*scene) {}, []*Turn{turn(v1alpha1.MachineSoaking)}, Room{N: 1}},
		"without surge":                 {func(*scene) {}, []*Turn{turn(v1alpha1.MachineDraining, first)}, Room{N: 1}},
		"half, rounded":                 {func(s *scene) { s.Surge = rollout.Amount{N: 50, Percent: true}; s.set.Capacity = 7 }, []*Turn{turn(v1alpha1.MachineJoining)}, Room{N: 2}},
		"zero":                          {func(s *scene) { s.Surge = rollout.Amount{} }, nil, Room{N: 100, DeletesFirst: true}},
		"no room":                       {func(s *scene) { s.set.NoRoom, s.set.NoRoomMessage = v1alpha1.ReasonCloudQuota, "no cores" }, nil, Room{Reason: v1alpha1.ReasonCloudQuota, Message: "no cores"}},
		"no room, delete":               {func(s *scene) { s.set.NoRoom, s.OnFull = v1alpha1.ReasonCloudQuota, v1alpha1.OnFullDeleteFirst }, nil, Room{N: 100, DeletesFirst: true}},
		"full":                          {func(s *scene) { s.set.Max = 4 }, nil, Room{Reason: v1alpha1.ReasonScaleSetFull, Message: "scale set pool is at its maximum of 4 machines"}},
		"nearly full":                   {func(s *scene) { s.set.Max = 5; s.Surge.N = 3 }, nil, Room{N: 1}},
		"full with what is being added": {func(s *scene) { s.set.Max = 6; s.Surge.N = 3 }, []*Turn{turn(v1alpha1.MachineAdding)}, Room{N: 1}},
		"at its least":                  {func(s *scene) { s.Surge, s.set.Min = rollout.Amount{}, 4 }, nil, Room{Reason: v1alpha1.ReasonScaleSetUnfit, Message: tooFew}},
		"near its least": {func(s *scene) { s.Surge, s.set.Min = rollout.Amount{}, 3 }, []*Turn{turn(v1alpha1.MachineDraining, first, func(t *Turn) { t.Machine = "y" })},
			Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: "other machines of scale set pool are replaced first; its minimum is 3"}},
		"above its least": {func(s *scene) { s.Surge, s.set.Min = rollout.Amount{}, 2 }, nil, Room{N: 100, DeletesFirst: true}},
		"declines":        {func(s *scene) { s.Surge, s.set.Declined = rollout.Amount{}, "no such image" }, nil, Room{N: 100, DeletesFirst: true}},
		"declines, and lacks one": {func(s *scene) { s.Surge, s.set.Declined = rollout.Amount{}, "no such image" }, []*Turn{turn(v1alpha1.MachineAdding, first)},
			Room{Reason: v1alpha1.ReasonScaleSetUnfit, Message: "no machine is added to scale set pool: no such image"}},
		"full of its own surge": {func(s *scene) { s.set.Max, s.set.Capacity, s.OnFull = 5, 5, v1alpha1.OnFullDeleteFirst }, []*Turn{turn(v1alpha1.MachineDraining)},
			Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: "scale set pool has 1 machines more than before, and surge allows 1"}},
		"full, delete": {func(s *scene) { s.set.Max, s.OnFull = 4, v1alpha1.OnFullDeleteFirst }, nil, Room{N: 100, DeletesFirst: true}},
	} {
		s := newScene(v1alpha1.MachineAdding)
		s.set.Machines = append(s.set.Machines, cloud.Machine{ID: "x", State: cloud.Running}, cloud.Machine{ID: "y", State: cloud.Running})
		tc.change(s)
		got := s.Rooms(tc.turns)["pool"]
		if got.DeletesFirst && got.N > 0 {
			got.N = 100 // As many as there may be turns.
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestBatches(t *testing.T) {
	turn := func(step Step, zone, machine string) *Turn {
		return &Turn{Step: step, MachineTurn: v1alpha1.MachineTurn{Turn: machine, ScaleSet: "pool", Zone: zone, Machine: machine, Replacement: machine + "'", Phase: v1alpha1.MachineAdding}}
	}
	type batch struct {
		Kind     v1alpha1.CloudOperationKind
		Zone     string
		Turns    int
		Machines []string
	}
	adds := func() []*Turn {
		discarded := turn(StepDelete, "a", "5")
		discarded.Phase, discarded.OnReplacement = v1alpha1.MachineDiscarding, true
		return []*Turn{turn(StepAdd, "a", "1"), turn(StepAdd, "b", "2"), turn(StepAdd, "b", "3"), turn(StepDelete, "a", "4"), discarded, turn(StepDrain, "a", "6")}
	}
	deletes := batch{v1alpha1.CloudOperationDelete, "", 2, []string{"4", "5'"}}
	add := func(zone string, n int) batch { return batch{v1alpha1.CloudOperationAdd, zone, n, nil} }
	adding := func(s *scene, known ...string) {
		s.set.Operations = []v1alpha1.CloudOperation{{Token: "op", Kind: v1alpha1.CloudOperationAdd, Count: 1}}
		s.set.Added = map[string][]string{"op": known}
	}
	for name, tc := range map[string]struct {
		change func(*scene, []*Turn)
		want   []batch
	}{
		"together":                  {func(*scene, []*Turn) {}, []batch{add("", 3), deletes}},
		"by zone":                   {func(s *scene, _ []*Turn) { s.set.Zones = []string{"a", "b"} }, []batch{add("a", 1), add("b", 2), deletes}},
		"another is not known yet":  {func(s *scene, _ []*Turn) { adding(s) }, []batch{deletes}},
		"another is not listed yet": {func(s *scene, _ []*Turn) { adding(s, "later") }, []batch{deletes}},
		"another by zone": {
			func(s *scene, _ []*Turn) { adding(s); s.set.Zones = []string{"a", "b"} }, []batch{add("a", 1), add("b", 2), deletes},
		},
		"another is known":            {func(s *scene, _ []*Turn) { adding(s, "new") }, []batch{add("", 3), deletes}},
		"another is known, careful":   {func(s *scene, _ []*Turn) { adding(s, "new"); s.set.Careful = true }, []batch{deletes}},
		"another has failed machines": {func(s *scene, _ []*Turn) { adding(s, "new"); s.machine("new").State = cloud.Failed }, []batch{deletes}},
		"many": {func(s *scene, _ []*Turn) {
			for range 8 {
				s.set.Operations = append(s.set.Operations, v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationDelete}, v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationAdd})
			}
		}, nil},
		"careful, and refused in a zone": {func(s *scene, _ []*Turn) {
			s.set.Zones, s.set.Careful, s.set.Refused = []string{"a", "b"}, true, 1
		}, []batch{add("b", 1), deletes}},
		"at its minimum": {func(s *scene, _ []*Turn) { s.set.Min = 4 }, []batch{add("", 3)}},
		"busy by others": {func(s *scene, _ []*Turn) {
			s.set.Busy, s.set.BusyByOthers, s.set.Operations = "it is refreshed", true, []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationDelete}}
		}, []batch{deletes}},
		"careful":     {func(s *scene, _ []*Turn) { s.set.Careful = true }, []batch{add("", 1), deletes}},
		"nearly full": {func(s *scene, _ []*Turn) { s.set.Max = 6 }, []batch{add("", 2), deletes}},
		"no quota":    {func(s *scene, _ []*Turn) { s.set.NoRoom = v1alpha1.ReasonCloudQuota }, []batch{deletes}},
		"busy":        {func(s *scene, _ []*Turn) { s.set.Busy = "it is updating" }, []batch{deletes}},
		"busy by us": {func(s *scene, _ []*Turn) {
			s.set.Busy, s.set.Operations = "it is updating", []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationDelete}}
		}, []batch{add("", 3), deletes}},
		"throttled": {func(s *scene, _ []*Turn) { s.set.Reason = v1alpha1.ReasonCloudThrottled }, nil},
		"unfit":     {func(s *scene, _ []*Turn) { s.set.Unfit = "it rolls by itself" }, []batch{deletes}},
		"not known": {func(s *scene, _ []*Turn) { s.set.Known = false }, nil},
	} {
		s, turns := newScene(v1alpha1.MachineAdding), adds()
		tc.change(s, turns)
		var got []batch
		for _, b := range s.Batches(turns) {
			got = append(got, batch{b.Kind, b.Zone, len(b.Turns), b.Machines})
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRevision(t *testing.T) {
	set := func(name, image, model string, outdated int) *Set {
		s := &Set{Set: cloud.Set{Name: name, Image: "images/" + image, ImageName: image, Model: model}, Known: true}
		for range outdated {
			s.Machines = append(s.Machines, cloud.Machine{})
		}
		return s
	}
	told := func(name, image, model string) v1alpha1.ScaleSetStatus {
		return v1alpha1.ScaleSetStatus{Name: name, Image: "images/" + image, Model: model, Machines: 1}
	}
	unknown := &Set{Set: cloud.Set{Name: "b"}}
	ab := []v1alpha1.ScaleSetStatus{told("a", "two", "1"), told("b", "two", "1")}
	empty := told("b", "one", "0")
	empty.Machines = 0
	const kept = "the one before"
	for name, tc := range map[string]struct {
		before     string
		told       []v1alpha1.ScaleSetStatus
		sets       []*Set
		osImage    bool
		unreadable v1alpha1.Reason
		want       string
	}{
		"none yet":                    {before: "two@1", want: kept},
		"gone":                        {before: "two@1", told: ab, sets: []*Set{{Set: cloud.Set{Name: "a"}, Known: true, Deleted: true}}, want: kept},
		"gone beside another":         {before: "two@1", told: ab, sets: []*Set{{Set: cloud.Set{Name: "a"}, Known: true, Deleted: true}, set("b", "two", "1", 2)}, want: kept},
		"the first":                   {sets: []*Set{set("a", "two", "1", 3)}, want: "two@"},
		"the first, and not all":      {sets: []*Set{set("a", "two", "1", 3), unknown}, want: kept},
		"nothing new":                 {before: "two@1", told: ab, sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 1)}, want: kept},
		"nothing new, of old":         {before: "two", told: ab, sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 1)}, want: kept},
		"another model":               {before: "two@1", told: ab, sets: []*Set{set("a", "two", "2", 1), set("b", "two", "1", 1)}, want: "two@"},
		"another model, of old":       {before: "two", told: ab, sets: []*Set{set("a", "two", "1", 1), set("b", "two", "2", 1)}, want: "two@"},
		"another image":               {before: "two@1", told: ab, sets: []*Set{set("a", "three", "2", 1), set("b", "three", "2", 1)}, want: "three@"},
		"not known":                   {before: "two@1", told: ab, sets: []*Set{set("a", "two", "1", 1), unknown}, want: kept},
		"not known, another changed":  {before: "two@1", told: ab, sets: []*Set{set("a", "two", "2", 1), unknown}, want: "two@"},
		"blind":                       {before: "2-sets-1", told: ab, sets: []*Set{set("a", "two", "1", 1)}, unreadable: v1alpha1.ReasonCloudDenied, want: kept},
		"blind, another changed":      {before: "2-sets-1", told: ab, sets: []*Set{set("a", "two", "2", 1)}, unreadable: v1alpha1.ReasonCloudDenied, want: "two@"},
		"a set that is new":           {before: "two@1", told: ab[:1], sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 0)}, want: kept},
		"one with outdated machines":  {before: "two@1", told: ab[:1], sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 1)}, want: "two@"},
		"one that had no machines":    {before: "two@1", told: []v1alpha1.ScaleSetStatus{ab[0], empty}, sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 0)}, want: kept},
		"several images":              {before: "two@1", told: ab, sets: []*Set{set("a", "two", "1", 1), set("b", "three", "2", 1)}, want: "2-sets-"},
		"nodes tell":                  {before: "one", told: []v1alpha1.ScaleSetStatus{told("a", "one", "1"), told("b", "two", "1")}, sets: []*Set{set("a", "two", "1", 1), set("b", "two", "1", 1)}, osImage: true, want: "two"},
		"nodes tell, another model":   {before: "two", told: ab, sets: []*Set{set("a", "two", "2", 1), set("b", "two", "1", 1)}, osImage: true, want: kept},
		"nodes tell, not all known":   {before: "two", told: ab, sets: []*Set{set("a", "two", "2", 1), unknown}, osImage: true, want: kept},
		"nodes tell, another changed": {before: "two", told: ab, sets: []*Set{set("a", "three", "2", 1), unknown}, osImage: true, want: "three"},
	} {
		w := &World{Rules: Rules{MatchOSImage: tc.osImage}, Sets: map[string]*Set{}, Unreadable: tc.unreadable}
		for _, s := range tc.sets {
			w.Sets[s.Name] = s
		}
		switch got := w.NextRevision(tc.before, tc.told); {
		case tc.want == kept && got != tc.before, tc.want != kept && (got == tc.before || !strings.HasPrefix(got, tc.want)), tc.osImage && strings.Contains(got, "@"):
			t.Errorf("%s: %s", name, got)
		}
	}
	of := func(osImage bool, all ...*Set) string {
		w := &World{Rules: Rules{MatchOSImage: osImage}, Sets: map[string]*Set{}}
		for _, s := range all {
			w.Sets[s.Name] = s
		}
		return w.NextRevision("", nil)
	}
	others := map[string]bool{
		of(false, set("a", "two", "1", 0)): true, of(false, set("a", "two", "2", 0)): true, of(false, set("a", "", "1", 0)): true, of(false, set("a", "", "2", 0)): true,
		of(false, set("a", "two", "1", 0), set("b", "three", "1", 0)): true, of(false, set("a", "two", "1", 0), set("b", "three", "2", 0)): true,
	}
	if len(others) != 6 {
		t.Errorf("the same for different models: %v", others)
	}
	if one, other := of(true, set("a", "two", "1", 0), set("b", "three", "1", 0)), of(true, set("a", "two", "1", 0), set("b", "three", "2", 0)); one != other {
		t.Errorf("%s and %s, and their images are the same", one, other)
	}
}

// What is put back is the last image that was complete, and none else: where there is none, that is told.
func TestNextSetStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		// steps are images that the set comes to have, with "+" where it is complete then, "!" where turns have failed with it, and "~" where it has
		// another size.
		steps []string
		want  string
	}{
		"the first":                              {[]string{"one"}, ""},
		"the first, complete":                    {[]string{"one+"}, ""},
		"another":                                {[]string{"one+", "two"}, "one"},
		"one that was not complete before":       {[]string{"one", "two"}, ""},
		"half of another, and a third":           {[]string{"one+", "two", "three"}, "one"},
		"a bad one, and a third":                 {[]string{"one+", "two!", "three"}, "one"},
		"a good one, and a third":                {[]string{"one+", "two+", "three"}, "two"},
		"complete, and bad after all":            {[]string{"one+", "two+", "two!", "three"}, "one"},
		"put back":                               {[]string{"one+", "two!", "one"}, ""},
		"put back, and a third at once":          {[]string{"one+", "two!", "one", "three"}, "one"},
		"put back, and bad itself":               {[]string{"one+", "two!", "one!"}, ""},
		"put back, bad itself, and a third":      {[]string{"one+", "two!", "one!", "three"}, ""},
		"put back, and the bad one again":        {[]string{"one+", "two!", "one", "two"}, "one"},
		"an older one that is bad by now":        {[]string{"one+", "two+", "one!"}, "two"},
		"back from an older one that is bad":     {[]string{"one+", "two+", "one!", "two!"}, ""},
		"another size":                           {[]string{"one+", "one~"}, ""},
		"another size after it":                  {[]string{"one+", "two", "two~"}, ""},
		"another size after it was put back":     {[]string{"one+", "two!", "one", "one~"}, ""},
		"another size, complete, and another":    {[]string{"one+", "one~+", "two~"}, "one"},
		"another size, half done, and a second":  {[]string{"one+", "one~", "two~"}, ""},
		"another size together with an image":    {[]string{"one+", "two~"}, "one"},
		"complete again after one that was lost": {[]string{"one", "one+", "two"}, "one"},
	} {
		s := v1alpha1.ScaleSetStatus{}
		for _, step := range tc.steps {
			image := strings.TrimRight(step, "+!~")
			model := image
			if strings.Contains(step, "~") {
				model += " larger"
			}
			s = NextSetStatus(s, &Set{Set: cloud.Set{Name: "pool", Image: image, Model: model, Capacity: 3}, Known: true}, 2)
			s.Complete = !strings.HasSuffix(step, "!") && (s.Complete || strings.HasSuffix(step, "+"))
		}
		if s.PreviousImage != tc.want || s.Outdated != 2 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	s := v1alpha1.ScaleSetStatus{Name: "pool", Image: "three", Capacity: 3, Complete: true, PreviousImage: "one"}
	blind := NextSetStatus(s, &Set{Set: cloud.Set{Name: "pool"}, Trouble: v1alpha1.ReasonCloudDenied, TroubleMessage: "no"}, 0)
	if blind.Image != "three" || blind.Reason != v1alpha1.ReasonCloudDenied || blind.Capacity != 3 || !blind.Complete || blind.PreviousImage != "one" {
		t.Errorf("%+v", blind)
	}
}

func TestAdopt(t *testing.T) {
	for state, want := range map[string]bool{
		"": false, v1alpha1.DucklettUpgradeReady: false, v1alpha1.DucklettUpgradeReady + " 4": true, v1alpha1.DucklettUpgradeReady + " 5": false,
		v1alpha1.DucklettUpgradeStarted: true, v1alpha1.DucklettUpgradeDrainReady: true, v1alpha1.DucklettUpgradeDrainStarted: true, v1alpha1.DucklettUpgradeDeleteReady: true,
	} {
		s := newScene(v1alpha1.MachineAdding)
		n := s.Nodes["n-old"]
		n.Annotations = map[string]string{v1alpha1.AnnotationDucklettStatus: state}
		if name, count, counted := strings.Cut(state, " "); counted {
			n.Annotations = map[string]string{v1alpha1.AnnotationDucklettStatus: name, v1alpha1.AnnotationDucklettCount: count}
		}
		turn := s.Adopt(n, "t", nil)
		if got := turn != nil; got != want {
			t.Errorf("%q is adopted: %v", state, got)
		}
		if turn == nil {
			continue
		}
		s.Judge([]*Turn{turn})
		if turn.Phase != v1alpha1.MachineClaiming || turn.Replacement == "" || turn.Replacement == "old" {
			t.Errorf("%q: %+v", state, turn.MachineTurn)
		}
	}
	for what, tc := range map[string]struct {
		change      func(*scene)
		replacement string
		then        v1alpha1.MachinePhase
	}{
		"the image was set back":  {func(s *scene) { s.machine("old").UpToDate = true }, "new", v1alpha1.MachineDiscarding},
		"another image":           {func(s *scene) { s.machine("new").UpToDate, s.machine("other").UpToDate = false, false }, "new", v1alpha1.MachineDiscarding},
		"another's turn":          {func(s *scene) { s.turn.Replacement = "new" }, "other", v1alpha1.MachineClaiming},
		"a machine that failed":   {func(s *scene) { s.machine("new").State = cloud.Failed }, "new", v1alpha1.MachineDiscarding},
		"a machine that is to go": {func(s *scene) { s.machine("new").State = cloud.Deleting }, "other", v1alpha1.MachineClaiming},
		"Ducklett replaces it too": {func(s *scene) {
			s.Nodes["n-new"].Annotations = map[string]string{v1alpha1.AnnotationDucklettStatus: "x"}
		}, "other", v1alpha1.MachineClaiming},
		"the machine that Ducklett added is gone": {func(s *scene) {
			s.machine("new").UpToDate, s.machine("other").UpToDate = false, false
			s.Nodes["n-old"].Annotations[v1alpha1.AnnotationDucklettCount] = "5"
		}, "", ""},
		"nothing left": {func(s *scene) { s.without("new"); s.without("other") }, "", ""},
	} {
		s := newScene(v1alpha1.MachineAdding)
		s.Nodes["n-old"].Annotations = map[string]string{v1alpha1.AnnotationDucklettStatus: v1alpha1.DucklettUpgradeStarted}
		s.machine("new").Created, s.machine("other").Created = now, now.Add(-time.Hour)
		tc.change(s)
		s.turn.Machine = "another"
		turn := s.Adopt(s.Nodes["n-old"], "t", []*Turn{s.turn})
		if turn == nil {
			if tc.replacement != "" {
				t.Errorf("%s: it is not adopted", what)
			}
			continue
		}
		if s.Judge([]*Turn{turn}); turn.Phase != tc.then || turn.Replacement != tc.replacement {
			t.Errorf("%s: %+v", what, turn.MachineTurn)
		}
	}
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintDucklett}}}}
	if !LeftByDucklett(n) || LeftByDucklett(&corev1.Node{}) {
		t.Error("what Ducklett leaves is not told")
	}
}
