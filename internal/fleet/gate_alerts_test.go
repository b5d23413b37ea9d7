// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"

	"moult.dev/moult/api/v1alpha1"
)

// sample is a series of ALERTS.
func sample(name, state, value string) string {
	return fmt.Sprintf(`{"metric":{"__name__":"ALERTS","alertname":%q,"alertstate":%q},"value":[1700000000,%q]}`, name, state, value)
}

func vector(samples ...string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

// stub is a Prometheus that answers as a test wants it to.
type stub struct {
	*httptest.Server
	asked  atomic.Int64
	mu     sync.Mutex
	answer http.HandlerFunc
}

func newStub(t *testing.T, answer http.HandlerFunc) *stub {
	s := &stub{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" || r.FormValue("query") != "ALERTS" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// poller returns the poller of a budget, which it has from when the budget is read.
func (b *bench) poller(from *v1alpha1.NodeDisruptionBudget) *poller {
	return b.gates.rulesOf(from).alerts
}

// asks lets a poller query once, and returns what the gate says.
func (b *bench) asks(from *v1alpha1.NodeDisruptionBudget) string {
	b.t.Helper()
	p := b.poller(from)
	ctx, cancel := context.WithCancel(b.t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.started[0](ctx) })
	b.eventually("Prometheus is queried", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.answered.IsZero() || p.failed
	})
	cancel()
	running.Wait()
	return b.says(from)
}

func (b *bench) says(from *v1alpha1.NodeDisruptionBudget) string {
	text := ""
	for _, block := range b.Budget(from).Blocks {
		text += string(block.Gate) + ": " + block.Message
	}
	return text
}

func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	err := wait.PollUntilContextTimeout(b.t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func TestAlertsGate(t *testing.T) {
	firing := vector(sample("DiskFull", "firing", "1"), sample("Latency", "pending", "1"), sample("Latency", "firing", "1"), sample("Watchdog", "firing", "1"))
	const unreachable = "AlertsUnreachable: Prometheus does not answer: "
	for name, tc := range map[string]struct {
		gate   string
		answer http.HandlerFunc
		want   string
	}{
		"none":              {answer: says(200, vector())},
		"one":               {answer: says(200, vector(sample("DiskFull", "firing", "1"))), want: "AlertsActive: 1 alert is active: DiskFull"},
		"several":           {answer: says(200, firing), want: "AlertsActive: 4 alerts are active: DiskFull, Latency (2), Watchdog"},
		"many":              {answer: says(200, vector(sample("E", "firing", "1"), sample("D", "firing", "1"), sample("C", "firing", "1"), sample("B", "firing", "1"), sample("A", "firing", "1"))), want: "AlertsActive: 5 alerts are active: A, B, C and 2 more"},
		"pending":           {answer: says(200, vector(sample("DiskFull", "pending", "1"))), want: "AlertsActive: 1 alert is active: DiskFull"},
		"pending, not told": {gate: ", firingOnly: true", answer: says(200, vector(sample("DiskFull", "pending", "1")))},
		"firing only":       {gate: ", firingOnly: true", answer: says(200, firing), want: "AlertsActive: 3 alerts are active: DiskFull, Latency, Watchdog"},
		"resolved":          {answer: says(200, vector(sample("DiskFull", "firing", "0")))},
		"without a name":    {answer: says(200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`), want: "AlertsActive: 1 alert is active: (no name)"},
		"allow":             {gate: ", allow: 'Latency|Watchdog'", answer: says(200, firing), want: "AlertsActive: 1 alert is active: DiskFull"},
		"allow is anchored": {gate: ", allow: 'Lat|Disk|Watchdog'", answer: says(200, firing), want: "AlertsActive: 3 alerts are active: DiskFull, Latency (2)"},
		"Moult's own":       {answer: says(200, strings.ReplaceAll(firing, "DiskFull", "MoultNodesFailed")), want: "AlertsActive: 3 alerts are active: Latency (2), Watchdog"},
		"allow all":         {gate: ", allow: '.*'", answer: says(200, firing)},
		"deny":              {gate: ", deny: 'Disk.*'", answer: says(200, firing), want: "AlertsActive: 1 alert is active: DiskFull"},
		"deny is anchored":  {gate: ", deny: 'Disk|isk.*'", answer: says(200, firing)},
		"500":               {answer: says(500, "oops"), want: unreachable + "server_error: server error: 500"},
		"refused":           {answer: says(422, `{"status":"error","errorType":"execution","error":"too much"}`), want: unreachable + "execution: too much"},
		"garbage":           {answer: says(200, "<html>"), want: unreachable + "bad_response: "},
		"no data":           {answer: says(200, `{"status":"success"}`), want: unreachable},
		"no vector":         {answer: says(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`), want: unreachable + "the answer is not a list of series"},
		"part of it":        {answer: says(200, `{"status":"success","warnings":["a store is down"],"data":{"resultType":"vector","result":[]}}`), want: unreachable + "the answer may not be complete: a store is down"},
		"endless":           {answer: says(200, vector(sample(strings.Repeat("x", 3<<20), "firing", "1"))), want: unreachable + "the answer is larger than 2 MiB"},
		"slow": {gate: ", intervalSeconds: 1", answer: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // Only then does the server see that no one waits any more.
			<-r.Context().Done()
		},
			want: unreachable + "the query timed out"},
		"open when unreachable": {gate: ", whenUnreachable: Open", answer: says(500, "oops")},
		"no queries":            {answer: http.NotFound, want: unreachable + "client_error: client error: 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, tc.answer)
			got := newBench(t).asks(budgetWith(t, "{alerts: {url: '"+s.URL+"/'"+tc.gate+"}}"))
			if got != tc.want && (tc.want == "" || !strings.HasPrefix(tc.want, unreachable) || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAlertsGateOfNobody(t *testing.T) {
	s := newStub(t, says(200, vector()))
	s.Close()
	got := newBench(t).asks(budgetWith(t, "{alerts: {url: '"+s.URL+"'}}"))
	want := "AlertsUnreachable: Prometheus does not answer: dial " + strings.TrimPrefix(s.URL, "http://") + ": connect: connection refused"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A good answer counts for some time after the next is due, and then no more.
func TestAlertsGateAnswersAge(t *testing.T) {
	for name, tc := range map[string]struct{ gate, late string }{
		"closed": {"", "AlertsUnreachable: Prometheus does not answer: the last answer was at 2026-03-02T09:00:00Z"},
		"open":   {", whenUnreachable: Open", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t, says(200, vector(sample("A", "firing", "1"))))
			from := budgetWith(t, "{alerts: {url: '"+s.URL+"'"+tc.gate+"}}")
			b := newBench(t)
			const active = "AlertsActive: 1 alert is active: A"
			if got := b.asks(from); got != active {
				t.Errorf("got %q", got)
			}
			b.clock.SetTime(morning.Add(40 * time.Second))
			if got := b.says(from); got != active {
				t.Errorf("after 40 s: got %q", got)
			}
			b.clock.SetTime(morning.Add(41 * time.Second))
			if got := b.says(from); got != tc.late {
				t.Errorf("after 41 s: got %q, want %q", got, tc.late)
			}
			if why := b.Budget(from).AlertsIgnored; (why != "") != (name == "open") {
				t.Errorf("it says %q", why)
			}
		})
	}
}

// However seldom Prometheus is asked, it is asked again soon when it does not answer, and an answer does not count for much longer than
// until the next.
func TestAlertsGateAsksAgain(t *testing.T) {
	const active = "AlertsActive: 1 alert is active: A"
	for _, tc := range []struct {
		interval, again, counts time.Duration
	}{
		{time.Second, time.Second, 3 * time.Second},
		{15 * time.Second, 15 * time.Second, 40 * time.Second},
		{time.Minute, 15 * time.Second, 130 * time.Second},
		{time.Hour, 15 * time.Second, time.Hour + 70*time.Second},
	} {
		s := newStub(t, says(200, vector(sample("A", "firing", "1"))))
		b := newBench(t)
		from := budgetWith(t, fmt.Sprintf("{alerts: {url: '%s', intervalSeconds: %d}}", s.URL, tc.interval/time.Second))
		p := b.poller(from)
		if pause := p.query(t.Context()); pause != tc.interval {
			t.Errorf("every %s: it is asked again after %s", tc.interval, pause)
		}
		s.set(says(500, "oops"))
		b.clock.SetTime(morning.Add(tc.counts))
		if pause := p.query(t.Context()); pause != tc.again {
			t.Errorf("every %s: without an answer it is asked again after %s", tc.interval, pause)
		}
		if got := b.says(from); got != active {
			t.Errorf("every %s, after %s: got %q", tc.interval, tc.counts, got)
		}
		b.clock.SetTime(morning.Add(tc.counts + time.Second))
		if got := b.says(from); !strings.HasPrefix(got, "AlertsUnreachable") {
			t.Errorf("every %s, after %s: got %q", tc.interval, tc.counts+time.Second, got)
		}
	}
}

// What one answer fails to say the last good one still does.
func TestAlertsGateBearsAHitch(t *testing.T) {
	b := newBench(t)
	from := budgetWith(t, "{alerts: {url: 'http://127.0.0.1:1'}}")
	p := b.poller(from)
	for _, step := range []struct {
		after time.Duration
		all   model.Vector
		err   error
		want  string
	}{
		{0, nil, nil, ""},
		{15 * time.Second, nil, io.ErrUnexpectedEOF, ""},
		{15 * time.Second, nil, io.ErrUnexpectedEOF, ""},
		{15 * time.Second, nil, io.ErrUnexpectedEOF, "AlertsUnreachable: Prometheus does not answer: unexpected EOF"},
		{15 * time.Second, model.Vector{&model.Sample{Metric: model.Metric{model.AlertNameLabel: "A", "alertstate": "firing"}, Value: 1}}, nil, "AlertsActive: 1 alert is active: A"},
		{15 * time.Second, nil, io.ErrUnexpectedEOF, "AlertsActive: 1 alert is active: A"},
		{15 * time.Second, nil, nil, ""},
	} {
		b.clock.SetTime(b.clock.Now().Add(step.after))
		p.recordAnswer(step.all, step.err)
		if got := b.says(from); got != step.want {
			t.Errorf("after %s: got %q, want %q", b.clock.Since(morning), got, step.want)
		}
	}
}

// An answer that comes late opens the gate again, and wakes the rollouts that wait, though it is the same answer as before. An error that changes
// no gate wakes none: thousands of budgets may name a Prometheus that does not answer.
func TestAlertsGateNotices(t *testing.T) {
	b := newBench(t)
	from := budgetWith(t, "{alerts: {url: 'http://127.0.0.1:1'}}")
	p := b.poller(from)
	for _, step := range []struct {
		name  string
		after time.Duration
		err   error
		want  int
	}{
		{"the first answer", 0, nil, 1},
		{"the same, in time", 15 * time.Second, nil, 1},
		{"the same, late", time.Minute, nil, 2},
		{"the same, in time again", 15 * time.Second, nil, 2},
		{"an error, in time", 15 * time.Second, io.ErrUnexpectedEOF, 2},
		{"an error, late", time.Minute, io.ErrUnexpectedEOF, 3},
		{"the same error again", 15 * time.Second, io.ErrUnexpectedEOF, 3},
	} {
		b.clock.SetTime(b.clock.Now().Add(step.after))
		p.recordAnswer(nil, step.err)
		if b.woken != step.want {
			t.Errorf("%s: woken %d times, want %d", step.name, b.woken, step.want)
		}
	}
}

// A poller ends with its budget or its gate. Another starts when the gate changes. Any other change of the budget keeps the poller,
// and what it knows.
func TestPollersStartAndStop(t *testing.T) {
	b := newBench(t)
	s := newStub(t, says(200, vector()))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	b.gates.start = func(run func(context.Context)) { running.Go(func() { run(ctx) }) }
	hasEnded := func(p *poller) bool {
		select {
		case <-p.stopped:
			return true
		default:
			return false
		}
	}
	from := budgetWith(t, "{alerts: {url: '"+s.URL+"', intervalSeconds: 1}}")
	first := b.poller(from)
	b.eventually("it is asked again and again", func() bool { return s.asked.Load() >= 2 && b.says(from) == "" })

	from.Generation++
	from.Spec.Paused = true
	if b.poller(from) != first || b.says(from) != "" || hasEnded(first) {
		t.Error("the poller was changed")
	}

	from.Generation++
	from.Spec.Gates.Alerts.FiringOnly = true
	s.set(says(200, vector(sample("A", "firing", "1"))))
	second := b.poller(from)
	if second == first || !hasEnded(first) {
		t.Error("another gate has the same poller")
	}
	b.eventually("the new gate knows", func() bool { return strings.HasPrefix(b.says(from), "AlertsActive") })
	s.set(says(200, vector()))
	b.eventually("it opens", func() bool { return b.says(from) == "" })

	from.Generation++
	from.Spec.Gates = nil
	if b.poller(from) != nil || !hasEnded(second) {
		t.Error("a poller is left of a gate that was removed")
	}
	from.Spec.Gates = &v1alpha1.Gates{Alerts: &v1alpha1.AlertsGate{URL: s.URL}}
	from.Generation++
	third := b.poller(from)
	b.gates.read([]*v1alpha1.NodeDisruptionBudget{from})
	if _, err := b.budgets(t.Context()); err != nil { // The API has no budgets.
		t.Fatal(err)
	}
	if !hasEnded(third) {
		t.Error("a poller is left of a budget that was deleted")
	}
	stop()
	running.Wait() // All have ended: the server may still get a request that was under way.
}

// An error may quote an answer of megabytes. Each snapshot of the fleet asks for the message.
func TestAlertsGateShortensErrors(t *testing.T) {
	b := newBench(t)
	from := budgetWith(t, "{alerts: {url: 'http://127.0.0.1:1'}}")
	p := b.poller(from)
	p.recordAnswer(nil, errors.New(strings.Repeat("x", 3<<20)))
	if got := len(p.failure); got > 2*longest {
		t.Errorf("the message has %d bytes", got)
	}
}
