// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"moult.dev/moult/internal/cli/text"
)

// Formats of output.
const (
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
	Name = "name"
)

// Version is the apiVersion of what is printed for programs and is no object of the API.
const Version = "output.moult.dev/v1alpha1"

// Output is --output. What it prints for programs it prints like kubectl.
type Output struct {
	value   string
	formats []string
	printer printers.ResourcePrinter // nil for people
}

// Add adds the flag with these formats to a command. It also takes templates.
func (o *Output) Add(cmd *cobra.Command, formats ...string) {
	o.formats = append(formats, "jsonpath=", "go-template=")
	add(cmd, o, "output", "o", "Output format: "+text.Or(o.formats)+" with a template.", o.formats)
}

// Set implements pflag.Value.
func (o *Output) Set(value string) (err error) {
	if o.value, o.printer = value, nil; value == "" || value == Wide && slices.Contains(o.formats, Wide) {
		return nil
	}
	if !slices.Contains(o.formats, value) && !strings.Contains(value, "=") {
		return errors.New("it must be " + text.Or(o.formats) + " with a template")
	}
	o.printer, err = genericclioptions.NewPrintFlags("").WithDefaultOutput(value).ToPrinter()
	return err
}

// String implements pflag.Value.
func (o *Output) String() string { return o.value }

// Type implements pflag.Value.
func (*Output) Type() string { return "string" }

// Wide reports whether the output shows everything.
func (o *Output) Wide() bool { return o.value == Wide }

// Structured reports whether the output is for programs: neither a table nor text.
func (o *Output) Structured() bool { return o.printer != nil }

// List returns items as a list that kubectl reads.
func List[T any](items []T) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}
}

// Print writes content, which has an apiVersion and a kind, in the format for programs. The names of a list are those of its items.
func (o *Output) Print(to io.Writer, content any) error {
	u := &unstructured.Unstructured{}
	raw, err := json.Marshal(content)
	if err = errors.Join(err, utiljson.Unmarshal(raw, &u.Object)); err != nil {
		return fmt.Errorf("writing the output, %w", err)
	}
	if o.value == Name && u.IsList() {
		return u.EachListItem(func(item runtime.Object) error { return o.printer.PrintObj(item, to) })
	}
	return o.printer.PrintObj(u, to)
}
