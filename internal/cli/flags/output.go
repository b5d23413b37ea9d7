// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/internal/cli/text"
)

// Formats of output.
const (
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
	Name = "name"
)

// Output is --output.
type Output struct{ Choice }

// Add adds the flag with these formats to a command.
func (o *Output) Add(cmd *cobra.Command, formats ...string) {
	o.Choice.Add(cmd, "output", "o", "Output format: "+text.Or(formats)+".", formats...)
}

// Wide reports whether the output shows everything.
func (o *Output) Wide() bool { return o.Value == Wide }

// Structured reports whether the output is JSON or YAML.
func (o *Output) Structured() bool { return o.Value == JSON || o.Value == YAML }

// Print writes content as JSON or YAML.
func (o *Output) Print(to io.Writer, content any) error {
	out, err := json.MarshalIndent(content, "", "    ")
	out = append(out, '\n')
	if err == nil && o.Value == YAML {
		out, err = yaml.JSONToYAML(out)
	}
	if err != nil {
		return fmt.Errorf("writing the output, %w", err)
	}
	_, err = to.Write(out)
	return err
}
