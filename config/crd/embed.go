// SPDX-License-Identifier: Apache-2.0

// Package crd carries the generated CustomResourceDefinitions, so that a program can install exactly the kinds that it
// was built with.
package crd

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Generated files are named GROUP_PLURAL.yaml; the kustomization beside them is not one of them.
//
//go:embed *_*.yaml
var files embed.FS

// Definitions returns every CustomResourceDefinition, sorted by group and plural.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(entries))
	for _, e := range entries {
		raw, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			return nil, fmt.Errorf("parsing %s, %w", e.Name(), err)
		}
		all = append(all, crd)
	}
	return all, nil
}
