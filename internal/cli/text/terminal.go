// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Terminal is where a stream goes.
type Terminal struct {
	fd int
	// Live is true when what is written can be painted over.
	Live bool
	// Colour is true when colours are shown.
	Colour bool
}

// TerminalOf looks at a stream. Colours are for terminals, and for people who have not said NO_COLOR.
func TerminalOf(out io.Writer) Terminal {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}
	}
	live := os.Getenv("TERM") != "dumb"
	return Terminal{fd: int(f.Fd()), Live: live, Colour: live && os.Getenv("NO_COLOR") == ""}
}

// Size is the current size, or a usual one when the terminal does not say.
func (t Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Print writes the lines to a stream.
func (all Lines) Print(out io.Writer) error {
	_, err := out.Write(all.Text(0, TerminalOf(out).Colour))
	return err
}
