// SPDX-License-Identifier: Apache-2.0

// Package diff is `kubectl eds diff`: in what the canary's revision differs from the active one.
package diff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
)

// external is the variable of the environment that names another program, as for kubectl diff.
const external = "KUBECTL_EXTERNAL_DIFF"

// command is one call of diff.
type command struct {
	genericiooptions.IOStreams
	config config.Config
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, config: cluster}
	return &cobra.Command{
		Use:   "diff [ExtendedDaemonSet name]",
		Short: "Show in what the canary's revision differs from the active one",
		Long: `Show in what the canary's ExtendedDaemonSetReplicaSet differs from the active one, side by side.

It uses the program diff. $KUBECTL_EXTERNAL_DIFF names another one, which gets the names of two files, as for kubectl diff.
Where there is none that can do it, the lines that differ are shown below each other.`,
		Example: `  kubectl eds diff agent -n monitoring
  KUBECTL_EXTERNAL_DIFF="diff -u" kubectl eds diff agent`,
		Args:              object.OneName,
		SilenceUsage:      true,
		ValidArgsFunction: source.Complete(cluster, nil, target.DaemonSet),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
}

func (c *command) run(ctx context.Context, arg string) error {
	name, err := object.Name(target.DaemonSet, arg)
	if err != nil {
		return err
	}
	client, err := object.Connect(c.config)
	if err != nil {
		return err
	}
	eds, err := client.Get(ctx, name)
	switch {
	case err != nil:
		return err
	case eds.Spec.Strategy.Canary == nil:
		return fmt.Errorf("the ExtendedDaemonset %s/%s does not have a canary strategy", eds.Namespace, name)
	case eds.Status.Canary == nil:
		return fmt.Errorf("the ExtendedDaemonset %s/%s does not have an active canary deployment", eds.Namespace, name)
	}
	var sides [2]side
	for i, name := range []string{eds.Status.ActiveReplicaSet, eds.Status.Canary.ReplicaSet} {
		ers, err := client.Revision(ctx, name)
		if err != nil {
			return err
		}
		if sides[i], err = sideOf(ers); err != nil {
			return err
		}
	}
	return c.show(ctx, sides[0], sides[1])
}

// side is what is compared.
type side struct {
	name string
	text []byte
}

func sideOf(ers *edsv1.ExtendedDaemonSetReplicaSet) (side, error) {
	text, err := yaml.Marshal(ers.Spec)
	if err != nil {
		return side{}, fmt.Errorf("writing the spec of %s, %w", ers.Name, err)
	}
	return side{name: ers.Name, text: text}, nil
}

// show shows the difference.
func (c *command) show(ctx context.Context, active, canary side) error {
	screen := text.LookAt(c.Out)
	line := text.Lines{{
		text.Plain.Of("Diffing between "), text.Green.Of(active.name + " (active)"), text.Plain.Of(" and "), text.Yellow.Of(canary.name + " (canary)"),
	}}
	if _, err := c.Out.Write(line.Text(0, screen.Colour)); err != nil {
		return err
	}
	if string(active.text) == string(canary.text) {
		fmt.Fprintln(c.Out, "There is no difference.")
		return nil
	}
	dir, err := os.MkdirTemp("", "kubectl-eds-diff-")
	if err != nil {
		return fmt.Errorf("making files to compare, %w", err)
	}
	defer os.RemoveAll(dir) // They are temporary files.
	var files [2]string
	for i, s := range []side{active, canary} {
		files[i] = filepath.Join(dir, []string{"active-", "canary-"}[i]+s.name+".yaml")
		if err := os.WriteFile(files[i], s.text, 0o600); err != nil {
			return fmt.Errorf("making files to compare, %w", err)
		}
	}
	if words := chosen(os.Getenv(external)); len(words) > 0 {
		if out, differ, err := compare(ctx, append(words, files[:]...)); !differ {
			return fmt.Errorf("running $%s %q, %w: %s", external, words, err, out)
		} else if _, err := c.Out.Write(out); err != nil {
			return err
		}
		return nil
	}
	out, differ, _ := compare(ctx, append(sideBySide(screen), files[:]...))
	if !differ {
		out = unified(active, canary) // That diff is missing, or does not know these flags.
	}
	_, err = c.Out.Write(out)
	return err
}

// sideBySide is a call of GNU's diff.
func sideBySide(screen text.Screen) []string {
	call := []string{"diff", "-y"}
	if screen.Live() {
		width, _ := screen.Size()
		call = append(call, "-W", strconv.Itoa(width))
	}
	if screen.Colour {
		return append(call, "--color=always")
	}
	return append(call, "--color=never")
}

// word is what of $KUBECTL_EXTERNAL_DIFF is used: kubectl drops all else, so that nothing of it can do harm.
var word = regexp.MustCompile(`^[a-zA-Z0-9-=]+$`)

// chosen is the call that the environment asks for. The first word is a program, others are its flags.
func chosen(text string) []string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	call := words[:1:1]
	for _, w := range words[1:] {
		if word.MatchString(w) {
			call = append(call, w)
		}
	}
	return call
}

// compare calls a program that compares files. It exits with 1 where they differ.
func compare(ctx context.Context, call []string) (out []byte, differ bool, err error) {
	out, err = exec.CommandContext(ctx, call[0], call[1:]...).CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	return out, ended && exit.ExitCode() == 1, err
}
