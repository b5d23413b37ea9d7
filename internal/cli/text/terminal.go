// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Terminal is what a stream writes to.
type Terminal struct {
	fd int
	// Live is true if written text can be overwritten.
	Live bool
	// Colour is true if colours are shown.
	Colour bool
}

// TerminalOf returns the terminal of a stream. Only a terminal has colours, unless NO_COLOR is set.
func TerminalOf(out io.Writer) Terminal {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}
	}
	live := os.Getenv("TERM") != "dumb"
	return Terminal{fd: int(f.Fd()), Live: live, Colour: live && os.Getenv("NO_COLOR") == ""}
}

// Size returns the current size, or a default if it is unknown.
func (t Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
