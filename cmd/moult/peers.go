// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"moult.dev/moult/internal/cli/setimage"
)

// controllerFlags are flags of Ducklett's, which have one dash there.
var controllerFlags = slices.Concat(ducklettFlags, loggerFlags, loggerSwitches)

// ofPeers are the arguments of this program for those of the programs whose place it takes: with these it is called by their names and
// flags. The first is what the program is called; other arguments come back as they are.
func ofPeers(called []string) ([]string, error) {
	name, args := "", []string(nil)
	if len(called) > 0 {
		name, args = strings.TrimSuffix(filepath.Base(called[0]), ".exe"), called[1:]
	}
	switch {
	case name == setimage.Alias:
		return doubleDashed(append([]string{setImage}, args...), setImageFlags), nil
	case len(args) > 0 && slices.Contains([]string{setImage, setimage.Alias}, args[0]):
		return doubleDashed(args, setImageFlags), nil
	case len(args) > 0 && args[0] == "controller":
		return doubleDashed(args, controllerFlags), nil
	case len(args) > 0 && strings.HasPrefix(args[0], "-") && slices.ContainsFunc(args, func(a string) bool { return isFlag(a, ducklettFlags) }):
		return doubleDashed(append([]string{"controller"}, args...), controllerFlags), nil
	}
	return ofBrupop(args)
}

// isFlag reports whether an argument is one of these flags, after one dash or two.
func isFlag(arg string, of []string) bool {
	name, dashed := strings.CutPrefix(arg, "-")
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
	return dashed && slices.Contains(of, name)
}

// doubleDashed puts a second dash before those of these flags that have one, as they are written where all flags have one.
func doubleDashed(args, of []string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		if arg == "--" {
			break
		}
		if !strings.HasPrefix(arg, "--") && isFlag(arg, of) {
			all[i] = "-" + arg
		}
	}
	return all
}

// ofBrupop are the arguments for those of the Bottlerocket update operator and of Dogswatch, whose one program is told by flags which part it
// is: -controller -nodeName NODE.
func ofBrupop(args []string) ([]string, error) {
	part := func(arg string) bool { return isFlag(arg, []string{"controller", "agent", "nodeName"}) }
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") || !slices.ContainsFunc(args, part) {
		return args, nil
	}
	flags := flag.NewFlagSet("moult", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	controller := flags.Bool("controller", false, "")
	agent := flags.Bool("agent", false, "")
	debug := flags.Bool("debug", false, "")
	nodeName := flags.String("nodeName", "", "")
	_ = flags.Bool("skip-mitigation", false, "") // Dogswatch's: there is nothing to skip.
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return []string{"controller", "--help"}, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Bottlerocket update operator's flags, %w", err)
	case flags.NArg() > 0:
		return nil, fmt.Errorf("reading the Bottlerocket update operator's flags, %q is none", flags.Arg(0))
	case *agent && *controller:
		return nil, errors.New("either -controller or -agent must be given, not both")
	case *agent:
		return nil, errors.New("the agent is a program of its own: moult-agent -agent -nodeName NODE, or moult-agent run --node-name NODE")
	case !*controller:
		return nil, errors.New("-controller must be given: moult -controller -nodeName NODE is moult controller --node-name NODE")
	case *nodeName == "":
		return nil, errors.New("-nodeName must be given: the node that the operator runs on")
	}
	args = []string{"controller", "--node-name=" + *nodeName}
	if *debug {
		args = append(args, "--debug")
	}
	return args, nil
}
