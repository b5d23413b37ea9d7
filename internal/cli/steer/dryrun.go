// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dryRun is the value of --dry-run.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func (d *dryRun) addFlag(flags *pflag.FlagSet) {
	*d = dryRunNone
	flags.Var(d, "dry-run", `"none", "client" (say what would be written) or "server" (have the API server judge it, and write nothing).`)
	flags.Lookup("dry-run").NoOptDefVal = string(dryRunClient)
}

// complete offers the values.
func (d *dryRun) complete(cmd *cobra.Command) {
	values := []cobra.Completion{string(dryRunNone), string(dryRunClient), string(dryRunServer)}
	if err := cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
}

// String is a flag's.
func (d *dryRun) String() string { return string(*d) }

// Type is a flag's.
func (*dryRun) Type() string { return "string" }

// Set is a flag's.
func (d *dryRun) Set(value string) error {
	switch v := dryRun(value); v {
	case dryRunNone, dryRunClient, dryRunServer:
		*d = v
		return nil
	}
	return errors.New(`must be "none", "server" or "client"`)
}

// options are those of the write; false when there is to be none.
func (d *dryRun) options() (metav1.PatchOptions, bool) {
	o := metav1.PatchOptions{FieldManager: "kubectl-moult"}
	switch *d {
	case dryRunClient:
		return o, false
	case dryRunServer:
		o.DryRun = []string{metav1.DryRunAll}
	case dryRunNone:
	}
	return o, true
}

// suffix follows what is said of a write that was not made.
func (d *dryRun) suffix() string {
	switch *d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	case dryRunNone:
	}
	return ""
}
