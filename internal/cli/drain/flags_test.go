// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/internal/drain"
)

func commands() map[string]*cobra.Command {
	byName := map[string]*cobra.Command{}
	for _, c := range NewCommands(clocktesting.NewFakeClock(start), genericiooptions.NewTestIOStreamsDiscard()) {
		byName[c.Name()] = c
	}
	return byName
}

// The flags of kubectl 1.37, each with its shorthand and the type of its value.
func TestEveryCommandHasKubectlsFlags(t *testing.T) {
	shared := map[string]string{"selector": "l string", "dry-run": " string"}
	ofDrain := map[string]string{
		"selector": "l string", "dry-run": " string", "chunk-size": " int64", "delete-emptydir-data": " bool",
		"delete-local-data": " bool", "disable-eviction": " bool", "force": " bool", "grace-period": " int64",
		"ignore-daemonsets": " bool", "pod-selector": " string", "skip-wait-for-delete-timeout": " int64", "timeout": " duration",
		// Those that kubectl doesn't have.
		"on-timeout": " string", "wait-for-volume-detach": " bool", "exclude-from-load-balancers": " bool",
	}
	global := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().AddFlags(global)
	connection := map[string]string{}
	global.VisitAll(func(f *pflag.Flag) { connection[f.Name] = f.Shorthand + " " + f.Value.Type() })

	for name, c := range commands() {
		want := map[string]string{}
		own := shared
		if name == "drain" {
			own = ofDrain
		}
		for _, flags := range []map[string]string{connection, own} {
			maps.Copy(want, flags)
		}
		got := map[string]string{}
		c.Flags().VisitAll(func(f *pflag.Flag) { got[f.Name] = f.Shorthand + " " + f.Value.Type() })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOptions(t *testing.T) {
	ten, zero := int64(10), int64(0)
	for line, want := range map[string]drain.Options{
		"": {},
		"--force --ignore-daemonsets --delete-emptydir-data": {Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true},
		"--force=false --ignore-daemonsets=true":             {IgnoreDaemonSets: true},
		"--delete-local-data":                                {DeleteEmptyDirData: true},
		"--grace-period=10":                                  {GracePeriodSeconds: &ten},
		"--grace-period 0":                                   {GracePeriodSeconds: &zero},
		"--grace-period -1":                                  {},
		"--timeout 60s":                                      {Timeout: time.Minute},
		"--timeout=0":                                        {},
		"--disable-eviction=true":                            {DisableEviction: true},
		"--skip-wait-for-delete-timeout 60":                  {SkipWaitForDelete: time.Minute},
		"--pod-selector app=web":                             {PodSelector: selector(t, "app=web")},
		// What a Plan's Job gives, word for word.
		"--pod-selector app~notin~(csi,x),!upgrade.cattle.io/controller --ignore-daemonsets --delete-emptydir-data --force " +
			"--timeout 60s --grace-period 10 --disable-eviction=true --skip-wait-for-delete-timeout 60": {
			PodSelector: selector(t, "app notin (csi,x),!upgrade.cattle.io/controller"), IgnoreDaemonSets: true,
			DeleteEmptyDirData: true, Force: true, Timeout: time.Minute, GracePeriodSeconds: &ten, DisableEviction: true,
			SkipWaitForDelete: time.Minute,
		},
		"--on-timeout= --exclude-from-load-balancers": {},
		"--on-timeout Halt":                           {OnTimeout: drain.HaltOnTimeout},
		"--on-timeout=Skip --wait-for-volume-detach":  {OnTimeout: drain.SkipOnTimeout, WaitForVolumeDetach: true},
		"--on-timeout=Force --timeout=5m":             {OnTimeout: drain.ForceOnTimeout, Timeout: 5 * time.Minute},
	} {
		t.Run(line, func(t *testing.T) {
			var f drainFlags
			cmd := &cobra.Command{}
			f.add(cmd)
			set := cmd.Flags()
			set.SetOutput(&strings.Builder{})
			args := strings.Fields(line)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "~", " ")
			}
			if err := set.Parse(args); err != nil {
				t.Fatal(err)
			}
			got, err := f.read()
			if err != nil {
				t.Fatal(err)
			}
			want.ChunkSize = chunk
			if want.OnTimeout == "" {
				want.OnTimeout = drain.HaltOnTimeout
			}
			same := cmp.Comparer(func(a, b labels.Selector) bool { return a.String() == b.String() })
			if diff := cmp.Diff(want, got, cmp.FilterValues(bothSet, same)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func bothSet(a, b labels.Selector) bool { return a != nil && b != nil }

func selector(t *testing.T, s string) labels.Selector {
	t.Helper()
	parsed, err := labels.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestPodSelectorThatCannotBeRead(t *testing.T) {
	f := drainFlags{podSelector: "a in"}
	if _, err := f.read(); err == nil || !strings.HasPrefix(err.Error(), "reading --pod-selector, ") {
		t.Errorf("got %v", err)
	}
}
