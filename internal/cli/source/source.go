// SPDX-License-Identifier: Apache-2.0

// Package source reads from the API what the commands show.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// NoNodes is said to those who may see rollouts but not nodes.
const NoNodes = "Nodes can't be listed: only those that a rollout's status lists are shown."

// page bounds what one answer to a list holds.
const page = 500

// Source is the part of the API that commands read.
type Source struct {
	// Client reads and writes custom resources. It is asked whether it can list by a watch; those of tests can't.
	Client dynamic.Interface
	Core   typedcorev1.CoreV1Interface
}

// Connect makes clients.
func Connect(config *rest.Config) (*Source, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client, %w", err)
	}
	return &Source{Client: client, Core: core}, nil
}

// Plans are those of a namespace, or of all where it is empty.
func (src *Source) Plans(namespace string) dynamic.ResourceInterface {
	return src.Client.Resource(target.Plan.Resource).Namespace(namespace)
}

// Budgets are all there are.
func (src *Source) Budgets() dynamic.ResourceInterface {
	return src.Client.Resource(target.Budget.Resource)
}

// DaemonSets are those of a namespace, or of all where it is empty.
func (src *Source) DaemonSets(namespace string) dynamic.ResourceInterface {
	return src.Client.Resource(target.DaemonSet.Resource).Namespace(namespace)
}

// NodeRollouts are all there are.
func (src *Source) NodeRollouts() dynamic.ResourceInterface {
	return src.Client.Resource(target.NodeRollout.Resource)
}

// Scope says which rollouts are meant.
type Scope struct {
	// Namespace of those that are in one; empty is all.
	Namespace string
	Name      string // Empty is all.
	// Kind of the rollouts; nil is all.
	Kind *target.Kind
}

// Means reports whether rollouts of a kind are meant.
func (s Scope) Means(k *target.Kind) bool { return s.Kind == nil || s.Kind == k }

// Only restricts a list to the scope's name.
func (s Scope) Only(o metav1.ListOptions) metav1.ListOptions {
	if s.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
	}
	return o
}

// String is how people call the scope's namespace.
func (s Scope) String() string {
	if s.Namespace == "" {
		return "any namespace"
	}
	return "namespace " + s.Namespace
}

// Rollouts are those of a scope.
type Rollouts struct {
	Plans        []upgradev1.Plan
	DaemonSets   []edsv1.ExtendedDaemonSet
	NodeRollouts []v1alpha1.NodeRollout
	// Notes say what could not be read.
	Notes []string
}

// Len is how many there are.
func (r *Rollouts) Len() int { return len(r.Plans) + len(r.DaemonSets) + len(r.NodeRollouts) }

// ReadRollouts returns the rollouts of the scope. Where no kind is named, and there are some of one kind, or Plans may be listed, a note
// says of which other kinds they are not to be seen. It fails when a rollout is named and is not there.
func (src *Source) ReadRollouts(ctx context.Context, where Scope) (Rollouts, error) {
	var r Rollouts
	var hidden []Hidden
	for _, k := range target.Rollouts {
		if !where.Means(k) {
			continue
		}
		err := src.readKind(ctx, &r, k, where)
		switch {
		case err == nil:
		case where.Kind == nil && unseen(err):
			hidden = append(hidden, Hidden{k, err})
		default:
			return r, ExplainOf(k, err)
		}
	}
	if len(hidden) > 0 && (len(hidden) == len(target.Rollouts) || hidden[0].Kind == target.Plan && r.Len() == 0) {
		return r, ExplainOf(hidden[0].Kind, hidden[0].Err)
	}
	if len(hidden) > 0 {
		r.Notes = append(r.Notes, Unseen(hidden...))
	}
	if r.Len() == 0 && where.Name != "" {
		return r, src.NotFound(ctx, where)
	}
	return r, nil
}

// readKind reads the rollouts of one kind.
func (src *Source) readKind(ctx context.Context, r *Rollouts, k *target.Kind, where Scope) (err error) {
	switch k {
	case target.Plan:
		r.Plans, err = read(ctx, src.Plans(where.Namespace), where, DecodePlan)
	case target.DaemonSet:
		r.DaemonSets, err = read(ctx, src.DaemonSets(where.Namespace), where, DecodeDaemonSet)
	case target.NodeRollout:
		r.NodeRollouts, err = read(ctx, src.NodeRollouts(), where, DecodeNodeRollout)
	}
	return err
}

// unseen reports whether an error says that a kind is not there, or may not be listed.
func unseen(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// Hidden is a kind of rollouts that is not to be seen, and why not.
type Hidden struct {
	Kind *target.Kind
	Err  error
}

// Unseen is said where rollouts of some kinds are not to be seen, and those of others are.
func Unseen(hidden ...Hidden) string {
	var unknown, denied, others []string
	for _, k := range target.Rollouts {
		i := slices.IndexFunc(hidden, func(h Hidden) bool { return h.Kind == k })
		switch {
		case i < 0:
			others = append(others, k.Name+"s")
		case apierrors.IsNotFound(hidden[i].Err):
			unknown = append(unknown, k.Name+"s")
		default:
			denied = append(denied, k.Name+"s")
		}
	}
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, "This cluster does not know "+both(unknown))
	}
	if len(denied) > 0 {
		parts = append(parts, both(denied)+" can't be listed")
	}
	return strings.Join(parts, ", and ") + ": only " + both(others) + " are shown."
}

// both is "A", "A and B", or "A, B and C".
func both(of []string) string {
	last := len(of) - 1
	if last <= 0 {
		return strings.Join(of, "")
	}
	return strings.Join(of[:last], ", ") + " and " + of[last]
}

// read lists the objects of the scope.
func read[T any](ctx context.Context, from dynamic.ResourceInterface, where Scope, decode func(*unstructured.Unstructured) *T) ([]T, error) {
	all := []T{}
	for next := ""; ; {
		list, err := from.List(ctx, where.Only(metav1.ListOptions{Limit: page, Continue: next}))
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, *decode(&list.Items[i]))
		}
		if next = list.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// ReadNodes returns all nodes; nil when they may not be listed.
func (src *Source) ReadNodes(ctx context.Context) ([]corev1.Node, error) {
	nodes := []corev1.Node{}
	for next := ""; ; {
		list, err := src.Core.Nodes().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing nodes, %w", err)
		}
		nodes = append(nodes, list.Items...)
		if next = list.Continue; next == "" {
			return nodes, nil
		}
	}
}

// ReadNamespaces returns the labels of all namespaces.
func (src *Source) ReadNamespaces(ctx context.Context) (map[string]labels.Set, error) {
	all := map[string]labels.Set{}
	for next := ""; ; {
		list, err := src.Core.Namespaces().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("listing namespaces, %w", err)
		}
		for i := range list.Items {
			all[list.Items[i].Name] = list.Items[i].Labels
		}
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// ReadBudgets returns all NodeDisruptionBudgets. Where they may not be listed a note says so; where there is no such kind
// there are none.
func (src *Source) ReadBudgets(ctx context.Context) (budgets []v1alpha1.NodeDisruptionBudget, note string, err error) {
	list, err := src.Budgets().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case apierrors.IsForbidden(err):
		return nil, NoBudgets, nil
	case err != nil:
		return nil, "", fmt.Errorf("listing budgets, %w", err)
	}
	for i := range list.Items {
		budgets = append(budgets, *DecodeBudget(&list.Items[i]))
	}
	return budgets, "", nil
}

// NoBudgets is said to those who may not see budgets.
const NoBudgets = "NodeDisruptionBudgets can't be listed: what they forbid is known only where a rollout's status says so."

// DecodePlan reads a Plan. Of one whose spec does not fit the type, metadata and status are what there is to show.
func DecodePlan(u *unstructured.Unstructured) *upgradev1.Plan {
	return decodeAs(u, func(p *upgradev1.Plan) (*metav1.ObjectMeta, any) { return &p.ObjectMeta, &p.Status })
}

// DecodeDaemonSet reads an ExtendedDaemonSet, as far as that is possible.
func DecodeDaemonSet(u *unstructured.Unstructured) *edsv1.ExtendedDaemonSet {
	return decodeAs(u, func(d *edsv1.ExtendedDaemonSet) (*metav1.ObjectMeta, any) { return &d.ObjectMeta, &d.Status })
}

// DecodeNodeRollout reads a NodeRollout, as far as that is possible.
func DecodeNodeRollout(u *unstructured.Unstructured) *v1alpha1.NodeRollout {
	return decodeAs(u, func(r *v1alpha1.NodeRollout) (*metav1.ObjectMeta, any) { return &r.ObjectMeta, &r.Status })
}

// DecodeBudget reads a NodeDisruptionBudget, as far as that is possible.
func DecodeBudget(u *unstructured.Unstructured) *v1alpha1.NodeDisruptionBudget {
	return decodeAs(u, func(b *v1alpha1.NodeDisruptionBudget) (*metav1.ObjectMeta, any) { return &b.ObjectMeta, &b.Status })
}

// decodeAs reads an object, or of one whose spec does not fit the type these parts.
func decodeAs[T any](u *unstructured.Unstructured, parts func(*T) (meta *metav1.ObjectMeta, status any)) *T {
	whole := new(T)
	if decode(u, whole) {
		return whole
	}
	some := new(T)
	meta, status := parts(some)
	decodeParts(u, map[string]any{"metadata": meta, "status": status})
	meta.Name, meta.Namespace, meta.UID = u.GetName(), u.GetNamespace(), u.GetUID()
	return some
}

func decode(u *unstructured.Unstructured, into any) bool {
	text, err := u.MarshalJSON()
	return err == nil && json.Unmarshal(text, into) == nil
}

func decodeParts(u *unstructured.Unstructured, parts map[string]any) {
	for field, into := range parts {
		content, _, _ := unstructured.NestedMap(u.Object, field)
		if text, err := json.Marshal(content); err == nil {
			_ = json.Unmarshal(text, into) // What it can't read stays empty.
		}
	}
}

// Explain says what an error about Plans means here.
func Explain(err error) error { return ExplainOf(target.Plan, err) }

// ExplainOf says what an error about objects of a kind means here.
func ExplainOf(k *target.Kind, err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Without what libraries say around it.
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("this cluster has no %ss, Moult is not installed in it: %w", k.Name, err)
	}
	return err
}

// NotFound says that no rollout is there of that name, and where else one is.
func (src *Source) NotFound(ctx context.Context, where Scope) error {
	k := where.Kind
	if k == nil {
		k = target.Rollouts[0]
	}
	if !k.Namespaced {
		return fmt.Errorf("there is no %s %q", k.Name, where.Name)
	}
	err := fmt.Errorf("there is no %s %q in %s", k.Name, where.Name, where)
	if others := src.elsewhere(ctx, where, k); len(others) > 0 {
		err = fmt.Errorf("%w, but in %s: use -n", err, strings.Join(others, ", "))
	}
	if where.Kind != nil {
		return err
	}
	for _, k := range target.Rollouts[1:] {
		if others := src.elsewhere(ctx, where, k); len(others) > 0 {
			err = fmt.Errorf("%w; there is %s %s %q in %s", err, k.Article, k.Name, where.Name, strings.Join(others, ", "))
		}
	}
	return err
}

// Nothing says that there is nothing to show, and where to look.
func (src *Source) Nothing(ctx context.Context, where Scope) string {
	text := "No rollouts in " + where.String() + "."
	var others []string
	for _, k := range target.Rollouts {
		if where.Means(k) {
			others = append(others, src.elsewhere(ctx, where, k)...)
		}
	}
	slices.Sort(others)
	if others = slices.Compact(others); len(others) > 0 {
		text += " There are some in " + strings.Join(others, ", ") + ": use -n, or -A for all."
	}
	return text
}

// elsewhere lists other namespaces with such rollouts of a kind, as far as they may be seen.
func (src *Source) elsewhere(ctx context.Context, where Scope, k *target.Kind) []string {
	if where.Namespace == "" || !k.Namespaced {
		return nil
	}
	list, err := src.Client.Resource(k.Resource).List(ctx, where.Only(metav1.ListOptions{Limit: page}))
	if err != nil {
		return nil // It was only for a hint.
	}
	var namespaces []string
	for i := range list.Items {
		if namespace := list.Items[i].GetNamespace(); namespace != where.Namespace {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
