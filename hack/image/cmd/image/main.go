// SPDX-License-Identifier: Apache-2.0

// Command image packs the binaries of a checkout into the images of operator and node agent, for this machine's architecture.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"moult.dev/moult/hack/image"
)

func main() {
	bin := flag.String("bin", "bin", "directory of the binaries")
	out := flag.String("o", "bin/images", "directory of the images")
	version := flag.String("version", "", "version for a second tag and a label")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, tag := range []string{image.Operator, image.Agent} {
		if err := build(ctx, tag, *bin, *out, *version); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

func build(ctx context.Context, tag, bin, out, version string) error {
	binary := filepath.Join(bin, image.Name(tag))
	if err := image.Static(binary); err != nil {
		return err
	}
	spec, archive := image.Program(tag, binary, version), filepath.Join(out, image.Name(tag)+".tar")
	fmt.Printf("%s: %v\n", archive, spec.Tags)
	return image.Build(ctx, spec, archive)
}
