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
	// brupopFlags say which part of the Bottlerocket update operator, or of Dogswatch, its one program is.
	brupopFlags = []string{flagController, flagAgent, "nodeName"}
	// controllerFlags are all those of the operators.
	controllerFlags = slices.Concat(ducklettFlags, loggerFlags, loggerSwitches, brupopFlags, []string{"debug", "skip-mitigation", "help"})
)

// Flags of the Bottlerocket update operator.
const (
	flagController = "controller"
	flagAgent      = "agent"
)

// ofPeers are the arguments of this program for those of the programs whose place it takes: with these it is called by their names and
// flags. The first is what the program is called; other arguments come back as they are.
func ofPeers(called []string) []string {
	name, args := "", []string(nil)
	if len(called) > 0 {
		name, args = strings.TrimSuffix(filepath.Base(called[0]), ".exe"), called[1:]
	}
	isOperators := func(arg string) bool { return isFlag(arg, ducklettFlags) || isFlag(arg, brupopFlags) }
	switch {
	case name == setimage.Alias:
		return doubleDashed(append([]string{setImage}, args...), setImageFlags)
	case len(args) == 0:
		return args
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
