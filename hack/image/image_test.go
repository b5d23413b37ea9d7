// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"moult.dev/moult/hack/image"
)

// entry is what a test compares of one path in an image.
type entry struct {
	Type byte
	Mode int64
	Link string
	Size int64
}

func TestProgram(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "moult")
	if err := image.GoBinary(t.Context(), ".", "./testdata/hello", binary); err != nil {
		t.Fatal(err)
	}
	if err := image.Static(binary); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	spec := image.Program(image.Operator, binary, "v1.2.3+g0ff1ce")

	out := filepath.Join(t.TempDir(), "images", "moult.tar")
	if err := image.Build(t.Context(), spec, out); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{image.Operator, "moult.dev/moult:v1.2.3_g0ff1ce"} {
		found, err := partial.FindImages(read(t, out, ref), match.MediaTypes(string(types.OCIManifestSchema1)))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s has %d images, %v", ref, len(found), err)
		}
		img := found[0]
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"/moult"}, config.Config.Entrypoint); diff != "" {
			t.Errorf("entrypoint (-want +got):\n%s", diff)
		}
		if config.Config.User != image.NonRoot || config.OS != "linux" || !config.Created.Time.Equal(image.Epoch) {
			t.Errorf("config = %+v", config)
		}
		want := map[string]entry{
			"etc/":       {Type: tar.TypeDir, Mode: 0o755},
			"etc/group":  {Type: tar.TypeReg, Mode: 0o644, Size: int64(len(spec.Files["/etc/group"].Content))},
			"etc/passwd": {Type: tar.TypeReg, Mode: 0o644, Size: int64(len(spec.Files["/etc/passwd"].Content))},
			"moult":      {Type: tar.TypeReg, Mode: 0o755, Size: info.Size()},
			"tmp/":       {Type: tar.TypeDir, Mode: 0o1777},

			"ducklett":                {Type: tar.TypeSymlink, Mode: 0o777, Link: "moult"},
			"update-azure-image-tags": {Type: tar.TypeSymlink, Mode: 0o777, Link: "moult"},
		}
		if diff := cmp.Diff(want, entries(t, img, image.Epoch)); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
}

func TestBuildIsReproducible(t *testing.T) {
	spec := image.Spec{
		Tags:   []string{"moult.dev/test:a", "moult.dev/test:b"},
		Labels: map[string]string{"x": "1", "y": "2", "z": "3"},
		Files: map[string]image.File{
			"/a/b/c": {Content: []byte("c")},
			"/a/d":   {Link: "b/c"},
			"/e":     {Dir: true, Mode: 0o700},
		},
	}
	var builds [][]byte
	for range 10 {
		out := filepath.Join(t.TempDir(), "test.tar")
		if err := image.Build(t.Context(), spec, out); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		builds = append(builds, b)
	}
	for _, b := range builds[1:] {
		if !bytes.Equal(b, builds[0]) {
			t.Fatal("two builds of one spec differ")
		}
	}
}

// TestBuildIndex: one archive has the image of each architecture, and names it by each tag and by its digest.
func TestBuildIndex(t *testing.T) {
	created := time.Unix(1234567890, 0).UTC()
	var specs []image.Spec
	for _, arch := range []string{"amd64", "arm64"} {
		specs = append(specs, image.Spec{
			Tags:         []string{"moult.dev/test:a", "moult.dev/test:b"},
			Architecture: arch,
			Created:      created,
			Files:        map[string]image.File{"/" + arch: {Content: []byte(arch)}},
		})
	}
	out := filepath.Join(t.TempDir(), "test.tar")
	digest, err := image.BuildIndex(t.Context(), specs, out)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"moult.dev/test:a", "moult.dev/test:b", "moult.dev/test@" + digest} {
		index := read(t, out, ref)
		if got, err := index.Digest(); err != nil || got.String() != digest {
			t.Errorf("%s has the digest %s, %v, want %s", ref, got, err, digest)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range manifest.Manifests {
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if !config.Created.Time.Equal(created) {
				t.Errorf("%s was created at %s, want %s", ref, config.Created, created)
			}
			got = append(got, m.Platform.String(), config.Platform().String())
			got = slices.AppendSeq(got, maps.Keys(entries(t, img, created)))
		}
		want := []string{"linux/amd64", "linux/amd64", "amd64", "linux/arm64", "linux/arm64", "arm64"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ref, diff)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, spec := range map[string]image.Spec{
		"no tag":         {},
		"a bad tag":      {Tags: []string{"moult.dev/UPPER"}},
		"relative path":  {Tags: []string{image.Busybox}, Files: map[string]image.File{"bin/sh": {}}},
		"unclean path":   {Tags: []string{image.Busybox}, Files: map[string]image.File{"/bin/../sh": {}}},
		"missing source": {Tags: []string{image.Busybox}, Files: map[string]image.File{"/sh": {Source: "testdata/none"}}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.tar")
			if err := image.Build(t.Context(), spec, out); err == nil {
				t.Error("no error")
			}
			if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// read returns the image that containerd gives this name, from an archive that is checked for being whole.
func read(t *testing.T, archive, ref string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Errorf("%s is not valid: %v", archive, err)
	}
	found, err := partial.FindIndexes(all, match.Annotation("io.containerd.image.name", ref))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %d images %s, %v", archive, len(found), ref, err)
	}
	return found[0]
}

// entries lists what an image's file system holds.
func entries(t *testing.T, img v1.Image, created time.Time) map[string]entry {
	t.Helper()
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	got := map[string]entry{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		name := h.Name
		if h.Typeflag == tar.TypeDir && name[len(name)-1] != '/' {
			name += "/" // Extract cleans the names.
		}
		if !h.ModTime.Equal(created) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %v, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		got[name] = entry{Type: h.Typeflag, Mode: h.Mode, Link: h.Linkname, Size: h.Size}
	}
}
