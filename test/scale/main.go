// SPDX-License-Identifier: Apache-2.0

// Scale measures rollouts over many simulated nodes:
//
//	go run ./test/scale --nodes 100,1000,5000 --concurrency 50 --pod-seconds 1.5 --guarded [-- flags of moult controller]
//
// For each number of nodes it starts a cluster, and asks things of it, one after the other. First a bare loop, which does
// nothing but keep that many Jobs in flight, each pinned to the next node, and which is the fastest that this machine can
// be: its time is what Kubernetes itself takes. Then a Plan, carried out by the operator, as a process outside of the
// cluster. The bare loop's Jobs are copies of one that the operator has made, so that both give scheduler and Job
// controller the same work. With --guarded another Plan follows over the same nodes, with a strategy and budgets.
//
// With --kind daemonset it measures an ExtendedDaemonSet in place of Plans, and Kubernetes' own DaemonSet beside it: the
// first rollout, an update, nodes that come and go, and idleness.
//
// With --kind hostupdate it measures a NodeRollout: simulated nodes, whose hosts are played, and on each the agent as it is
// shipped, all of them in this process.
//
// With --kind replacement it measures a NodeRollout over the machines of one scale set, in a cloud that is played in this process.
//
// What the operator has asked of the API server is counted from the audit log, and its processor time is read from /proc,
// both from the creation of the Plan until the last request. The last line is the result in JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// What can be measured.
const (
	kindPlan       = "plan"
	kindDaemonSet  = "daemonset"
	kindHostUpdate = "hostupdate"

	kindReplacement = "replacement"
)

var kinds = []string{kindPlan, kindDaemonSet, kindHostUpdate, kindReplacement}

// options say what to measure.
type options struct {
	kind         string
	sizes        sizes
	concurrency  int
	podSeconds   float64
	timeout      time.Duration
	dir          string
	noBare       bool
	guarded      bool
	guardedFirst bool
	idle         time.Duration
	daemons      daemonOptions
	hosts        hostOptions
	replacement  replacementOptions
	args         []string
}

// sizes are numbers of nodes, such as "100,1000".
type sizes []int

func (s *sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*s)), " ", ","), "[]")
}

// Set reads them. It is what package flag calls.
func (s *sizes) Set(text string) error {
	*s = nil
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number of nodes", field)
		}
		*s = append(*s, n)
	}
	return nil
}

// ideal is how long it would take if only pods took time, for parts of which each begins when the one before has ended.
func (o *options) ideal(parts ...int) time.Duration {
	rounds := 0
	for _, nodes := range parts {
		rounds += roundsOf(nodes, o.concurrency)
	}
	return time.Duration(float64(rounds) * o.podSeconds * float64(time.Second))
}

func roundsOf(nodes, concurrency int) int { return (nodes + concurrency - 1) / concurrency }

// patienceFor bounds the bare loop, and each rollout, over that many nodes.
func (o *options) patienceFor(nodes int) time.Duration {
	if o.timeout > 0 {
		return o.timeout
	}
	return 2*time.Minute + 4*o.ideal(nodes)
}

func parse(args []string) (options, error) {
	o := options{sizes: sizes{1000}}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.StringVar(&o.kind, "kind", kindPlan, "what to measure: "+strings.Join(kinds, ", "))
	flags.Var(&o.sizes, "nodes", "how many nodes there are; of several such numbers, with commas between, each gets a cluster of its own")
	flags.IntVar(&o.concurrency, "concurrency", 50, "how many of them may be in a turn at once")
	flags.Float64Var(&o.podSeconds, "pod-seconds", 1.5, "how long each pod runs")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long the bare loop, and each rollout, may take (default: 2m and four times what pods take)")
	flags.StringVar(&o.dir, "dir", "", "directory for the state of the cluster, or of each in a folder of its own; the logs in it stay (default: none does)")
	flags.BoolVar(&o.noBare, "no-bare", false, "leave the bare loop out")
	flags.BoolVar(&o.guarded, "guarded", false, "measure another rollout too, with waves, an order, failure limits and budgets with gates")
	flags.BoolVar(&o.guardedFirst, "guarded-first", false, "the same, and that one comes first")
	flags.DurationVar(&o.idle, "idle", time.Minute, "daemonset, hostupdate, replacement: for how long idleness is watched; 0 leaves that out")
	o.daemons.bind(flags)
	o.hosts.bind(flags)
	o.replacement.bind(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.args = flags.Args()
	o.guarded = o.guarded || o.guardedFirst
	switch {
	case !slices.Contains(kinds, o.kind):
		return o, fmt.Errorf("--kind %q is none of %s", o.kind, strings.Join(kinds, ", "))
	case o.concurrency < 1 || o.podSeconds <= 0:
		return o, errors.New("--concurrency and --pod-seconds must be positive")
	case o.idle < 0:
		return o, errors.New("--idle may not be negative")
	}
	return o, errors.Join(o.daemons.validate(), o.hosts.validate(), o.replacement.validate())
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		log.SetLogger(logr.Discard()) // The operator is another process, and logs for itself.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
