// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// Options are what an agent needs, and how it goes about it.
type Options struct {
	// NodeName is the name of the agent's own Node.
	NodeName string
	// Config is how the API server is reached. Limits of requests are set by New.
	Config *rest.Config
	// ReadAsNode says as whom the Node is read. Default ReadAsNodeAuto.
	ReadAsNode ReadAsNode
	// Host makes the host, whose interface is one of v1alpha1.Interface…. It is called once, when the Node's label has told it. An error
	// is what every action then ends with.
	Host func(protocol v1alpha1.HostProtocol, hostInterface string) (host.Host, error)
	// CheckInterval is how long to wait between checks for updates, up to a fifth more or less at random. Default 30m.
	CheckInterval time.Duration
	// RebootGrace is how long after a boot a host may not answer what it runs, and how long it may stay up after it was told to reboot
	// before the log says so. Default 5m.
	RebootGrace time.Duration
	// Clock is the clock. Default the real one.
	Clock clock.WithTicker
	// Random gives numbers from 0 up to 1. Default those of math/rand.
	Random func() float64
	// Log gets one line for each step. Default none.
	Log *slog.Logger
}

// Defaults of Options.
const (
	DefaultCheckInterval = 30 * time.Minute
	DefaultRebootGrace   = 5 * time.Minute
)

const (
	// firstCheck is within how long after the start the first check is.
	firstCheck = time.Minute
	// checkShare is how much more or less than the interval it is between two checks.
	checkShare = 0.2
	// failedChecks in a row are not chance: the Node is told of it.
	failedChecks = 3
	// deadSocket is how long the host may refuse connections before the process ends: a socket that was mounted when the container was
	// started is dead for it when the host makes a new one.
	deadSocket = 10 * time.Minute
	// stuck is how long a round may take at most: it makes a few requests, each bounded.
	stuck = 5 * time.Minute
	// manyConflicts in a row are not chance: the next attempt waits.
	manyConflicts = 5
)

// apiBackoff is the pace of attempts while the API server does not answer, or refuses.
func apiBackoff() backoff { return backoff{first: time.Second, most: 2 * time.Minute} }

// Agent is the node's half of a host update.
type Agent struct {
	options Options
	log     *slog.Logger
	reads   *reader
	writes  *writer
	sight   *sight
	doubt   time.Duration
	// busySince is when the present round began; nil while there is none.
	busySince atomic.Pointer[time.Time]

	// What follows belongs to the goroutine of Run.

	// host is nil until the Node's label has told which it is: label is its key, and face what its value stands for.
	host        host.Host
	label, face string
	// quiet is why the agent does not act at present, as it was logged last.
	quiet string
	// moved says that the Node's label names another interface than the host's, or is another label; nil while that is not so.
	moved error
	// odd is what was wanted last, if that is nothing that an agent can do.
	odd v1alpha1.HostAction
	// work is under way, or nil. ended is its outcome, once it has one that is not yet written.
	work  *work
	ended *outcome
	// retry fires when the API server is to be tried again; nil while nothing failed.
	retry     clock.Timer
	pause     backoff
	conflicts int
	// check fires when the next check is due; due is true from then until it is begun. failures are of the last ones in a row.
	check    clock.Timer
	due      bool
	failures int
	checks   backoff
	// refused is since when the host has refused connections; zero while it does not.
	refused time.Time
}

// New makes an agent. It fails without a name of the Node, with an interval below 0, and where Config or ReadAsNode is of no use.
func New(o Options) (*Agent, error) {
	if o.NodeName == "" {
		return nil, errors.New("the name of the Node is not given")
	}
	o.CheckInterval = cmp.Or(o.CheckInterval, DefaultCheckInterval)
	o.RebootGrace = cmp.Or(o.RebootGrace, DefaultRebootGrace)
	if o.CheckInterval < 0 || o.RebootGrace < 0 {
		return nil, errors.New("intervals must be positive")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	log := o.Log.With("node", o.NodeName)
	config := limited(o.Config)
	reads, err := newReader(config, o.ReadAsNode, o.NodeName, log)
	if err != nil {
		return nil, err
	}
	writes, err := newWriter(config, o.NodeName)
	if err != nil {
		return nil, err
	}
	return &Agent{
		options: o, log: log, reads: reads, writes: writes, sight: newSight(), doubt: doubt, pause: apiBackoff(),
		checks: backoff{first: min(time.Minute, o.CheckInterval), most: o.CheckInterval},
	}, nil
}
