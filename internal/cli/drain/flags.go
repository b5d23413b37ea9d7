// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/drain"
)

// drainFlags are the flags that only drain has, and the options that they set.
type drainFlags struct {
	options drain.Options

	podSelector       string
	gracePeriod       int64
	skipWaitForDelete int64
	onTimeout         flags.Choice
	exclude           bool
	// excludeSet reports whether the command line has --exclude-from-load-balancers.
	excludeSet func() bool
}

func (f *drainFlags) add(cmd *cobra.Command) {
	o, to := &f.options, cmd.Flags()
	to.StringVar(&f.podSelector, "pod-selector", "", "Label selector of the pods to drain. The others stay.")
	to.BoolVar(&o.Force, "force", false, "Also drain pods that no controller would make again.")
	to.BoolVar(&o.IgnoreDaemonSets, "ignore-daemonsets", false, "Leave the pods of DaemonSets.")
	to.BoolVar(&o.DeleteEmptyDirData, "delete-emptydir-data", false, "Also drain pods with emptyDir volumes, whose content is lost.")
	to.BoolVar(&o.DeleteEmptyDirData, "delete-local-data", false, "The former name of --delete-emptydir-data.")
	to.Lookup("delete-local-data").Deprecated = "use --delete-emptydir-data"
	to.Int64Var(&f.gracePeriod, "grace-period", -1, "Seconds that each pod gets to end. Negative means what the pod says itself.")
	to.DurationVar(&o.Timeout, "timeout", 0, "How long to try, for each node. 0 means without end.")
	to.BoolVar(&o.DisableEviction, "disable-eviction", false, "Delete pods instead of evicting them: PodDisruptionBudgets are not asked. Use with caution.")
	to.Int64Var(&f.skipWaitForDelete, "skip-wait-for-delete-timeout", 0,
		"Do not wait for pods that should have ended more than so many seconds ago. 0 means wait.")
	to.Int64Var(&o.ChunkSize, "chunk-size", chunk, "Read long lists in pages of this size. 0 reads them whole.")
	f.onTimeout.Add(cmd, "on-timeout", "",
		`What to do when the time of --timeout is over: "Halt", "Skip" (halt, and say that the node is to be left out) or `+
			`"Force" (delete the pods that are left, past every PodDisruptionBudget). Empty means halt.`,
		string(drain.HaltOnTimeout), string(drain.SkipOnTimeout), string(drain.ForceOnTimeout))
	to.BoolVar(&o.WaitForVolumeDetach, "wait-for-volume-detach", false, "Wait also until the volumes of the drained pods are detached from the node.")
	to.BoolVar(&f.exclude, "exclude-from-load-balancers", false,
		"Also keep external load balancers from the node, by the label node.kubernetes.io/exclude-from-external-load-balancers. "+
			"The default is true where the drain is part of a rollout's turn.")
	f.excludeSet = func() bool { return to.Changed("exclude-from-load-balancers") }
}

// read returns the options that the flags set.
func (f *drainFlags) read() (drain.Options, error) {
	o := f.options
	o.SkipWaitForDelete, o.OnTimeout = time.Duration(f.skipWaitForDelete)*time.Second, drain.HaltOnTimeout
	if f.onTimeout.Value != "" {
		o.OnTimeout = drain.OnTimeout(f.onTimeout.Value)
	}
	if f.gracePeriod >= 0 {
		o.GracePeriodSeconds = &f.gracePeriod
	}
	if f.podSelector != "" {
		selector, err := labels.Parse(f.podSelector)
		if err != nil {
			return drain.Options{}, fmt.Errorf("reading --pod-selector, %w", err)
		}
		o.PodSelector = selector
	}
	return o, nil
}

// excludes reports whether external load balancers are kept from the node: by default they are in a rollout's turn.
func (f *drainFlags) excludes(holder string) bool {
	return f.exclude || holder != "" && !f.excludeSet()
}
