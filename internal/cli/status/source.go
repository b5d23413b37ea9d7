// SPDX-License-Identifier: Apache-2.0

package status

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
)

var plansResource = upgradev1.GroupVersion.WithResource("plans")

// page bounds what one answer to a list holds.
const page = 500

// source is the part of the API that a status is made of.
type source struct {
	// client is asked whether it can list by a watch; those of tests can't.
	client any
	plans  dynamic.NamespaceableResourceInterface
	nodes  typedcorev1.NodeInterface
}

func connect(config *rest.Config) (*source, error) {
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
	return &source{client: client, plans: client.Resource(plansResource), nodes: core.Nodes()}, nil
}

// only restricts a list to the scope's name.
func (s scope) only(o metav1.ListOptions) metav1.ListOptions {
	if s.name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
	}
	return o
}

// read returns the Plans, and all nodes; no nodes at all (nil) when they may not be listed.
func (src *source) read(ctx context.Context, where scope) ([]upgradev1.Plan, []corev1.Node, error) {
	list, err := src.plans.Namespace(where.namespace).List(ctx, where.only(metav1.ListOptions{}))
	if err != nil {
		return nil, nil, explain(err)
	}
	if len(list.Items) == 0 && where.name != "" {
		return nil, nil, src.notFound(ctx, where)
	}
	plans := make([]upgradev1.Plan, 0, len(list.Items))
	for i := range list.Items {
		plans = append(plans, *decode(&list.Items[i]))
	}
	if len(plans) == 0 {
		return nil, []corev1.Node{}, nil
	}
	nodes := []corev1.Node{}
	for next := ""; ; {
		list, err := src.nodes.List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if apierrors.IsForbidden(err) {
			return plans, nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("listing nodes, %w", err)
		}
		nodes = append(nodes, list.Items...)
		if next = list.Continue; next == "" {
			return plans, nodes, nil
		}
	}
}

// decode reads a Plan. Of one whose spec does not fit the type, metadata and status are what there is to show.
func decode(u *unstructured.Unstructured) *upgradev1.Plan {
	var p upgradev1.Plan
	if text, err := u.MarshalJSON(); err == nil && json.Unmarshal(text, &p) == nil {
		return &p
	}
	p = upgradev1.Plan{}
	for field, into := range map[string]any{"metadata": &p.ObjectMeta, "status": &p.Status} {
		content, _, _ := unstructured.NestedMap(u.Object, field)
		if text, err := json.Marshal(content); err == nil {
			_ = json.Unmarshal(text, into) // What it can't read stays empty.
		}
	}
	p.Name, p.Namespace, p.UID = u.GetName(), u.GetNamespace(), u.GetUID()
	return &p
}

// explain says what an error means here.
func explain(err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Without what libraries say around it.
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("this cluster has no Plans, Moult is not installed in it: %w", err)
	}
	return err
}

// notFound says where else a Plan of that name is.
func (src *source) notFound(ctx context.Context, where scope) error {
	err := fmt.Errorf("there is no Plan %q in %s", where.name, where)
	if others := src.elsewhere(ctx, where); len(others) > 0 {
		err = fmt.Errorf("%w, but in %s: use -n", err, strings.Join(others, ", "))
	}
	return err
}

// nothing says that there is nothing to show, and where to look.
func (src *source) nothing(ctx context.Context, where scope) string {
	text := "No rollouts in " + where.String() + "."
	if others := src.elsewhere(ctx, where); len(others) > 0 {
		text += " There are some in " + strings.Join(others, ", ") + ": use -n, or -A for all."
	}
	return text
}

// elsewhere lists other namespaces with such Plans, as far as they may be seen.
func (src *source) elsewhere(ctx context.Context, where scope) []string {
	if where.namespace == "" {
		return nil
	}
	list, err := src.plans.List(ctx, where.only(metav1.ListOptions{Limit: page}))
	if err != nil {
		return nil // It was only for a hint.
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].GetNamespace())
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}
