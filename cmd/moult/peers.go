// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"

	"moult.dev/moult/internal/cli/setimage"
)

// The flags of the peers' programs, which have one dash there.
var (
	// setImageFlags are those of Ducklett's program that sets images.
	setImageFlags = []string{"imageid", "provider", "scale-set", "dry-run"}
	// brupopFlags choose between operator and agent, in the program of the Bottlerocket update operator and of Dogswatch.
	brupopFlags = []string{flagController, flagAgent, "nodeName"}
	// operatorFlags are those by which an operator is recognised, and controllerFlags are all.
	operatorFlags   = slices.Concat(ducklettFlags, brupopFlags, []string{flagConcurrency})
	controllerFlags = slices.Concat(operatorFlags, loggerFlags, loggerSwitches, []string{flagVerbosity, "debug", "skip-mitigation", "help"})
)

// Flags of the Bottlerocket update operator.
const (
	flagController = "controller"
	flagAgent      = "agent"
)

// ofPeers translates command lines of the programs that Moult replaces to arguments of this program. It recognises them by the program's
// name, called[0], and by their flags. Other arguments are returned unchanged.
func ofPeers(called []string) []string {
	name, args := strings.TrimSuffix(filepath.Base(called[0]), ".exe"), called[1:]
	isOperators := func(arg string) bool { return isFlag(arg, operatorFlags) }
	switch {
	case name == setimage.Alias:
		return doubleDashed(append([]string{setImage}, args...), setImageFlags)
	case name == nameDucklett:
		// The period is its default. The flag makes the NodeRollouts, also where no other is given.
		return doubleDashed(append([]string{"controller", "--" + flagCheckPeriod + "=300"}, args...), controllerFlags)
	case len(args) == 0:
		return args
	case slices.Equal(args, []string{"-help"}):
		return []string{"--help"}
	case args[0] == setImage || args[0] == setimage.Alias:
		return doubleDashed(args, setImageFlags)
	case args[0] == "controller":
		return doubleDashed(args, controllerFlags)
	case strings.HasPrefix(args[0], "-") && slices.ContainsFunc(args, isOperators):
		return doubleDashed(append([]string{"controller"}, args...), controllerFlags)
	}
	return args
}

// isFlag reports whether an argument is one of these flags, after one dash or two.
func isFlag(arg string, of []string) bool {
	name, dashed := strings.CutPrefix(arg, "-")
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
	return dashed && slices.Contains(of, name)
}

// doubleDashed adds a second dash to these flags if they have one dash, as in the programs of the peers.
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
