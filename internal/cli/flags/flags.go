// SPDX-License-Identifier: Apache-2.0

// Package flags has the flags that several commands share: --output, --dry-run, and others with a few values.
package flags

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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

// Templates returns the printer for a template, such as "jsonpath={.kind}"; nil if the program knows none. Only the plugin sets it: Go's
// templates keep the linker from leaving out unused methods, which doubles a program with the clouds' libraries.
var Templates func(format string) (printers.ResourcePrinter, error)

// KubectlTemplates are kubectl's templates.
func KubectlTemplates(format string) (printers.ResourcePrinter, error) {
	return genericclioptions.NewPrintFlags("").WithDefaultOutput(format).ToPrinter()
}

// Output is --output. What it prints for programs it prints like kubectl.
type Output struct {
	value   string
	formats []string
	printer printers.ResourcePrinter // nil for people
}

// Add adds the flag with these formats to a command. It also takes templates, if the program knows them.
func (o *Output) Add(cmd *cobra.Command, formats ...string) {
	o.formats = formats
	if Templates != nil {
		o.formats = append(o.formats, "jsonpath=", "go-template=")
	}
	add(cmd, o, "output", "o", "Output format: "+o.usage()+".", o.formats)
}

func (o *Output) usage() string {
	return text.Or(o.formats) + text.When(Templates != nil, " with a template")
}

// Set implements pflag.Value.
func (o *Output) Set(value string) (err error) {
	if o.value, o.printer = value, nil; value == "" || value == Wide && slices.Contains(o.formats, Wide) {
		return nil
	}
	switch isTemplate := Templates != nil && strings.Contains(value, "="); {
	case isTemplate:
		o.printer, err = Templates(value)
	case !slices.Contains(o.formats, value):
		err = errors.New("it must be " + o.usage())
	default:
		o.printer = map[string]printers.ResourcePrinter{JSON: &printers.JSONPrinter{}, YAML: &printers.YAMLPrinter{}, Name: &printers.NamePrinter{}}[value]
	}
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
func (o *Output) Print(to io.Writer, content any) error { return o.print(to, content, nil) }

// PrintAs is Print for content that is no object of the API: it gets this kind.
func (o *Output) PrintAs(to io.Writer, kind string, content any) error {
	return o.print(to, content, map[string]any{"apiVersion": Version, "kind": kind})
}

func (o *Output) print(to io.Writer, content any, more map[string]any) error {
	u := &unstructured.Unstructured{}
	raw, err := json.Marshal(content)
	if err = errors.Join(err, utiljson.Unmarshal(raw, &u.Object)); err != nil {
		return fmt.Errorf("writing the output, %w", err)
	}
	maps.Copy(u.Object, more)
	if o.value == Name && u.IsList() {
		return u.EachListItem(func(item runtime.Object) error { return o.printer.PrintObj(item, to) })
	}
	return o.printer.PrintObj(u, to)
}

// Exit prints the error of a command, and ends the program with its exit code. Without an error it does nothing.
func Exit(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		os.Exit(coded.ExitCode())
	}
	os.Exit(1)
}

// Choice is a flag with a few values. Value is empty if the flag is not set.
type Choice struct {
	Value  string
	values []string
}

// Add adds the flag to a command and those below it, with completion.
func (c *Choice) Add(cmd *cobra.Command, name, usage string, values ...string) {
	c.values = values
	add(cmd, c, name, "", usage, values)
}

func add(cmd *cobra.Command, v pflag.Value, name, short, usage string, values []string) {
	cmd.PersistentFlags().VarP(v, name, short, usage)
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// Set implements pflag.Value.
func (c *Choice) Set(value string) error {
	if value != "" && !slices.Contains(c.values, value) {
		return fmt.Errorf("it must be %s", text.Or(c.values))
	}
	c.Value = value
	return nil
}

// String implements pflag.Value.
func (c *Choice) String() string { return c.Value }

// Type implements pflag.Value.
func (*Choice) Type() string { return "string" }

// Values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// DryRun is --dry-run.
type DryRun struct{ Choice }

// Add adds the flag to a command.
func (d *DryRun) Add(cmd *cobra.Command) {
	d.Value = DryRunNone
	d.Choice.Add(cmd, "dry-run",
		`"none", "client" (say what would be written) or "server" (the API server checks each request and writes nothing).`,
		DryRunNone, DryRunClient, DryRunServer)
}

// Client reports whether no request is sent.
func (d *DryRun) Client() bool { return d.Value == DryRunClient }

// Request returns the field dryRun of a request.
func (d *DryRun) Request() []string {
	if d.Value == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Suffix returns the end of a message about a change that was not written.
func (d *DryRun) Suffix() string {
	return map[string]string{DryRunClient: " (dry run)", DryRunServer: " (server dry run)"}[d.Value]
}
