// SPDX-License-Identifier: Apache-2.0

package text

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Formats of output.
const (
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
)

// Output is the value of --output.
type Output struct {
	format  string
	formats []string
}

// AddFlag adds the flag to a command's. It takes these formats.
func (o *Output) AddFlag(cmd *cobra.Command, formats ...string) {
	o.formats = formats
	cmd.Flags().VarP(o, "output", "o", "Output format: "+either(formats)+".")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
}

func either(of []string) string {
	last := len(of) - 1
	return strings.Join(of[:last], ", ") + " or " + of[last]
}

// Set is a flag's.
func (o *Output) Set(value string) error {
	if !slices.Contains(o.formats, value) {
		return fmt.Errorf("it must be %s", either(o.formats))
	}
	o.format = value
	return nil
}

// String is a flag's.
func (o *Output) String() string { return o.format }

// Type is a flag's.
func (*Output) Type() string { return "FORMAT" }

// Structured reports whether programs read the output.
func (o *Output) Structured() bool { return o.format == JSON || o.format == YAML }

// Print writes content for programs.
func (o *Output) Print(to io.Writer, content any) error {
	text, err := json.MarshalIndent(content, "", "    ")
	text = append(text, '\n')
	if err == nil && o.format == YAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("writing the output, %w", err)
	}
	_, err = to.Write(text)
	return err
}
