// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

const homepage = "https://moult.dev"

// descriptions are what krew shows of each plugin: a line, and a text.
var descriptions = map[string][2]string{
	"moult": {"Show and steer rollouts across nodes", `Shows how far each Plan, NodeRollout and ExtendedDaemonSet of Moult is, why a node waits and what a change would do.
Pauses, resumes, approves and retries rollouts.
`},
	"eds": {"Show and steer ExtendedDaemonSets", `Shows ExtendedDaemonSets, their canaries and their pods.
Validates, pauses and fails canaries, and pauses, freezes and rolls back updates.
`},
}

// writeKrew writes a manifest for each name of the plugin.
func (r *release) writeKrew(context.Context) error {
	var platforms []index.Platform
	for p := range r.named(plugin) {
		archive, err := r.path(archiveOf(p))
		if err != nil {
			return err
		}
		sum, err := checksum(archive)
		if err != nil {
			return err
		}
		platforms = append(platforms, index.Platform{
			URI:      strings.TrimSuffix(r.Downloads, "/") + "/" + archiveOf(p),
			Sha256:   sum,
			Bin:      filepath.Base(p.file),
			Files:    []index.FileOperation{{From: filepath.Base(p.file), To: "."}, {From: "LICENSE", To: "."}},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": p.os, "arch": p.arch}},
		})
	}
	for _, name := range plugins {
		manifest, err := yaml.Marshal(index.Plugin{
			TypeMeta:   metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: index.PluginSpec{
				Version:          r.Version,
				Homepage:         homepage,
				ShortDescription: descriptions[name][0],
				Description:      descriptions[name][1],
				Platforms:        platforms,
			},
		})
		if err != nil {
			return err
		}
		if err := r.write(manifest, "krew", name+".yaml"); err != nil {
			return err
		}
	}
	return nil
}
