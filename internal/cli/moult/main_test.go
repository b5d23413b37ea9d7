// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"os"
	"testing"

	"moult.dev/moult/internal/cli/flags"
)

// The plugin knows templates.
func TestMain(m *testing.M) {
	flags.Templates = flags.KubectlTemplates
	os.Exit(m.Run())
}
