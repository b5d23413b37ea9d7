// SPDX-License-Identifier: Apache-2.0

// Command release writes all that a release of Moult consists of into one folder:
//
//	images/{moult,moult-agent}.tar      OCI archives, for each architecture of Linux
//	install.yaml, crds.yaml             config/default and config/crd, with those images
//	agents.yaml, dashboard.yaml, …      what may be applied beside them
//	moult-VERSION.tgz                   charts/moult
//	kubectl-moult_OS_ARCH.{tar.gz,zip}  the plugin, with completion for shells
//	krew/{moult,eds}.yaml               what kubectl krew installs it by
//	sbom/PROGRAM_OS_ARCH.cdx.json       the modules in each program, as CycloneDX
//	RELEASE_NOTES.md, checksums.txt
//
// The same commit, version and release of Go give the same bytes, on any machine: archives are sorted, and their only time is that of
// the commit or of SOURCE_DATE_EPOCH.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.Root, "root", "../..", "checkout to release")
	flag.StringVar(&o.Out, "o", "../../dist", "folder to write; it must be empty")
	flag.StringVar(&o.Version, "version", "", "version, vX.Y.Z")
	flag.StringVar(&o.Registry, "registry", "moult.dev", "registry, and path in it, of the images' names")
	flag.StringVar(&o.Downloads, "downloads", "", "URL of the folder that krew downloads the plugin from")
	flag.StringVar(&o.Platforms, "platforms", allPlatforms, "platforms to build for, this machine's and one of Linux among them")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
