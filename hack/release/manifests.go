// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"moult.dev/moult/hack/image"
)

// kustomizations are the folders of config that a release has as manifests.
var kustomizations = map[string]string{
	"crds.yaml":                "crd",
	"install.yaml":             "default",
	"agents.yaml":              "hostupdate/agents",
	"agents-direct-reads.yaml": "hostupdate/direct-reads",
	"approval.yaml":            "approval",
	"dashboard.yaml":           "dashboard",
}

// writeManifests writes what `kubectl apply` installs Moult by.
func (r *release) writeManifests(context.Context) error {
	for file, dir := range kustomizations {
		dir = filepath.Join(r.Root, "config", filepath.FromSlash(dir))
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(r.log, "warning: there is no %s for %s\n", dir, file)
			continue
		}
		manifest, err := render(dir)
		if err != nil {
			return err
		}
		if err := r.write([]byte(r.withImages(manifest)), file); err != nil {
			return err
		}
	}
	return nil
}

// render builds a kustomization, in the order in which its objects can be created.
func render(dir string) (string, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := objects.AsYaml()
	return string(text), err
}

// withImages replaces the names of images of a checkout by those of this release. Each has the digest too, so that nothing else can be
// pulled by the tag.
func (r *release) withImages(manifest string) string {
	for _, tag := range inImages {
		name := image.Name(tag)
		manifest = strings.ReplaceAll(manifest, tag, r.tag(name)+"@"+r.digests[name])
	}
	return manifest
}
