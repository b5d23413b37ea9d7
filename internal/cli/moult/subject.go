// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// subject is a Plan, ExtendedDaemonSet or NodeRollout to preview, and what the preview assumes about it.
type subject struct {
	object metav1.Object
	kind   *source.Kind
	order  []v1alpha1.Order
	drains bool
	view.Supposition
}

// newSubject returns the subject for a rollout; nil for another object.
func newSubject(object any, turn time.Duration) *subject {
	s := &subject{Supposition: view.Supposition{Turn: turn}}
	var strategy *v1alpha1.Strategy
	switch o := object.(type) {
	case *upgradev1.Plan:
		s.object, s.kind, strategy = o, source.Plan, o.Spec.Strategy
		s.drains, s.Unresolved = o.Spec.Drain != nil, o.Status.LatestHash == ""
	case *v1alpha1.NodeRollout:
		s.object, s.kind, strategy = o, source.NodeRollout, o.Spec.Strategy
		s.drains = o.Spec.Drain == nil || !o.Spec.Drain.Disabled
	case *edsv1.ExtendedDaemonSet:
		s.object, s.kind, s.order = o, source.DaemonSet, o.Spec.Strategy.Order
	default:
		return nil
	}
	if strategy != nil {
		s.order = strategy.Order
	}
	return s
}

// subjects returns the rollouts to preview: one from the cluster, or those in the file.
func (c *previewCommand) subjects(ctx context.Context, name string) ([]*subject, error) {
	if name != "" {
		named, err := source.Parse(name, source.Rollouts...)
		if err != nil {
			return nil, err
		}
		o, err := c.src.Find(ctx, named, source.Rollouts...)
		if err != nil {
			return nil, err
		}
		return []*subject{newSubject(typed(o), c.turn)}, nil
	}
	all, err := c.read()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if err := c.addStatus(ctx, s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// typed converts a rollout to its type.
func typed(o source.Object) any {
	switch o.Kind {
	case source.DaemonSet:
		return source.As[edsv1.ExtendedDaemonSet](o.Unstructured)
	case source.NodeRollout:
		return source.As[v1alpha1.NodeRollout](o.Unstructured)
	}
	return source.As[upgradev1.Plan](o.Unstructured)
}

// addStatus adds status and metadata from the cluster to a rollout of a file.
func (c *previewCommand) addStatus(ctx context.Context, s *subject) error {
	o := s.object
	switch {
	case !s.kind.Namespaced:
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(c.src.Namespace)
	}
	there, err := c.src.In(o.GetNamespace(), s.kind).Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.New, s.Unresolved = true, s.kind == source.Plan
		return nil
	case err != nil:
		return source.Explain(s.kind, err)
	}
	s.Changed = true
	switch o := o.(type) {
	case *edsv1.ExtendedDaemonSet:
		o.Status = source.As[edsv1.ExtendedDaemonSet](there).Status
	case *v1alpha1.NodeRollout:
		o.Status = source.As[v1alpha1.NodeRollout](there).Status
	case *upgradev1.Plan:
		is := source.As[upgradev1.Plan](there)
		s.Unresolved = is.Status.LatestHash == "" || !sameRevision(is, o)
		o.Status = is.Status
	}
	o.SetUID(there.GetUID())
	o.SetCreationTimestamp(there.GetCreationTimestamp())
	o.SetGeneration(there.GetGeneration())
	o.SetAnnotations(labels.Merge(there.GetAnnotations(), o.GetAnnotations()))
	return nil
}

// read returns the rollouts of the file.
func (c *previewCommand) read() ([]*subject, error) {
	in, name := c.In, "the standard input"
	if c.file != "-" {
		f, err := os.Open(c.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, c.file
	}
	all, err := c.parse(in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s, %w", name, err)
	case len(all) == 0:
		return nil, fmt.Errorf("reading %s, there is no Plan, ExtendedDaemonSet or NodeRollout in it", name)
	}
	return all, nil
}

// parse reads the rollouts and budgets among the documents of a manifest. It ignores other kinds.
func (c *previewCommand) parse(in io.Reader) ([]*subject, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(upgradev1.AddToScheme(scheme), edsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	var all []*subject
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		object, kind, err := strict.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if b, ok := object.(*v1alpha1.NodeDisruptionBudget); ok {
			c.found.Budgets = append(c.found.Budgets, *b)
		}
		s := newSubject(object, c.turn)
		if s == nil {
			continue
		}
		if s.object.GetName() == "" {
			return nil, fmt.Errorf("document %d: the %s has no metadata.name", number, kind.Kind)
		}
		all = append(all, s)
	}
}

// sameRevision reports whether the Plans of the file and the cluster surely have the same revision. With a digest annotation, any
// difference in the spec may make another revision.
func sameRevision(there, file *upgradev1.Plan) bool {
	a, b := there.Annotations[upgradev1.AnnotationDigest], file.Annotations[upgradev1.AnnotationDigest]
	if a != b || a != "" && !equality.Semantic.DeepEqual(there.Spec, file.Spec) {
		return false
	}
	return there.Spec.Version == file.Spec.Version && there.Spec.Channel == file.Spec.Channel &&
		there.Spec.ServiceAccountName == file.Spec.ServiceAccountName && slices.Equal(there.Spec.Secrets, file.Spec.Secrets)
}
