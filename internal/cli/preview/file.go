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
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// read returns the Plans of the file.
func (c *command) read() ([]*upgradev1.Plan, error) {
	in, name := c.In, "the standard input"
	if c.file != "-" {
		f, err := os.Open(c.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, c.file
	}
	plans, err := parse(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s, %w", name, err)
	case len(plans) == 0:
		return nil, fmt.Errorf("reading %s, there is no Plan of %s in it", name, upgradev1.GroupVersion)
	}
	return plans, nil
}

// parse reads the Plans among the documents of a manifest. Other kinds are passed over.
func parse(in io.Reader) ([]*upgradev1.Plan, error) {
	scheme := runtime.NewScheme()
	if err := upgradev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var plans []*upgradev1.Plan
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return plans, nil
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
		if kind.Kind != "Plan" || kind.APIVersion != upgradev1.GroupVersion.String() {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		p, ok := object.(*upgradev1.Plan)
		if !ok || p.Name == "" {
			return nil, fmt.Errorf("document %d: the Plan has no metadata.name", number)
		}
		plans = append(plans, p)
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
