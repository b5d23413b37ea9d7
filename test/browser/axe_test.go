// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"moult.dev/moult/test/cluster"
)

// axe-core checks accessibility. Its package is kept in the user's cache. To take another version, set both to what `npm pack` and sha512sum say.
const (
	axeVersion  = "4.14.1"
	axeChecksum = "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)

// axe returns the program of axe-core. It skips the test where it is not in the cache and npm can't fetch it.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "moult", "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(path); err != nil {
		if err := fetchAxe(t.Context(), filepath.Dir(path)); err != nil {
			unavailable(t, fmt.Errorf("fetching axe-core, %w", err))
		}
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha512.Sum512(archive); hex.EncodeToString(sum[:]) != axeChecksum {
		t.Fatalf("%s has another checksum: remove it", path)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		file, err := files.Next()
		if err != nil {
			t.Fatalf("looking for axe.min.js in %s: %v", path, err)
		}
		if file.Name == "package/axe.min.js" {
			program, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return string(program)
		}
	}
}

func fetchAxe(ctx context.Context, dir string) error {
	err := cluster.InstallPackages(ctx, os.Stderr, map[string]string{"npm": "npm"})
	if err := errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "npm", "pack", "axe-core@"+axeVersion, "--pack-destination", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// violations are what WCAG 2.1 AA forbids in the page, and which elements do it.
func violations(t *testing.T, ctx context.Context, axe string) []string { //nolint:revive // As in the library.
	t.Helper()
	const run = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(r => r.violations.flatMap(
		v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`
	do(t, ctx, chromedp.Evaluate[chromedp.Void](axe))
	return ask(t, ctx, chromedp.Evaluate[[]string](run, chromedp.EvalAwaitPromise))
}
