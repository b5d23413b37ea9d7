// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
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
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		img, err := tarball.ImageFromPath(out, &tag)
		if err != nil {
			t.Fatalf("reading %s: %v", ref, err)
		}
		if err := validate.Image(img); err != nil {
			t.Errorf("%s is not valid: %v", ref, err)
		}
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
		if diff := cmp.Diff(want, entries(t, img)); diff != "" {
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

func TestBuildLayout(t *testing.T) {
	spec := image.Spec{
		Tags: []string{"moult.dev/test:a"},
		Files: map[string]image.File{
			"/a/b": {Content: []byte("b")},
			"/a/c": {Link: "b"},
		},
	}
	dir := t.TempDir()
	if err := image.BuildLayout(t.Context(), spec, dir); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]entry{
		"a/":  {Type: tar.TypeDir, Mode: 0o755},
		"a/b": {Type: tar.TypeReg, Mode: 0o644, Size: 1},
		"a/c": {Type: tar.TypeSymlink, Mode: 0o777, Link: "b"},
	}
	if diff := cmp.Diff(want, entries(t, img)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := image.BuildLayout(t.Context(), spec, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("writing over a layout: %v, want %v", err, fs.ErrExist)
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

// entries lists what an image's file system holds.
func entries(t *testing.T, img v1.Image) map[string]entry {
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
		if !h.ModTime.Equal(image.Epoch) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %v, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		got[name] = entry{Type: h.Typeflag, Mode: h.Mode, Link: h.Linkname, Size: h.Size}
	}
}
