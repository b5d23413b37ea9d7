// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// dryRun is the value of --dry-run. Like kubectl it still takes the booleans of older days, and the bare flag.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func (d *dryRun) addFlag(flags *pflag.FlagSet) {
	*d = dryRunNone
	flags.Var(d, "dry-run", `"none", "client" (say what would be done) or "server" (have the API server judge each request, and do none).`)
	flags.Lookup("dry-run").NoOptDefVal = "unchanged"
}

// String is the value.
func (d *dryRun) String() string { return string(*d) }

// Type names the kind of value in the usage text.
func (d *dryRun) Type() string { return "string" }

// Set reads the value.
func (d *dryRun) Set(s string) error {
	switch v := dryRun(s); v {
	case dryRunNone, dryRunClient, dryRunServer:
		*d = v
		return nil
	case "unchanged":
		*d = dryRunClient
		return nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf(`must be "none", "server" or "client"`)
	}
	*d = dryRunNone
	if on {
		*d = dryRunClient
	}
	return nil
}

// suffix follows what is said of a change that was not made.
func (d *dryRun) suffix() string {
	switch *d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	default:
		return ""
	}
}
