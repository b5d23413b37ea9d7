// SPDX-License-Identifier: Apache-2.0

// Command image packs the binaries of a checkout into images: the operator, the node agent and, where this machine
// has a static one, busybox.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"

	"moult.dev/moult/hack/image"
)

func main() {
	bin := flag.String("bin", "bin", "directory of the binaries")
	out := flag.String("o", "bin/images", "directory of the images")
	version := flag.String("version", "", "version for a second tag and a label")
	layout := flag.Bool("layout", false, "write OCI layouts instead of Docker archives")
	busybox := flag.String("busybox", "/bin/busybox", "static busybox; left out when it does not exist")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *bin, *out, *version, *busybox, *layout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, out, version, busybox string, layout bool) error {
	write := func(spec image.Spec, name string) error {
		target := filepath.Join(out, name)
		if layout {
			fmt.Printf("%s: %v\n", target, spec.Tags)
			return errors.Join(os.RemoveAll(target), image.BuildLayout(ctx, spec, target))
		}
		fmt.Printf("%s.tar: %v\n", target, spec.Tags)
		return image.Build(ctx, spec, target+".tar")
	}
	for _, p := range []struct{ name, tag string }{
		{"moult", image.Operator},
		{"moult-agent", image.Agent},
	} {
		binary := filepath.Join(bin, p.name)
		if err := image.Static(binary); errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("%s: left out, %s is not built\n", p.name, binary)
			continue
		} else if err != nil {
			return err
		}
		if err := write(image.Program(p.tag, binary, version), p.name); err != nil {
			return err
		}
	}
	spec, err := image.Shell(ctx, busybox)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("busybox: left out, no %s here\n", busybox)
		return nil
	} else if err != nil {
		return err
	}
	return write(spec, "busybox")
}
