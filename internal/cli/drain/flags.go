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

	// Those that kubectl doesn't have.
	onTimeout                onTimeout
	waitForVolumeDetach      bool
	excludeFromLoadBalancers bool
	// excludeSaid reports whether the command line says whether to exclude.
	excludeSaid func() bool
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
	to.Var(&f.onTimeout, "on-timeout", `What to do when the time of --timeout is over: "Halt", "Skip" (halt, and say that the node is to be left out) or `+
		`"Force" (delete the pods that are left, past every PodDisruptionBudget). Empty means halt.`)
	to.BoolVar(&f.waitForVolumeDetach, "wait-for-volume-detach", false, "Wait also until the volumes of the drained pods are detached from the node.")
	to.BoolVar(&f.excludeFromLoadBalancers, "exclude-from-load-balancers", false,
		"Also keep external load balancers from the node, by the label node.kubernetes.io/exclude-from-external-load-balancers. The default is true where the drain is part of a rollout's turn.")
	f.excludeSaid = func() bool { return to.Changed("exclude-from-load-balancers") }
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

		WaitForVolumeDetach: f.waitForVolumeDetach,
	}
	if f.onTimeout != "" {
		o.OnTimeout = drain.OnTimeout(f.onTimeout)
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

// excludes reports whether external load balancers are to be kept from the node. In a rollout's turn they are, if the
// command line does not say otherwise.
func (f *flags) excludes(by string) bool {
	if by != "" && !f.excludeSaid() {
		return true
	}
	return f.excludeFromLoadBalancers
}
