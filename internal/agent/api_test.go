// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/tier"
)

// TestAPI has agents speak through a real API server with an operator that does what the protocol says.
func TestAPI(t *testing.T) {
	shared := cluster.Shared(t, 0)
	config := shared.Config()
	config.QPS, config.Burst = 1000, 1000
	for name, test := range map[string]func(*testing.T, *world){
		"trace":             anUpdate,
		"unclaimed":         anUpdateOfAnotherOperator,
		"can't look":        anUpdateAfterWhichTheHostCannotLook,
		"order repeated":    anOrderThatTheKillTookAway,
		"others write":      othersWriteMeanwhile,
		"outage":            theAPIServerIsAway,
		"steady":            nothingIsAskedInSteadyState,
		"checks fail":       checksThatFail,
		"label goes":        theLabelGoesAndComes,
		"label moves":       theLabelMoves,
		"interface changes": theInterfaceChanges,
		"node goes":         theNodeGoesAndComes,
		"withdrawn":         anOrderThatIsTakenBack,
		"given up":          aStepThatIsGivenUp,
		"taken back":        whatWasPerformedIsTakenBack,
		"wiped":             keysAreWipedAfterTheReboot,
		"already rebooted":  theHostRebootedBeforeTheOrderWasTakenUp,
		"old version":       theHostComesBackAsItWas,
		"stays up":          theHostStaysUp,
		"refuses":           theHostRefusesToReboot,
		"steps fail":        stepsThatFail,
		"another version":   theHostOffersAnotherVersion,
		"ended in the work": theProcessIsToldToEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, config, v1alpha1.HostProtocols[0], v1alpha1.InterfaceUpdateAPI))
		})
	}
	for _, p := range v1alpha1.HostProtocols[1:] {
		t.Run(p.InterfaceLabel, func(t *testing.T) {
			t.Parallel()
			anUpdate(t, newWorld(t, config, p, v1alpha1.InterfaceUpdog))
		})
	}
	t.Run("no names", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, config, v1alpha1.HostProtocols[2], v1alpha1.InterfaceSentinel)
		w.machine.unnamed, w.machine.needsReboot = true, true
		w.live()
		w.expectUpdated()
	})
	t.Run("unknown interface", func(t *testing.T) {
		t.Parallel()
		anInterfaceThatIsNone(t, newWorld(t, config, v1alpha1.HostProtocols[0], "9.9.9"))
	})
	t.Run("reads are refused", func(t *testing.T) {
		t.Parallel()
		readsThatAreRefused(t, config, shared.AuditLog())
	})
	// An update takes seven writes. The process is killed at each of them, with and without having been answered.
	for write := 1; write <= 7; write++ {
		if !tier.All && write%3 != 1 {
			continue
		}
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprintf("killed at write %d, answered %t", write, answered), func(t *testing.T) {
				t.Parallel()
				killedAtAWrite(t, newWorld(t, config, v1alpha1.HostProtocols[0], v1alpha1.InterfaceUpdateAPI), write, answered)
			})
		}
		t.Run(fmt.Sprintf("answer to write %d is lost", write), func(t *testing.T) {
			t.Parallel()
			anAnswerIsLost(t, newWorld(t, config, v1alpha1.HostProtocols[0], v1alpha1.InterfaceUpdateAPI), write)
		})
	}
	for _, call := range []string{"check", "prepare", "perform"} {
		t.Run("killed after "+call, func(t *testing.T) {
			t.Parallel()
			killedAfterACall(t, newWorld(t, config, v1alpha1.HostProtocols[0], v1alpha1.InterfaceUpdateAPI), call)
		})
	}
}

// own are the annotations on the Node that are Moult's.
func own(n *corev1.Node) map[string]string {
	all := maps.Clone(n.Annotations)
	maps.DeleteFunc(all, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupName+"/host-") })
	return all
}

func anUpdate(t *testing.T, w *world) {
	w.live()
	w.expectUpdated()
	n := w.read()
	got := own(n)
	if _, err := time.Parse(time.RFC3339, got[v1alpha1.AnnotationHostChecked]); err != nil {
		t.Error(err)
	}
	delete(got, v1alpha1.AnnotationHostChecked)
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationHostVersion: "1.1.0", v1alpha1.AnnotationHostPrevious: "1.0.0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n.Labels[w.protocol.Update] != "false" || n.Annotations["example.com/other"] != "stays" {
		t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
	}
	// One write when the update is found, six in the turn, and a watch, which begins with a list, for each of the two processes.
	if diff := cmp.Diff(map[string]int{"patch": 7, "watch": 2}, w.wire.count()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func anUpdateOfAnotherOperator(_ *testing.T, w *world) {
	w.claims = false
	w.live()
	w.expectTrace(askedAgain)
}

// A host that can't look for updates after the reboot has rebooted all the same, and the operator orders it to look.
func anUpdateAfterWhichTheHostCannotLook(t *testing.T, w *world) {
	fail := func(err error) { w.machine.set(func(m *machine) { m.fails["check"] = err }) }
	w.machine.done = func(name string) {
		if name == "perform" {
			fail(errors.New("no way to the repository"))
		}
	}
	w.log.after("not known yet", 1, func() { fail(nil) })
	w.live()
	want := slices.Clone(askedAgain)
	want[slices.Index(want, "reboot-update,reboot-update,ready false")] = "reboot-update,reboot-update,ready true"
	w.expectTrace(want)
	if got := w.wire.count()["patch"]; got != 8 {
		t.Errorf("%d writes, want 8", got)
	}
}

func killedAtAWrite(t *testing.T, w *world, write int, answered bool) {
	w.wire.after = func(verb string, count int) error {
		if verb != "patch" || count != write {
			return nil
		}
		w.kill <- struct{}{}
		if answered {
			return nil
		}
		return errors.New("killed")
	}
	w.live()
	w.expectUpdated()
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func killedAfterACall(t *testing.T, w *world, call string) {
	killed := make(chan struct{}, 1)
	killed <- struct{}{}
	w.machine.done = func(name string) {
		if name != call {
			return
		}
		select {
		case <-killed:
			w.kill <- struct{}{}
		default:
		}
	}
	w.live()
	w.expectUpdated()
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func anAnswerIsLost(t *testing.T, w *world, write int) {
	w.wire.after = func(verb string, count int) error {
		if verb == "patch" && count == write {
			return errors.New("the answer is lost")
		}
		return nil
	}
	w.live()
	w.expectUpdated()
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

// The first process ends when the host has taken the order and before it goes down: no one can tell whether it was told.
func anOrderThatTheKillTookAway(t *testing.T, w *world) {
	w.machine.goDown = func() {
		if w.machine.count("reboot") == 1 {
			w.kill <- struct{}{}
			return
		}
		w.machine.reset()
	}
	w.live()
	w.expectUpdated()
	if got := w.machine.count("reboot"); got != 2 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func othersWriteMeanwhile(t *testing.T, w *world) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if err := w.write("", map[string]string{"example.com/count": fmt.Sprint(i)}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
	w.live()
	w.expectUpdated()
	stop()
	<-ended
}

// The API server goes away whenever the host is at work, and comes back when the agent has tried some times.
func theAPIServerIsAway(t *testing.T, w *world) {
	w.machine.done = func(string) {
		w.wire.cut()
		w.log.after(`"again"=`, 3, w.wire.mend)
	}
	w.live()
	w.expectUpdated()
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

// checks is until the host has been asked so often.
func checks(t *testing.T, m *machine, count int) {
	t.Helper()
	enough := make(chan struct{})
	closed := false
	m.set(func(m *machine) {
		m.done = func(string) {
			if m.count("check") >= count && !closed {
				closed = true
				close(enough)
			}
		}
	})
	select {
	case <-enough:
	case <-time.After(5 * time.Minute):
		t.Fatalf("asked %d times, want %d", m.count("check"), count)
	}
	m.set(func(m *machine) { m.done = nil })
}

func nothingIsAskedInSteadyState(t *testing.T, w *world) {
	w.options.CheckInterval = 20 * time.Millisecond
	w.live()
	w.say("stabilize", nil)
	w.until("stabilize,stabilize,ready true")
	want := map[string]int{"patch": 1, "watch": 1}
	checks(t, w.machine, 50)
	// Heartbeats of the kubelet are seen, and are no reason to do anything.
	for i := range 10 {
		if err := w.write("", map[string]string{"example.com/heartbeat": fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	checks(t, w.machine, 100)
	if diff := cmp.Diff(want, w.wire.count()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	before := w.read().Annotations[v1alpha1.AnnotationHostChecked]

	w.machine.set(func(m *machine) { m.offers = "1.2.0" })
	n := w.wait("a new target", func(n *corev1.Node) bool { return n.Annotations[v1alpha1.AnnotationHostTarget] == "1.2.0" })
	if n.Annotations[v1alpha1.AnnotationHostChecked] < before {
		t.Errorf("checked at %s, and before at %s", n.Annotations[v1alpha1.AnnotationHostChecked], before)
	}
	checks(t, w.machine, w.machine.count("check")+50)
	want["patch"] = 2
	if diff := cmp.Diff(want, w.wire.count()); diff != "" {
		t.Errorf("requests after the answer changed (-want +got):\n%s", diff)
	}
}

func checksThatFail(t *testing.T, w *world) {
	w.options.CheckInterval = 20 * time.Millisecond
	w.live()
	w.say("stabilize", nil)
	w.until("stabilize,stabilize,ready true")
	w.machine.set(func(m *machine) { m.fails["check"] = errors.New("no way to the repository") })
	n := w.until("stabilize,stabilize,error true")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "looking for updates, no way to the repository" {
		t.Errorf("error %q", got)
	}
	checks(t, w.machine, w.machine.count("check")+20)
	if got := w.wire.count()["patch"]; got != 2 {
		t.Errorf("%d writes, want 2", got)
	}
	w.machine.set(func(m *machine) { m.fails = map[string]error{} })
	n = w.until("stabilize,stabilize,ready true")
	if got, there := n.Annotations[v1alpha1.AnnotationHostError]; there {
		t.Errorf("error %q", got)
	}
	if len(w.log.with(`"failures"=2`)) == 0 || w.wire.count()["patch"] != 3 {
		t.Errorf("%v requests, and failures in the log: %v", w.wire.count(), w.log.with(`"failures"=`))
	}
}

func theLabelGoesAndComes(t *testing.T, w *world) {
	hold := make(chan struct{})
	w.machine.hold["prepare"] = hold
	w.live()
	w.say("prepare-update", map[string]string{v1alpha1.AnnotationHostWanted: "1.1.0"})
	w.until("prepare-update,prepare-update,busy ")
	quiet := make(chan struct{})
	w.log.after("not acting", 1, func() { close(quiet) })
	w.label("")
	await(t, quiet, "the agent to see the label go")
	w.say("stabilize", nil)
	w.say("prepare-update", nil)
	acts := make(chan struct{})
	w.log.after("acting again", 1, func() { close(acts) })
	w.label(v1alpha1.InterfaceUpdateAPI)
	await(t, acts, "the agent to see the label come")
	if got := w.wire.count()["patch"]; got != 1 {
		t.Errorf("%d writes, want the first alone", got)
	}
	w.machine.set(func(m *machine) { delete(m.hold, "prepare") })
	close(hold)
	n := w.until("prepare-update,prepare-update,ready ")
	if got := n.Annotations[v1alpha1.AnnotationHostAttempts]; got != "1" {
		t.Errorf("%s attempts, want 1", got)
	}
}

// endsAtWork is the error of a process in the middle of whose work something happens.
func (w *world) endsAtWork(happens func()) error {
	w.t.Helper()
	w.machine.hold["prepare"] = make(chan struct{}) // Its end is not waited for.
	ran := make(chan error, 1)
	a := w.agent()
	go func() { ran <- a.Run(w.t.Context()) }()
	w.say("prepare-update", nil)
	w.until("prepare-update,prepare-update,busy ")
	happens()
	w.machine.set(func(m *machine) { m.hold = map[string]chan struct{}{} })
	select {
	case err := <-ran:
		return err
	case <-time.After(5 * time.Minute):
		return errors.New("it goes on")
	}
}

// The label of another protocol comes, with the same value: the pod is the one for that, too, and nothing but a new process ends its silence.
func theLabelMoves(t *testing.T, w *world) {
	other := *w
	other.protocol = v1alpha1.HostProtocols[2]
	w.protocol, other.protocol = other.protocol, w.protocol
	w.label(v1alpha1.InterfaceUpdateAPI)
	other.label("")
	err := w.endsAtWork(func() { other.label(v1alpha1.InterfaceUpdateAPI) })
	want := "the interface of the host was moult.dev/updater-interface-version=2.0.0, and is now " +
		"bottlerocket.aws/updater-interface-version=2.0.0, which needs a new process"
	if text(err) != want {
		t.Errorf("it ended with %v", err)
	}
	other.live()
	other.say("stabilize", nil)
	other.until("stabilize,stabilize,ready true")
}

func theInterfaceChanges(t *testing.T, w *world) {
	err := w.endsAtWork(func() { w.label(v1alpha1.InterfaceUpdog) })
	if err == nil || !strings.Contains(err.Error(), "was bottlerocket.aws/updater-interface-version=2.0.0, and is now bottlerocket.aws/updater-interface-version=1.0.0,") {
		t.Errorf("it ended with %v", err)
	}
	w.live()
	w.until("prepare-update,prepare-update,ready ")
}

func theNodeGoesAndComes(t *testing.T, w *world) {
	w.live()
	w.say("stabilize", nil)
	w.until("stabilize,stabilize,ready true")
	quiet := make(chan struct{})
	w.log.after("there is no such Node", 1, func() { close(quiet) })
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), w.node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, quiet, "the agent to see the Node go")
	w.create(v1alpha1.InterfaceUpdateAPI)
	w.say("stabilize", nil)
	w.until("stabilize,stabilize,ready true")
	if got := w.wire.count(); got["list"] != 0 || got["watch"] != 1 {
		t.Errorf("requests %v", got)
	}
}

func await(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("waiting for %s", what)
	}
}

// The order is taken back after the process was killed that has acknowledged it. The next one reads the Node once more before the reboot.
func anOrderThatIsTakenBack(t *testing.T, w *world) {
	killed := false
	w.wire.after = func(verb string, _ int) error {
		// The API server refuses a patch if others write to the Node at that moment.
		if killed || verb != "patch" || w.intent(w.read()) != "reboot-update,reboot-update,busy true" {
			return nil
		}
		killed = true
		w.kill <- struct{}{}
		return errors.New("killed")
	}
	w.wire.before = func(verb string, count int) error {
		if verb == "get" && count == 1 {
			return w.write("", w.stabilize())
		}
		return nil
	}
	w.live()
	w.say("reboot-update", map[string]string{w.protocol.Active: "perform-update", w.protocol.State: "ready", w.protocol.Update: "true"})
	w.until("stabilize,stabilize,ready true")
	if got := w.machine.count("reboot"); got != 0 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

// A step that takes too long is given up by the operator: the host's call is ended, and the agent says what is asked then.
func aStepThatIsGivenUp(t *testing.T, w *world) {
	w.machine.hold["prepare"] = make(chan struct{})
	w.live()
	w.say("prepare-update", nil)
	w.until("prepare-update,prepare-update,busy ")
	if err := w.write("", w.stabilize()); err != nil {
		t.Fatal(err)
	}
	n := w.until("stabilize,stabilize,ready true")
	if got := n.Annotations[v1alpha1.AnnotationHostAttempts]; got != "" {
		t.Errorf("%s attempts of another target", got)
	}
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "" {
		t.Errorf("error %q", got)
	}
}

func whatWasPerformedIsTakenBack(t *testing.T, w *world) {
	w.live()
	for range 2 {
		for _, wanted := range []string{"stabilize", "prepare-update", "perform-update"} {
			w.say(wanted, nil)
			w.until(wanted + "," + wanted + ",ready true")
		}
		w.machine.set(func(m *machine) {
			if m.next != "1.1.0" {
				t.Errorf("it would boot into %q", m.next)
			}
		})
		w.say("reset-state", nil)
		w.until("reset-state,reset-state,ready true")
		w.machine.set(func(m *machine) {
			if m.next != "" {
				t.Errorf("it would still boot into %q", m.next)
			}
		})
	}
	w.machine.set(func(m *machine) { m.fails["revert"] = errors.New("no GPT") })
	w.say("stabilize", nil)
	w.until("stabilize,stabilize,ready true")
	w.say("reset-state", nil)
	if n := w.until("reset-state,reset-state,error true"); n.Annotations[v1alpha1.AnnotationHostError] != "reverting the update, no GPT" {
		t.Errorf("it says %q", n.Annotations[v1alpha1.AnnotationHostError])
	}
}

func claimOf(boot string) string {
	return `[{"rollout":"NodeRollout/r","uid":"u","revision":"1.1.0","turn":"t","since":null,"bootID":"` + boot + `"}]`
}

// Somebody takes the agent's keys off after a reboot that came to nothing: that is no reason for a second one.
func keysAreWipedAfterTheReboot(t *testing.T, w *world) {
	w.machine.boots = 2
	w.live()
	w.say("reboot-update", map[string]string{v1alpha1.AnnotationHostWanted: "1.1.0", v1alpha1.AnnotationClaims: claimOf("boot-1")})
	n := w.until("reboot-update,reboot-update,error ")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "after the reboot the host runs 1.0.0, not 1.1.0" {
		t.Errorf("error %q", got)
	}
	if got := w.machine.count("reboot"); got != 0 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func theHostRebootedBeforeTheOrderWasTakenUp(t *testing.T, w *world) {
	w.machine.boots, w.machine.runs = 2, "1.1.0"
	w.live()
	w.say("reboot-update", map[string]string{
		w.protocol.Active: "perform-update", w.protocol.State: "ready", v1alpha1.AnnotationHostVersion: "1.0.0",
		v1alpha1.AnnotationHostWanted: "1.1.0", v1alpha1.AnnotationClaims: claimOf("boot-1"),
	})
	n := w.until("reboot-update,reboot-update,ready false")
	got := own(n)
	delete(got, v1alpha1.AnnotationHostChecked)
	if diff := cmp.Diff(map[string]string{
		v1alpha1.AnnotationHostWanted: "1.1.0", v1alpha1.AnnotationHostVersion: "1.1.0", v1alpha1.AnnotationHostPrevious: "1.0.0",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.machine.count("reboot"); got != 0 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

// The new version does not boot, and the host falls back.
func theHostComesBackAsItWas(t *testing.T, w *world) {
	w.machine.goDown = func() {
		w.machine.set(func(m *machine) { m.next = "" })
		w.machine.reset()
	}
	w.live()
	_, err := w.operate()
	if want := "the agent says error: after the reboot the host runs 1.0.0, not 1.1.0"; text(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	n := w.read()
	if got, boots := n.Annotations[v1alpha1.AnnotationHostAttempts], w.machine.booted(); got != "1" || boots != 2 {
		t.Errorf("%s attempts, %d boots", got, boots)
	}
}

func theHostStaysUp(t *testing.T, w *world) {
	up := make(chan struct{})
	w.machine.goDown = func() { close(up) }
	stop := w.live()
	ended := make(chan error, 1)
	go func() {
		_, err := w.operate()
		ended <- err
	}()
	await(t, up, "the order to reboot")
	if got := w.intent(w.read()); got != "reboot-update,reboot-update,busy true" {
		t.Errorf("the Node says %s", got)
	}
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
	// It goes down after all.
	stop()
	w.machine.set(func(m *machine) { m.goDown = nil })
	w.machine.reset()
	w.live()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func theHostRefusesToReboot(t *testing.T, w *world) {
	w.machine.fails["reboot"] = errors.New("a process inhibits it")
	w.live()
	_, err := w.operate()
	if want := "the agent says error: ordering the reboot, a process inhibits it"; text(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if got := w.machine.count("reboot"); got != 1 {
		t.Errorf("the host was ordered to reboot %d times", got)
	}
}

func stepsThatFail(t *testing.T, w *world) {
	w.live()
	for call, wanted := range map[string]string{"check": "stabilize", "prepare": "prepare-update", "perform": "perform-update"} {
		w.machine.set(func(m *machine) { m.fails = map[string]error{call: errors.New("bad " + call)} })
		w.say(wanted, map[string]string{w.protocol.Active: "unknown", w.protocol.State: "unknown", w.protocol.Update: "unknown"})
		n := w.until(wanted + "," + wanted + ",error unknown")
		if got := n.Annotations[v1alpha1.AnnotationHostError]; !strings.HasSuffix(got, "bad "+call) {
			t.Errorf("error of %s is %q", call, got)
		}
	}
	w.machine.set(func(m *machine) { m.fails = map[string]error{"version": errors.New("bad version")} })
	if err := w.write("", w.stabilize()); err != nil {
		t.Fatal(err)
	}
	n := w.until("stabilize,stabilize,error unknown")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "reading the version, bad version" {
		t.Errorf("error %q", got)
	}
	w.machine.set(func(m *machine) { m.fails = map[string]error{"boot": errors.New("no boot id")} })
	w.say("reboot-update", nil)
	n = w.until("reboot-update,reboot-update,error unknown")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "reading the boot id, no boot id" || w.machine.count("reboot") != 0 {
		t.Errorf("error %q, told to reboot %d times", got, w.machine.count("reboot"))
	}
	w.machine.set(func(m *machine) { m.fails = map[string]error{} })
	if err := w.write("", w.stabilize()); err != nil {
		t.Fatal(err)
	}
	n = w.until("stabilize,stabilize,ready true")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "" {
		t.Errorf("error %q", got)
	}
}

func theHostOffersAnotherVersion(t *testing.T, w *world) {
	w.live()
	w.say("prepare-update", map[string]string{v1alpha1.AnnotationHostWanted: "1.5.0"})
	n := w.until("prepare-update,prepare-update,error ")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != host.ErrOther.Error() {
		t.Errorf("error %q", got)
	}
}

func anInterfaceThatIsNone(t *testing.T, w *world) {
	w.hostErr = errors.New("no such interface")
	w.live()
	w.say("stabilize", nil)
	n := w.until("stabilize,stabilize,error ")
	if got := n.Annotations[v1alpha1.AnnotationHostError]; got != "no such interface" {
		t.Errorf("error %q", got)
	}
}

// A process that is ordered to end does so, and says nothing of work that it has broken off.
func theProcessIsToldToEnd(t *testing.T, w *world) {
	w.machine.hold["prepare"] = make(chan struct{})
	stop := w.live()
	w.say("prepare-update", nil)
	w.until("prepare-update,prepare-update,busy ")
	stop()
	if got := w.intent(w.read()); got != "prepare-update,prepare-update,busy " {
		t.Errorf("the Node says %s", got)
	}
	w.machine.set(func(m *machine) { m.hold = map[string]chan struct{}{} })
	w.live()
	w.until("prepare-update,prepare-update,ready ")
}
