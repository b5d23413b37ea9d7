// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/internal/view"
)

// builtPlugin is the plugin's program, built once.
var builtPlugin = sync.OnceValues(func() (string, error) {
	path := filepath.Join(world.dir, "kubectl-moult")
	return path, image.GoBinary(context.Background(), ".", "moult.dev/moult/cmd/kubectl-moult", path)
})

// moult runs kubectl-moult, and returns what it wrote.
func moult(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	at := 1
	if args[0] == "__complete" {
		at = 2
	}
	cmd.Args = slices.Insert(cmd.Args, at, "-n", namespace)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// says runs kubectl-moult, and checks that what it says contains these texts.
func says(t *testing.T, args []string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprint(args), func(context.Context) (string, bool) {
		out, err := moult(t, args...)
		missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(out, w) })
		if err == nil && len(missing) == 0 {
			return out, true
		}
		out = fmt.Sprintf("%v: %v, it does not say %q:\n%s", args, err, missing, out)
		if !slices.Contains([]string{"status", "why", "preview"}, args[0]) {
			t.Fatal(out) // It has changed something, and is not repeated.
		}
		return out, false
	})
}

// refuses runs kubectl-moult, and checks that it fails with this text.
func refuses(t *testing.T, args []string, want string) {
	t.Helper()
	if out, err := moult(t, args...); err == nil || !strings.Contains(out, want) {
		t.Errorf("%v: %v, want %q:\n%s", args, err, want, out)
	}
}

// why asks about a node's part in a Plan until it is as wanted.
func why(t *testing.T, node, plan, what string, holds func(*view.Part, *view.Why) bool) {
	t.Helper()
	eventually(t, "why "+node+": "+what, func(context.Context) (string, bool) {
		out, err := moult(t, "why", node, "-o", "json")
		var w view.Why
		if err != nil || json.Unmarshal([]byte(out), &w) != nil {
			return fmt.Sprint(err, out), false
		}
		i := slices.IndexFunc(w.Rollouts, func(p view.Part) bool { return p.Rollout.Name == plan })
		return out, i >= 0 && holds(&w.Rollouts[i], &w)
	})
}

// waitsFor reports whether a check of the node gives this reason.
func waitsFor(reason v1alpha1.Reason) func(*view.Part, *view.Why) bool {
	return func(p *view.Part, _ *view.Why) bool {
		return slices.ContainsFunc(p.Checks, func(c view.Check) bool { return c.Reason == reason })
	}
}

func write(t *testing.T, o any) string {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPluginSteers takes a rollout with a canary from its preview to its end. The canary fails at first.
func TestPluginSteers(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 3)
	canary := names[0]
	p := newPlan(t, "steered", "false")
	p.TypeMeta = metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"}
	p.Spec.Concurrency = 1
	p.Spec.Drain = &upgradev1.DrainSpec{}
	p.Spec.Strategy = &v1alpha1.Strategy{
		MaxFailures: ptr.To(intstr.FromString("100%")), // The canary may fail none the less.
		Order:       []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}},
		Waves:       []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}},
	}
	simulate(p, "fail")
	file := write(t, p)
	says(t, []string{"preview", file, "--turn=1m"}, "not in the cluster yet", "3 nodes selected", "wave canary: 1 node", canary+"  starts now",
		"ends in about 3m", "the time until wave canary is approved", "drain of "+canary)
	refuses(t, []string{"approve", p.Name}, "Plan "+namespace+"/"+p.Name+" not found")

	create(t, p)
	halted := status(t, p.Name, "is halted", func(s *upgradev1.PlanStatus) bool {
		stalled := s.Condition(upgradev1.ConditionStalled)
		return s.Wave != nil && s.Wave.State == v1alpha1.WaveHalted && stalled != nil && stalled.Status == metav1.ConditionTrue
	})
	s := halted.Status
	if len(s.Failed) != 1 || s.Failed[0].Node != canary || len(s.Applying) != 1 || len(s.Waiting) != 2 || s.Waiting[0].Reason != v1alpha1.ReasonHalted {
		t.Errorf("got %s", describe(halted))
	}
	message := condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonJobFailed)
	if !strings.HasPrefix(message, "Job system-upgrade/apply-steered-on-") || !strings.Contains(message, " failed on Node "+canary+": BackoffLimitExceeded: ") {
		t.Errorf("message is %q", message)
	}
	says(t, []string{"why", canary}, "Failed: JobFailed", "→ mend it, then: kubectl moult retry "+canary)
	says(t, []string{"retry", canary}, "node/"+canary+" is retried: system-upgrade/steered (JobFailed)")
	status(t, p.Name, "has failed again", func(s *upgradev1.PlanStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Message != halted.Status.Failed[0].Message
	})

	// Each change of what the Plan runs is one more attempt.
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Spec.Upgrade.Args = []string{"true"}
		delete(p.Annotations, "test.moult.dev/fail")
	})
	why(t, names[2], p.Name, "waits for approval", waitsFor(v1alpha1.ReasonWaitingForApproval))
	why(t, names[2], p.Name, "its place", func(part *view.Part, _ *view.Why) bool {
		return part.Place == 2 && part.Asking == 2 && slices.Equal(part.Ahead, []string{names[1]}) && part.Wave == "remainder"
	})
	says(t, []string{"status", p.Name}, "1 of 3 updated", "wave 1 of 2, canary: WaitingForApproval")
	says(t, []string{"preview", p.Name}, "wave remainder: 2 nodes", "WaitingForApproval")
	refuses(t, []string{"retry", p.Name}, "nothing has failed")

	says(t, []string{"pause", p.Name}, "plan.upgrade.cattle.io/steered paused")
	refuses(t, []string{"approve", p.Name, "--wave=other"}, "it is wave canary (1 of 2) that is current")
	says(t, []string{"approve", p.Name, "--wave=canary"}, "wave canary (1 of 2) approved")
	why(t, names[1], p.Name, "is paused", func(part *view.Part, w *view.Why) bool {
		return waitsFor(v1alpha1.ReasonPaused)(part, w) && !waitsFor(v1alpha1.ReasonWaitingForApproval)(part, w)
	})
	says(t, []string{"status", p.Name}, "paused: nothing new starts")
	says(t, []string{"resume", p.Name}, "plan.upgrade.cattle.io/steered resumed")
	says(t, []string{"status", p.Name, "--until-complete"}, "Complete, 3 of 3 updated")
	for _, name := range names {
		released(t, name, false)
	}
	// After a complete rollout undo means the version before.
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Version, p.Spec.Strategy.Waves = "v2", nil })
	complete(t, p.Name)
	says(t, []string{"undo", p.Name}, "plan.upgrade.cattle.io/steered returns to v1")
	if out, err := moult(t, "__complete", "approve", "steer"); err != nil || !slices.Contains(strings.Split(out, "\n"), p.Name) {
		t.Errorf("completing its name: %v\n%s", err, out)
	}
}
