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

// Scope says which rollouts are meant.
type Scope struct {
	Namespace string // Empty is all.
	Name      string // Empty is all.
}

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

// ReadPlans returns the Plans of the scope. It fails when one is named and is not there.
func (src *Source) ReadPlans(ctx context.Context, where Scope) ([]upgradev1.Plan, error) {
	plans := []upgradev1.Plan{}
	for next := ""; ; {
		list, err := src.Plans(where.Namespace).List(ctx, where.Only(metav1.ListOptions{Limit: page, Continue: next}))
		if err != nil {
			return nil, Explain(err)
		}
		for i := range list.Items {
			plans = append(plans, *DecodePlan(&list.Items[i]))
		}
		if next = list.GetContinue(); next == "" {
			break
		}
	}
	if len(plans) == 0 && where.Name != "" {
		return nil, src.NotFound(ctx, where)
	}
	return plans, nil
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

// Explain says what an error means here.
func Explain(err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Without what libraries say around it.
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("this cluster has no Plans, Moult is not installed in it: %w", err)
	}
	return err
}

// NotFound says where else a Plan of that name is.
func (src *Source) NotFound(ctx context.Context, where Scope) error {
	err := fmt.Errorf("there is no Plan %q in %s", where.Name, where)
	if others := src.elsewhere(ctx, where); len(others) > 0 {
		err = fmt.Errorf("%w, but in %s: use -n", err, strings.Join(others, ", "))
	}
	return err
}

// Nothing says that there is nothing to show, and where to look.
func (src *Source) Nothing(ctx context.Context, where Scope) string {
	text := "No rollouts in " + where.String() + "."
	if others := src.elsewhere(ctx, where); len(others) > 0 {
		text += " There are some in " + strings.Join(others, ", ") + ": use -n, or -A for all."
	}
	return text
}

// elsewhere lists other namespaces with such Plans, as far as they may be seen.
func (src *Source) elsewhere(ctx context.Context, where Scope) []string {
	if where.Namespace == "" {
		return nil
	}
	list, err := src.Plans("").List(ctx, where.Only(metav1.ListOptions{Limit: page}))
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
