// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// subject is a Plan, ExtendedDaemonSet or NodeRollout to preview, and what the preview assumes about it.
type subject struct {
	plan  *upgradev1.Plan
	eds   *edsv1.ExtendedDaemonSet
	hosts *v1alpha1.NodeRollout
	view.Supposition
}

func (s *subject) object() (*source.Kind, *metav1.ObjectMeta) {
	switch {
	case s.eds != nil:
		return source.DaemonSet, &s.eds.ObjectMeta
	case s.hosts != nil:
		return source.NodeRollout, &s.hosts.ObjectMeta
	}
	return source.Plan, &s.plan.ObjectMeta
}

// order is the strategy's order.
func (s *subject) order() []v1alpha1.Order {
	var strategy *v1alpha1.Strategy
	switch {
	case s.eds != nil:
		return s.eds.Spec.Strategy.Order
	case s.hosts != nil:
		strategy = s.hosts.Spec.Strategy
	default:
		strategy = s.plan.Spec.Strategy
	}
	if strategy == nil {
		return nil
	}
	return strategy.Order
}

// drains reports whether the rollout drains nodes.
func (s *subject) drains() bool {
	switch {
	case s.plan != nil:
		return s.plan.Spec.Drain != nil
	case s.hosts != nil:
		return s.hosts.Spec.Drain == nil || !s.hosts.Spec.Drain.Disabled
	}
	return false
}

// subjects returns the rollouts to preview: one from the cluster, or those in the file.
func (c *previewCommand) subjects(ctx context.Context, name string) ([]subject, error) {
	if name != "" {
		s, err := c.named(ctx, name)
		return []subject{s}, err
	}
	all, err := c.read()
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Turn = c.turn
		if err := c.addStatus(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// named is a rollout of the cluster.
func (c *previewCommand) named(ctx context.Context, name string) (subject, error) {
	s := subject{Supposition: view.Supposition{Turn: c.turn}}
	named, err := source.Parse(name, source.Rollouts...)
	if err != nil {
		return s, err
	}
	found, err := c.src.ReadRollouts(ctx, named)
	switch {
	case err != nil:
		return s, err
	case len(found.Kinds()) > 1:
		return s, source.Ambiguous(named.Name, found.Kinds())
	case len(found.DaemonSets) > 0:
		s.eds = &found.DaemonSets[0]
	case len(found.NodeRollouts) > 0:
		s.hosts = &found.NodeRollouts[0]
	default:
		s.plan = &found.Plans[0]
		s.Unresolved = s.plan.Status.LatestHash == ""
	}
	return s, nil
}

// addStatus adds status and metadata from the cluster to a rollout of a file.
func (c *previewCommand) addStatus(ctx context.Context, s *subject) error {
	k, o := s.object()
	switch {
	case !k.Namespaced:
		o.Namespace = ""
	case o.Namespace == "":
		o.Namespace = c.src.Namespace
	}
	there, err := c.src.In(o.Namespace, k).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.New, s.Unresolved = true, s.plan != nil
		return nil
	case err != nil:
		return source.Explain(k, err)
	case s.eds != nil:
		s.eds.Status = source.As[edsv1.ExtendedDaemonSet](there).Status
	case s.hosts != nil:
		s.hosts.Status = source.As[v1alpha1.NodeRollout](there).Status
	default:
		p := source.As[upgradev1.Plan](there)
		s.Unresolved = p.Status.LatestHash == "" || !sameRevision(p, s.plan)
		s.plan.Status = p.Status
	}
	o.UID, o.CreationTimestamp, o.Generation = there.GetUID(), there.GetCreationTimestamp(), there.GetGeneration()
	annotations := there.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, o.Annotations)
	o.Annotations = annotations
	return nil
}

// read returns the rollouts of the file.
func (c *previewCommand) read() ([]subject, error) {
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

// parse reads the rollouts among the documents of a manifest. It ignores other kinds.
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
		isRollout := func(k *source.Kind) bool {
			return kind.APIVersion == k.Resource.GroupVersion().String() && kind.Kind == k.Name
		}
		if !slices.ContainsFunc(source.Rollouts, isRollout) {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		var s subject
		switch o := object.(type) {
		case *upgradev1.Plan:
			s.plan = o
		case *edsv1.ExtendedDaemonSet:
			s.eds = o
		case *v1alpha1.NodeRollout:
			s.hosts = o
		}
		if _, o := s.object(); o.Name == "" {
			return nil, fmt.Errorf("document %d: the %s has no metadata.name", number, kind.Kind)
		}
		all = append(all, s)
	}
}

// sameRevision reports whether the Plans of the file and the cluster have the same revision. With a digest annotation, any
// difference in the spec makes another revision.
func sameRevision(there, file *upgradev1.Plan) bool {
	a, b := there.Annotations[upgradev1.AnnotationDigest], file.Annotations[upgradev1.AnnotationDigest]
	if a != b || a != "" && !equality.Semantic.DeepEqual(there.Spec, file.Spec) {
		return false
	}
	return there.Spec.Version == file.Spec.Version && (file.Spec.Version != "" || there.Spec.Channel == file.Spec.Channel) &&
		there.Spec.ServiceAccountName == file.Spec.ServiceAccountName && slices.Equal(hashedSecrets(there), hashedSecrets(file))
}

// hashedSecrets are the Secrets that are part of a Plan's revision.
func hashedSecrets(p *upgradev1.Plan) []string {
	var names []string
	for _, s := range p.Spec.Secrets {
		if !s.IgnoreUpdates {
			names = append(names, s.Name)
		}
	}
	return names
}
