// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/hack/image"
)

// writeTarGz writes files into a compressed tar archive.
func writeTarGz(ctx context.Context, archive string, files map[string]image.File, modified time.Time) error {
	var b bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := image.WriteTar(ctx, compressed, files, modified); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, b.Bytes(), 0o644)
}

// writeZip writes files, of which none is a link or a folder, into a zip archive.
func writeZip(archive string, files map[string]image.File, modified time.Time) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, p := range slices.Sorted(maps.Keys(files)) {
		file := files[p]
		if file.Source != "" {
			var err error
			if file.Content, err = os.ReadFile(file.Source); err != nil {
				return err
			}
		}
		header := &zip.FileHeader{Name: strings.TrimPrefix(p, "/"), Method: zip.Deflate, Modified: modified}
		header.SetMode(cmp.Or(file.Mode, 0o644))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(file.Content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, b.Bytes(), 0o644)
}

// writeChecksums writes what `sha256sum -c checksums.txt` reads, of every file so far. A release is downloaded without folders.
func (r *release) writeChecksums(context.Context) error {
	files, err := image.Tree(r.Out)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, p := range slices.Sorted(maps.Keys(files)) {
		sum, err := checksum(files[p].Source)
		if err != nil {
			return err
		}
		name := path.Base(p)
		if strings.Contains(b.String(), "  "+name+"\n") {
			return fmt.Errorf("two files of the release are named %s", name)
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, name)
	}
	return r.write(b.Bytes(), "checksums.txt")
}

func checksum(file string) (string, error) {
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
