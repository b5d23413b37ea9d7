// SPDX-License-Identifier: Apache-2.0

package status

import "moult.dev/moult/internal/cli/text"

type (
	style = text.Style
	line  = text.Line
	lines = text.Lines
)

const (
	plain  = text.Plain
	bold   = text.Bold
	dim    = text.Dim
	red    = text.Red
	green  = text.Green
	yellow = text.Yellow
)
