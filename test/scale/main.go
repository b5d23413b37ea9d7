// SPDX-License-Identifier: Apache-2.0

// Scale measures a rollout over many simulated nodes:
//
//	go run ./test/scale --nodes 1000 --concurrency 50 --pod-seconds 1.5 [-- flags of moult controller]
//
// It starts a cluster, and asks two things of it, one after the other. First a bare loop, which does nothing but keep
// that many Jobs in flight, each pinned to the next node, and which is the fastest that this machine can be: its time is
// what Kubernetes itself takes. Then a Plan, carried out by the operator, as a process outside of the cluster. The bare
// loop's Jobs are copies of one that the operator has made, so that both give scheduler and Job controller the same work.
//
// What the operator has asked of the API server is counted from the audit log. The last line is the result in JSON.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options say what to measure.
type options struct {
	nodes       int
	concurrency int
	podSeconds  float64
	timeout     time.Duration
	dir         string
	args        []string
}

// ideal is how long it would take if only pods took time.
func (o *options) ideal() time.Duration {
	return time.Duration(float64(o.nodes) / float64(o.concurrency) * o.podSeconds * float64(time.Second))
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.IntVar(&o.nodes, "nodes", 1000, "how many nodes there are")
	flags.IntVar(&o.concurrency, "concurrency", 50, "how many of them may be in a turn at once")
	flags.Float64Var(&o.podSeconds, "pod-seconds", 1.5, "how long each pod runs")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long the bare loop, and the rollout, may each take (default: 2m and four times what pods take)")
	flags.StringVar(&o.dir, "dir", "", "directory for the state of the cluster; the logs in it stay (default: none does)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.args = flags.Args()
	if o.nodes < 1 || o.concurrency < 1 || o.podSeconds <= 0 {
		return o, errors.New("--nodes, --concurrency and --pod-seconds must be positive")
	}
	if o.timeout == 0 {
		o.timeout = 2*time.Minute + 4*o.ideal()
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
