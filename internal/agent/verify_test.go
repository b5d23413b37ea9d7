// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

func TestVerify(t *testing.T) {
	const wanted, target = v1alpha1.AnnotationHostWanted, v1alpha1.AnnotationHostTarget
	for name, tc := range map[string]struct {
		others  map[string]string
		machine *machine
		boot    string
		want    string
	}{
		"the wanted version":             {map[string]string{wanted: "1.1.0"}, newMachine("1.1.0", "1.2.0"), "boot-0", ""},
		"the wanted version, with a v":   {map[string]string{wanted: "v1.1.0"}, newMachine("1.1.0", ""), "boot-0", ""},
		"the target":                     {map[string]string{target: "1.1.0"}, newMachine("1.1.0", ""), "boot-0", ""},
		"the wanted one, not the target": {map[string]string{wanted: "1.1.0", target: "1.2.0"}, newMachine("1.1.0", ""), "boot-0", ""},
		"the old version": {
			map[string]string{wanted: "1.1.0"}, newMachine("1.0.0", "1.1.0"), "boot-0", "after the reboot the host runs 1.0.0, not 1.1.0",
		},
		"taken up by another agent":        {map[string]string{wanted: "1.1.0"}, newMachine("1.1.0", ""), "", ""},
		"nothing is known of the goal":     {nil, newMachine("1.1.0", ""), "", ""},
		"nothing is known, and it offers":  {nil, newMachine("1.0.0", "1.1.0"), "boot-0", "after the reboot the host still needs 1.1.0"},
		"no names, and all is well":        {nil, &machine{unnamed: true, boots: 1}, "boot-0", ""},
		"no names, and a reboot is needed": {nil, &machine{unnamed: true, needsReboot: true, boots: 1}, "boot-0", "after the reboot the host still needs to reboot"},
		"taken up by another agent, and old": {
			map[string]string{wanted: "1.1.0"}, newMachine("1.0.0", "1.1.0"), "",
			"after the reboot the host runs 1.0.0, not 1.1.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			others := map[string]string{}
			maps.Copy(others, tc.others)
			if tc.boot != "" {
				others[v1alpha1.AnnotationHostBoot] = tc.boot
			}
			s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"reboot-update", "reboot-update", "busy", "true"}, others))
			a := &Agent{host: tc.machine, log: logr.Discard(), clock: clock.RealClock{}, lookLimit: time.Minute, options: Options{RebootGrace: time.Minute}}
			o := a.do(t.Context(), v1alpha1.HostActionReboot, s, false)
			if got := text(o.err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if o.err == nil && o.runs != tc.machine.runs {
				t.Errorf("it runs %q, want %q", o.runs, tc.machine.runs)
			}
			if n := tc.machine.count("reboot"); n != 0 {
				t.Errorf("rebooted %d times", n)
			}
		})
	}
}

// TestRollBack: the other partitions are booted only if they hold what is wanted.
func TestRollBack(t *testing.T) {
	const wanted, previous = v1alpha1.AnnotationHostWanted, v1alpha1.AnnotationHostPrevious
	for name, tc := range map[string]struct {
		others map[string]string
		fails  error
		want   string
	}{
		"what ran before":   {others: map[string]string{wanted: "v1.0.0", previous: "1.0.0"}},
		"another version":   {others: map[string]string{wanted: "1.0.0", previous: "1.0.5"}, want: "the other partitions hold 1.0.5, and 1.0.0 is wanted"},
		"nothing is known":  {others: map[string]string{wanted: "1.0.0"}, want: "the other partitions hold an unknown version, and 1.0.0 is wanted"},
		"nothing is wanted": {others: map[string]string{previous: "1.0.0"}, want: "the other partitions hold 1.0.0, and none is wanted"},
		"they can't boot":   {others: map[string]string{wanted: "1.0.0", previous: "1.0.0"}, fails: errors.New("no boot"), want: "no boot"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"rollback-update", "rollback-update", "busy", "true"}, tc.others))
			m := newMachine("1.1.0", "")
			m.fails["rollback"] = tc.fails
			o := (&Agent{host: m}).do(t.Context(), v1alpha1.HostActionRollback, s, false)
			if got := text(o.err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if refused := tc.want != "" && tc.fails == nil; refused != (m.count("rollback") == 0) {
				t.Errorf("the host was ordered %d times", m.count("rollback"))
			}
		})
	}
}

// TestVerifyLooks: a host that runs the right version says in the same answer what else it offers, if it can say so soon.
func TestVerifyLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		offers string
		change func(*machine)
		want   *host.Offer
	}{
		"nothing":             {"1.1.0", nil, &host.Offer{}},
		"another release":     {"1.2.0", nil, &host.Offer{Available: true, Version: "1.2.0"}},
		"it can't find out":   {"1.1.0", func(m *machine) { m.fails["check"] = errors.New("no way to the repository") }, nil},
		"it takes for ever":   {"1.1.0", func(m *machine) { m.hold["check"] = make(chan struct{}) }, nil},
		"it runs another one": {"1.1.0", func(m *machine) { m.runs = "1.0.0" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, limit := newMachine("1.1.0", tc.offers), time.Minute
			if tc.change != nil {
				tc.change(m)
			}
			if m.hold["check"] != nil {
				limit = time.Millisecond
			}
			a := &Agent{host: m, log: logr.Discard(), clock: clock.RealClock{}, lookLimit: limit, options: Options{RebootGrace: time.Minute}}
			s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"reboot-update", "reboot-update", "busy", "true"}, map[string]string{
				v1alpha1.AnnotationHostWanted: "1.1.0", v1alpha1.AnnotationHostBoot: "boot-0",
			}))
			o := a.do(t.Context(), v1alpha1.HostActionReboot, s, false)
			if diff := cmp.Diff(tc.want, o.offer); diff != "" || (o.err != nil) != (m.runs == "1.0.0") || m.count("check") > 1 {
				t.Errorf("error %v, %d checks (-want +got):\n%s", o.err, m.count("check"), diff)
			}
		})
	}
}

// A check repeats a reset that has failed, because any next reboot would boot what it must revert.
func TestFailedResetIsRepeated(t *testing.T) {
	for state, want := range map[string]int{"error": 1, "ready": 0} {
		m := newMachine("1.0.0", "1.1.0")
		a := &Agent{host: m, log: logr.Discard(), clock: clock.RealClock{}, lookLimit: time.Minute}
		s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"reset-state", "reset-state", state, "true"}, nil))
		if o := a.do(t.Context(), "", s, false); o.err != nil || m.count("revert") != want {
			t.Errorf("%s: reverted %d times, error %v", state, m.count("revert"), o.err)
		}
	}
}

// TestVerifyWaits: so soon after a boot the host may not answer, and is asked again, but not for ever.
func TestVerifyWaits(t *testing.T) {
	for name, grace := range map[string]time.Duration{"answers in time": time.Minute, "never answers": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("1.1.0", "")
			m.fails["version"] = errors.New("connection refused")
			log := &lines{}
			a := &Agent{
				host: m, log: log.logger(), clock: clock.RealClock{},
				lookLimit: time.Minute, options: Options{RebootGrace: grace},
			}
			s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"reboot-update", "reboot-update", "busy", "true"}, map[string]string{
				v1alpha1.AnnotationHostWanted: "1.1.0", v1alpha1.AnnotationHostBoot: "boot-0",
			}))
			log.after("is not known yet", 1, func() {
				if grace == time.Minute {
					m.set(func(m *machine) { delete(m.fails, "version") })
				}
			})
			o := a.do(t.Context(), v1alpha1.HostActionReboot, s, false)
			if grace == time.Minute && o.err != nil {
				t.Errorf("it fails: %v", o.err)
			}
			if grace < time.Minute && text(o.err) != "reading the version after the reboot, connection refused" {
				t.Errorf("error %v", o.err)
			}
			if n := m.count("version"); n != 2 {
				t.Errorf("asked %d times, want 2", n)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
