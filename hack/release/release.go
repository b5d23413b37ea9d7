// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// options are the flags of the command line.
type options struct {
	Root, Out, Version, Registry, Downloads, Platforms string
}

// release is one release in the making.
type release struct {
	options
	log io.Writer
	// commit is what is released, and created is its time.
	commit  string
	created time.Time
	// work is a folder for the programs that go into images and archives.
	work string
	// programs are those that were built.
	programs []program
	// digests are the images' digests by the names of their programs.
	digests map[string]string
}

func run(ctx context.Context, o options, log io.Writer) (err error) {
	// A tag of an image cannot hold build metadata.
	if semver.Canonical(o.Version) != o.Version || o.Version == "" {
		return fmt.Errorf("version %q is not like v1.2.3 or v1.2.3-rc.1", o.Version)
	}
	if there, err := os.ReadDir(o.Out); err == nil && len(there) > 0 {
		return fmt.Errorf("%s is not empty", o.Out)
	}
	if o.Root, err = filepath.Abs(o.Root); err != nil {
		return err
	}
	r := &release{options: o, log: log, digests: map[string]string{}}
	if r.commit, r.created, err = describe(ctx, o.Root, log); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "moult-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"programs", r.buildPrograms},
		{"images", r.writeImages},
		{"manifests", r.writeManifests},
		{"chart", r.writeChart},
		{"plugin", r.writePlugin},
		{"krew manifests", r.writeKrew},
		{"SBOMs", r.writeSBOMs},
		{"release notes", r.writeNotes},
		{"checksums", r.writeChecksums},
	} {
		fmt.Fprintf(log, "%s %s: %s\n", time.Now().Format(time.TimeOnly), o.Version, step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("writing %s, %w", step.name, err)
		}
	}
	return nil
}

// describe returns the commit that is checked out, and its time.
func describe(ctx context.Context, root string, log io.Writer) (commit string, created time.Time, err error) {
	head, err := git(ctx, root, "log", "-1", "--format=%H %ct")
	if err != nil {
		return "", time.Time{}, err
	}
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return "", time.Time{}, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	if changed != "" {
		fmt.Fprintf(log, "warning: what is released differs from commit %s:\n%s\n", commit, changed)
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	return commit, time.Unix(at, 0).UTC(), err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	output, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("git %s, %w: %s", args[0], err, exit.Stderr)
	}
	return strings.TrimSpace(string(output)), err
}

// path returns the path of a file of the release, whose folder it makes.
func (r *release) path(elem ...string) (string, error) {
	file := filepath.Join(slices.Insert(elem, 0, r.Out)...)
	return file, os.MkdirAll(filepath.Dir(file), 0o755)
}

// write writes a file of the release.
func (r *release) write(content []byte, elem ...string) error {
	file, err := r.path(elem...)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
