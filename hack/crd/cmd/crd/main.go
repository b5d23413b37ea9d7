// SPDX-License-Identifier: Apache-2.0

// Command crd finishes the CustomResourceDefinitions in the files that are named, in place.
package main

import (
	"fmt"
	"os"

	"moult.dev/moult/hack/crd"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := finish(file); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	}
}

func finish(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	done, err := crd.Finish(raw)
	if err != nil {
		return fmt.Errorf("finishing %s, %w", file, err)
	}
	return os.WriteFile(file, done, 0o644)
}
