// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// versions is what version prints.
type versions struct {
	metav1.TypeMeta `json:",inline"`
	// Plugin is the version of this program.
	Plugin    string     `json:"plugin"`
	Operators []operator `json:"operators"`
}

// operator is one Deployment of the operator.
type operator struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Skew says how the versions differ; empty if they work together.
	Skew string `json:"skew,omitempty"`
}

func newVersion(c command) *cobra.Command {
	var output flags.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the plugin and of the operator, and whether they work together",
		Long: `Show the versions of the plugin and of the operator, and whether they work together.
The operator's is the tag of the image of Deployments with the label app.kubernetes.io/name=moult, or their label app.kubernetes.io/version.`,
		Example: `  kubectl moult version
  kubectl moult version -o jsonpath='{.operators[*].version}'`,
		Args: cobra.NoArgs,
	}
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		v := versions{TypeMeta: outputType("Version"), Plugin: cmd.Root().Version, Operators: []operator{}}
		found, err := src.ReadOperators(ctx)
		for i := range found {
			d := &found[i]
			is := source.OperatorVersion(d)
			v.Operators = append(v.Operators, operator{d.Namespace, d.Name, is, skew(v.Plugin, is)})
		}
		switch {
		case err != nil:
			fmt.Fprintln(c.ErrOut, "The operator's version is not known:", err)
		case len(found) == 0:
			fmt.Fprintln(c.ErrOut, "No operator: no Deployment has the label app.kubernetes.io/name=moult.")
		}
		if output.Structured() {
			return output.Print(c.Out, v)
		}
		fmt.Fprintln(c.Out, "plugin   ", text.Clean(v.Plugin))
		for _, o := range v.Operators {
			fmt.Fprintln(c.Out, "operator ", text.Clean(o.Version), "(Deployment "+o.Namespace+"/"+o.Name+")")
			if o.Skew != "" {
				fmt.Fprintln(c.Out, "  "+o.Skew)
			}
		}
		return nil
	})
}

// skew says how the plugin and the operator differ, if they may not work together: their minor versions must be the same. Versions of
// builds between releases are not compared.
func skew(plugin, operator string) string {
	p, errPlugin := version.ParseSemantic(plugin)
	o, errOperator := version.ParseSemantic(operator)
	if errPlugin != nil || errOperator != nil || p.Major()+p.Minor() == 0 || o.Major()+o.Minor() == 0 ||
		p.Major() == o.Major() && p.Minor() == o.Minor() {
		return ""
	}
	older := "operator"
	if p.LessThan(o) {
		older = "plugin"
	}
	return "the " + older + " is older than the other: use a plugin of " + fmt.Sprintf("v%d.%d", o.Major(), o.Minor()) + ", as the operator is"
}
