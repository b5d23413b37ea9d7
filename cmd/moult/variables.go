// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// variables are flags that environment variables may set as well.
type variables struct {
	flags *pflag.FlagSet
	names map[string]string // of variables, by flag
}

func newVariables(flags *pflag.FlagSet) *variables {
	return &variables{flags: flags, names: map[string]string{}}
}

// add adds a flag, and the name of the variable that also sets it; empty means no variable.
func add[T bool | string | int | int32 | int64 | float32 | time.Duration](v *variables, to *T, name string, value T, variable, usage string) {
	*to = value
	switch to := any(to).(type) {
	case *bool:
		v.flags.BoolVar(to, name, *to, usage)
	case *string:
		v.flags.StringVar(to, name, *to, usage)
	case *int:
		v.flags.IntVar(to, name, *to, usage)
	case *int32:
		v.flags.Int32Var(to, name, *to, usage)
	case *int64:
		v.flags.Int64Var(to, name, *to, usage)
	case *float32:
		v.flags.Float32Var(to, name, *to, usage)
	case *time.Duration:
		v.flags.DurationVar(to, name, *to, usage)
	}
	if variable == "" {
		return
	}
	v.names[name] = variable
	f := v.flags.Lookup(name)
	f.Usage += " [$" + variable + "]"
	if f.DefValue == "false" || f.DefValue == "0" {
		f.Usage += " (default " + f.DefValue + ")" // pflag does not print such defaults.
	}
}

// ignore accepts flags of other programs that have no effect here. Switches need no value.
func (v *variables) ignore(flags, switches []string) {
	for _, name := range append(slices.Clip(flags), switches...) {
		_ = v.flags.String(name, "", "ignored")
		_ = v.flags.MarkHidden(name)
	}
	for _, name := range switches {
		v.flags.Lookup(name).NoOptDefVal = "true"
	}
}

// required is a flag value with a rule that it must follow.
type required struct {
	pflag.Value
	want  string
	holds func() bool
}

// Set implements pflag.Value.
func (r required) Set(text string) error {
	err := r.Value.Set(text)
	if err == nil && !r.holds() {
		err = fmt.Errorf("it must be %s", r.want)
	}
	return err
}

// require makes a flag refuse values that do not follow a rule.
func (v *variables) require(flag, want string, holds func() bool) {
	f := v.flags.Lookup(flag)
	f.Value = required{f.Value, want, holds}
}

// load sets the flags that are not given from the environment. As in system-upgrade-controller, an invalid value is reported, and the default
// applies, so that the operator starts.
func (v *variables) load(getenv func(string) string) (ignored []error, fatal error) {
	v.flags.VisitAll(func(f *pflag.Flag) {
		name := v.names[f.Name]
		value := getenv(name)
		if f.Changed || value == "" {
			return
		}
		err := f.Value.Set(value)
		switch {
		case err == nil:
		case f.Name == flagValidationMode, f.Name == flagControllers:
			fatal = fmt.Errorf("reading $%s, %w", name, err)
		default:
			_ = f.Value.Set(f.DefValue)
			ignored = append(ignored, fmt.Errorf("ignoring $%s: %q is not a valid value for --%s, %w", name, value, f.Name, err))
		}
	})
	return ignored, fatal
}
