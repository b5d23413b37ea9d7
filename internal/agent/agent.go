// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// Options are the settings of an agent.
type Options struct {
	// NodeName is the name of the agent's own Node.
	NodeName string
	// Config is how the API server is reached.
	Config *rest.Config
	// ReadAsNode says as whom the Node is read. Default ReadAsNodeAuto.
	ReadAsNode ReadAsNode
	// RequirePolicy ends Run if the API server accepts a write that the policy moult-agent forbids.
	RequirePolicy bool
	// Host makes the host for the value of the Node's label. It is called once, when the label is known. If it fails, every action fails with
	// the same error.
	Host func(protocol v1alpha1.HostProtocol, hostInterface string) (host.Host, error)
	// CheckInterval is the time between checks for updates. Up to a fifth is added at random. Default 30m.
	CheckInterval time.Duration
	// RebootGrace is how long after a boot the host may fail to report what it runs. Default 5m.
	RebootGrace time.Duration
	// Log gets one line for each step. By default there is no log.
	Log logr.Logger
}

// Defaults of Options.
const (
	DefaultCheckInterval = 30 * time.Minute
	DefaultRebootGrace   = 5 * time.Minute
)

const (
	// longestFirstCheck is the longest time from the start to the first check.
	longestFirstCheck = time.Minute
	// checkJitter is the largest part of the interval that is added at random between two checks.
	checkJitter = 0.2
	// After failedChecks in a row the failure is written on the Node.
	failedChecks = 3
	// refusedChecks is how many failed checks in a row end the process if the host refuses connections. The mounted socket is dead after the
	// host has made a new one. These checks take about 15 minutes, with the pauses.
	refusedChecks = 5
)

// backoff doubles the time between attempts, and adds up to half of it at random.
func backoff(first, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: most}
}

// apiBackoff is the time between attempts while the API server does not answer, or refuses.
func apiBackoff() wait.Backoff { return backoff(time.Second, 2*time.Minute) }

// Agent is the node's half of a host update.
type Agent struct {
	options          Options
	log              logr.Logger
	client           *nodeClient
	observed         *observation
	clock            clock.WithDelayedExecution
	doubt, lookLimit time.Duration
	// firstCheck is the time to the first check.
	firstCheck time.Duration

	// The fields below belong to the goroutine of Run.

	// host is nil until the Node's label is known, or if hostErr says why it can't be reached. selector is the label with its value; empty until
	// it is known.
	host     host.Host
	hostErr  error
	selector string
	// inactive is the last logged reason why the agent does not act, or empty.
	inactive string
	// moved is an error if the label now names another interface than the host's, or nil.
	moved error
	// work is the work in progress, or nil. ended is its outcome until the outcome is written.
	work  *work
	ended *outcome
	// retry fires when the next write may be tried; nil while no write failed.
	retry <-chan time.Time
	pause wait.Backoff
	// check fires when the next check is due. due is true from then until the check starts. failures counts failed checks in a row.
	// checks is the time between them.
	check    <-chan time.Time
	due      bool
	failures int
	checks   wait.Backoff
	// running are the goroutines that Run started.
	running sync.WaitGroup
}

// New makes an agent. It fails with an invalid Config or ReadAsNode.
func New(o Options) (*Agent, error) {
	o.CheckInterval = cmp.Or(o.CheckInterval, DefaultCheckInterval)
	o.RebootGrace = cmp.Or(o.RebootGrace, DefaultRebootGrace)
	log := o.Log.WithValues("node", o.NodeName)
	client, err := newNodeClient(o.Config, o.ReadAsNode, o.NodeName, log)
	if err != nil {
		return nil, err
	}
	return &Agent{
		options: o, log: log, client: client, observed: newObservation(), clock: clock.RealClock{}, doubt: doubt, lookLimit: lookLimit, pause: apiBackoff(),
		firstCheck: time.Duration(rand.Float64() * float64(min(longestFirstCheck, o.CheckInterval))), //nolint:gosec // No secret.
	}, nil
}

// errNoPolicy says that nothing bounds what a stolen token of an agent can do.
var errNoPolicy = errors.New("the API server would let this agent change any label of its Node: " +
	"the ValidatingAdmissionPolicy moult-agent or its binding is missing, apply config/hostupdate")

// forbidden is a write that the policy moult-agent refuses.
const forbidden = `{"metadata":{"labels":{"moult.dev/agent-may-not-write-this":"true"}}}`

// requirePolicy tries a forbidden write as a dry run. It returns nil once that is refused, or the context ends, and errNoPolicy if it is accepted.
// Other errors, such as a Node that does not exist yet, do not tell: it tries again.
func (a *Agent) requirePolicy(ctx context.Context) error {
	again := backoff(time.Second, time.Minute)
	for {
		_, err := a.client.patch(ctx, []byte(forbidden), metav1.DryRunAll)
		switch {
		case err == nil:
			return errNoPolicy
		case apierrors.IsForbidden(err):
			return nil
		}
		a.log.Info("it is not known yet if the policy moult-agent is there", "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-a.clock.After(again.Step()):
		}
	}
}
