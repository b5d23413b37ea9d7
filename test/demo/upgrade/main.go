// SPDX-License-Identifier: Apache-2.0

// Command upgrade is what the demo upgrades, and what upgrades it. In a Job it is the image of a Plan:
//
//	prepare    puts this version's files on the machine, beside those of the version that runs
//	upgrade    switches the machine over to them, restarts the daemon, and waits until that says the new version
//
// On a machine it is what runs there:
//
//	service    keeps the daemon running, as a service manager would
//	daemon     says in /run which process it is and which version
//
// And in a pod it is a workload (serve) that takes a moment to go when it is evicted.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	verbs := map[string]func(context.Context) error{
		"prepare": prepare, "upgrade": upgrade, "service": service, "daemon": daemon, "serve": serve,
	}
	verb := "upgrade"
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	run, ok := verbs[verb]
	if !ok {
		fmt.Fprintf(os.Stderr, "error: it can't %s\n", verb)
		os.Exit(2)
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
