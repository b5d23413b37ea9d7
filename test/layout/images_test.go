// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestImagesAreOurs checks that what is applied as it is runs no image of anybody else.
func TestImagesAreOurs(t *testing.T) {
	image, ours := regexp.MustCompile(`(?m)^[- ]*(?:image|newName): *(\S+)`), regexp.MustCompile(`^(moult\.dev/)?moult(-agent)?$`)
	found := 0
	err := filepath.WalkDir(filepath.Join(root(t), "config"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata":
			return fs.SkipDir
		case filepath.Ext(path) != ".yaml":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range image.FindAllStringSubmatch(string(text), -1) {
			found++
			if !ours.MatchString(m[1]) {
				t.Errorf("%s runs %s", path, m[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("there are %d images, %v", found, err)
	}
}
