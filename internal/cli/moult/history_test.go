// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/view"
)

// runs are those of a rollout: one that goes on, one that was superseded, and two that were complete.
func runs() []v1alpha1.Run {
	return []v1alpha1.Run{
		{
			Revision: "v4@12345678", CreatedBy: "argocd-controller", CreatedAt: *ago(2 * time.Hour), StartedAt: ago(time.Hour), FailedAt: ago(time.Minute),
			Total: 8, Updated: 3, Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 2}},
			Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed, v1alpha1.RunHalted},
		},
		{
			Revision: "v3@12345678", CreatedBy: "helm", CreatedAt: *ago(30 * time.Hour), EndedAt: ago(2 * time.Hour), HaltedAt: ago(20 * time.Hour),
			Result: v1alpha1.RunSuperseded, Total: 8,
		},
		{
			Revision: "v2@12345678", CreatedBy: "kubectl", ApprovedBy: "ann", CreatedAt: *ago(25 * 24 * time.Hour), StartedAt: ago(25*24*time.Hour - 4*time.Hour),
			EndedAt: ago(24 * 24 * time.Hour), Result: v1alpha1.RunComplete, Total: 8, Updated: 8,
			Turns: &v1alpha1.RunTurns{Count: 8, MedianSeconds: 95, P95Seconds: 310},
			Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonOutsideWindow, Seconds: 14400}, {Reason: v1alpha1.ReasonWaitingForApproval, Seconds: 600}},
		},
		{Revision: "v1@12345678", CreatedAt: *ago(31 * 24 * time.Hour), EndedAt: ago(29 * 24 * time.Hour), Result: v1alpha1.RunComplete, Total: 7, Updated: 7},
		{Revision: "v0@12345678", CreatedAt: *ago(50 * 24 * time.Hour), EndedAt: ago(49 * 24 * time.Hour), Result: v1alpha1.RunComplete, Total: 7, Updated: 7},
	}
}

func TestHistory(t *testing.T) {
	var out bytes.Buffer
	c := &command{IOStreams: genericiooptions.IOStreams{Out: &out}}
	if err := c.printTable(append([][]string{view.HistoryColumns}, view.HistoryRows(runs())...)); err != nil {
		t.Fatal(err)
	}
	golden(t, "history/table", out.Bytes())
}

// TestReport leaves out what ended before the time.
func TestReport(t *testing.T) {
	rollouts := several()
	rollouts[1].History = runs()
	rollouts[0].Versions = []v1alpha1.HostVersion{{Version: "1.20.3", Nodes: 1}, {Version: "1.19.0 | x", Nodes: 1}}
	for _, format := range []string{"", formatTable, formatCSV, formatMarkdown, flags.JSON} {
		var output flags.Output
		output.Add(&cobra.Command{}, formatTable, flags.JSON, formatCSV, formatMarkdown)
		var out bytes.Buffer
		c := &command{IOStreams: genericiooptions.IOStreams{Out: &out}}
		err := output.Set(format)
		if err == nil {
			err = c.printReport(view.NewReport(rollouts, now.Add(-30*24*time.Hour)), &output)
		}
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if format == "" {
			format = formatTable
		}
		golden(t, "history/report-"+format, out.Bytes())
	}
}
