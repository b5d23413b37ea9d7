// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun is --dry-run. Like kubectl it still takes booleans, and no value at all.
type DryRun struct{ Choice }

// Values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// noValue is what kubectl calls the flag without a value.
const noValue = "unchanged"

// Add adds the flag to a command.
func (d *DryRun) Add(cmd *cobra.Command) {
	d.Value, d.values = DryRunNone, []string{DryRunNone, DryRunClient, DryRunServer}
	cmd.Flags().Var(d, "dry-run",
		`"none", "client" (say what would be written) or "server" (the API server checks each request and writes nothing).`)
	cmd.Flags().Lookup("dry-run").NoOptDefVal = noValue
	Complete(cmd, "dry-run", d.values)
}

// Set implements pflag.Value.
func (d *DryRun) Set(value string) error {
	on, err := strconv.ParseBool(value)
	switch {
	case value == noValue, err == nil && on:
		value = DryRunClient
	case err == nil, value == "":
		value = DryRunNone
	}
	return d.Choice.Set(value)
}

// None reports whether everything is written.
func (d *DryRun) None() bool { return d.Value == DryRunNone || d.Value == "" }

// Client reports whether nothing is sent.
func (d *DryRun) Client() bool { return d.Value == DryRunClient }

// Server reports whether the API server only checks requests.
func (d *DryRun) Server() bool { return d.Value == DryRunServer }

// Request is the field dryRun of a request.
func (d *DryRun) Request() []string {
	if d.Server() {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix follows what is said of a change that was not written.
func (d *DryRun) Suffix() string {
	switch d.Value {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	}
	return ""
}
