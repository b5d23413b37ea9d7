// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
)

// operatorVersion is the version of one Deployment of the operator.
type operatorVersion struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Skew says how the versions differ; empty if they work together.
	Skew string `json:"skew,omitempty"`
}

func newVersion(c command) *cobra.Command {
	var output flags.Output
	cmd := help("version",
		`Show the versions of the plugin and of the operator, and whether they work together.
The operator's is the tag of the image of Deployments with the label app.kubernetes.io/name=moult, or their label app.kubernetes.io/version.`,
		`  kubectl moult version
  kubectl moult version -o jsonpath='{.operators[*].version}'`)
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		plugin, operators := cmd.Root().Version, []operatorVersion{}
		rows := [][]string{{"COMPONENT", "VERSION", "NOTE"}, {"plugin", plugin, ""}}
		found, err := source.ReadLabelled[appsv1.Deployment](ctx, src, source.Deployment, "moult")
		for _, d := range found {
			is := source.OperatorVersion(&d)
			operators = append(operators, operatorVersion{d.Namespace, d.Name, is, skew(plugin, is)})
			rows = append(rows, []string{d.Namespace + "/" + d.Name, is, skew(plugin, is)})
		}
		switch {
		case err != nil:
			fmt.Fprintln(c.ErrOut, "The operator's version is not known:", err)
		case len(found) == 0:
			fmt.Fprintln(c.ErrOut, noOperator)
		}
		if !output.Structured() {
			return c.printTable(rows)
		}
		return output.PrintAs(c.Out, "Version", map[string]any{"plugin": plugin, "operators": operators})
	})
}

const noOperator = "no Deployment has the label app.kubernetes.io/name=moult"

// skew says how the plugin and the operator differ, if they may not work together: more than one minor version. Versions of builds between releases
// are not compared.
func skew(plugin, operator string) string {
	p, errPlugin := version.ParseSemantic(plugin)
	o, errOperator := version.ParseSemantic(operator)
	if errPlugin != nil || errOperator != nil || p.Major()+p.Minor() == 0 || o.Major()+o.Minor() == 0 ||
		p.Major() == o.Major() && p.Minor() <= o.Minor()+1 && o.Minor() <= p.Minor()+1 {
		return ""
	}
	older := "operator"
	if p.LessThan(o) {
		older = "plugin"
	}
	return fmt.Sprintf("the %s is older: use a plugin of v%d.%d, as the operator is", older, o.Major(), o.Minor())
}
