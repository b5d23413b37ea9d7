// SPDX-License-Identifier: Apache-2.0

// Scale measures rollouts over many simulated nodes:
//
//	go run ./test/scale --kind plan --nodes 100,1000,5000 [-- flags of moult controller]
//	go run ./test/scale --suc PATH --eds PATH --kruise PATH
//
// For each number of nodes it starts a cluster, and measures the bare loop and then each subject, stage by stage:
//
//	kind         subjects                      bare loop                  stages
//	plan         a Plan, a Plan with budgets   Jobs without an operator   rollout
//	daemonset    an ExtendedDaemonSet          a DaemonSet                first rollout, update, churn, idle
//	hostupdate   a NodeRollout and agents      drains and reboots         start, finding out, update, idle
//	replacement  a NodeRollout and a cloud     machines and drains        finding out, update, idle
//
// Where the source of a peer is given, its controller is built and is a further subject of kind plan or daemonset.
//
// The operator runs as a process outside of the cluster. Its requests are counted from the audit log, and its processor
// time and memory are read from /proc. The last line is the result as JSON. The exit status is 1 when a check fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// options say what to measure.
type options struct {
	kind, dir, cloud, surge, check                                        string
	sizes                                                                 []int
	concurrency, churn, podsPerNode, rollouts                             int
	podSeconds, startSeconds, rebootSeconds, checkSeconds, machineSeconds float64
	noBare, guarded, opened                                               bool
	idle                                                                  time.Duration
	// sources are the paths of peers' sources, by flag.
	sources map[string]*string
	// given are the flags that were set, and args those of the operator.
	given, args []string
}

var surgePattern = regexp.MustCompile(`^([1-9][0-9]?%?|100%?)$`)

func parse(args []string) (options, error) {
	o := options{sizes: []int{1000}, sources: map[string]*string{}}
	names := strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.StringVar(&o.kind, "kind", "plan", "what to measure: "+names)
	flags.Func("nodes", "how many nodes there are; each of several numbers, such as 100,1000, gets a cluster of its own (default 1000)", func(text string) error {
		o.sizes = nil
		for field := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of nodes", field)
			}
			o.sizes = append(o.sizes, n)
		}
		return nil
	})
	flags.StringVar(&o.dir, "dir", "", "directory for the state of the cluster, or of each in a folder; its logs stay (default: a temporary one)")
	flags.StringVar(&o.check, "check", "", "carry out the measurements of this file, compare them with its limits, and do nothing else")
	flags.BoolVar(&o.noBare, "no-bare", false, "leave the bare loop out")
	flags.DurationVar(&o.idle, "idle", -1, "how long the idle stage is; 0 leaves it out (default: 1m, plan 0)")
	flags.IntVar(&o.concurrency, "concurrency", 50, "plan, hostupdate: how many nodes are updated at once")
	flags.Float64Var(&o.podSeconds, "pod-seconds", 1.5, "plan: how long each pod runs")
	flags.BoolVar(&o.guarded, "guarded", false, "plan: measure a second rollout, with waves, an order, failure limits and budgets with gates")
	flags.IntVar(&o.rollouts, "rollouts", 1, "plan: measure so many Plans besides, each over its part of the nodes, under one budget of --concurrency nodes")
	flags.BoolVar(&o.opened, "opened", false, "daemonset: maxUnavailable is 100% instead of 10%")
	flags.IntVar(&o.churn, "churn", 5, "daemonset: how many percent of the nodes are replaced by others; 0 leaves that stage out")
	flags.Float64Var(&o.startSeconds, "start-seconds", 0, "daemonset: how long a pod takes to become ready")
	flags.IntVar(&o.podsPerNode, "pods-per-node", 2, "hostupdate, replacement: how many pods there are to evict, for each node")
	flags.Float64Var(&o.checkSeconds, "check-seconds", 10, "hostupdate, replacement: how often agents check their hosts, or the operator asks the cloud")
	flags.Float64Var(&o.rebootSeconds, "reboot-seconds", 2, "hostupdate: how long a reboot takes")
	flags.StringVar(&o.cloud, "cloud", "azure", "replacement: the simulated cloud: aws, azure, gcp")
	flags.StringVar(&o.surge, "surge", "10%", "replacement: how many machines are added and replaced at once, as a count or in percent")
	flags.Float64Var(&o.machineSeconds, "machine-seconds", 2, "replacement: how long it takes to make a machine, and to delete one")
	for _, p := range peers {
		o.sources[p.flag] = flags.String(p.flag, "", "measure Moult beside "+p.name+", built from the source in this directory; --kind is "+p.kind)
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "kind" && f.Name != "nodes" && f.Name != "dir" {
			o.given = append(o.given, fmt.Sprintf("--%s=%s", f.Name, f.Value))
		}
	})
	o.args = flags.Args()
	kind, known := kinds[o.kind]
	if o.idle < 0 {
		o.idle = kind.idle
	}
	_, knownCloud := doubles[o.cloud]
	switch {
	case !known:
		return o, fmt.Errorf("--kind %q is none of %s", o.kind, names)
	case !knownCloud:
		return o, fmt.Errorf("--cloud %q is none of aws, azure, gcp", o.cloud)
	case !surgePattern.MatchString(o.surge):
		return o, fmt.Errorf("--surge %q is no count or percentage from 1 to 100", o.surge)
	case o.concurrency < 1 || o.podSeconds <= 0 || o.checkSeconds <= 0:
		return o, errors.New("--concurrency, --pod-seconds and --check-seconds must be positive")
	case o.churn < 0 || o.churn > 100 || min(o.startSeconds, o.rebootSeconds, o.machineSeconds) < 0 || o.podsPerNode < 0:
		return o, errors.New("--churn is a percentage, and no flag may be negative")
	}
	return o, nil
}

// seconds is a duration that a flag gives in seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rounds is how many rounds it takes to update so many nodes.
func rounds(nodes, atOnce int) int { return (nodes + atOnce - 1) / atOnce }

// inRounds is how long updating so many nodes takes, at so many seconds a round.
func inRounds(nodes, atOnce int, perRound float64) time.Duration {
	return seconds(float64(rounds(nodes, atOnce)) * perRound)
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		log.SetLogger(logr.Discard()) // The operator is another process with a log of its own.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		switch {
		case o.check != "":
			err = checkLimits(ctx, o.check, os.Stdout)
		case len(o.peerKinds()) > 0:
			err = comparePeers(ctx, o, os.Stdout)
		default:
			_, err = run(ctx, o, os.Stdout)
		}
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}
