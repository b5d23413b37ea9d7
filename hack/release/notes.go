// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"moult.dev/moult/hack/image"
)

// writeNotes writes what the changelog says of this version, and the images.
func (r *release) writeNotes(context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.Root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changes, err := changesOf(string(changelog), r.Version)
	if err != nil {
		return err
	}
	notes := "# Moult " + r.Version + "\n\n" + changes + "\n## Images\n\n| image | digest |\n|---|---|\n"
	for _, tag := range inImages {
		name := image.Name(tag)
		notes += fmt.Sprintf("| `%s` | `%s` |\n", r.tag(name), r.digests[name])
	}
	return r.write([]byte(notes), "RELEASE_NOTES.md")
}

// link is the definition of a link, which changelogs end with.
var link = regexp.MustCompile(`^\[[^]]+\]: `)

// changesOf returns the section of a changelog about a version, or the unreleased one where there is none yet.
func changesOf(changelog, version string) (string, error) {
	sections := map[string]string{}
	title := ""
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			title, _, _ = strings.Cut(strings.TrimPrefix(heading, "["), "]")
			title = strings.TrimSpace(title)
		} else if !link.MatchString(line) {
			sections[title] += line
		}
	}
	for _, title := range []string{strings.TrimPrefix(version, "v"), "Unreleased"} {
		if text := strings.TrimSpace(sections[title]); text != "" {
			return text + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has neither a section %s nor anything unreleased", version)
}
