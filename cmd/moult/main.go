// SPDX-License-Identifier: Apache-2.0

// Command moult is the operator (moult controller), the cordon and drain commands of Jobs, moult set-image,
// and moult dashboard.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // Channels are read over TLS, and the image has no file of roots.
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/cli/drain"
)

// version is set by the linker.
var version = "dev"

func main() {
	// GOMEMLIMIT is what ends the process. From two fifths of it on the garbage collector works more. Thousands of objects at once, and memory that Go does
	// not count, may need the rest.
	debug.SetMemoryLimit(debug.SetMemoryLimit(-1) / 5 * 2)
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
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			os.Exit(coded.ExitCode())
		}
		os.Exit(1)
	}
}
