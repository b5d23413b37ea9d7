// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// statusCommand is one call of status.
type statusCommand struct {
	command
	watch, untilComplete bool
	output               flags.Output
}

func newStatus(base command) *cobra.Command {
	c := &statusCommand{command: base}
	cmd := help("status [ROLLOUT]",
		`Show the state of rollouts: what needs a person, which nodes are updated, which are not, and why.
A rollout is named NAME, plan/NAME, eds/NAME (ExtendedDaemonSet) or nr/NAME (NodeRollout). -o wide has a line for every node.`,
		`  kubectl moult status -A
  kubectl moult status -n system-upgrade --watch
  kubectl moult status k3s-agent -n system-upgrade --until-complete --timeout 1h
  kubectl moult status eds/node-exporter -n monitoring -o wide`)
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if (c.watch || c.untilComplete) && c.output.Structured() {
			return errors.New("--output for programs shows rollouts once, --watch and --until-complete follow them: use one of them")
		}
		return nil
	}
	source.AddAllNamespaces(cmd)
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "Follow the rollouts until Ctrl-C.")
	cmd.Flags().BoolVar(&c.untilComplete, "until-complete", false, "Follow the rollouts until all are complete. Fail if one of them stalls.")
	c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	return source.Verb(c.cluster, cmd, source.Rollouts, c.show)
}

func (c *statusCommand) show(ctx context.Context, src *source.Source, named source.Target) error {
	now := c.clock.Now()
	if c.watch || c.untilComplete {
		return follow(ctx, c.clock, src, named, c.newPainter(now, c.output.Wide()), c.untilComplete)
	}
	s, err := c.read(ctx, src, named)
	if err != nil {
		return err
	}
	switch {
	case c.output.Structured() && named.Name != "" && (src.Namespace != "" || named.Kind == source.NodeRollout) && len(s.rollouts) == 1:
		return c.output.Print(c.Out, newStatusObject(s).Items[0])
	case c.output.Structured():
		return c.output.Print(c.Out, newStatusObject(s))
	case len(s.rollouts) == 0:
		fmt.Fprintln(c.ErrOut, src.Nothing("rollouts"))
	}
	return c.print(frame(s, now, c.output.Wide()))
}

// shown is what status shows.
type shown struct {
	rollouts []view.Rollout
	budgets  []view.Budget
}

// read reads the rollouts and the budgets, and says what could not be read.
func (c *command) read(ctx context.Context, src *source.Source, named source.Target) (*shown, error) {
	s, err := readShown(ctx, src, named, c.clock.Now())
	if err == nil {
		c.note(src)
	}
	return s, err
}

// readShown reads the cluster. If a rollout is named, it returns only the budgets that select its nodes.
func readShown(ctx context.Context, src *source.Source, named source.Target, now time.Time) (*shown, error) {
	cluster, err := src.ReadNamed(ctx, named, "", view.AtRest, now)
	if err != nil {
		return nil, err
	}
	s := &shown{rollouts: cluster.Rollouts(), budgets: cluster.Budgets()}
	if named.Name != "" {
		s.budgets = slices.DeleteFunc(s.budgets, func(b view.Budget) bool {
			return !slices.ContainsFunc(s.rollouts, func(r view.Rollout) bool { return slices.Contains(r.Budgets, b.Name) })
		})
	}
	return s, nil
}

// metadata names an object of the API.
type metadata struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// rolloutObject is a rollout as it is printed for programs, under the kind and name of its object.
type rolloutObject struct {
	APIVersion string   `json:"apiVersion"`
	Metadata   metadata `json:"metadata"`
	*view.Rollout
	// Reason says in one word why no node starts, or why the next one waits.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
}

// budgetObject is a NodeDisruptionBudget as it is printed for programs.
type budgetObject struct {
	metav1.TypeMeta
	Metadata metadata `json:"metadata"`
	*view.Budget
}

// statusObject is what status prints for programs.
type statusObject struct {
	metav1.TypeMeta
	Needs   []need          `json:"needs"`
	Items   []rolloutObject `json:"items"`
	Budgets []budgetObject  `json:"budgets"`
}

func newStatusObject(s *shown) statusObject {
	o := statusObject{identify("RolloutStatusList"), needs(s), []rolloutObject{}, []budgetObject{}}
	for _, r := range s.rollouts {
		o.Items = append(o.Items, rolloutObject{source.KindOf(r.Kind).Resource.GroupVersion().String(), metadata{r.Namespace, r.Name}, &r, r.Reason()})
	}
	of := metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: source.Budget.Name}
	for _, b := range s.budgets {
		o.Budgets = append(o.Budgets, budgetObject{of, metadata{Name: b.Name}, &b})
	}
	return o
}

func newList(c command) *cobra.Command {
	var output flags.Output
	cmd := help("list",
		`List rollouts of all kinds, one a line: state, how many nodes are updated, and why the next node waits.
NAME is how other commands name the rollout. -o wide adds the message.`,
		`  kubectl moult list -A
  kubectl moult list -A -o jsonpath='{range .items[?(@.state=="Stalled")]}{.metadata.name}{"\n"}{end}'`)
	source.AddAllNamespaces(cmd)
	output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, named source.Target) error {
		s, err := c.read(ctx, src, named)
		if err != nil {
			return err
		}
		if output.Structured() {
			return output.Print(c.Out, flags.List(newStatusObject(s).Items))
		}
		return c.printRows(listRows(s.rollouts, src.Namespace == "", output.Wide()), src.Nothing("rollouts"))
	})
}

// listRows are the rows of list. With namespaces, they begin with the rollout's.
func listRows(rollouts []view.Rollout, namespaces, wide bool) [][]string {
	rows := [][]string{{"NAMESPACE", "NAME", "VERSION", "STATE", "UPDATED", "REASON", "MESSAGE"}}
	for _, r := range rollouts {
		updated := fmt.Sprintf("%d/%d", r.Counts.Updated, r.Counts.Total)
		rows = append(rows, []string{r.Namespace, source.KindOf(r.Kind).Short(r.Name), r.Version, string(r.State), updated, string(r.Reason()), r.Message})
	}
	for i, row := range rows {
		if !wide {
			row = row[:len(row)-1]
		}
		if !namespaces {
			row = row[1:]
		}
		rows[i] = row
	}
	return rows
}
