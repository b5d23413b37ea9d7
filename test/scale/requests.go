// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
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
	// jobs lists the Jobs that were made.
	jobs []string
}

func newRequests() requests {
	return requests{rollout: map[request]count{}, faults: map[string]int{}}
}

// agent is who asks the API server: what a line of the audit log has in it then, and what the user agent has.
type agent struct{ line, user string }

var (
	byOperator = agent{line: `"userAgent":"` + operator.UserAgent}
	// byBuiltin is the controller of DaemonSets, which shares a process with others.
	byBuiltin = agent{line: "daemon-set-controller", user: "daemon-set-controller"}
)

// read calls each for every request since the last time.
func (a agent) read(log *audit.Log, each func(*audit.Event)) error {
	return log.Read(a.line, func(e *audit.Event) {
		if strings.Contains(e.UserAgent, a.user) {
			each(e)
		}
	})
}

// readRequests returns when no more come. Statuses are written at most once a second, so that the last ones come late. It
// calls more each time that there were some.
func readRequests(ctx context.Context, log *audit.Log, by agent, began time.Time, more func() error) (requests, error) {
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
