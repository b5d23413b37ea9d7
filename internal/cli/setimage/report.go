// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"text/tabwriter"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/text"
)

// Outcome is what happened to one scale set.
type Outcome string

// The outcomes of a scale set.
const (
	// Changed: it had another image, and has the new one.
	Changed Outcome = "Changed"
	// Unchanged: it had the new image before.
	Unchanged Outcome = "Unchanged"
	// WouldChange: without --dry-run it would be changed.
	WouldChange Outcome = "WouldChange"
	// NotChanged: it is as it was, because a scale set could not be changed.
	NotChanged Outcome = "NotChanged"
	// PutBack: it was changed, and has its old image again, because a scale set could not be changed or the program was interrupted.
	PutBack Outcome = "PutBack"
	// NotPutBack: it was or may have been changed, and its old image could not be restored. A person must look.
	NotPutBack Outcome = "NotPutBack"
)

// Line is the outcome of one scale set.
type Line struct {
	Name string `json:"name"`
	// OldImage and NewImage are references, in the cloud's form.
	OldImage string  `json:"oldImage,omitempty"`
	NewImage string  `json:"newImage"`
	Outcome  Outcome `json:"outcome"`
	// Message says why it was not changed.
	Message string `json:"message,omitempty"`
}

// Report is the outcome of all scale sets.
type Report struct {
	Image     string `json:"image"`
	DryRun    bool   `json:"dryRun,omitempty"`
	ScaleSets []Line `json:"scaleSets"`
}

// write writes the report as a table, or in a structured format.
func (r *Report) write(to io.Writer, o *flags.Output) error {
	if o.Structured() {
		return o.PrintAs(to, "ImageReport", r)
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "SCALE SET\tOLD IMAGE\tNEW IMAGE\tOUTCOME\tMESSAGE")
	for _, l := range r.ScaleSets {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.Name, path.Base(cmp.Or(l.OldImage, "-")), path.Base(l.NewImage), l.Outcome, text.Clean(l.Message))
	}
	return table.Flush()
}

// mixedError says that scale sets may have different images.
type mixedError struct{ error }

// ExitCode is the exit code of the program.
func (mixedError) ExitCode() int { return 3 }
