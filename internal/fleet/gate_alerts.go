// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// The default interval of queries to Prometheus in seconds, the longest interval after an error, the longest timeout of a query,
// and the longest grace for an overdue answer.
const (
	defaultSeconds = 15
	retryInterval  = 15 * time.Second
	longestTimeout = 10 * time.Second
	longestGrace   = time.Minute
)

// poller is the alerts gate of one budget. It queries Prometheus in the background.
type poller struct {
	gates             *gates
	gate              v1alpha1.AlertsGate
	allow, deny       *regexp.Regexp
	interval, timeout time.Duration
	stopped           chan struct{}
	// server is the Prometheus, and secret what of the gate's Secret it was made with. Only the queries use them.
	server promv1.API
	secret *credentials

	mu sync.Mutex
	// answered is the time of the last valid answer, and active its number of alerts by name.
	answered time.Time
	active   map[string]int
	// failed is true if the last query failed, and failure says why. The error itself may quote megabytes.
	failed  bool
	failure string
	// shown is the verdict after the last query.
	shown alertsVerdict
}

// alertsVerdict is the gate if it is closed, and why an open gate ignores an unreachable Prometheus.
type alertsVerdict struct {
	closed  rollout.Block
	ignored string
}

// newPoller reads an alerts gate. The error names the field.
func newPoller(g *gates, from *v1alpha1.AlertsGate) (*poller, error) {
	p := &poller{
		gates: g, gate: *from.DeepCopy(), stopped: make(chan struct{}),
		interval: time.Duration(ptr.Deref(from.IntervalSeconds, defaultSeconds)) * time.Second,
	}
	p.timeout = min(p.interval, longestTimeout)
	var err error
	if p.allow, err = wholeName(from.Allow); err != nil {
		return nil, fmt.Errorf("allow: %w", err)
	}
	if p.deny, err = wholeName(from.Deny); err != nil {
		return nil, fmt.Errorf("deny: %w", err)
	}
	return p, nil
}

// wholeName returns an expression that matches whole names only; nil for an empty one.
func wholeName(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, nil
	}
	// First compiled without the anchors, so that a ")" can't close their group.
	if _, err := regexp.Compile(expression); err != nil {
		return nil, err
	}
	return regexp.Compile("^(?:" + expression + ")$")
}

// matters reports whether an alert of this name closes the gate. Moult's own do so only by deny: a rollout that waits would raise what it waits for.
func (p *poller) matters(name string) bool {
	switch {
	case p.deny != nil:
		return p.deny.MatchString(name)
	case strings.HasPrefix(name, "Moult"):
		return false
	case p.allow != nil:
		return !p.allow.MatchString(name)
	}
	return true
}

// isOverdue reports whether the last valid answer is older than one interval and the time for another query.
func (p *poller) isOverdue(now time.Time) bool {
	return now.Sub(p.answered) > p.interval+min(p.interval, longestGrace)+p.timeout
}

// stop ends the queries, if there are any.
func (p *poller) stop() {
	if p != nil {
		close(p.stopped)
	}
}

// run queries repeatedly, until ctx ends or the poller is stopped.
func (p *poller) run(ctx context.Context) {
	for {
		pause := p.query(ctx)
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-clock.RealClock{}.After(pause):
		}
	}
}

// query queries once, and returns the pause until the next query. The pause is short after an error.
func (p *poller) query(ctx context.Context) (pause time.Duration) {
	short, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var all model.Vector
	err := p.connect(short)
	if err == nil {
		if all, err = pendingAndFiring(short, p.server); err != nil {
			err = p.secret.failed(err)
		}
	}
	if ctx.Err() == nil {
		p.recordAnswer(all, err)
	}
	if err != nil {
		return min(p.interval, retryInterval)
	}
	return p.interval
}

// recordAnswer keeps an answer.
func (p *poller) recordAnswer(all model.Vector, err error) {
	active := map[string]int{}
	for _, s := range all {
		name := string(s.Metric[model.AlertNameLabel])
		if s.Value != 0 && (s.Metric["alertstate"] == "firing" || !p.gate.FiringOnly) && p.matters(name) {
			active[name]++
		}
	}
	p.mu.Lock()
	before, shown := p.verdict(), p.shown // The answer before may have become overdue since the last query.
	p.failed = err != nil
	if err != nil {
		p.failure = "Prometheus does not answer: " + rollout.Shorten(err.Error(), longest)
	}
	if secret, ok := errors.AsType[secretError](err); ok {
		p.failure = secret.Error()
	}
	if err == nil {
		p.answered, p.active = p.gates.clock.Now(), active
	}
	p.shown = p.verdict()
	changed := p.shown != before || p.shown != shown
	p.mu.Unlock()
	if changed {
		p.gates.changed() // Pods need not be searched again.
	}
}

// judge returns the gate if it is closed. A valid answer counts for some time if later queries fail. If the gate is open
// because Prometheus is unreachable, ignored says why. Before the first query every gate is closed.
func (p *poller) judge() (closed rollout.Block, ignored string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.verdict()
	return v.closed, v.ignored
}

// verdict is judge for a caller that holds the lock.
func (p *poller) verdict() alertsVerdict {
	closed := func(reason v1alpha1.Reason, message string) alertsVerdict {
		return alertsVerdict{closed: rollout.Block{Gate: reason, Message: message}}
	}
	switch {
	case p.answered.IsZero() && !p.failed:
		return closed(v1alpha1.ReasonAlertsUnreachable, "Prometheus has not been queried yet")
	case p.isOverdue(p.gates.clock.Now()):
		message := p.failure
		if !p.failed {
			message = "Prometheus does not answer: the last answer was at " + p.answered.UTC().Format(time.RFC3339)
		}
		if p.gate.WhenUnreachable == v1alpha1.UnreachableOpen {
			return alertsVerdict{ignored: message}
		}
		return closed(v1alpha1.ReasonAlertsUnreachable, message)
	case len(p.active) == 0:
		return alertsVerdict{}
	}
	var names []string
	total := 0
	for name, n := range p.active {
		total += n
		if name == "" {
			name = "(no name)"
		}
		if n > 1 {
			name += fmt.Sprintf(" (%d)", n)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d alerts are active: ", total)
	if total == 1 {
		text = "1 alert is active: "
	}
	return closed(v1alpha1.ReasonAlertsActive, text+firstOf(names, ", "))
}

func newPrometheus(address string, client *http.Client) (promv1.API, error) {
	c, err := api.NewClient(api.Config{Address: address, Client: client})
	if err != nil {
		return nil, fmt.Errorf("reading the URL, %w", cause(err))
	}
	return promv1.NewAPI(c), nil
}

// pendingAndFiring returns a series for each pending or firing alert: ALERTS, which every compatible store has.
func pendingAndFiring(ctx context.Context, server promv1.API) (model.Vector, error) {
	value, warnings, _, err := server.Query(ctx, "ALERTS", time.Time{})
	switch {
	case err != nil:
		return nil, cause(err)
	case len(warnings) > 0:
		return nil, fmt.Errorf("the answer may not be complete: %s", warnings[0])
	}
	series, ok := value.(model.Vector)
	if !ok {
		return nil, errors.New("the answer is not a list of series")
	}
	return series, nil
}

// cause returns why a request failed, without parts that differ each time, such as the local port.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the query timed out")
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if inner, ok := errors.AsType[*net.OpError](err); ok && inner.Addr != nil {
		return fmt.Errorf("%s %s: %w", inner.Op, inner.Addr, inner.Err)
	}
	return err
}
