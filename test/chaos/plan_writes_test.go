// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"net/http"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// What the operator writes for a Plan.
const (
	claims   = "claiming a node"
	creates  = "creating a Job"
	releases = "releasing a node"
	reports  = "writing the status"
)

var writesOfPlans = writes{
	names: []string{claims, creates, releases, claims, creates, releases, reports},
	most:  4,
	of: func(r *http.Request, body []byte) string {
		switch path := r.URL.Path; {
		case r.Method == http.MethodPost && strings.HasSuffix(path, "/jobs"):
			return creates
		case r.Method == http.MethodPatch && strings.HasSuffix(path, "/plans/"+planName+"/status"):
			return reports
		case r.Method == http.MethodPatch && strings.HasPrefix(path, "/api/v1/nodes/"):
			if bytes.Contains(body, []byte(`"`+v1alpha1.AnnotationClaims+`":null`)) {
				return releases
			}
			return claims
		default:
			return ""
		}
	},
}
