// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Command returns the page of a program: a section for each command that is not hidden.
func Command(title, intro string, root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", title, intro)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	section(&b, root, title)
	return b.String()
}

func section(b *strings.Builder, c *cobra.Command, name string) {
	if c.HasParent() {
		fmt.Fprintf(b, "\n## %s\n\n%s\n", name, strings.TrimSpace(longer(c.Long, c.Short)))
		if c.Runnable() {
			use, _, _ := strings.Cut(c.Use, "[flags]")
			_, args, _ := strings.Cut(strings.TrimSpace(use), " ")
			fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(name+" "+args))
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
	}
	flags := c.LocalNonPersistentFlags()
	if c.HasParent() {
		flags = c.LocalFlags()
	}
	if flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\n```text\n%s```\n", flags.FlagUsages())
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			section(b, sub, name+" "+sub.Name())
		}
	}
	if !c.HasParent() && c.PersistentFlags().HasAvailableFlags() {
		fmt.Fprintf(b, "\n## Flags of every command\n\n```text\n%s```\n", c.PersistentFlags().FlagUsages())
	}
}

// longer returns the longer text.
func longer(a, b string) string {
	if len(a) >= len(b) {
		return a
	}
	return b
}

// unindent takes the same indentation off each line.
func unindent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(lines[i], "  "), "\t")
	}
	return strings.Join(lines, "\n")
}

// Help is the help of one command of a program.
type Help struct{ Name, Text string }

// Program returns the page of a program whose commands print their help.
func Program(title, intro string, commands []Help) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n", title, intro)
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", c.Name, strings.TrimSpace(c.Text))
	}
	return b.String()
}
