// SPDX-License-Identifier: Apache-2.0

package bottlerocket

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
)

// Program is the path of the program that hosts are made with.
type Program string

// Build builds it in a directory.
func Build(ctx context.Context, dir string) (Program, error) {
	path := filepath.Join(dir, "double")
	return Program(path), image.GoBinary(ctx, ".", "moult.dev/moult/test/bottlerocket/double", path, "-ldflags=-s -w")
}

// Variant is that of all hosts.
const Variant = state.Variant

// Options says what host to make.
type Options struct {
	// Interface is how the host is spoken to: v1alpha1.InterfaceUpdateAPI, InterfaceUpdog (which the former has too) or
	// InterfaceSentinel: that is no host of Bottlerocket, but one that reboots as it is told, or by the faults.
	Interface string
	// Version is what it runs.
	Version string
	// Releases are what the repository has to offer.
	Releases []state.Release
}

// Releases are releases for all hosts. Hosts may have none that is newer than these: one that does goes back.
func Releases(versions ...string) []state.Release {
	var all []state.Release
	for _, v := range versions {
		all = append(all, state.Release{Version: v, MaxVersion: slices.MaxFunc(versions, state.Compare)})
	}
	return all
}

// programPath is where a host has the program.
const programPath = "/usr/libexec/bottlerocket/double"

// links are the program's other names on a host with that interface.
func links(hostInterface string) []string {
	links := []string{"/usr/bin/systemctl", "/usr/sbin/shutdown", cluster.BootDir + "/bottlerocket-boot"}
	if hostInterface != v1alpha1.InterfaceSentinel {
		links = append(links, "/usr/bin/updog", "/usr/bin/signpost")
	}
	if hostInterface == v1alpha1.InterfaceUpdateAPI {
		return append(links, cluster.ServiceDir+"/bottlerocket-apiserver")
	}
	return append(links, cluster.ServiceDir+"/bottlerocket-power")
}

// WriteFiles writes a host's files into a directory, by their paths on the host. With them as cluster.Options.MachineFiles all
// machines of a cluster are such hosts from their first boot on.
func (p Program) WriteFiles(dir string, o Options) error {
	data, err := os.ReadFile(string(p))
	if err != nil {
		return err
	}
	write := func(path string, data []byte, mode os.FileMode) error {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, data, mode)
	}
	if err := write(programPath, data, 0o755); err != nil {
		return err
	}
	for _, link := range links(o.Interface) {
		path := filepath.Join(dir, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(programPath, path); err != nil {
			return err
		}
	}
	files := map[string]any{}
	if o.Interface != v1alpha1.InterfaceSentinel {
		files[state.DiskFile] = state.Disk{Running: o.Version}
		files[state.RepositoryFile] = o.Releases
	}
	for path, value := range files {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("writing %s, %w", path, err)
		}
		if err := write(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
