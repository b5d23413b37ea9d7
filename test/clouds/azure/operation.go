// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// begin begins an operation, and writes the header by which clients ask about it. Its path names the set, so that faults of a set hit it.
func (a *Azure) begin(w http.ResponseWriter, r *http.Request, set string, task *clouds.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &operation{set: set, task: task, polls: a.options.Polls}
	a.operations = append(a.operations, o)
	a.last[set] = o
	w.Header().Set("Azure-Asyncoperation", base(r)+"/subscriptions/"+SubscriptionID+"/providers/Microsoft.Compute/locations/"+Location+
		"/operations/"+set+"."+strconv.Itoa(len(a.operations)-1)+"?"+r.URL.RawQuery)
}

// base is the beginning of this server's URLs.
func base(r *http.Request) string {
	if r.TLS != nil || r.URL.Scheme == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// progress answers how an operation stands.
func (a *Azure) progress(w http.ResponseWriter, _ *http.Request, id string) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := strconv.Atoi(id[strings.LastIndex(id, ".")+1:])
	if err != nil || n < 0 || n >= len(a.operations) || a.operations[n].forgot {
		return nil, &clouds.Refusal{Status: http.StatusNotFound, Code: "NotFound", Message: "The operation " + id + " could not be found."}
	}
	o := a.operations[n]
	if a.options.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.options.RetryAfter))
	}
	done, failed := o.done()
	switch {
	case o.polls > 0 || !done:
		o.polls--
		return map[string]any{"name": id, "status": "InProgress"}, nil
	case failed != nil:
		s, _ := a.world.Set(o.set)
		return map[string]any{"name": id, "status": "Failed", "error": map[string]string{"code": failure(&s), "message": failed.Error()}}, nil
	}
	return map[string]any{"name": id, "status": "Succeeded"}, nil
}

// failure is the code that operations of a set fail with.
func failure(s *clouds.Set) string { return cmp.Or(s.Settings["failure"], "OSProvisioningTimedOut") }

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
	if s.Busy || slices.ContainsFunc(a.operations, func(o *operation) bool {
		done, _ := o.done()
		return o.set == s.Name && !done
	}) {
		return "Updating"
	}
	if o := a.last[s.Name]; o != nil {
		if _, err := o.done(); err != nil {
			return "Failed"
		}
	}
	return "Succeeded"
}
