// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// osReleases are where a system says what it is, the first that is there counts (os-release(5)).
var osReleases = []string{"etc/os-release", "usr/lib/os-release"}

// osVersion is the VERSION_ID of the system in a root directory, such as "1.20.3".
func osVersion(root string) (string, error) {
	dir, err := os.OpenRoot(cmp.Or(root, "/"))
	if err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	defer func() { _ = dir.Close() }()
	var errs []error
	for _, name := range osReleases {
		data, err := dir.ReadFile(name)
		if err != nil {
			// Links that lead out of the root are an error too, and the other file may do.
			errs = append(errs, err)
			continue
		}
		if version := osReleaseValue(string(data), "VERSION_ID"); version != "" {
			return version, nil
		}
		return "", fmt.Errorf("reading the host's version, there is no VERSION_ID in %s", name)
	}
	if errors.Is(errs[1], fs.ErrNotExist) {
		return "", fmt.Errorf("reading the host's version, %w", errs[0])
	}
	return "", fmt.Errorf("reading the host's version, %w", errors.Join(errs...))
}

// osReleaseValue is the value of a key in the text of an os-release file; empty if there is none. Of several the last counts.
func osReleaseValue(text, key string) string {
	value := ""
	for line := range strings.Lines(text) {
		k, v, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || k != key {
			continue
		}
		if words, err := splitWords(v); err == nil && len(words) == 1 {
			value = words[0]
		} else {
			value = ""
		}
	}
	return value
}

// sameVersion compares names of versions; a v before them means nothing.
func sameVersion(a, b string) bool {
	return bareVersion(a) == bareVersion(b)
}

// bareVersion is the name without a v before it.
func bareVersion(v string) string {
	return strings.TrimPrefix(v, "v")
}
