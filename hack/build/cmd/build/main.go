// SPDX-License-Identifier: Apache-2.0

// The build command builds what test clusters consist of, unless that has been built, and links it into a folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"moult.dev/moult/hack/build"
)

func main() {
	output := flag.String("o", "bin", "folder for the links")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go endWithParent(cancel)
	if err := run(ctx, *output); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// endWithParent stops the build when the process that started it is killed.
func endWithParent(cancel func()) {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			cancel()
		}
	}
}

func run(ctx context.Context, output string) error {
	dir, err := build.Programs(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return err
	}
	for _, name := range append([]string{build.Pause}, build.Linked...) {
		// Renamed into place, so that a command that runs it meanwhile always finds one.
		link := filepath.Join(output, name)
		next := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Symlink(filepath.Join(dir, name), next); err != nil {
			return err
		}
		if err := os.Rename(next, link); err != nil {
			return err
		}
	}
	return nil
}
