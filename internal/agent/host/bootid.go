// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// DefaultBootIDFile is where the kernel tells the id of the present boot, in any container too. The kubelet takes
// status.nodeInfo.bootID from it.
const DefaultBootIDFile = "/proc/sys/kernel/random/boot_id"

// boot is the present boot of the host.
type boot struct {
	// file is where its id is; empty is DefaultBootIDFile.
	file string
}

// BootID is the id of the present boot.
func (b boot) BootID() (string, error) {
	data, err := os.ReadFile(cmp.Or(b.file, DefaultBootIDFile))
	if err != nil {
		return "", fmt.Errorf("reading the boot id, %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", fmt.Errorf("reading the boot id, %s is empty", cmp.Or(b.file, DefaultBootIDFile))
	}
	return id, nil
}
