// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"time"
)

// daemonOptions say what to measure of daemons.
type daemonOptions struct {
	// opened replaces all pods at once, as those who measure how fast a controller can be do.
	opened       bool
	noBuiltin    bool
	builtinFirst bool
	churn        int
	startSeconds float64
}

func (o *daemonOptions) bind(flags *flag.FlagSet) {
	flags.BoolVar(&o.opened, "opened", false, "daemonset: maxUnavailable is 100% in place of 10%")
	flags.BoolVar(&o.noBuiltin, "no-builtin", false, "daemonset: leave Kubernetes' own DaemonSet out")
	flags.BoolVar(&o.builtinFirst, "builtin-first", false, "daemonset: Kubernetes' own DaemonSet comes first")
	flags.IntVar(&o.churn, "churn", 5, "daemonset: how many percent of the nodes are replaced by others; 0 leaves that out")
	flags.Float64Var(&o.startSeconds, "start-seconds", 0, "daemonset: how long a pod takes to become ready")
}

func (o *daemonOptions) validate() error {
	if o.churn < 0 || o.churn > 100 || o.startSeconds < 0 {
		return errors.New("--churn is a percentage, and --start-seconds may not be negative")
	}
	return nil
}

// maxUnavailable of both.
func (o *daemonOptions) maxUnavailable() string {
	if o.opened {
		return "100%"
	}
	return "10%"
}

// mayLose is how many of so many nodes may be without an available pod at once.
func (o *daemonOptions) mayLose(nodes int) int {
	if o.opened {
		return nodes
	}
	return (nodes + 9) / 10
}

// churned is how many of so many nodes are replaced.
func (o *daemonOptions) churned(nodes int) int { return (nodes*o.churn + 99) / 100 }

// daemonPatience bounds each stage.
func (o *options) daemonPatience(nodes int) time.Duration {
	if o.timeout > 0 {
		return o.timeout
	}
	return 3*time.Minute + time.Duration(float64(nodes)*(0.3+o.daemons.startSeconds)*float64(time.Second))
}
