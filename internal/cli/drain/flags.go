// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/internal/drain"
)

// flags are those of drain alone, as the command line gives them.
type flags struct {
	podSelector       string
	force             bool
	ignoreDaemonSets  bool
	deleteEmptyDir    bool
	gracePeriod       int64
	timeout           time.Duration
	disableEviction   bool
	skipWaitForDelete int64
}

func (f *flags) add(to *pflag.FlagSet) {
	to.StringVar(&f.podSelector, "pod-selector", "", "Label selector of the pods to drain. The others stay.")
	to.BoolVar(&f.force, "force", false, "Also drain pods that no controller would make again.")
	to.BoolVar(&f.ignoreDaemonSets, "ignore-daemonsets", false, "Leave the pods of DaemonSets.")
	to.BoolVar(&f.deleteEmptyDir, "delete-emptydir-data", false, "Also drain pods with emptyDir volumes, whose content is lost.")
	to.BoolVar(&f.deleteEmptyDir, "delete-local-data", false, "The former name of --delete-emptydir-data.")
	to.Lookup("delete-local-data").Deprecated = "use --delete-emptydir-data"
	to.Int64Var(&f.gracePeriod, "grace-period", -1, "Seconds that each pod gets to end. Negative means what the pod says itself.")
	to.DurationVar(&f.timeout, "timeout", 0, "How long to try, for each node. 0 means without end.")
	to.BoolVar(&f.disableEviction, "disable-eviction", false, "Delete pods instead of evicting them: PodDisruptionBudgets are not asked. Use with caution.")
	to.Int64Var(&f.skipWaitForDelete, "skip-wait-for-delete-timeout", 0, "Do not wait for pods that should have ended more than so many seconds ago. 0 means wait.")
}

// options is what the engine makes of the flags.
func (f *flags) options() (drain.Options, error) {
	o := drain.Options{
		Force:              f.force,
		IgnoreDaemonSets:   f.ignoreDaemonSets,
		DeleteEmptyDirData: f.deleteEmptyDir,
		DisableEviction:    f.disableEviction,
		SkipWaitForDelete:  time.Duration(f.skipWaitForDelete) * time.Second,
		Timeout:            f.timeout,
		OnTimeout:          drain.HaltOnTimeout,
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
