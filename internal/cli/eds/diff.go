// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// external is the variable of the environment that names another program, as for kubectl diff.
const external = "KUBECTL_EXTERNAL_DIFF"

func (c *command) newDiff() *cobra.Command {
	return c.one(&cobra.Command{
		Use:   "diff [ExtendedDaemonSet name]",
		Short: "Show how the canary's revision differs from the active one",
		Long: `Show how the canary's ExtendedDaemonSetReplicaSet differs from the active one, side by side, by the program diff.
$KUBECTL_EXTERNAL_DIFF names another program, which gets the names of two files, as in kubectl diff.`,
		Example: `  kubectl eds diff agent -n monitoring
  KUBECTL_EXTERNAL_DIFF="diff -u" kubectl eds diff agent`,
	}, c.diff)
}

func (c *command) diff(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
	if err := checkCanary(eds); err != nil {
		return err
	}
	var sides [2]side
	for i, name := range []string{eds.Status.ActiveReplicaSet, eds.Status.Canary.ReplicaSet} {
		ers, err := source.GetAs[edsv1.ExtendedDaemonSetReplicaSet](ctx, src, source.ReplicaSet, name)
		if err != nil {
			return err
		}
		sides[i].name = ers.Name
		if sides[i].text, err = yaml.Marshal(ers.Spec); err != nil {
			return fmt.Errorf("writing the spec of %s, %w", ers.Name, err)
		}
	}
	return c.showDiff(ctx, sides[0], sides[1])
}

// side is one of two texts that are compared.
type side struct {
	name string
	text []byte
}

// showDiff shows the difference.
func (c *command) showDiff(ctx context.Context, active, canary side) error {
	colour := text.TerminalOf(c.Out).Colour
	heading := text.Lines{{
		text.Plain.Of("Diffing between "), text.Green.Of(active.name + " (active)"), text.Plain.Of(" and "), text.Yellow.Of(canary.name + " (canary)"),
	}}
	if _, err := c.Out.Write(heading.Text(0, colour)); err != nil {
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
	program := strings.Fields(os.Getenv(external))
	if len(program) == 0 {
		program = []string{"diff", "-y", "--color=never"}
		if colour {
			program[2] = "--color=always"
		}
	}
	out, err := exec.CommandContext(ctx, program[0], append(program[1:], files[:]...)...).CombinedOutput()
	if exit, ended := errors.AsType[*exec.ExitError](err); err != nil && (!ended || exit.ExitCode() != 1) {
		return fmt.Errorf("running %q ($%s may name another program), %w: %s", program, external, err, out)
	}
	_, err = c.Out.Write(out)
	return err
}
