// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"net/http"
	"strings"
)

// What the operator writes for a NodeRollout.
const (
	prepares  = "telling a host to prepare"
	performs  = "telling a host to perform"
	cordons   = "cordoning a node"
	evicts    = "evicting a pod"
	reboots   = "telling a host to reboot"
	uncordons = "uncordoning a node"
	lets      = "letting a host go"
	tells     = "writing the status of hosts"
)

var writesOfHostUpdates = writes{
	names: []string{prepares, performs, cordons, evicts, reboots, reboots, uncordons, lets, tells},
	most:  1,
	of: func(r *http.Request, body []byte) string {
		says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
		path := r.URL.Path
		switch {
		case r.Method == http.MethodPost && strings.HasSuffix(path, "/eviction"):
			return evicts
		case r.Method == http.MethodPatch && strings.HasSuffix(path, "/noderollouts/"+hostRollout+"/status"):
			return tells
		case r.Method != http.MethodPatch || !strings.HasPrefix(path, "/api/v1/nodes/"):
			return ""
		case says(`/action-wanted":"prepare-update"`):
			return prepares
		case says(`/action-wanted":"perform-update"`):
			return performs
		case says(`/action-wanted":"reboot-update"`):
			return reboots
		case says(`"unschedulable":true`):
			return cordons
		case says(`"unschedulable":null`), says(`"unschedulable":false`):
			return uncordons
		case says(`/action-wanted":"stabilize"`):
			return lets
		default:
			return ""
		}
	},
}

// What an agent writes.
const (
	takesUp       = "an agent taking up an order"
	takesUpReboot = "an agent taking up the order to reboot"
	answers       = "an agent saying that it is done"
)

var writesOfAgents = writes{
	names: []string{takesUp, takesUpReboot, takesUpReboot, answers},
	most:  1,
	of: func(r *http.Request, body []byte) string {
		says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
		switch {
		case r.Method != http.MethodPatch || !strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
			return ""
		case says(`"busy"`) && says(`"reboot-update"`):
			return takesUpReboot
		case says(`"busy"`):
			return takesUp
		case says(`"ready"`):
			return answers
		default:
			return ""
		}
	},
}
