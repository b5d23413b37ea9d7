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

// Scope says which rollouts are meant.
type Scope struct {
	Namespace string // Empty is all.
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
	Plans      []upgradev1.Plan
	DaemonSets []edsv1.ExtendedDaemonSet
	// Notes say what could not be read.
	Notes []string
}

// ReadRollouts returns the rollouts of the scope. Where no kind is named, and there are some of one kind, or that is Plans, a note says
// that those of the other are not to be seen. It fails when a rollout is named and is not there.
func (src *Source) ReadRollouts(ctx context.Context, where Scope) (Rollouts, error) {
	var r Rollouts
	var errPlans, errSets error
	if where.Means(target.Plan) {
		r.Plans, errPlans = read(ctx, src.Plans(where.Namespace), where, DecodePlan)
	}
	if where.Means(target.DaemonSet) {
		r.DaemonSets, errSets = read(ctx, src.DaemonSets(where.Namespace), where, DecodeDaemonSet)
	}
	both := where.Kind == nil
	switch {
	case errPlans == nil && errSets == nil:
	case errPlans == nil && both && unseen(errSets):
		r.Notes = append(r.Notes, Unseen(target.DaemonSet, errSets))
	case errSets == nil && both && unseen(errPlans) && len(r.DaemonSets) > 0:
		r.Notes = append(r.Notes, Unseen(target.Plan, errPlans))
	case errPlans == nil:
		return r, ExplainOf(target.DaemonSet, errSets)
	default:
		return r, Explain(errPlans)
	}
	if len(r.Plans)+len(r.DaemonSets) == 0 && where.Name != "" {
		return r, src.NotFound(ctx, where)
	}
	return r, nil
}

// unseen reports whether an error says that a kind is not there, or may not be listed.
func unseen(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// Unseen is said where rollouts of a kind are not to be seen.
func Unseen(k *target.Kind, err error) string {
	var others []string
	for _, other := range target.Rollouts {
		if other != k {
			others = append(others, other.Name+"s")
		}
	}
	what := k.Name + "s can't be listed"
	if apierrors.IsNotFound(err) {
		what = "This cluster does not know " + k.Name + "s"
	}
	return what + ": only " + strings.Join(others, " and ") + " are shown."
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

// ReadPlans returns the Plans of the scope. It fails when one is named and is not there.
func (src *Source) ReadPlans(ctx context.Context, where Scope) ([]upgradev1.Plan, error) {
	where.Kind = target.Plan
	r, err := src.ReadRollouts(ctx, where)
	return r.Plans, err
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
	var p upgradev1.Plan
	if decode(u, &p) {
		return &p
	}
	p = upgradev1.Plan{}
	decodeParts(u, map[string]any{"metadata": &p.ObjectMeta, "status": &p.Status})
	p.Name, p.Namespace, p.UID = u.GetName(), u.GetNamespace(), u.GetUID()
	return &p
}

// DecodeDaemonSet reads an ExtendedDaemonSet, as far as that is possible.
func DecodeDaemonSet(u *unstructured.Unstructured) *edsv1.ExtendedDaemonSet {
	var d edsv1.ExtendedDaemonSet
	if decode(u, &d) {
		return &d
	}
	d = edsv1.ExtendedDaemonSet{}
	decodeParts(u, map[string]any{"metadata": &d.ObjectMeta, "status": &d.Status})
	d.Name, d.Namespace, d.UID = u.GetName(), u.GetNamespace(), u.GetUID()
	return &d
}

// DecodeBudget reads a NodeDisruptionBudget, as far as that is possible.
func DecodeBudget(u *unstructured.Unstructured) *v1alpha1.NodeDisruptionBudget {
	var b v1alpha1.NodeDisruptionBudget
	if decode(u, &b) {
		return &b
	}
	b = v1alpha1.NodeDisruptionBudget{}
	decodeParts(u, map[string]any{"metadata": &b.ObjectMeta, "status": &b.Status})
	b.Name, b.UID = u.GetName(), u.GetUID()
	return &b
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
	if where.Namespace == "" {
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
