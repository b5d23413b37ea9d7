// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image made of files of this machine. Machines can reach no
// registry: what pods are to run is packed so, and imported.
type Image struct {
	// Ref is the image's name. Give it a tag other than latest, which the kubelet
	// always wants to pull.
	Ref string
	// Files are the image's files, by their paths in it: files of this machine,
	// usually statically linked programs.
	Files map[string]string
	// Links are symbolic links, by their paths in the image.
	Links      map[string]string
	Entrypoint []string
	Env        []string
}

// ShellImage is an image on every machine that has a shell and the usual commands.
const ShellImage = "moult.dev/test/shell:1"

// Write writes the image as a Docker archive.
func (i Image) Write(file string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	digest := sha256.Sum256(layer)
	diffID := hex.EncodeToString(digest[:])
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint,
			"Env":        append([]string{"PATH=" + toolPath}, i.Env...),
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + diffID}},
	})
	if err != nil {
		return err
	}
	configDigest := sha256.Sum256(config)
	configName := hex.EncodeToString(configDigest[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   configName,
		"RepoTags": []string{i.Ref},
		"Layers":   []string{diffID + "/layer.tar"},
	}})
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	for _, entry := range []struct {
		name string
		data []byte
	}{{diffID + "/layer.tar", layer}, {configName, config}, {"manifest.json", manifest}} {
		header := &tar.Header{Name: entry.name, Mode: 0o644, Size: int64(len(entry.data))}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(entry.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

// layer returns the image's files as a tar archive.
func (i Image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	made := map[string]bool{}
	if err := makeDir(w, made, "tmp", 0o1777); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(i.Files) {
		if err := i.addFile(w, made, name); err != nil {
			return nil, fmt.Errorf("adding %s to image %s, %w", name, i.Ref, err)
		}
	}
	for _, name := range sortedKeys(i.Links) {
		clean := strings.TrimPrefix(path.Clean("/"+name), "/")
		if err := makeDir(w, made, path.Dir(clean), 0o755); err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeSymlink, Name: clean, Linkname: i.Links[name], Mode: 0o777}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), w.Close()
}

func (i Image) addFile(w *tar.Writer, made map[string]bool, name string) error {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if err := makeDir(w, made, path.Dir(clean), 0o755); err != nil {
		return err
	}
	file, err := os.Open(i.Files[name])
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: clean, Mode: int64(info.Mode().Perm()), Size: info.Size()}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}

// makeDir adds a directory and those above it.
func makeDir(w *tar.Writer, made map[string]bool, dir string, mode int64) error {
	if dir == "." || dir == "/" || made[dir] {
		return nil
	}
	if err := makeDir(w, made, path.Dir(dir), 0o755); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode})
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// standardImages writes the images that every machine has and returns their paths.
func (s *supervisor) standardImages() ([]string, error) {
	dir := filepath.Join(s.spec.Dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	busybox := findTool("busybox")
	images := map[string]Image{
		"pause.tar": {
			Ref:        pauseImage,
			Files:      map[string]string{"/pause": s.spec.Binaries["pause"]},
			Entrypoint: []string{"/pause"},
		},
		"shell.tar": {
			Ref:        ShellImage,
			Files:      map[string]string{"/bin/busybox": busybox},
			Links:      map[string]string{},
			Entrypoint: []string{"/bin/sh"},
		},
	}
	for _, command := range shellCommands {
		images["shell.tar"].Links["/bin/"+command] = "busybox"
	}
	var paths []string
	for name, image := range images {
		file := filepath.Join(dir, name)
		if err := image.Write(file); err != nil {
			return nil, err
		}
		paths = append(paths, file)
	}
	return paths, nil
}

// shellCommands are the names that the shell image's program answers to.
var shellCommands = strings.Fields(`
	ash awk basename cat chgrp chmod chown chroot cmp cp cut date dd df diff dirname dmesg du echo env expr
	false find free grep head hostname id ifconfig install ip kill killall ln ls md5sum mkdir mknod mktemp
	more mount mv nc nsenter nslookup ping printenv printf ps pwd readlink reboot realpath rm rmdir route
	sed seq sh sha256sum sleep sort stat sync sysctl tail tar tee test time timeout top touch tr true
	umount uname uniq unshare uptime vi watch wc wget which whoami xargs yes`)
