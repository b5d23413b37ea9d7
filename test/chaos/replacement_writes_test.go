// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// What the operator writes for a NodeRollout that replaces machines, beside what it writes for one that updates hosts.
const (
	plansAdd    = "writing down that machines are to be added"
	plansDelete = "writing down that machines are to be deleted"
	notes       = "writing the status of machines"
	takes       = "claiming the node of a machine"
	removes     = "deleting a Node"
)

// misdeeds are requests that the operator must never send.
type misdeeds struct {
	mu  sync.Mutex
	all []string
}

func (m *misdeeds) add(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, r.Method+" "+r.URL.Path)
}

func (m *misdeeds) list() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// writesOfReplacements are those to the API server. A pod must not be deleted past its PodDisruptionBudget.
func writesOfReplacements(m *misdeeds) writes {
	status := "/noderollouts/" + replaceRollout + "/status"
	return writes{
		names: []string{plansAdd, plansAdd, plansDelete, plansDelete, notes, notes, takes, takes, cordons, evicts, removes, removes},
		most:  1, longest: replaceLife, patience: replaceLife,
		of: func(r *http.Request, body []byte) string {
			says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
			path := r.URL.Path
			ofNode := strings.HasPrefix(path, "/api/v1/nodes/")
			switch {
			case r.Method == http.MethodDelete && strings.Contains(path, "/pods/"):
				m.add(r)
				return ""
			case r.Method == http.MethodDelete && ofNode:
				return removes
			case r.Method == http.MethodPost && strings.HasSuffix(path, "/eviction"):
				return evicts
			case strings.HasSuffix(path, status) && r.Method != http.MethodGet:
				// The whole list is written with each of its entries.
				switch {
				case says(`"kind":"Delete"`) && !says(`"sent":true`):
					return plansDelete
				case says(`"kind":"Add"`) && !says(`"sent":true`):
					return plansAdd
				}
				return notes
			case r.Method != http.MethodPatch || !ofNode:
				return ""
			case says(`"unschedulable":true`):
				return cordons
			case says(v1alpha1.AnnotationClaims) && !says(`"`+v1alpha1.AnnotationClaims+`":null`):
				return takes
			default:
				return ""
			}
		},
	}
}

// replaceLife is how long the operator lives at most, from its first call of the cloud.
const replaceLife = 3 * time.Second

// What the operator asks a cloud.
const (
	asks    = "asking the cloud"
	changes = "changing something in the cloud"
)

// writesToClouds are all calls of a cloud. Those that change nothing are calls too, in the middle of which it may be killed.
func writesToClouds(punctual bool) writes {
	return writes{
		punctual: punctual,
		names:    []string{changes, changes, changes, changes, asks},
		most:     2, longest: replaceLife, patience: replaceLife,
		of: func(r *http.Request, body []byte) string {
			// One of the clouds asks and changes by forms alone, which name what they want.
			form := bytes.Contains(body, []byte("Action="))
			if r.Method == http.MethodGet || form && bytes.Contains(body, []byte("Action=Describe")) {
				return asks
			}
			return changes
		},
	}
}
