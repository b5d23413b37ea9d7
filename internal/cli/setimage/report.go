// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/text"
)

// Outcome says what became of one scale set.
type Outcome string

// The outcomes of a scale set.
const (
	// Changed: it makes new machines of the image.
	Changed Outcome = "Changed"
	// Unchanged: it did so before.
	Unchanged Outcome = "Unchanged"
	// WouldChange: so without --dry-run.
	WouldChange Outcome = "WouldChange"
	// NotChanged: it is as it was.
	NotChanged Outcome = "NotChanged"
	// PutBack: it was changed, and has its old image again because another one could not be changed.
	PutBack Outcome = "PutBack"
	// NotPutBack: it was, or may have been, changed, and has not got its old image again; a person must look.
	NotPutBack Outcome = "NotPutBack"
)

// Line is what became of one scale set.
type Line struct {
	Name string `json:"name"`
	// OldImage is the image that it had, and NewImage the one that it is to have, as the cloud takes them.
	OldImage string  `json:"oldImage,omitempty"`
	NewImage string  `json:"newImage"`
	Outcome  Outcome `json:"outcome"`
	// Message says why it was not changed.
	Message string `json:"message,omitempty"`
}

// Report is what became of all of them.
type Report struct {
	Image     string `json:"image"`
	DryRun    bool   `json:"dryRun,omitempty"`
	ScaleSets []Line `json:"scaleSets"`
}

// write writes the report, for people or for programs.
func (r *Report) write(to io.Writer, o *flags.Output) error {
	if o.Structured() {
		return o.Print(to, r)
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "SCALE SET\tOLD IMAGE\tNEW IMAGE\tOUTCOME\tMESSAGE")
	for i := range r.ScaleSets {
		l := &r.ScaleSets[i]
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.Name, cmp.Or(lastPart(l.OldImage), "-"), lastPart(l.NewImage), l.Outcome, text.Clean(l.Message))
	}
	return table.Flush()
}

// failure is an error with an exit code of its own.
type failure struct {
	error
	code int
}

// ExitCode is the program's.
func (f failure) ExitCode() int { return f.code }

func (f failure) Unwrap() error { return f.error }

// Exit codes beside 0: nothing is changed, and a person must look because scale sets may have different images.
const (
	exitNothing = 1
	exitMixed   = 3
)
