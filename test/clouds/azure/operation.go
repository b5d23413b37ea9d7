// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// begin begins an operation, and writes the header by which clients ask about it. Its path names the set, so that faults of a set hit it.
func (a *Azure) begin(w http.ResponseWriter, r *http.Request, set string, task *clouds.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.operations = append(a.operations, &operation{set: set, task: task})
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
	done, failed := o.task.Done()
	switch {
	case !o.polled || !done:
		o.polled = true
		return map[string]any{"name": id, "status": "InProgress"}, nil
	case failed != nil:
		s, _ := a.world.Set(o.set)
		return map[string]any{"name": id, "status": "Failed", "error": map[string]string{"code": failure(&s), "message": failed.Error()}}, nil
	}
	return map[string]any{"name": id, "status": "Succeeded"}, nil
}

// failure is the code that operations of a set fail with.
func failure(s *clouds.Set) string { return cmp.Or(s.Settings["failure"], "OSProvisioningTimedOut") }

// provisioning is the provisioning state of a scale set.
func (a *Azure) provisioning(s *clouds.Set) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Busy {
		return "Updating"
	}
	state := "Succeeded"
	for _, o := range a.operations {
		if o.set != s.Name {
			continue
		}
		switch done, err := o.task.Done(); {
		case !done:
			return "Updating"
		case err != nil:
			state = "Failed"
		default:
			state = "Succeeded"
		}
	}
	return state
}
