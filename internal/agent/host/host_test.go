// SPDX-License-Identifier: Apache-2.0

package host

import (
	"path/filepath"
	"testing"
)

func TestBootID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot_id")
	b := boot{file}
	_, err := b.BootID()
	failing(t, err, "reading the boot id, open "+file)
	write(t, file, "\n")
	_, err = b.BootID()
	failing(t, err, "is empty")
	write(t, file, "b1\n")
	if id, err := b.BootID(); id != "b1" || err != nil {
		t.Errorf("id %q, %v", id, err)
	}
}
