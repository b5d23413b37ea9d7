// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status, list, why, preview, pause, approve, undo and more. kubectl
// finds it on the PATH. Under the name kubectl-eds it is kubectl's plugin for ExtendedDaemonSets.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"moult.dev/moult/internal/cli/flags"
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
