// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
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

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Epoch is the timestamp of files and images that say no other: a build says nothing about when it ran.
var Epoch = time.Unix(0, 0).UTC()

// The annotations by which an archive's index names an image: containerd's, and the one of OCI.
const (
	imageName = "io.containerd.image.name"
	refName   = "org.opencontainers.image.ref.name"
)

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
	// Created is the timestamp of the image and of each file in it. Zero means Epoch.
	Created time.Time
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

// Build writes the image of one platform as an OCI archive to the file out, whole or not at all.
func Build(ctx context.Context, spec Spec, out string) error {
	_, err := BuildIndex(ctx, []Spec{spec}, out)
	return err
}

// BuildIndex writes one image for several architectures, with a spec for each, as an OCI archive to the file out, whole or not at all.
// The names are those of the first spec. It returns the digest, by which an import of the archive names the image, too.
func BuildIndex(ctx context.Context, specs []Spec, out string) (digest string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("building image %s, %w", out, err)
		}
	}()
	var index v1.ImageIndex = empty.Index
	for _, spec := range specs {
		img, err := assemble(ctx, spec)
		if err != nil {
			return "", err
		}
		platform := &v1.Platform{OS: "linux", Architecture: spec.architecture()}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	names, err := specs[0].names(hash)
	if err != nil {
		return "", err
	}
	for _, annotations := range names {
		if err := written.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
			return "", err
		}
	}
	files, err := Tree(dir)
	if err != nil {
		return "", err
	}
	return hash.String(), replace(out, func(w io.Writer) error { return WriteTar(ctx, w, files, Epoch) })
}

// names returns the annotations of each name of the image: its tags, and each repository with the digest. The latter lets a pod that
// names a digest use an image that was imported and not pulled.
func (s Spec) names(digest v1.Hash) ([]map[string]string, error) {
	var all []map[string]string
	digests := map[string]bool{}
	for _, t := range s.Tags {
		tag, err := reference.ParseDockerRef(t)
		if err != nil {
			return nil, fmt.Errorf("reading tag %s, %w", t, err)
		}
		all = append(all, map[string]string{imageName: tag.String(), refName: tag.String()})
		digests[reference.TrimNamed(tag).String()+"@"+digest.String()] = true
	}
	for _, d := range slices.Sorted(maps.Keys(digests)) {
		all = append(all, map[string]string{imageName: d})
	}
	return all, nil
}

func (s Spec) architecture() string { return cmp.Or(s.Architecture, runtime.GOARCH) }

// assemble makes the image in memory.
func assemble(ctx context.Context, spec Spec) (v1.Image, error) {
	if len(spec.Tags) == 0 {
		return nil, errors.New("no tag given")
	}
	created := spec.Created
	if created.IsZero() {
		created = Epoch
	}
	var files bytes.Buffer
	if err := WriteTar(ctx, &files, spec.Files, created); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "moult.dev/moult/hack/image"},
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
	config.Architecture = spec.architecture()
	config.Created = v1.Time{Time: created}
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

// Tree returns the files below a directory, by their paths as seen from there, for WriteTar.
func Tree(dir string) (map[string]File, error) {
	files := map[string]File{}
	return files, filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		files["/"+filepath.ToSlash(rel)] = File{Source: p, Mode: 0o644}
		return err
	})
}

// WriteTar writes the files as a tar stream, parents before children. The same files give the same bytes.
func WriteTar(ctx context.Context, w io.Writer, files map[string]File, modified time.Time) error {
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
		if err := add(tw, p, all[p], modified); err != nil {
			return fmt.Errorf("adding %s, %w", p, err)
		}
	}
	return tw.Close()
}

// add writes one entry.
func add(tw *tar.Writer, p string, f File, modified time.Time) error {
	h := &tar.Header{Name: strings.TrimPrefix(p, "/"), ModTime: modified, Format: tar.FormatPAX}
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
