// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"moult.dev/moult/hack/image"
)

// writeManifests writes what `kubectl apply` installs Moult by.
func (r *release) writeManifests(context.Context) error {
	crds, err := render(filepath.Join(r.Root, "config", "crd"))
	if err != nil {
		return err
	}
	all, err := render(filepath.Join(r.Root, "config", "default"))
	if err != nil {
		return err
	}
	install, err := r.withImages(all)
	if err != nil {
		return err
	}
	if err := r.write([]byte(crds), "crds.yaml"); err != nil {
		return err
	}
	return r.write([]byte(install), "install.yaml")
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
func (r *release) withImages(manifest string) (string, error) {
	if !strings.Contains(manifest, image.Operator) {
		return "", fmt.Errorf("no object has the image %s", image.Operator)
	}
	for _, tag := range inImages {
		name := image.Name(tag)
		manifest = strings.ReplaceAll(manifest, tag, r.tag(name)+"@"+r.digests[name])
	}
	return manifest, nil
}
