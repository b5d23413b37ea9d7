// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/hack/image"
)

var committed = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)

// newRelease is a release of a checkout into a folder for the test, with the plugin built for some platforms.
func newRelease(t *testing.T, root string) *release {
	t.Helper()
	r := &release{
		options: options{Root: root, Out: t.TempDir(), Version: "v1.2.3", Registry: "registry.example/x", Downloads: "https://example.com/v1.2.3/"},
		log:     t.Output(),
		commit:  "0123456789abcdef0123456789abcdef01234567",
		created: committed,
		digests: map[string]string{"moult": "sha256:aa", "moult-agent": "sha256:bb"},
	}
	for _, p := range []program{{os: "linux", arch: "arm64"}, {os: "windows", arch: "amd64"}} {
		p.name, p.file = plugin, filepath.Join(t.TempDir(), plugin+suffix(p.os))
		r.programs = append(r.programs, p)
	}
	return r
}

func write(t *testing.T, content string, elem ...string) {
	t.Helper()
	file := filepath.Join(elem...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestArchives: the same files give the same bytes, in order, with the time and mode that they should have.
func TestArchives(t *testing.T) {
	files := map[string]image.File{
		"/b":   {Content: []byte("b"), Mode: 0o755},
		"/a/c": {Content: []byte("c")},
		"/a/a": {Source: "release_test.go", Mode: 0o644},
	}
	for name, tc := range map[string]struct {
		write func(archive string) error
		list  func(*testing.T, string) []*fileInfo
		want  []string
	}{
		"tar.gz": {
			func(archive string) error { return writeTarGz(t.Context(), archive, files, committed) }, listTarGz,
			[]string{"a/ drwxr-xr-x", "a/a -rw-r--r--", "a/c -rw-r--r--", "b -rwxr-xr-x"},
		},
		"zip": {
			func(archive string) error { return writeZip(archive, files, committed) }, listZip,
			[]string{"a/a -rw-r--r--", "a/c -rw-r--r--", "b -rwxr-xr-x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first string
			for range 10 {
				archive := filepath.Join(t.TempDir(), "archive")
				if err := tc.write(archive); err != nil {
					t.Fatal(err)
				}
				if content := read(t, archive); first == "" {
					first = content
				} else if content != first {
					t.Fatal("two archives of the same files differ")
				}
				var got []string
				for _, f := range tc.list(t, archive) {
					got = append(got, f.name+" "+f.mode.String())
					if !f.modified.Equal(committed) {
						t.Errorf("%s is of %s, want %s", f.name, f.modified, committed)
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("entries (-want +got):\n%s", diff)
				}
			}
		})
	}
}

type fileInfo struct {
	name     string
	mode     fs.FileMode
	modified time.Time
}

func listTarGz(t *testing.T, archive string) (all []*fileInfo) {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(read(t, archive)))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, &fileInfo{h.Name, h.FileInfo().Mode(), h.ModTime})
	}
}

func listZip(t *testing.T, archive string) (all []*fileInfo) {
	t.Helper()
	r, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, f := range r.File {
		all = append(all, &fileInfo{f.Name, f.Mode(), f.Modified})
	}
	return all
}

// TestManifests are those of this checkout, with every object's kind before it and images of the release.
func TestManifests(t *testing.T) {
	r := newRelease(t, filepath.Join("..", ".."))
	if err := r.writeManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	install, crds := read(t, r.Out, "install.yaml"), read(t, r.Out, "crds.yaml")
	if want := "image: registry.example/x/moult:v1.2.3@sha256:aa\n"; !strings.Contains(install, want) {
		t.Errorf("install.yaml does not have %q", want)
	}
	if strings.Contains(install, image.Operator) || strings.Contains(install, image.Agent) {
		t.Error("install.yaml has images of a checkout")
	}
	if n := strings.Count(crds, "\nkind: CustomResourceDefinition\n"); n == 0 || n != strings.Count(install, "\nkind: CustomResourceDefinition\n") {
		t.Errorf("crds.yaml has %d definitions, and install.yaml others", n)
	}
	if last, first := strings.LastIndex(install, "\nkind: CustomResourceDefinition\n"), strings.Index(install, "\nkind: Deployment\n"); last > first {
		t.Error("install.yaml has a Deployment before a CustomResourceDefinition")
	}
}

func TestChart(t *testing.T) {
	root := t.TempDir()
	write(t, "apiVersion: v2\nname: moult\n# Set by a release.\nversion: 0.0.0\nappVersion: dev\n", root, "charts/moult/Chart.yaml")
	write(t, "image:\n  # Where images are.\n  registry: moult.dev # or yours\n", root, "charts/moult/values.yaml")
	write(t, "*.tmp\n", root, "charts/moult/.helmignore")
	r := newRelease(t, root)
	if err := r.writeChart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range listTarGz(t, filepath.Join(r.Out, "moult-v1.2.3.tgz")) {
		names = append(names, f.name)
	}
	if diff := cmp.Diff([]string{"moult/", "moult/Chart.yaml", "moult/values.yaml"}, names); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	plain, err := gzip.NewReader(strings.NewReader(read(t, r.Out, "moult-v1.2.3.tgz")))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Set by a release.\nversion: v1.2.3\nappVersion: v1.2.3\n",
		"  # Where images are.\n  registry: registry.example/x # or yours\n",
	} {
		if !bytes.Contains(all, []byte(want)) {
			t.Errorf("the chart does not have\n%s", want)
		}
	}
	write(t, "version: 0.0.0\n", root, "charts/moult/Chart.yaml")
	if err := r.writeChart(t.Context()); err == nil {
		t.Error("a chart without appVersion is accepted")
	}
}

// TestKrew: each manifest says where the plugin of a platform is, and what its checksum is.
func TestKrew(t *testing.T) {
	r := newRelease(t, "")
	write(t, "linux", r.Out, "kubectl-moult_linux_arm64.tar.gz")
	write(t, "windows", r.Out, "kubectl-moult_windows_amd64.zip")
	if err := r.writeKrew(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: eds
spec:
  description: |
    Shows ExtendedDaemonSets, their canaries and their pods.
    Validates, pauses and fails canaries, and pauses, freezes and rolls back updates.
  homepage: https://moult.dev
  platforms:
  - bin: kubectl-moult
    files:
    - from: kubectl-moult
      to: .
    - from: LICENSE
      to: .
    selector:
      matchLabels:
        arch: arm64
        os: linux
    sha256: caf90169eefa5f807d577486b9f795ab86ae2983c5c20806cff959117e90af18
    uri: https://example.com/v1.2.3/kubectl-moult_linux_arm64.tar.gz
  - bin: kubectl-moult.exe
    files:
    - from: kubectl-moult.exe
      to: .
    - from: LICENSE
      to: .
    selector:
      matchLabels:
        arch: amd64
        os: windows
    sha256: 340d600392818df2413382dc7d8325c360d83ea49a262d31760348484bbc10b5
    uri: https://example.com/v1.2.3/kubectl-moult_windows_amd64.zip
  shortDescription: Show and steer ExtendedDaemonSets
  version: v1.2.3
`
	if diff := cmp.Diff(want, read(t, r.Out, "krew", "eds.yaml")); diff != "" {
		t.Errorf("eds.yaml (-want +got):\n%s", diff)
	}
	read(t, r.Out, "krew", "moult.yaml")
}

// TestSBOM: this test's own modules are listed, and nothing that differs from one run to the next.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := program{name: "moult", os: "linux", arch: "arm64", file: self}
	r := newRelease(t, "")
	r.programs = []program{p}
	if err := r.writeSBOMs(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := read(t, r.Out, "sbom", "moult_linux_arm64.cdx.json")
	if err := r.writeSBOMs(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read(t, r.Out, "sbom", "moult_linux_arm64.cdx.json") != first {
		t.Error("two SBOMs of one program differ")
	}
	var bom cdx.BOM
	if err := json.Unmarshal([]byte(first), &bom); err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2026-01-02T03:04:06Z" {
		t.Errorf("serial number %q, timestamp %q", bom.SerialNumber, bom.Metadata.Timestamp)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
	}
	for _, want := range []string{"stdlib", "github.com/CycloneDX/cyclonedx-go"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	if got := module("example.com/a", "v2.0.0+incompatible").PackageURL; got != "pkg:golang/example.com/a@v2.0.0%2Bincompatible" {
		t.Errorf("the URL of a package is %s", got)
	}
}

func TestChecksums(t *testing.T) {
	r := newRelease(t, "")
	write(t, "linux", r.Out, "krew", "a")
	write(t, "linux", r.Out, "b")
	if err := r.writeChecksums(t.Context()); err != nil {
		t.Fatal(err)
	}
	const sum = "caf90169eefa5f807d577486b9f795ab86ae2983c5c20806cff959117e90af18"
	if diff := cmp.Diff(sum+"  b\n"+sum+"  a\n", read(t, r.Out, "checksums.txt")); diff != "" {
		t.Errorf("checksums.txt (-want +got):\n%s", diff)
	}
}

func TestNotes(t *testing.T) {
	root := t.TempDir()
	write(t, "# Changelog\n\nAbout.\n\n## [Unreleased]\n\n- c\n\n## [1.2.3] - 2026-01-02\n\n### Added\n\n- b\n\n## [1.2.2]\n- a\n\n[1.2.3]: https://example.com\n", root, "CHANGELOG.md")
	r := newRelease(t, root)
	for version, want := range map[string]string{
		"v1.2.3": "### Added\n\n- b\n",
		"v1.2.2": "- a\n",
		"v2.0.0": "- c\n",
	} {
		r.Version = version
		if err := r.writeNotes(t.Context()); err != nil {
			t.Fatal(err)
		}
		images := "\n## Images\n\n| image | digest |\n|---|---|\n" +
			"| `registry.example/x/moult:" + version + "` | `sha256:aa` |\n| `registry.example/x/moult-agent:" + version + "` | `sha256:bb` |\n"
		if diff := cmp.Diff("# Moult "+version+"\n\n"+want+images, read(t, r.Out, "RELEASE_NOTES.md")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
	write(t, "# Changelog\n", root, "CHANGELOG.md")
	if err := r.writeNotes(t.Context()); err == nil {
		t.Error("an empty changelog is accepted")
	}
}

func TestRunRefuses(t *testing.T) {
	full := t.TempDir()
	write(t, "", full, "a")
	for name, o := range map[string]options{
		"no version":           {Out: t.TempDir()},
		"a version without v":  {Out: t.TempDir(), Version: "1.2.3"},
		"a short version":      {Out: t.TempDir(), Version: "v1.2"},
		"build metadata":       {Out: t.TempDir(), Version: "v1.2.3+a"},
		"a folder with a file": {Out: full, Version: "v1.2.3"},
		"no checkout":          {Out: t.TempDir(), Version: "v1.2.3", Root: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), o, io.Discard); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}
