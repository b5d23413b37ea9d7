// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Epoch is the timestamp of every file and every image: a build says nothing about when it ran.
var Epoch = time.Unix(0, 0).UTC()

// refName is the annotation by which an OCI layout's index names an image.
const refName = "org.opencontainers.image.ref.name"

// Spec is what an image is made of.
type Spec struct {
	// Tags are the image's names. At least one is needed; all of them are written.
	Tags []string
	// Entrypoint and Cmd are the command line that a container starts.
	Entrypoint, Cmd []string
	// User is the user, and optionally the group, that the entrypoint runs as. Empty means root.
	User string
	// Env holds KEY=value pairs.
	Env []string
	// Labels are the image's labels.
	Labels map[string]string
	// Architecture is the image's GOARCH. Empty means that of the running program.
	Architecture string
	// Files is the file system, by absolute path. Parent directories are made as needed.
	Files map[string]File
}

// File is one file, directory or symbolic link: at most one of Source, Content, Link and Dir is set, none of them
// being an empty file.
type File struct {
	// Source is a file on this machine to copy.
	Source string
	// Content is the file's content.
	Content []byte
	// Link makes a symbolic link to this target.
	Link string
	// Dir makes a directory.
	Dir bool
	// Mode holds the permission bits, with fs.ModeSticky where wanted.
	// The default is 0644 for Content, 0755 for Source and Dir.
	Mode fs.FileMode
}

// Build writes the image as a Docker archive to the file out, whole or not at all.
func Build(ctx context.Context, spec Spec, out string) error {
	img, err := assemble(ctx, spec)
	if err != nil {
		return fmt.Errorf("building image %s, %w", out, err)
	}
	var tags []string
	for _, t := range spec.Tags {
		tag, err := name.NewTag(t)
		if err != nil {
			return fmt.Errorf("building image %s, %w", out, err)
		}
		tags = append(tags, tag.String())
	}
	if err := replace(out, func(w io.Writer) error { return save(w, img, tags) }); err != nil {
		return fmt.Errorf("writing image %s, %w", out, err)
	}
	return nil
}

// BuildLayout writes the image as an OCI layout into the directory dir, which must not hold one already.
func BuildLayout(ctx context.Context, spec Spec, dir string) error {
	img, err := assemble(ctx, spec)
	if err != nil {
		return fmt.Errorf("building image %s, %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return fmt.Errorf("writing image %s, %w", dir, fs.ErrExist)
	}
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing image %s, %w", dir, err)
	}
	for _, t := range spec.Tags {
		if err := index.AppendImage(img, layout.WithAnnotations(map[string]string{refName: t})); err != nil {
			return fmt.Errorf("writing image %s, %w", dir, err)
		}
	}
	return nil
}

// assemble makes the image in memory.
func assemble(ctx context.Context, spec Spec) (v1.Image, error) {
	if len(spec.Tags) == 0 {
		return nil, errors.New("no tag given")
	}
	var files bytes.Buffer
	if err := archive(ctx, &files, spec.Files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: "moult.dev/moult/hack/image"},
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS = "linux"
	config.Architecture = cmp.Or(spec.Architecture, runtime.GOARCH)
	config.Created = v1.Time{Time: Epoch}
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		User:       spec.User,
		Env:        append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/"}, spec.Env...),
		Labels:     spec.Labels,
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, config)
}

// archive writes the files as a tar stream, parents before children.
func archive(ctx context.Context, w io.Writer, files map[string]File) error {
	all := map[string]File{}
	for p, f := range files {
		if p != path.Clean(p) || !path.IsAbs(p) || p == "/" {
			return fmt.Errorf("path %q is not absolute and clean", p)
		}
		all[p] = f
		for d := path.Dir(p); d != "/"; d = path.Dir(d) {
			if _, given := files[d]; !given {
				all[d] = File{Dir: true}
			}
		}
	}
	tw := tar.NewWriter(w)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := add(tw, p, all[p]); err != nil {
			return fmt.Errorf("adding %s, %w", p, err)
		}
	}
	return tw.Close()
}

// add writes one entry.
func add(tw *tar.Writer, p string, f File) error {
	h := &tar.Header{Name: strings.TrimPrefix(p, "/"), ModTime: Epoch, Format: tar.FormatPAX}
	content, mode := f.Content, fs.FileMode(0o755)
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, mode = tar.TypeSymlink, f.Link, 0o777
	case f.Dir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case f.Source != "":
		var err error
		if content, err = os.ReadFile(f.Source); err != nil {
			return err
		}
		h.Typeflag = tar.TypeReg
	default:
		h.Typeflag, mode = tar.TypeReg, 0o644
	}
	mode = cmp.Or(f.Mode, mode)
	h.Mode = int64(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	h.Size = int64(len(content))
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(content)
	return err
}

// save writes an image as `docker save` does. The writer of package tarball has the tags in random order.
func save(w io.Writer, img v1.Image, tags []string) error {
	configName, err := img.ConfigName()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	content := map[string][]byte{configName.Hex + ".json": config}
	manifest := tarball.Descriptor{Config: configName.Hex + ".json", RepoTags: tags}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		r, err := l.Compressed()
		if err != nil {
			return err
		}
		compressed, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		file := digest.Hex + ".tar.gz"
		content[file] = compressed
		manifest.Layers = append(manifest.Layers, file)
	}
	if content["manifest.json"], err = json.Marshal(tarball.Manifest{manifest}); err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, file := range slices.Sorted(maps.Keys(content)) {
		if err := add(tw, file, File{Content: content[file]}); err != nil {
			return fmt.Errorf("adding %s, %w", file, err)
		}
	}
	return tw.Close()
}

// replace writes a file beside out and moves it into place, so that a reader never sees half an image.
func replace(out string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err := errors.Join(write(tmp), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), out)
}
