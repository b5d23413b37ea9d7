// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var noStreams genericiooptions.IOStreams

// nowhere is a configuration without a cluster.
type nowhere struct{}

func (nowhere) Load() (*rest.Config, string, error) { return nil, "", errors.New("no cluster") }

// annotated compares the annotations of an ExtendedDaemonSet.
func (b *bench) annotated(eds *edsv1.ExtendedDaemonSet, want map[string]string) {
	b.Helper()
	latest := read(b, &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: eds.Namespace, Name: eds.Name}})
	if diff := cmp.Diff(want, latest.Annotations); diff != "" {
		b.Error(diff)
	}
}

func validateCanary(b *bench) {
	eds := b.set("foo", "foo:2", canary)
	b.says("Canary replicaset 'foo-b' was validated properly for extendeddaemonset eds-validate/foo.", "canary", "validate", "foo")
	b.annotated(eds, map[string]string{edsv1.AnnotationCanaryValid: "foo-b"})
	b.says("error: canary replicaset 'foo-b' already validated", "canary", "validate", "foo")
	b.set("bar", "bar:1")
	b.says("error: the ExtendedDaemonset is not currently running a canary replicaset", "canary", "validate", "bar")
	b.says("error: ExtendedDaemonSet eds-validate/nope not found", "canary", "validate", "nope")
}

func pauseCanary(b *bench) {
	eds := b.set("foo", "foo:2", canary)
	b.says("ExtendedDaemonset 'eds-pause/foo' deployment paused set to true", "canary", "pause", "foo")
	b.annotated(eds, map[string]string{edsv1.AnnotationCanaryPaused: "true", edsv1.AnnotationCanaryUnpaused: "false"})
	b.says("error: canary deployment already paused", "canary", "pause", "foo")
	b.says("ExtendedDaemonset 'eds-pause/foo' deployment paused set to false", "canary", "unpause", "foo")
	b.annotated(eds, map[string]string{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: "true"})
	b.says("error: canary deployment is not paused; cannot unpause", "canary", "unpause", "foo")
	auto := b.set("paused-by-itself", "foo:2", canary)
	b.says("ExtendedDaemonset 'eds-pause/paused-by-itself' deployment paused set to false", "canary", "unpause", "paused-by-itself")
	b.annotated(auto, map[string]string{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: "true"})
	b.set("over", "foo:2")
	b.says("error: the ExtendedDaemonset does not have an active canary deployment", "canary", "pause", "over")
	b.set("plain", "foo:2", func(eds *edsv1.ExtendedDaemonSet) { eds.Spec.Strategy.Canary = nil })
	b.says("error: the ExtendedDaemonset does not have a canary strategy", "canary", "pause", "plain")
}

// failure is the condition of a revision that says whether its canary has failed.
func (b *bench) failure(ers *edsv1.ExtendedDaemonSetReplicaSet) edsv1.Condition {
	b.Helper()
	var found []edsv1.Condition
	for _, c := range read(b, ers).Status.Conditions {
		if c.Type == edsv1.ConditionCanaryFailed {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		b.Fatalf("there are %d such conditions: %+v", len(found), found)
	}
	c := found[0]
	if c.LastTransitionTime.IsZero() || !c.LastTransitionTime.Equal(&c.LastUpdateTime) {
		b.Errorf("its times are %s and %s", c.LastTransitionTime, c.LastUpdateTime)
	}
	c.LastTransitionTime, c.LastUpdateTime = metav1.Time{}, metav1.Time{}
	return c
}

func failAndResetCanary(b *bench) {
	eds := b.set("foo", "foo:2", canary)
	b.revision(eds, "a", "foo:1", role(edsv1.ReplicaSetActive, 2))
	ers := b.revision(eds, "b", "foo:2", role(edsv1.ReplicaSetCanary, 1), func(ers *edsv1.ExtendedDaemonSetReplicaSet) {
		ers.Status.Conditions = []edsv1.Condition{
			{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue}, {Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionFalse},
		}
	})
	b.says("error: no canary deployment of the ExtendedDaemonset's template has failed; cannot reset", "canary", "reset", "foo")
	b.says("ExtendedDaemonSetReplicaSet 'eds-fail/foo' canary deployment set to failed", "canary", "fail", "foo")
	if diff := cmp.Diff(edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "Manually failed"}, b.failure(ers)); diff != "" {
		b.Error(diff)
	}
	if s := read(b, ers).Status; s.Status != edsv1.ReplicaSetCanary || s.Desired != 1 || len(s.Conditions) != 2 || s.Conditions[0].Type != edsv1.ConditionCanary {
		b.Errorf("what else there was in the status is changed: %+v", s)
	}
	b.says("error: canary deployment already failed", "canary", "fail", "foo")
	b.says("ExtendedDaemonSetReplicaSet 'eds-fail/foo-b' canary deployment reset", "canary", "reset", "foo")
	if diff := cmp.Diff(edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionFalse, Reason: "Reset"}, b.failure(ers)); diff != "" {
		b.Error(diff)
	}
	b.says("error: no canary deployment of the ExtendedDaemonset's template has failed; cannot reset", "canary", "reset", "foo")

	// One that has no status yet.
	latest := b.set("latest", "foo:2", canary)
	young := b.revision(latest, "b", "foo:2", func(ers *edsv1.ExtendedDaemonSetReplicaSet) { ers.Status.Status = "" })
	b.says("ExtendedDaemonSetReplicaSet 'eds-fail/latest' canary deployment set to failed", "canary", "fail", "latest")
	if b.failure(young).Status != metav1.ConditionTrue {
		b.Error("it has not failed")
	}

	b.set("lost", "foo:2", canary)
	b.says("error: ExtendedDaemonSetReplicaSet eds-fail/lost-b not found", "canary", "fail", "lost")
	b.set("over", "foo:2")
	b.says("error: the ExtendedDaemonset does not have an active canary deployment", "canary", "fail", "over")
	b.set("plain", "foo:2", func(eds *edsv1.ExtendedDaemonSet) { eds.Spec.Strategy.Canary = nil })
	b.says("error: the ExtendedDaemonset does not have a canary strategy", "canary", "fail", "plain")
}

func haltRollouts(b *bench) {
	eds := b.set("foo", "foo:1")
	b.says("error: rolling update is not paused; cannot unpause", "unpause-rolling-update", "foo")
	b.says("ExtendedDaemonset 'eds-halts/foo' rolling update is now paused", "pause-rolling-update", "foo")
	b.says("error: rolling update already paused", "pause-rolling-update", "foo")
	b.says("error: rollout is not frozen; cannot unfreeze", "unfreeze-rollout", "foo")
	b.says("ExtendedDaemonset 'eds-halts/foo' rollout is now frozen", "freeze-rollout", "foo")
	b.says("error: rollout already frozen", "freeze-rollout", "foo")
	b.annotated(eds, map[string]string{edsv1.AnnotationRollingUpdatePaused: "true", edsv1.AnnotationRolloutFrozen: "true"})
	b.says("ExtendedDaemonset 'eds-halts/foo' rolling update is now unpaused", "unpause-rolling-update", "foo")
	b.says("ExtendedDaemonset 'eds-halts/foo' rollout is now unfrozen", "unfreeze-rollout", "foo")
	b.annotated(eds, map[string]string{edsv1.AnnotationRollingUpdatePaused: "false", edsv1.AnnotationRolloutFrozen: "false"})
	b.says("error: rolling update is not paused; cannot unpause", "unpause-rolling-update", "foo")
	b.set("canary", "foo:1", canary)
	const paused = "error: cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. You can use the canary pause command instead"
	b.says(paused, "pause-rolling-update", "canary")
	b.says(paused, "unpause-rolling-update", "canary")
	const frozen = "error: cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. You should either fail or validate the canary first"
	b.says(frozen, "freeze-rollout", "canary")
	b.says(frozen, "unfreeze-rollout", "canary")
}

func rollBack(b *bench) {
	eds := b.set("foo", "foo:2", func(eds *edsv1.ExtendedDaemonSet) {
		eds.Status.ActiveReplicaSet = "foo-b"
		// What the template to go back to does not have must go.
		eds.Spec.Template.Spec.HostNetwork = true
		eds.Spec.Template.Labels["of"] = "2"
	})
	b.revision(eds, "a", "foo:1")
	b.revision(eds, "b", "foo:2", func(ers *edsv1.ExtendedDaemonSetReplicaSet) { ers.Spec.Template = *eds.Spec.Template.DeepCopy() })
	image := func(want string) {
		b.Helper()
		latest := read(b, &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "foo"}})
		if diff := cmp.Diff(want, latest.Spec.Template.Spec.Containers[0].Image); diff != "" {
			b.Error(diff)
		}
		if latest.Spec.Strategy.Canary == nil {
			b.Error("the strategy is gone")
		}
		if want == "foo:1" && (latest.Spec.Template.Spec.HostNetwork || latest.Spec.Template.Labels["of"] != "") {
			b.Errorf("something of the other template is left: %+v", latest.Spec.Template)
		}
	}
	b.says("error: the ExtendedDaemonset has the template of 'foo-b' already", "rollback", "foo", "--to-revision", "foo-b")
	b.says("ExtendedDaemonset 'eds-rollback/foo' rolled back to the template of ExtendedDaemonSetReplicaSet 'eds-rollback/foo-a'", "rollback", "foo")
	image("foo:1")
	b.says("ExtendedDaemonset 'eds-rollback/foo' rolled back to the template of ExtendedDaemonSetReplicaSet 'eds-rollback/foo-b'", "rollback", "foo", "--to-revision=2")
	image("foo:2")
	b.says("error: the ExtendedDaemonset has no revision 'bar': see kubectl eds history", "rollback", "foo", "--to-revision=bar")
	b.says("error: ExtendedDaemonSet eds-rollback/nope not found", "rollback", "nope")
}

func diffCanary(b *bench) {
	eds := b.set("foo", "foo:2", canary)
	b.revision(eds, "a", "foo:1")
	b.revision(eds, "b", "foo:2")
	b.Setenv("KUBECTL_EXTERNAL_DIFF", "diff") // Its output is the same on all machines.
	b.shows("diff", "diff", "foo")
	b.set("over", "foo:2")
	b.says("error: the ExtendedDaemonset does not have an active canary deployment", "diff", "over")
	b.set("plain", "foo:2", func(eds *edsv1.ExtendedDaemonSet) { eds.Spec.Strategy.Canary = nil })
	b.says("error: the ExtendedDaemonset does not have a canary strategy", "diff", "plain")
}

func waitForSet(b *bench) {
	for _, name := range []string{"CHECK_TIMEOUT_MINUTES", "NODE_COMPLETION_PCT", "NODE_COMPLETION_MIN"} {
		if _, set := os.LookupEnv(name); set {
			b.Setenv(name, "")
		}
	}
	seen := func(eds *edsv1.ExtendedDaemonSet) {
		eds.Status.ObservedGeneration = 1
		eds.Status.Desired, eds.Status.Current, eds.Status.UpToDate = 3, 3, 0
	}
	eds := b.set("foo", "foo:2", canary, seen)
	done := make(chan error, 1)
	s := &screen{}
	go func() { done <- b.start(b.Context(), s, s, "wait", "foo") }()
	b.until(s, "ExtendedDaemonset 'eds-wait/foo': canary running: foo-b on 2 nodes\n")
	eds.Status.State, eds.Status.Canary = edsv1.StateRunning, nil
	b.writeStatus(eds)
	b.until(s, "still upgrading nb pods: 3, nb updated pods: 0\n")
	eds.Status.UpToDate = 3
	b.writeStatus(eds)
	if err := <-done; err != nil {
		b.Error(err)
	}
	b.until(s, "upgrade is now finished nb pods: 3, nb updated pods: 3\n")

	failing := b.set("failing", "foo:2", canary, seen)
	go func() { done <- b.start(b.Context(), &screen{}, &screen{}, "wait", "failing") }()
	failing.Status.State, failing.Status.Canary, failing.Status.Reason = edsv1.StateCanaryFailed, nil, "CrashLoopBackOff"
	b.writeStatus(failing)
	if err := <-done; err == nil || err.Error() != "ExtendedDaemonSet eds-wait/failing: the canary has failed (CrashLoopBackOff)" {
		b.Error(err)
	}

	// One that was reset, and the operator has not seen it yet.
	again := b.set("again", "foo:2", seen, func(eds *edsv1.ExtendedDaemonSet) { eds.Status.State = edsv1.StateCanaryFailed })
	ers := b.revision(again, "b", "foo:2", func(ers *edsv1.ExtendedDaemonSetReplicaSet) {
		ers.Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "it broke"}}
	})
	b.says("error: ExtendedDaemonSet eds-wait/again: the canary has failed", "wait", "again")
	b.says("ExtendedDaemonSetReplicaSet 'eds-wait/again-b' canary deployment reset", "canary", "reset", "again")
	s = &screen{}
	go func() { done <- b.start(b.Context(), s, s, "wait", "again") }()
	b.until(s, "the operator has not seen the reset of the canary yet")
	read(b, ers).Status.Conditions[0].Status = metav1.ConditionTrue
	b.writeStatus(ers)
	again.Status.Reason = "CrashLoopBackOff"
	b.writeStatus(again)
	if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "ExtendedDaemonSet eds-wait/again: the canary has failed") { // By whichever it saw first.
		b.Error(err)
	}

	goes := b.set("goes", "foo:2", canary, seen)
	s = &screen{}
	go func() { done <- b.start(b.Context(), s, s, "wait", "goes") }()
	b.until(s, "canary running")
	if err := b.Delete(b.Context(), goes); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err == nil || err.Error() != "ExtendedDaemonSet eds-wait/goes has been deleted" {
		b.Error(err)
	}

	b.set("slow", "foo:2", canary, seen)
	s = &screen{}
	go func() { done <- b.start(b.Context(), s, s, "wait", "slow", "--timeout=3s") }()
	b.until(s, "canary running")
	b.limit <- time.Time{}
	if err := <-done; err == nil || err.Error() != "ExtendedDaemonSet eds-wait/slow is not up to date after 3s: canary running: slow-b on 2 nodes" {
		b.Error(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	s = &screen{}
	go func() { done <- b.start(ctx, s, s, "wait", "slow") }()
	b.until(s, "canary running")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	b.says("error: ExtendedDaemonSet eds-wait/nope not found", "wait", "nope")

	b.set("many", "foo:2", seen, func(eds *edsv1.ExtendedDaemonSet) {
		eds.Status.Desired, eds.Status.Current, eds.Status.UpToDate = 100, 100, 60
	})
	b.Setenv("NODE_COMPLETION_PCT", "50")
	if _, errOut := b.run("wait", "many"); errOut != "" {
		b.Error(errOut)
	}
	b.Setenv("NODE_COMPLETION_PCT", "95")
	b.Setenv("NODE_COMPLETION_MIN", "41")
	if _, errOut := b.run("wait", "many"); errOut != "" {
		b.Error(errOut)
	}
	b.Setenv("CHECK_TIMEOUT_MINUTES", "soon")
	b.says(`error: reading $CHECK_TIMEOUT_MINUTES, "soon" is not a number`, "wait", "many")
	b.says("error: the timeout -1s is negative; 0 waits for ever", "wait", "many", "--timeout=-1s")
}

func refuseArguments(b *bench) {
	const needed = "error: the extendeddaemonset name is required"
	for _, verb := range [][]string{
		{"canary", "validate"}, {"canary", "pause"}, {"canary", "unpause"}, {"canary", "fail"}, {"canary", "reset"}, {"canary", "pods"}, {"pods"}, {"diff"},
		{"pause-rolling-update"}, {"unpause-rolling-update"}, {"freeze-rollout"}, {"unfreeze-rollout"}, {"history"}, {"rollback"}, {"wait"},
	} {
		b.says(needed, verb...)
	}
	b.says("error: either one or no arguments are allowed", "get", "a", "b")
	b.says("error: either one or no arguments are allowed", "get-ers", "a", "b")
	b.says("error: only one extendeddaemonset name is allowed", "history", "a", "b")
}

func completeNames(b *bench) {
	eds := b.set("foo", "foo:2", canary)
	b.set("bar", "foo:2")
	b.revision(eds, "a", "foo:1")
	for _, tc := range []struct{ args, want string }{
		{"get ", "bar\nfoo\n"},
		{"get f", "foo\n"},
		{"get-ers ", "foo-a\n"},
		{"pods ", "bar\nfoo\n"},
		{"pods --select ", "canary\nnot-ready\n"},
		{"get -o ", "wide\njson\nyaml\nname\njsonpath=\ngo-template=\n"},
		{"canary validate f", "foo\n"},
		{"canary fail foo ", ""},
		{"rollback foo --to-revision ", "foo-a\n"},
		{"wait ", "bar\nfoo\n"},
	} {
		args := append([]string{"__complete"}, strings.Split(tc.args, " ")...)
		if out, _ := b.run(args...); !strings.HasPrefix(out, tc.want+":") {
			b.Errorf("%q: %q, want %q", tc.args, out, tc.want)
		}
	}
}

// TestCheck is that check-eds has the verb that it had.
func TestCheck(t *testing.T) {
	cmd := NewCheck(tomorrow{}, noStreams, nowhere{})
	cmd.SetArgs([]string{"upgrade", "foo"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != "no cluster" {
		t.Error(err)
	}
}
