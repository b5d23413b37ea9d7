// SPDX-License-Identifier: Apache-2.0

// Package flags has the flags that several commands share: --output, --dry-run, and others with a few values.
package flags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"moult.dev/moult/internal/cli/text"
)

// Choice is a flag with a few values. Value is empty if the flag is not set.
type Choice struct {
	Value  string
	values []string
}

// Add adds the flag to a command and those below it, with completion.
func (c *Choice) Add(cmd *cobra.Command, name, usage string, values ...string) {
	c.values = values
	add(cmd, c, name, "", usage, values)
}

func add(cmd *cobra.Command, v pflag.Value, name, short, usage string, values []string) {
	cmd.PersistentFlags().VarP(v, name, short, usage)
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// Set implements pflag.Value.
func (c *Choice) Set(value string) error {
	if value != "" && !slices.Contains(c.values, value) {
		return fmt.Errorf("it must be %s", text.Or(c.values))
	}
	c.Value = value
	return nil
}

// String implements pflag.Value.
func (c *Choice) String() string { return c.Value }

// Type implements pflag.Value.
func (*Choice) Type() string { return "string" }

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
	d.Choice.Add(cmd, "dry-run",
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
	return map[string]string{DryRunClient: " (dry run)", DryRunServer: " (server dry run)"}[d.Value]
}
