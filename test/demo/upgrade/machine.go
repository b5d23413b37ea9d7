// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Where things are, in the image and on a machine:
//
//	/opt/demo/v1.1.0/demo-daemon    this program
//	/opt/demo/v1.1.0/VERSION        its version
//	/opt/demo/current               a link to the version that runs
//	/etc/demo-release               says which one that is, and since when
//	/run/demo-daemon.json           says what the daemon runs
const (
	home    = "/opt/demo"
	program = "demo-daemon"
	current = home + "/current/" + program
	release = "/etc/demo-release"
	running = "/run/demo-daemon.json"

	// host is where a Plan's containers see the machine's root.
	host = "/host"
)

// own returns the version of the files that this program is one of, and their directory.
func own() (version, dir string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Dir(self)
	text, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		return "", "", fmt.Errorf("reading the version, %w", err)
	}
	return strings.TrimSpace(string(text)), dir, nil
}

// stage puts the files of this version on the machine, whole or not at all.
func stage() (version string, err error) {
	version, dir, err := own()
	if err != nil {
		return "", err
	}
	target := filepath.Join(host, home, version)
	if _, err := os.Stat(target); err == nil {
		fmt.Println("the files of", version, "are in place already")
		return version, nil
	}
	partial := target + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755)); err != nil {
		return "", err
	}
	for name, mode := range map[string]fs.FileMode{program: 0o755, "VERSION": 0o644} {
		if err := install(filepath.Join(dir, name), filepath.Join(partial, name), mode); err != nil {
			return "", fmt.Errorf("installing %s, %w", name, err)
		}
	}
	fmt.Println("put the files of", version, "in place")
	return version, os.Rename(partial, target)
}

// install copies a file and sees to it that it is on the disk.
func install(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Sync(), target.Close())
}

// replace writes a file of the machine, whole or not at all.
func replace(path, content string) error {
	partial := filepath.Join(host, path+".partial")
	if err := os.WriteFile(partial, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(host, path))
}

// relink points a link of the machine to another target, at one instant.
func relink(path, target string) error {
	partial := filepath.Join(host, path+".partial")
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, partial); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(host, path))
}
