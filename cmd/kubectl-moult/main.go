// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status, list, why, preview, pause, approve, undo and more. kubectl
// finds it on the PATH. Under the name kubectl-eds it is kubectl's plugin for ExtendedDaemonSets.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/eds"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/internal/cli/source"
)

// version is set by the linker.
var version = "dev"

func main() {
	//nolint:forbidigo // It begins here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := commandFor(os.Args).ExecuteContext(ctx)
	stop()
	flags.Exit(err)
}

// commandFor returns the command for a command line. The first word is the name of the program:
//
//	kubectl-eds                                   kubectl eds
//	check-eds                                     kubectl eds wait, as its verb upgrade
//	kubectl_complete-moult, kubectl_complete-eds  what kubectl asks how to complete a line
//	kubectl-moult, and any other                  kubectl moult
func commandFor(args []string) *cobra.Command {
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	plugin, completing := strings.CutPrefix(name, "kubectl_complete-")
	create := moult.NewCommand
	switch {
	case name == "kubectl-eds" || completing && plugin == "eds":
		create = eds.NewCommand
	case name == "check-eds":
		create = eds.NewCheck
	}
	flags.Templates = flags.KubectlTemplates
	cluster := source.NewFlags()
	root := create(clock.RealClock{}, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, cluster)
	root.Version = version
	cluster.AddFlags(root.PersistentFlags())
	args = args[1:]
	if completing {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	return root
}
