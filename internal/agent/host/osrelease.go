// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
)

// osVersion returns the VERSION_ID of the system in a root directory, such as "1.20.3", by os-release(5).
func osVersion(root string) (string, error) {
	dir, err := os.OpenRoot(cmp.Or(root, "/"))
	if err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	defer func() { _ = dir.Close() }()
	const file = "etc/os-release"
	data, err := dir.ReadFile(file)
	if err != nil {
		// On most systems etc/os-release is a link to this file, and the link may lead out of the root.
		data, err = dir.ReadFile("usr/lib/os-release")
	}
	if err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	version := ""
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_ID="); ok {
			version = strings.Trim(value, `"'`)
		}
	}
	if version == "" {
		return "", errors.New("reading the host's version, there is no VERSION_ID in " + file)
	}
	return version, nil
}
