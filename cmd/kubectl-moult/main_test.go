// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandFor(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string // What it says begins so.
	}{
		"kubectl moult":                {[]string{"/usr/bin/kubectl-moult", "--version"}, "kubectl moult version dev"},
		"kubectl eds":                  {[]string{"/usr/bin/kubectl-eds", "--version"}, "kubectl eds version dev"},
		"kubectl eds on Windows":       {[]string{"kubectl-eds.exe", "--version"}, "kubectl eds version dev"},
		"check-eds":                    {[]string{"check-eds", "--version"}, "check-eds version dev"},
		"another name":                 {[]string{"moult-plugin", "--version"}, "kubectl moult version dev"},
		"help of kubectl eds":          {[]string{"kubectl-eds"}, "Show and steer ExtendedDaemonSets"},
		"help of check-eds":            {[]string{"check-eds", "upgrade", "--help"}, "Wait until no canary runs"},
		"completion of kubectl moult":  {[]string{"/bin/kubectl_complete-moult", "sta"}, "status\t"},
		"completion of formats":        {[]string{"kubectl_complete-moult", "why", "worker-1", "-o", ""}, "wide\njson\nyaml\njsonpath=\ngo-template=\n"},
		"completion of kubectl eds":    {[]string{"/bin/kubectl_complete-eds", "unfreeze"}, "unfreeze-rollout\t"},
		"completion of a verb's verbs": {[]string{"kubectl_complete-eds.exe", "canary", "val"}, "validate\t"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := commandFor(tc.args)
			cmd.SetOut(&out)
			cmd.SetErr(&bytes.Buffer{})
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(out.String(), tc.want) {
				t.Errorf("it says\n%s\nwant %q", out.String(), tc.want)
			}
		})
	}
}

// TestWide: each verb that shows something takes -o wide, also while it follows. What is for programs is shown once.
func TestWide(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	for args, want := range map[string]string{
		"status -o wide":                             nowhere,
		"status -o wide --watch":                     nowhere,
		"status -o wide --until-complete":            nowhere,
		"why worker-1 -o wide":                       nowhere,
		"preview agents -o wide":                     nowhere,
		"status -o json --watch":                     "--output for programs shows rollouts once",
		"status -o yaml --until-complete":            "--output for programs shows rollouts once",
		"why worker-1 -o name":                       "it must be wide, json, yaml, jsonpath= or go-template=",
		"preview agents -o name":                     "it must be wide, json, yaml, jsonpath= or go-template=",
		"preview agents -o wide --nodes=2 --turn=1m": nowhere,
	} {
		cmd := commandFor(append([]string{"kubectl-moult", "--kubeconfig", nowhere}, strings.Fields(args)...))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestVerbs are those of ExtendedDaemonSet's plugin, each with kubectl's flags.
func TestVerbs(t *testing.T) {
	root := commandFor([]string{"kubectl-eds"})
	for _, verb := range []string{
		"get", "get-ers", "pods", "canary pods", "canary validate", "canary pause", "canary unpause", "canary fail", "canary reset",
		"pause-rolling-update", "unpause-rolling-update", "freeze-rollout", "unfreeze-rollout", "diff", "wait", "history", "rollback",
	} {
		cmd, rest, err := root.Find(strings.Fields(verb))
		if err != nil || len(rest) > 0 || !cmd.Runnable() {
			t.Errorf("%s: %v", verb, err)
			continue
		}
		for _, flag := range []string{"namespace", "context", "kubeconfig", "as", "server", "token"} {
			if cmd.InheritedFlags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", verb, flag)
			}
		}
	}
}
