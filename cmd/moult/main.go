// SPDX-License-Identifier: Apache-2.0

// Command moult is the operator (moult controller), the cordon and drain commands of Jobs, moult set-image,
// and moult dashboard.
package main

import (
	"errors"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // Channels are read over TLS, and the image has no file of roots.
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/cli/drain"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/setimage"
)

// version is set by the linker.
var version = "dev"

func main() {
	// A fifth of GOMEMLIMIT stays for memory that Go does not count, such as the program file.
	debug.SetMemoryLimit(debug.SetMemoryLimit(-1) / 5 * 4)
	root := &cobra.Command{
		Use:           "moult",
		Short:         "Rolling change across the nodes of a Kubernetes cluster, safely",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root.AddCommand(newControllerCommand(), newSetImageCommand(streams), newDashboardCommand())
	root.AddCommand(drain.NewCommands(clock.RealClock{}, streams)...)
	root.SetArgs(ofPeers(os.Args))
	flags.Exit(root.ExecuteContext(ctrl.SetupSignalHandler()))
}

// setImage is the command's name.
const setImage = "set-image"

func newSetImageCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := newClouds(os.Getenv)
	cmd := setimage.NewCommand(clock.RealClock{}, streams, os.Getenv, c.of)
	v := newVariables(cmd.Flags())
	c.bind(v)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		ignored, err := v.load(os.Getenv)
		return errors.Join(append(ignored, err)...)
	}
	return cmd
}
