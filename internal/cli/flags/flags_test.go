// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestDryRun(t *testing.T) {
	for line, want := range map[string]string{
		"": DryRunNone, "--dry-run=none": DryRunNone, "--dry-run=client": DryRunClient, "--dry-run=server": DryRunServer,
		"--dry-run=sometimes": "",
	} {
		var got DryRun
		cmd := &cobra.Command{}
		got.Add(cmd)
		err := cmd.ParseFlags(strings.Fields(line))
		if want == "" && err == nil || want != "" && (err != nil || got.Value != want) {
			t.Errorf("%q: got %q, %v", line, got.Value, err)
		}
	}
}
