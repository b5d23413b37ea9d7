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
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// axe-core checks accessibility. Its package is kept in the user's cache. To take another version, change both: sha512sum of the package is the checksum.
const (
	axeVersion  = "4.14.1"
	axeChecksum = "1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5"
)

// axe returns the program of axe-core. It is empty where it is neither in the cache nor to be fetched: then accessibility is not checked.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cache, "moult", "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(path); err != nil {
		if err := fetch(t.Context(), "https://registry.npmjs.org/axe-core/-/axe-core-"+axeVersion+".tgz", path); err != nil {
			t.Logf("ACCESSIBILITY IS NOT CHECKED: %v", err)
			return ""
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

// fetch stores what an address has, if all of it comes.
func fetch(ctx context.Context, from, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", from, answer.Status)
	}
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	part := fmt.Sprint(path, ".", os.Getpid())
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(part, content, 0o644), os.Rename(part, path))
}

// violations are what WCAG 2.1 AA forbids in the page, and which elements do it.
func violations(t *testing.T, ctx context.Context, axe string) []string { //nolint:revive // As in the library.
	t.Helper()
	if axe == "" {
		return nil
	}
	const run = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(r => r.violations.flatMap(
		v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`
	do(t, ctx, chromedp.Evaluate[chromedp.Void](axe))
	return ask(t, ctx, chromedp.Evaluate[[]string](run, chromedp.EvalAwaitPromise))
}
