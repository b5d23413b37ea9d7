// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status, list, why, preview, pause, approve, undo and more. kubectl
// finds it on the PATH. Under the name kubectl-eds it is kubectl's plugin for ExtendedDaemonSets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	//nolint:forbidigo // It begins here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := commandFor(os.Args).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			os.Exit(coded.ExitCode())
		}
		os.Exit(1)
	}
}
