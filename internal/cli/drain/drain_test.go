// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const held = "pod web/api is held by PodDisruptionBudget web/api: Cannot evict pod as it would violate the pod's disruption " +
	"budget. The disruption budget api needs 1 healthy pods and has 1 currently"

func TestDrain(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"), pod("u", "n1", unowned), pod("d", "n1", ofKind("DaemonSet", "ds")), pod("other", "n2"))
	got := w.run(t.Context(), "drain n1 --force --ignore-daemonsets")

	expect(t, "run", ran{
		Out: []string{
			"node/n1 cordoned", "evicting pod web/a", "evicting pod web/u", "pod/a evicted", "pod/u evicted", "node/n1 drained",
		},
		ErrOut: []string{
			"Warning: ignoring DaemonSet-managed pods: web/d",
			"Warning: taking pods that declare no controller: web/u",
		},
	}, got)
	expect(t, "pods", []string{"d", "other"}, w.pods())
	expect(t, "cordons", map[string]string{"n1": "true "}, w.cordons())
	expect(t, "time", time.Second, w.Since(start))
}

func TestDrainForAPlanMarksItsNode(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2", cordoned))
	w.env["SYSTEM_UPGRADE_PLAN_NAME"] = "k3s"
	got := w.run(t.Context(), "drain n1 n2")
	expect(t, "out", []string{"node/n1 cordoned", "node/n2 already cordoned", "node/n1 drained", "node/n2 drained"}, got.Out)
	expect(t, "cordons", map[string]string{"n1": "true Plan/system-upgrade/k3s", "n2": "true "}, w.cordons())
}

func TestDrainRefuses(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), pod("a", "n1"), pod("d", "n1", ofKind("DaemonSet", "ds")),
		pod("e", "n1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}), pod("u", "n1", unowned), pod("b", "n2"))
	got := w.run(t.Context(), "drain n1 node/n2")
	expect(t, "run", ran{
		Out: []string{
			"node/n1 cordoned", "node/n2 cordoned", "node/n1 uncordoned", "evicting pod web/b", "pod/b evicted", "node/n2 drained",
		},
		ErrOut: []string{"node/n1 not drained"},
		Error: `draining node n1, nothing is touched because of these pods:
  pod web/d belongs to DaemonSet ds (use --ignore-daemonsets to leave it)
  pod web/e has local data in emptyDir volume v (use --delete-emptydir-data to lose it)
  pod web/u has no controller (use --force to drain it all the same)`,
	}, got)
	expect(t, "pods", []string{"a", "d", "e", "u"}, w.pods())
	expect(t, "cordons", map[string]string{"n1": "false ", "n2": "true "}, w.cordons())
	expect(t, "marks", nil, w.marks("n1"))
	expect(t, "exit code", 1, w.exitCode())
}

func TestDrainWaitsForABudget(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("api", "n1"))
	w.held["api"] = 2
	got := w.run(t.Context(), "drain n1 --timeout 1m")
	expect(t, "run", ran{
		Out:    []string{"node/n1 cordoned", "evicting pod web/api", "pod/api evicted", "node/n1 drained"},
		ErrOut: []string{held},
	}, got)
	expect(t, "time", 2*retry+poll, w.Since(start))
}

func TestDrainTimesOut(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("api", "n1"), pod("slow", "n1"))
	w.held["api"] = 1000
	w.stuck["slow"] = true
	got := w.run(t.Context(), "drain n1 --timeout 12s")
	expect(t, "run", ran{
		Out:    []string{"node/n1 cordoned", "evicting pod web/slow", "node/n1 uncordoned"},
		ErrOut: []string{held, "node/n1 not drained"},
		Error: "draining node n1, its time is over and these pods are still there:\n  " + held +
			"\n  pod web/slow is still terminating",
	}, got)
	expect(t, "time", 12*time.Second, w.Since(start))
	expect(t, "cordons", map[string]string{"n1": "false "}, w.cordons())
}

// Which end it is stands in the error and in the exit code.
func TestDrainOnTimeout(t *testing.T) {
	for flag, want := range map[string]struct {
		error    string
		code     int
		cordoned string
		pods     []string
	}{
		"":                    {"draining node n1, its time is over and these pods are still there:\n  " + held, 1, "false ", []string{"api"}},
		"--on-timeout=":       {"draining node n1, its time is over and these pods are still there:\n  " + held, 1, "false ", []string{"api"}},
		"--on-timeout=Halt":   {"draining node n1, its time is over and these pods are still there:\n  " + held, 43, "false ", []string{"api"}},
		"--on-timeout Skip":   {"draining node n1, its time is over, the node is skipped, and these pods are still there:\n  " + held, 44, "false ", []string{"api"}},
		"--on-timeout  Force": {"", 0, "true ", nil},
	} {
		t.Run(flag, func(t *testing.T) {
			w := newWorld(t, aNode("n1"), pod("api", "n1"))
			w.held["api"] = 1000
			got := w.run(t.Context(), "drain n1 --timeout 12s "+flag)
			expect(t, "error", want.error, got.Error)
			expect(t, "exit code", want.code, w.exitCode())
			expect(t, "cordons", map[string]string{"n1": want.cordoned}, w.cordons())
			expect(t, "pods", want.pods, w.pods())
		})
	}
}

func TestDrainWarnsOfAnEndWithoutATime(t *testing.T) {
	w := newWorld(t, aNode("n1"))
	expect(t, "run", ran{
		Out: []string{"node/n1 cordoned", "node/n1 drained"}, ErrOut: []string{"Warning: --on-timeout means nothing without --timeout"},
	}, w.run(t.Context(), "drain n1 --on-timeout=Force"))
}

// Nodes that end in different ways give no code of their own.
func TestDrainOfManyNodesHasOneExitCode(t *testing.T) {
	for line, want := range map[string]int{"n1 n2": 44, "n1 n2 n3": 44, "n1 n3 n4": 1, "n4": 1, "n3": 0} {
		w := newWorld(t, aNode("n1"), aNode("n2"), aNode("n3"), aNode("n4"), pod("a", "n1"), pod("b", "n2"), pod("u", "n4", unowned))
		w.stuck["a"], w.stuck["b"] = true, true
		w.run(t.Context(), "drain --timeout 2s --on-timeout=Skip "+line)
		expect(t, line, want, w.exitCode())
	}
}

// A StatefulSet's pod has the same name when it returns, and another uid: the one that was meant is gone.
func TestDrainDoesNotChaseAPodThatReturns(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("db-0", "n1"))
	w.back["db-0"] = true
	got := w.run(t.Context(), "drain n1")
	expect(t, "run", ran{
		Out:    []string{"node/n1 cordoned", "evicting pod web/db-0", "pod/db-0 evicted", "node/n1 drained"},
		ErrOut: []string{"pod web/db-0 came after the drain began, and is left"},
	}, got)
	expect(t, "pods", []string{"db-0"}, w.pods())
}

func TestDrainSkipsWhatIsOverdue(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("dead", "n1", endedAt(-time.Hour)), pod("late", "n1", endedAt(-58*time.Second)))
	w.stuck["dead"], w.stuck["late"] = true, true
	got := w.run(t.Context(), "drain n1 --skip-wait-for-delete-timeout 60")
	expect(t, "run", ran{
		Out: []string{"node/n1 cordoned", "waiting for pod web/late", "node/n1 drained"},
		ErrOut: []string{
			"pod web/dead should have ended more than 1m0s ago, and is left",
			"pod web/late should have ended more than 1m0s ago, and is left",
		},
	}, got)
	expect(t, "time", 3*time.Second, w.Since(start))
}

func TestDrainDeletes(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("api", "n1"))
	w.held["api"] = 1000
	got := w.run(t.Context(), "drain n1 --disable-eviction")
	expect(t, "run", ran{Out: []string{"node/n1 cordoned", "deleting pod web/api", "pod/api deleted", "node/n1 drained"}}, got)
}

func TestDrainInDryRun(t *testing.T) {
	for name, tc := range map[string]struct {
		flag string
		held int
		want ran
	}{
		"client": {"client", 1000, ran{Out: []string{
			"node/n1 cordoned (dry run)", "evicting pod web/api (dry run)", "node/n1 drained (dry run)",
		}}},
		"server": {"server", 0, ran{Out: []string{
			"node/n1 cordoned (server dry run)", "evicting pod web/api (server dry run)", "node/n1 drained (server dry run)",
		}}},
		"server, held": {"server", 1000, ran{
			Out:    []string{"node/n1 cordoned (server dry run)"},
			ErrOut: []string{held, "node/n1 not drained (server dry run)"},
			Error:  "draining node n1, these pods can't go:\n  " + held,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, aNode("n1"), pod("api", "n1"))
			w.held["api"] = tc.held
			expect(t, "run", tc.want, w.run(t.Context(), "drain n1 --dry-run="+tc.flag))
			expect(t, "cordons", map[string]string{"n1": "false "}, w.cordons())
			expect(t, "pods", []string{"api"}, w.pods())
			expect(t, "time", 0, w.Since(start))
		})
	}
}

func TestDrainIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := newWorld(t, aNode("n1"), aNode("n2"), pod("slow", "n1"), pod("b", "n2"))
	w.stuck["slow"] = true
	w.at[3*time.Second] = func() { cancel(errors.New("terminated signal received")) }
	got := w.run(ctx, "drain n1 n2")
	expect(t, "error", `drain stopped, terminated signal received: draining node n1, these pods are still there:
  pod web/slow is still terminating`, got.Error)
	expect(t, "time", 3*time.Second, w.Since(start))
	expect(t, "pods", []string{"b", "slow"}, w.pods())
	expect(t, "out", []string{"node/n1 cordoned", "node/n2 cordoned", "evicting pod web/slow", "node/n1 uncordoned", "node/n2 uncordoned"}, got.Out)
	expect(t, "cordons", map[string]string{"n1": "false ", "n2": "false "}, w.cordons())
	expect(t, "exit code", 1, w.exitCode())
}

func TestDrainOutlastsAnAPIServerThatRestarts(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"))
	w.at[time.Second] = func() { w.broken = errors.New("connection refused") }
	w.at[6*time.Second] = func() { w.broken = nil }
	got := w.run(t.Context(), "drain n1 --timeout 1m")
	expect(t, "run", ran{
		Out:    []string{"node/n1 cordoned", "evicting pod web/a", "pod/a evicted", "node/n1 drained"},
		ErrOut: []string{"listing the pods of node n1, connection refused (asking again in 5s)"},
	}, got)
}

func TestDrainGivesUpAnAPIServer(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"))
	w.broken = errors.New("connection refused")
	expect(t, "at once", "listing the pods of node n1, connection refused", w.run(t.Context(), "drain n1").Error)

	w.broken = nil
	w.at[time.Second] = func() { w.broken = errors.New("connection refused") }
	expect(t, "later", "listing the pods of node n1, connection refused", w.run(t.Context(), "drain n1 --timeout 20s").Error)
	if took := w.Since(start); took > 26*time.Second {
		t.Errorf("took %v", took)
	}
	expect(t, "exit code", 1, w.exitCode())

	for end, code := range map[string]int{"Halt": 43, "Skip": 44} {
		w := newWorld(t, aNode("n1"), pod("a", "n1"))
		w.at[time.Second] = func() { w.broken = errors.New("connection refused") }
		expect(t, end, "listing the pods of node n1, connection refused", w.run(t.Context(), "drain n1 --timeout 20s --on-timeout "+end).Error)
		expect(t, end, code, w.exitCode())
		expect(t, "cordons", map[string]string{"n1": "false "}, w.cordons())
	}
}

// What is to be deleted past every budget when the time is over is deleted when the API server is back.
func TestDrainThatForcesOutlastsItsTime(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("api", "n1"))
	w.held["api"] = 1000
	w.at[10*time.Second] = func() { w.broken = errors.New("connection refused") }
	w.at[40*time.Second] = func() { w.broken = nil }
	got := w.run(t.Context(), "drain n1 --timeout 20s --on-timeout Force")
	expect(t, "error", "", got.Error)
	expect(t, "pods", nil, w.pods())
}

// kubectl drains a node that it could not cordon, and pods come back to it while it does.
func TestDrainLeavesANodeThatItCannotCordon(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), pod("a", "n1"), pod("b", "n2"))
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == "n1" {
				return errors.New("forbidden")
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	got := w.run(t.Context(), "drain n1 n2")
	expect(t, "error", "cordoning node n1, forbidden", got.Error)
	expect(t, "out", []string{"node/n2 cordoned", "evicting pod web/b", "pod/b evicted", "node/n2 drained"}, got.Out)
	expect(t, "pods", []string{"a"}, w.pods())
}

func TestDrainBySelector(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), aNode("n3", func(n *corev1.Node) { n.Labels["zone"] = "b" }), pod("a", "n1"))
	expect(t, "run", ran{Out: []string{
		"node/n1 cordoned", "node/n2 cordoned", "evicting pod web/a", "pod/a evicted", "node/n1 drained", "node/n2 drained",
	}}, w.run(t.Context(), "drain -l zone=a"))
	expect(t, "none", ran{ErrOut: []string{"no node has the labels zone=c"}}, w.run(t.Context(), "drain -l zone=c"))
}

func TestCommandLinesThatCannotBe(t *testing.T) {
	w := newWorld(t, aNode("n1"))
	for line, want := range map[string]string{
		"drain":                       "drain needs the name of a node, or --selector: see moult drain --help",
		"cordon":                      "cordon needs the name of a node, or --selector: see moult cordon --help",
		"drain n1 -l zone=a":          "drain takes names of nodes or --selector, not both",
		"drain n1 n4":                 `reading node n4, nodes "n4" not found`,
		"drain pod/a":                 `"pod/a" is not the name of a Node: the word before the slash must be node`,
		"drain n1 --pod-selector=a,(": "reading --pod-selector, ",
		"uncordon -l a,(":             "reading --selector, ",
		"drain n1 --dry-run=never":    `invalid argument "never" for "--dry-run" flag: it must be none, client or server`,
		"drain n1 --no-such-flag":     "unknown flag: --no-such-flag",
		"drain n1 --on-timeout=skip":  `invalid argument "skip" for "--on-timeout" flag: it must be Halt, Skip or Force`,
	} {
		if got := w.run(t.Context(), line); !strings.HasPrefix(got.Error, want) {
			t.Errorf("%q: got %q", line, got.Error)
		}
	}
	expect(t, "cordons", map[string]string{"n1": "false "}, w.cordons())
}

func TestCordonAndUncordon(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2", cordoned))
	w.env["SYSTEM_UPGRADE_PLAN_NAME"] = "k3s"
	expect(t, "dry", ran{Out: []string{"node/n1 cordoned (dry run)", "node/n2 already cordoned (dry run)"}}, w.run(t.Context(), "cordon n1 n2 --dry-run=client"))
	expect(t, "dry", ran{Out: []string{"node/n1 cordoned (server dry run)"}}, w.run(t.Context(), "cordon n1 --dry-run=server"))
	expect(t, "cordons", map[string]string{"n1": "false ", "n2": "true "}, w.cordons())

	expect(t, "cordon", ran{Out: []string{"node/n1 cordoned", "node/n2 already cordoned"}}, w.run(t.Context(), "cordon n1 n2"))
	expect(t, "cordons", map[string]string{"n1": "true Plan/system-upgrade/k3s", "n2": "true "}, w.cordons())

	expect(t, "uncordon", ran{Out: []string{"node/n1 uncordoned"}}, w.run(t.Context(), "uncordon n1"))
	expect(t, "uncordon", ran{Out: []string{"node/n1 already uncordoned", "node/n2 uncordoned"}}, w.run(t.Context(), "uncordon nodes/n1 no/n2"))
	expect(t, "cordons", map[string]string{"n1": "false ", "n2": "false "}, w.cordons())
}

func TestCompletion(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), aNode("other"))
	got := w.run(t.Context(), "__complete drain n1 n")
	expect(t, "names", []string{"n2", ":4", "Completion ended with directive: ShellCompDirectiveNoFileComp"}, append(got.Out, got.ErrOut...))
	got = w.run(t.Context(), "__complete drain n1 --on-timeout=")
	expect(t, "ends", []string{"Halt", "Skip", "Force", ":4", "Completion ended with directive: ShellCompDirectiveNoFileComp"}, append(got.Out, got.ErrOut...))
}
