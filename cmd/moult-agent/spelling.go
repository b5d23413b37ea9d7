// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// translate turns the command line of the Bottlerocket update operator, or of Dogswatch, into one of this program. Any other stays
// as it is.
func translate(args []string) ([]string, error) {
	theirs := slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(arg, "-") && (name == "agent" || name == "controller" || name == "nodeName")
	})
	if !theirs || !strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	flags := flag.NewFlagSet("moult-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	agent := flags.Bool("agent", false, "")
	controller := flags.Bool("controller", false, "")
	name := flags.String("nodeName", "", "")
	verbose := flags.Bool("debug", false, "")
	flags.Bool("skip-mitigation", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return []string{"run", "--help"}, nil
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *agent == *controller:
		return nil, errors.New("exactly one of -agent and -controller must be given")
	case *controller:
		return nil, errors.New("this is the agent; the operator is another program: moult -controller -nodeName NAME, or moult controller")
	case *name == "":
		return nil, errors.New("-nodeName must be given, and not be empty")
	}
	translated := []string{"run", "--node-name=" + *name}
	if *verbose {
		translated = append(translated, "--debug")
	}
	return translated, nil
}
