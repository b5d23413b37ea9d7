// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// Options are the settings of an agent.
type Options struct {
	// NodeName is the name of the agent's own Node.
	NodeName string
	// Config is how the API server is reached. New sets the limits of requests.
	Config *rest.Config
	// ReadAsNode says as whom the Node is read. Default ReadAsNodeAuto.
	ReadAsNode ReadAsNode
	// Host makes the host, whose interface is one of v1alpha1.Interface…. It is called once, when the Node's label is known. Every action
	// then fails with its error.
	Host func(protocol v1alpha1.HostProtocol, hostInterface string) (host.Host, error)
	// CheckInterval is how long to wait between checks for updates, up to a fifth more or less at random. Default 30m.
	CheckInterval time.Duration
	// RebootGrace is how long after a boot the host may fail to report what it runs, and how long after the order to reboot the host may stay
	// up before the log says so. Default 5m.
	RebootGrace time.Duration
	// Clock is the clock. Default the real one.
	Clock clock.WithTicker
	// Random returns numbers from 0 up to 1. Default those of math/rand.
	Random func() float64
	// Log gets one line for each step. Default none.
	Log logr.Logger
}

// Defaults of Options.
const (
	DefaultCheckInterval = 30 * time.Minute
	DefaultRebootGrace   = 5 * time.Minute
)

const (
	// firstCheck is the longest time from the start to the first check.
	firstCheck = time.Minute
	// checkShare is how much more or less than the interval the agent waits between two checks.
	checkShare = 0.2
	// failedChecks in a row are written on the Node.
	failedChecks = 3
	// deadSocket is how long the host may refuse connections before the process ends: a socket that was mounted when the container
	// started is dead when the host makes a new one.
	deadSocket = 10 * time.Minute
	// stuck is the longest time that a round may take: it makes a few requests, each bounded.
	stuck = 5 * time.Minute
)

// apiBackoff is the pace of attempts while the API server does not answer, or refuses.
func apiBackoff() backoff { return backoff{first: time.Second, most: 2 * time.Minute} }

// Agent is the node's half of a host update.
type Agent struct {
	options  Options
	log      logr.Logger
	client   *nodeClient
	observed *observation
	doubt    time.Duration
	// busySince is when the present round began; nil while there is none.
	busySince atomic.Pointer[time.Time]

	// The fields below belong to the goroutine of Run.

	// host is nil until the Node's label is known: label is its key, and hostInterface the interface that its value selects.
	host                 host.Host
	label, hostInterface string
	// inactive is the last logged reason why the agent does not act, or empty.
	inactive string
	// moved is the error of a label that now names another interface than the host's, or nil.
	moved error
	// work is under way, or nil. ended is its outcome until that is written.
	work  *work
	ended *outcome
	// retry fires when the next write may be tried; nil while no write failed.
	retry clock.Timer
	pause backoff
	// check fires when the next check is due; due is true from then until the check starts. failures counts the last ones in a row.
	check    clock.Timer
	due      bool
	failures int
	checks   backoff
	// refused is since when the host has refused connections; zero while it does not.
	refused time.Time
}

// New makes an agent. It fails without a NodeName, with a negative interval, and with an invalid Config or ReadAsNode.
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
	log := o.Log.WithValues("node", o.NodeName)
	client, err := newNodeClient(o.Config, o.ReadAsNode, o.NodeName, log)
	if err != nil {
		return nil, err
	}
	return &Agent{
		options: o, log: log, client: client, observed: newObservation(), doubt: doubt, pause: apiBackoff(),
		checks: backoff{first: min(time.Minute, o.CheckInterval), most: o.CheckInterval},
	}, nil
}
