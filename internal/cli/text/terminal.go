// SPDX-License-Identifier: Apache-2.0

package text

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Screen is what a stream leads to.
type Screen struct {
	fd   int // -1 when it is no terminal
	dumb bool
	// Colour is true when it shows colours.
	Colour bool
}

// LookAt looks at a stream. Colours are for terminals, and for people who have not said NO_COLOR.
func LookAt(out io.Writer) Screen {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{fd: -1}
	}
	dumb := os.Getenv("TERM") == "dumb"
	return Screen{fd: int(f.Fd()), dumb: dumb, Colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// Size is the terminal's now, or a usual one when it does not tell.
func (s Screen) Size() (width, height int) {
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Live reports whether what is on the screen can be painted over.
func (s Screen) Live() bool { return s.fd >= 0 && !s.dumb }
