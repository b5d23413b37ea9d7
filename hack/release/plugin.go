// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"moult.dev/moult/hack/image"
)

// plugins are the names under which kubectl finds the plugin. There is one program: krew links it to each, and forbids links in archives.
var plugins = []string{"moult", "eds"}

// writePlugin writes an archive of the plugin for each platform.
func (r *release) writePlugin(ctx context.Context) error {
	completions, err := r.completions(ctx)
	if err != nil {
		return err
	}
	for p := range r.named(plugin) {
		files := map[string]image.File{
			"/" + filepath.Base(p.file): {Source: p.file},
			"/LICENSE":                  {Source: filepath.Join(r.Root, "LICENSE"), Mode: 0o644},
		}
		for path, content := range completions {
			files[path] = image.File{Content: content}
		}
		for _, name := range plugins {
			// kubectl runs a program of this name to complete the plugin's command line.
			program, script := "/kubectl_complete-"+name, "#!/bin/sh\nexec kubectl "+name+" __complete \"$@\"\n"
			if p.os == "windows" {
				program, script = program+".cmd", "@kubectl "+name+" __complete %*\r\n"
			}
			files[program] = image.File{Content: []byte(script), Mode: 0o755}
		}
		archive, err := r.path(archiveOf(p))
		if err != nil {
			return err
		}
		if p.os == "windows" {
			err = writeZip(archive, files, r.created)
		} else {
			err = writeTarGz(ctx, archive, files, r.created)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// archiveOf names the archive of a build of the plugin.
func archiveOf(p program) string {
	if p.os == "windows" {
		return plugin + "_" + p.platform() + ".zip"
	}
	return plugin + "_" + p.platform() + ".tar.gz"
}

// completions returns what each shell reads to complete the command lines of the programs themselves.
func (r *release) completions(ctx context.Context) (map[string][]byte, error) {
	local, err := r.local()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range plugins {
		for shell, extension := range map[string]string{"bash": "bash", "fish": "fish", "powershell": "ps1", "zsh": "zsh"} {
			cmd := exec.CommandContext(ctx, local.file)
			cmd.Args = []string{"kubectl-" + name, "completion", shell} // The program goes by its name.
			cmd.Stderr = os.Stderr
			output, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("writing completion of kubectl-%s for %s, %w", name, shell, err)
			}
			files["/completion/kubectl-"+name+"."+extension] = output
		}
	}
	return files, nil
}
