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
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig", world.Kubeconfig(), "-n", namespace}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// says runs kubectl-moult, and checks that what it says contains these texts.
func says(t *testing.T, args []string, want ...string) {
	t.Helper()
	out, err := moult(t, args...)
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("%v does not say %q:\n%s", args, w, out)
		}
	}
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

// TestPluginSteers a rollout with a canary from its preview to its end.
func TestPluginSteers(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 3)
	p := newPlan(t, "steered", "true")
	p.TypeMeta = metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"}
	p.Spec.Concurrency = 1
	p.Spec.Drain = &upgradev1.DrainSpec{}
	p.Spec.Strategy = &v1alpha1.Strategy{
		Order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "kubernetes.io/hostname"}},
		Waves: []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}},
	}
	file := write(t, p)
	says(t, []string{"preview", file, "--turn=1m"}, "not in the cluster yet", "3 nodes selected", "wave canary: 1 node", names[0]+"  starts now",
		"ends in about 3m", "the time until wave canary is approved", "drain of "+names[0])
	refuses(t, []string{"approve", p.Name}, fmt.Sprintf("there is no Plan %q", p.Name))

	create(t, p)
	why(t, names[2], p.Name, "waits for approval", waitsFor(v1alpha1.ReasonWaitingForApproval))
	why(t, names[2], p.Name, "its place", func(part *view.Part, _ *view.Why) bool {
		return part.Place == 2 && part.Asking == 2 && slices.Equal(part.Ahead, []string{names[1]}) && part.Wave == "remainder"
	})
	why(t, names[0], p.Name, "is updated", func(part *view.Part, _ *view.Why) bool { return part.Unit.State == v1alpha1.UnitUpdated })
	status(t, p.Name, "waits for approval", func(s *upgradev1.PlanStatus) bool {
		return s.Wave != nil && s.Wave.State == v1alpha1.WaveWaitingForApproval
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
	says(t, []string{"status", p.Name}, "Complete")
	if get(t, p.Name).Spec.Strategy.Paused {
		t.Error("it is still paused")
	}
}

// TestPluginRetries what has failed, by the node and by the rollout.
func TestPluginRetries(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "retried", "false")
	simulate(p, "fail")
	create(t, p)
	attempt := ""
	for _, tc := range []struct{ arg, want string }{
		{name, "node/" + name + " is retried: system-upgrade/retried (JobFailed)"},
		{p.Name, "plan.upgrade.cattle.io/retried is retried: " + name + " (JobFailed)"},
	} {
		why(t, name, p.Name, "has failed", func(part *view.Part, w *view.Why) bool {
			if part.Unit.State != v1alpha1.UnitFailed || part.Unit.Reason != v1alpha1.ReasonJobFailed || len(w.Node.Claims) != 1 || w.Node.Claims[0].Turn == attempt {
				return false
			}
			attempt = w.Node.Claims[0].Turn
			return true
		})
		says(t, []string{"why", name}, "Failed: JobFailed", "→ mend it, then: kubectl moult retry "+name)
		says(t, []string{"retry", tc.arg}, tc.want)
	}
	why(t, name, p.Name, "has failed again", func(part *view.Part, w *view.Why) bool {
		return part.Unit.State == v1alpha1.UnitFailed && len(w.Node.Claims) == 1 && w.Node.Claims[0].Turn != attempt
	})
}

// TestPluginBudgets shows and pauses them.
func TestPluginBudgets(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 2)
	const budget = "e2e-plugin"
	b := &v1alpha1.NodeDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: budget},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}},
			MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		},
	}
	if out, err := kubectl(t.Context(), "apply", "-f", write(t, b)); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.WithoutCancel(t.Context()), "delete", "ndb", budget); err != nil {
			t.Error(err, out)
		}
	})
	p := newPlan(t, "budgeted", "true")
	create(t, p)
	why(t, names[0], p.Name, "the budget is exhausted", func(part *view.Part, w *view.Why) bool {
		i := slices.IndexFunc(w.Budgets, func(b view.Budget) bool { return b.Name == budget })
		return waitsFor(v1alpha1.ReasonBudgetExhausted)(part, w) && i >= 0 && w.Budgets[i].State == view.BudgetExhausted
	})
	says(t, []string{"status", p.Name}, budget, "0 of at most 0 unavailable, none more may be taken")
	says(t, []string{"pause", "ndb/" + budget}, "nodedisruptionbudget.moult.dev/"+budget+" paused")
	why(t, names[1], p.Name, "the budget is paused", waitsFor(v1alpha1.ReasonBudgetPaused))
	says(t, []string{"resume", "ndb/" + budget}, "resumed")
	if out, err := kubectl(t.Context(), "patch", "ndb", budget, "--type=merge", "-p", `{"spec":{"maxUnavailable":1}}`); err != nil {
		t.Fatal(err, out)
	}
	complete(t, p.Name)
}

// TestPluginCompletes names, as kubectl asks for them.
func TestPluginCompletes(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 1)
	p := newPlan(t, "completed-name", "true")
	create(t, p)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"why", names[0]}, names[0]},
		{[]string{"status", "completed"}, p.Name},
		{[]string{"approve", "completed"}, p.Name},
		{[]string{"retry", "plan/compl"}, "plan/" + p.Name},
		{[]string{"pause", "p", "--dry-run="}, "server"},
	} {
		program, err := builtPlugin()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, append([]string{"__complete"}, tc.args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig())
		// The namespace is the context's: where names of Plans are asked for it is given before.
		cmd.Args = slices.Insert(cmd.Args, 2, "-n", namespace)
		if out, err := cmd.Output(); err != nil || !slices.Contains(strings.Split(string(out), "\n"), tc.want) {
			t.Errorf("%v: %v, want %s:\n%s", tc.args, err, tc.want, out)
		}
	}
}
