// SPDX-License-Identifier: Apache-2.0

// Package moult is `kubectl moult`: it shows rollouts and steers them.
//
//	status.go     the state of rollouts, in a list, once or as a live view: frame.go draws it, follow.go shows changes
//	  source ──▶ package view ──▶ frame: what needs a person, a header and a bar a rollout, a line a node ──▶ out     once
//	  feed ──▶ source ──▶ view ─┬▶ frame, cut to the terminal's size ──▶ live            in place, on a terminal
//	                            └▶ what is new ──▶ journal                                line by line, elsewhere
//	events.go     the Events of a rollout; history.go its last runs and what all runs sum up to
//	why.go        everything that is known about why one node is changed, or is not; advise.go says what to do
//	preview.go    what a rollout would do; subject.go reads manifests, drains.go looks at pods, foresee.go draws it
//	pages.go      the same as web pages: it reads what package dashboard shows
//	uninstall.go  what Moult has left on nodes and in rollouts
//	steer.go      pause, resume and abort; undo.go, approve.go and retry.go are verbs like these: each writes one field or annotation of one object
//	notify.go     a test of the operator's webhooks
//	check.go      whether the installation and the user's rights are complete; the versions of plugin and operator
package moult

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// command is the common part of all verbs.
type command struct {
	genericiooptions.IOStreams
	clock   clock.WithTicker
	cluster source.Config
	color   *flags.Choice
}

// NewCommand makes the command with all its verbs. The config says which cluster and namespace.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	root := help("kubectl-moult", `See and steer rolling changes across the nodes of a cluster.
Exit codes: 0 done; 1 it failed, or check found a problem; 2 status --until-complete: a rollout is stalled; 3 --timeout has passed.`, "")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moult"}
	root.SilenceUsage, root.SilenceErrors = true, true
	timeout := root.PersistentFlags().Duration("timeout", 0, "How long the command may take, such as 30s. 0 is no limit.")
	c := command{streams, clk, cluster, &flags.Choice{}}
	c.color.Add(root, "color", `"always", "never", or "auto": on a terminal, unless $NO_COLOR is set. Default auto.`, "auto", "always", "never")
	root.AddCommand(newStatus(c), newList(c), newEvents(c), newHistory(c), newReport(c), newWhy(c), newPreview(c), newUI(c), newCheck(c), newNotify(c),
		newVersion(c), newUninstallCheck(c))
	for _, verb := range []func(*steerCommand) *cobra.Command{newPause, newResume, newAbort, newUndo, newApprove, newRetry} {
		root.AddCommand(verb(&steerCommand{command: c}))
	}
	for _, cmd := range root.Commands() {
		cmd.RunE = within(timeout, cmd.RunE)
	}
	return root
}

// help makes a command with two lines of help, of which the first is its summary, and examples.
func help(use, lines, examples string) *cobra.Command {
	short, _, _ := strings.Cut(lines, "\n")
	return &cobra.Command{Use: use, Short: strings.TrimSuffix(short, "."), Long: lines, Example: examples}
}

// within limits how long a command runs; 0 does not.
func within(timeout *time.Duration, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if *timeout <= 0 {
			return run(cmd, args)
		}
		passed := exitError{fmt.Errorf("--timeout %s has passed", *timeout), exitTimeout}
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), *timeout, passed)
		defer cancel()
		cmd.SetContext(ctx)
		if err := run(cmd, args); !errors.Is(context.Cause(ctx), passed) {
			return err
		}
		return passed // Some clients return an error of their own then, and a watch none.
	}
}

// Exit codes besides 0 and 1.
const (
	exitStalled = 2
	exitTimeout = 3
)

// exitError is an error with its own exit code.
type exitError struct {
	error
	code int
}

// ExitCode is the exit code of the program.
func (e exitError) ExitCode() int { return e.code }

// terminal is what the command writes to, with colours as --color says.
func (c *command) terminal() text.Terminal {
	t := text.TerminalOf(c.Out)
	if c.color != nil && slices.Contains([]string{"always", "never"}, c.color.Value) {
		t.Colour = c.color.Value == "always"
	}
	return t
}

// print writes lines for people.
func (c *command) print(l text.Lines) error {
	_, err := c.Out.Write(l.Text(0, c.terminal().Colour))
	return err
}

// printTable writes rows in kubectl's layout. The first has the titles of the columns.
func (c *command) printTable(rows [][]string) error {
	table := printers.GetNewTabWriter(c.Out)
	for i, row := range rows {
		cells := slices.Clone(row)
		for j := range cells {
			cells[j] = text.Clean(cells[j])
		}
		line := strings.Join(cells, "\t")
		if i == 0 {
			line = strings.ToUpper(line)
		}
		fmt.Fprintln(table, line)
	}
	return table.Flush()
}

// printRows writes rows like printTable. If there are none but the titles, it only says that there is nothing.
func (c *command) printRows(rows [][]string, nothing string) error {
	if len(rows) == 1 {
		fmt.Fprintln(c.ErrOut, nothing)
		return nil
	}
	return c.printTable(rows)
}

// note says what could not be read.
func (c *command) note(src *source.Source) {
	for _, note := range src.Notes {
		fmt.Fprintln(c.ErrOut, note)
	}
}

// identify returns the type of content that is no object of the API.
func identify(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: flags.Version, Kind: kind}
}
