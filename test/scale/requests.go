// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// request is a kind of request.
type request struct{ verb, resource string }

// count of requests of one kind, and how many of them the API server refused.
type count struct{ all, refused int }

// watches of one kind: how many there were, and how long they were let go on, together.
type watches struct {
	all  int
	last time.Duration
}

// requests is what the operator has asked of the API server since it was started.
type requests struct {
	// rollout holds those that the rollout took: all since the Plan was made, but for these.
	rollout map[request]count
	// faults are those that no operator should have made, by what the API server said.
	faults map[string]int
	// start is how many it took to start.
	start int
	// watches is how many were begun, and leases how many were about who leads.
	watches, leases int
	// watched holds the watches by what they are of.
	watched map[string]watches
	// jobs lists the Jobs that were made.
	jobs []string
}

func newRequests() requests {
	return requests{rollout: map[request]count{}, faults: map[string]int{}, watched: map[string]watches{}}
}

// asker is who asks the API server: what a line of the audit log has in it then, and what the user agent has.
type asker struct{ line, user string }

var (
	byOperator = asker{line: `"userAgent":"` + operator.UserAgent}
	// byBuiltin is the controller of DaemonSets, which shares a process with others.
	byBuiltin = asker{line: "daemon-set-controller", user: "daemon-set-controller"}
)

// read calls each for every request since the last time.
func (a asker) read(log *audit.Log, each func(*audit.Event)) error {
	return log.Read(a.line, func(e *audit.Event) {
		if strings.Contains(e.UserAgent, a.user) {
			each(e)
		}
	})
}

// readRequests returns when no more come. Statuses are written at most once a second, so that the last ones come late. It
// calls more each time that there were some.
func readRequests(ctx context.Context, log *audit.Log, by asker, began time.Time, more func() error) (requests, error) {
	const quiet = 2 * time.Second
	r := newRequests()
	last := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		came := false
		err := by.read(log, func(e *audit.Event) { came = r.add(e, began) || came })
		if err == nil && came {
			last = time.Now()
			err = more()
		}
		return time.Since(last) > quiet, err
	})
	if err != nil {
		return r, fmt.Errorf("waiting for the last request, %w", err)
	}
	return r, nil
}

// add counts a request, and reports whether it is the rollout's.
func (r *requests) add(e *audit.Event, began time.Time) bool {
	switch {
	case e.Watch():
		r.watches++
		of := r.watched[e.Resource()]
		r.watched[e.Resource()] = watches{of.all + 1, of.last + lifetime(e.RequestURI)}
	case e.Object.Resource == "leases":
		r.leases++
	case e.Received.Before(began):
		r.start++
	default:
		kind := request{e.Verb, e.Resource()}
		c := r.rollout[kind]
		c.all++
		if e.Refused() {
			c.refused++
		}
		r.rollout[kind] = c
		switch e.Response.Code {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
			r.faults[fmt.Sprintf("%s %s: %d %s", e.Verb, e.Resource(), e.Response.Code, http.StatusText(e.Response.Code))]++
		}
		if kind == (request{"create", "jobs"}) && e.Response.Code == http.StatusCreated {
			r.jobs = append(r.jobs, e.Object.Name)
		}
		return true
	}
	return false
}

// plus adds what was counted before.
func (r *requests) plus(before *requests) {
	for kind, c := range before.rollout {
		sum := r.rollout[kind]
		r.rollout[kind] = count{sum.all + c.all, sum.refused + c.refused}
	}
	for fault, n := range before.faults {
		r.faults[fault] += n
	}
	r.start += before.start
	r.watches += before.watches
	for of, w := range before.watched {
		sum := r.watched[of]
		r.watched[of] = watches{sum.all + w.all, sum.last + w.last}
	}
	r.leases += before.leases
	r.jobs = append(r.jobs, before.jobs...)
}

// total of those that the rollout took.
func (r *requests) total() count {
	var sum count
	for _, c := range r.rollout {
		sum.all += c.all
		sum.refused += c.refused
	}
	return sum
}

// made is how many objects of a resource were created.
func (r *requests) made(resource string) int {
	c := r.rollout[request{"create", resource}]
	return c.all - c.refused
}

// writes is how many of them were to change something.
func (r *requests) writes() int {
	n := 0
	for kind, c := range r.rollout {
		if kind.verb != "get" && kind.verb != "list" {
			n += c.all
		}
	}
	return n
}

// renewals is how many watches an hour are begun in the place of those, whose time is over then.
func (r *requests) renewals() float64 {
	n := 0.0
	for _, w := range r.watched {
		n += float64(w.all) * time.Hour.Seconds() / (w.last.Seconds() / float64(w.all))
	}
	return n
}

// lifetime is how long a watch is let go on: what it has asked for, or what the API server gives on average.
func lifetime(uri string) time.Duration {
	const given = 45 * time.Minute // --min-request-timeout is 30 minutes, and up to twice that at random.
	u, err := url.Parse(uri)
	if err != nil {
		return given
	}
	seconds, err := strconv.Atoi(u.Query().Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return given
	}
	return time.Duration(seconds) * time.Second
}
