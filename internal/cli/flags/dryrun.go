// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// DryRun is --dry-run.
type DryRun struct{ Choice }

// Add adds the flag to a command.
func (d *DryRun) Add(cmd *cobra.Command) {
	d.Value = DryRunNone
	d.Choice.Add(cmd, "dry-run", "",
		`"none", "client" (say what would be written) or "server" (the API server checks each request and writes nothing).`,
		DryRunNone, DryRunClient, DryRunServer)
}

// Client reports whether no request is sent.
func (d *DryRun) Client() bool { return d.Value == DryRunClient }

// Request returns the field dryRun of a request.
func (d *DryRun) Request() []string {
	if d.Value == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix returns the end of a message about a change that was not written.
func (d *DryRun) Suffix() string {
	switch d.Value {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}
