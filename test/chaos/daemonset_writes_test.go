// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"net/http"
	"strings"
)

// What the operator writes for an ExtendedDaemonSet.
const (
	makesPods       = "creating a pod"
	deletesPods     = "deleting a pod"
	relabels        = "patching a pod"
	makesRevisions  = "creating a revision"
	reportsState    = "writing the status"
	reportsRevision = "writing a revision's status"
)

var writesOfDaemonSets = writes{
	names: []string{
		makesPods, deletesPods, makesPods, deletesPods, makesPods, deletesPods, relabels, makesRevisions, reportsState, reportsState, reportsRevision,
	},
	most: 12,
	of: func(r *http.Request, _ []byte) string {
		path := r.URL.Path
		writes := r.Method == http.MethodPatch || r.Method == http.MethodPut
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(path, "/pods"):
			return makesPods
		case r.Method == http.MethodDelete && strings.Contains(path, "/pods/"):
			return deletesPods
		case writes && strings.Contains(path, "/pods/"):
			return relabels
		case r.Method == http.MethodPost && strings.HasSuffix(path, "/extendeddaemonsetreplicasets"):
			return makesRevisions
		case writes && strings.HasSuffix(path, "/extendeddaemonsets/"+daemonSetName+"/status"):
			return reportsState
		case writes && strings.Contains(path, "/extendeddaemonsetreplicasets/"):
			return reportsRevision
		default:
			return ""
		}
	},
}
