// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"net/http"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// begin begins an operation, and says by which header clients ask about it: its path names the set, so that faults of a set hit it.
func (a *Azure) begin(r *http.Request, set string, task *clouds.Task) http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &operation{set: set, task: task, polls: a.options.Polls}
	a.operations = append(a.operations, o)
	a.last[set] = o
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	return http.Header{"Azure-Asyncoperation": {
		scheme + "://" + r.Host + "/subscriptions/" + SubscriptionID + "/providers/Microsoft.Compute/locations/" + Location +
			"/operations/" + set + "." + strconv.Itoa(len(a.operations)-1) + "?" + r.URL.RawQuery,
	}}
}

// progress answers how an operation stands.
func (a *Azure) progress(w http.ResponseWriter, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := strconv.Atoi(id[strings.LastIndex(id, ".")+1:])
	if err != nil || n < 0 || n >= len(a.operations) || a.operations[n].forgot {
		return &refusal{http.StatusNotFound, "NotFound", "The operation " + id + " could not be found."}
	}
	o := a.operations[n]
	if a.options.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.options.RetryAfter))
	}
	done, failure := o.done()
	switch {
	case o.polls > 0 || !done:
		o.polls--
		write(w, http.StatusOK, map[string]any{"name": id, "status": "InProgress"})
	case failure != nil:
		code := "OSProvisioningTimedOut"
		if s, ok := a.world.Set(o.set); ok && s.Settings["failure"] != "" {
			code = s.Settings["failure"]
		}
		write(w, http.StatusOK, map[string]any{"name": id, "status": "Failed", "error": map[string]string{"code": code, "message": failure.Error()}})
	default:
		write(w, http.StatusOK, map[string]any{"name": id, "status": "Succeeded"})
	}
	return nil
}

func (o *operation) done() (bool, error) {
	if o.task == nil {
		return true, nil
	}
	return o.task.Done()
}

// provisioning is the provisioning state of a scale set.
func (a *Azure) provisioning(s *clouds.Set) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := "Succeeded"
	for _, o := range a.operations {
		if o.set != s.Name {
			continue
		}
		if done, _ := o.done(); !done {
			return "Updating"
		}
	}
	if o := a.last[s.Name]; o != nil {
		if _, err := o.done(); err != nil {
			state = "Failed"
		}
	}
	if s.Busy {
		return "Updating"
	}
	return state
}
