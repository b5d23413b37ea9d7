// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"moult.dev/moult/hack/image"
)

// inImages are the names of images in a checkout. Those of the release have other registries and tags.
var inImages = []string{image.Operator, image.Agent}

// writeImages writes one archive for each image, for all architectures.
func (r *release) writeImages(ctx context.Context) error {
	for _, tag := range inImages {
		name := image.Name(tag)
		var specs []image.Spec
		for p := range r.named(name) {
			spec := image.Program(tag, p.file, r.Version)
			spec.Tags = []string{r.tag(name)}
			spec.Architecture, spec.Created = p.arch, r.created
			spec.Labels["org.opencontainers.image.revision"] = r.commit
			specs = append(specs, spec)
		}
		archive, err := r.path("images", name+".tar")
		if err != nil {
			return err
		}
		if r.digests[name], err = image.BuildIndex(ctx, specs, archive); err != nil {
			return err
		}
	}
	return nil
}

// tag returns the name of an image of this release.
func (r *release) tag(name string) string { return r.Registry + "/" + name + ":" + r.Version }
