// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// previewCommand is one call of preview.
type previewCommand struct {
	command
	output flags.Output
	file   string
	limit  int
	all    bool
	turn   time.Duration

	src *source.Source
	// found are the ExtendedDaemonSets to preview, and the budgets of the file.
	found source.Found
}

func newPreview(base command) *cobra.Command {
	c := &previewCommand{command: base}
	cmd := help("preview ROLLOUT|FILE",
		`Say what a rollout would do: which nodes, in which order, when, and what a drain would do there.
Nothing is written. FILE is a manifest: an existing file, a name that ends in .yaml, .yml or .json, or - for the standard input.`,
		`  kubectl moult preview k3s-agent -n system-upgrade
  kubectl moult preview -f plan.yaml --all
  kubectl moult preview nr/bottlerocket --turn 8m
  kustomize build . | kubectl moult preview -f -`)
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), source.Complete(c.cluster, source.Rollouts...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) }
	cmd.Flags().StringVarP(&c.file, "filename", "f", "", "Manifest with the rollout; - is the standard input.")
	cmd.Flags().IntVar(&c.limit, "nodes", 10, "For how many nodes to show the pods, and how many of those that wait.")
	cmd.Flags().BoolVar(&c.all, "all", false, "Show all nodes, and the pods of each, as -o wide does.")
	cmd.Flags().DurationVar(&c.turn, "turn", 0, "How long a turn takes, for the estimate. 0 is what has been measured.")
	c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
	return cmd
}

func (c *previewCommand) run(ctx context.Context, args []string) (err error) {
	name := ""
	switch {
	case len(args) == 0 && c.file == "":
		return errors.New("preview needs the name of a rollout, or a file: see kubectl moult preview --help")
	case len(args) > 0 && c.file != "":
		return errors.New("preview takes the name of a rollout or --filename, not both")
	case len(args) > 0 && isFile(args[0]):
		c.file = args[0]
	case len(args) > 0:
		name = args[0]
	}
	c.all = c.all || c.output.Wide()
	if c.turn < 0 || c.limit < 0 {
		return errors.New("--turn and --nodes must not be negative")
	}
	if c.src == nil {
		if c.src, err = source.Connect(c.cluster); err != nil {
			return err
		}
	}
	return c.show(ctx, name)
}

// isFile reports whether an argument names a file and no rollout.
func isFile(arg string) bool {
	info, err := os.Stat(arg)
	return arg == "-" || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) || err == nil && info.Mode().IsRegular()
}

// result is what is shown of one rollout.
type result struct {
	metav1.TypeMeta
	view.Preview
	// Drains says what a drain would do on the first nodes.
	Drains []drained `json:"drains,omitempty"`
}

func (c *previewCommand) show(ctx context.Context, name string) error {
	subjects, err := c.subjects(ctx, name)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	for _, s := range subjects {
		if eds, ok := s.object.(*edsv1.ExtendedDaemonSet); ok {
			c.found.DaemonSets = append(c.found.DaemonSets, *eds)
		}
	}
	cluster, err := c.src.ReadCluster(ctx, c.found, "", nil, now)
	if err == nil && cluster.Nodes() == nil {
		err = source.ErrNoNodes
	}
	if err != nil {
		return err
	}
	if slices.Contains(c.src.Notes, source.NoPodsSeen) {
		return errors.New("pods, revisions and settings of ExtendedDaemonSets can't all be listed, and without them there is nothing to preview")
	}
	c.note(c.src)
	results := make([]result, len(subjects))
	for i := range subjects {
		if results[i], err = c.preview(ctx, subjects[i], cluster); err != nil {
			return err
		}
	}
	switch {
	case c.output.Structured() && len(results) == 1:
		return c.output.Print(c.Out, results[0])
	case c.output.Structured():
		return c.output.Print(c.Out, flags.List(results))
	}
	var l text.Lines
	for i := range results {
		l.AddWhen(i > 0)
		c.draw(&l, &results[i], subjects[i], now)
	}
	return c.print(l)
}

// preview looks at one rollout.
func (c *previewCommand) preview(ctx context.Context, s *subject, cluster *view.Cluster) (r result, err error) {
	r.TypeMeta = identify("RolloutPreview")
	if slices.ContainsFunc(s.order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst }) {
		cluster.Evictions(c.countEvictions(ctx))
	}
	r.Preview = cluster.Preview(s.object, s.Supposition)
	if s.drains {
		r.Drains, err = c.drains(ctx, s, r.Steps)
	}
	return r, err
}
