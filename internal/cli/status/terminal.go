// SPDX-License-Identifier: Apache-2.0

package status

import (
	"io"
	"os"

	"golang.org/x/term"
)

// screen is what a stream leads to.
type screen struct {
	fd     int // -1 when it is no terminal
	dumb   bool
	colour bool
}

// terminal looks at a stream. Colours are for terminals, and for people who have not said NO_COLOR.
func terminal(out io.Writer) screen {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return screen{fd: -1}
	}
	dumb := os.Getenv("TERM") == "dumb"
	return screen{fd: int(f.Fd()), dumb: dumb, colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// size is the terminal's now, or a usual one when it does not tell.
func (s screen) size() (width, height int) {
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
