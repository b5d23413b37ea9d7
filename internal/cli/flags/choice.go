// SPDX-License-Identifier: Apache-2.0

// Package flags has the flags that several commands share: --output, --dry-run, and others with a few values.
package flags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/cli/text"
)

// Choice is a flag with a few values. Value is empty if the flag is not set.
type Choice struct {
	Value  string
	values []string
}

// Add adds the flag to a command, with completion.
func (c *Choice) Add(cmd *cobra.Command, name, short, usage string, values ...string) {
	c.values = values
	cmd.Flags().VarP(c, name, short, usage)
	if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // The flag does not exist.
	}
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
