// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// read returns the rollouts of the file.
func (c *command) read() ([]subject, error) {
	in, name := c.In, "the standard input"
	if c.file != "-" {
		f, err := os.Open(c.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, c.file
	}
	all, err := parse(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s, %w", name, err)
	case len(all) == 0:
		return nil, fmt.Errorf("reading %s, there is no Plan of %s, no ExtendedDaemonSet of %s and no NodeRollout of %s in it", name,
			upgradev1.GroupVersion, edsv1.GroupVersion, v1alpha1.GroupVersion)
	}
	return all, nil
}

// parse reads the rollouts among the documents of a manifest. Other kinds are passed over.
func parse(in io.Reader) ([]subject, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(upgradev1.AddToScheme(scheme), edsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var all []subject
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		of := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		if !slices.ContainsFunc(target.Rollouts, func(k *target.Kind) bool {
			return of == k.Resource.GroupVersion().WithKind(k.Name)
		}) {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var s subject
		named := ""
		switch o := object.(type) {
		case *upgradev1.Plan:
			s.plan, named = o, o.Name
		case *edsv1.ExtendedDaemonSet:
			s.eds, named = o, o.Name
		case *v1alpha1.NodeRollout:
			s.hosts, named = o, o.Name
		}
		if named == "" {
			return nil, fmt.Errorf("document %d: the %s has no metadata.name", number, kind.Kind)
		}
		all = append(all, s)
	}
}

// sameRevision reports whether a Plan as it is in the file leads to the revision that the one in the cluster has. Where its
// own digest annotation makes more count, any difference does.
func sameRevision(there, file *upgradev1.Plan) bool {
	a, b := there.Annotations[upgradev1.AnnotationDigest], file.Annotations[upgradev1.AnnotationDigest]
	if a != b || a != "" && !equality.Semantic.DeepEqual(there.Spec, file.Spec) {
		return false
	}
	return there.Spec.Version == file.Spec.Version && (file.Spec.Version != "" || there.Spec.Channel == file.Spec.Channel) &&
		there.Spec.ServiceAccountName == file.Spec.ServiceAccountName && slices.Equal(counting(there), counting(file))
}

// counting are the Secrets that count in a Plan's revision.
func counting(p *upgradev1.Plan) []string {
	var names []string
	for _, s := range p.Spec.Secrets {
		if !s.IgnoreUpdates {
			names = append(names, s.Name)
		}
	}
	return names
}

// merged are the annotations that the Plan has when the file is applied.
func merged(there, file map[string]string) map[string]string {
	all := maps.Clone(there)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, file)
	return all
}
