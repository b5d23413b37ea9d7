// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"errors"
	"fmt"
	"os"
)

// Exit prints the error of a command, and ends the program with its exit code. Without an error it does nothing.
func Exit(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		os.Exit(coded.ExitCode())
	}
	os.Exit(1)
}
