// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// page bounds what one answer to a list holds.
const page = 500

// Get reads an ExtendedDaemonSet. When it is not there the error says in which namespaces there is one of that name.
func (c *Client) Get(ctx context.Context, name string) (*edsv1.ExtendedDaemonSet, error) {
	u, err := c.Object(ctx, target.DaemonSet, name)
	if err != nil {
		return nil, err
	}
	eds := &edsv1.ExtendedDaemonSet{}
	return eds, Decode(u, eds)
}

// Revision reads an ExtendedDaemonSetReplicaSet.
func (c *Client) Revision(ctx context.Context, name string) (*edsv1.ExtendedDaemonSetReplicaSet, error) {
	u, err := c.Object(ctx, ReplicaSet, name)
	if err != nil {
		return nil, err
	}
	ers := &edsv1.ExtendedDaemonSetReplicaSet{}
	return ers, Decode(u, ers)
}

// Revisions are the ExtendedDaemonSetReplicaSets of an ExtendedDaemonSet, the oldest first.
func (c *Client) Revisions(ctx context.Context, eds *edsv1.ExtendedDaemonSet) ([]edsv1.ExtendedDaemonSetReplicaSet, error) {
	items, err := c.List(ctx, ReplicaSet, metav1.ListOptions{LabelSelector: OfSet(eds.Name)})
	if err != nil {
		return nil, err
	}
	var all []edsv1.ExtendedDaemonSetReplicaSet
	for i := range items {
		var ers edsv1.ExtendedDaemonSetReplicaSet
		if err := Decode(&items[i], &ers); err != nil {
			return nil, err
		}
		if owned(&ers, eds) {
			all = append(all, ers)
		}
	}
	sortByAge(all)
	return all, nil
}

// sortByAge puts the oldest first.
func sortByAge(all []edsv1.ExtendedDaemonSetReplicaSet) {
	slices.SortFunc(all, func(a, b edsv1.ExtendedDaemonSetReplicaSet) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// OfSet selects by label what belongs to the ExtendedDaemonSet of this name.
func OfSet(name string) string { return labels.Set{edsv1.LabelName: name}.String() }

// OfRevision selects by label the pods of the ExtendedDaemonSetReplicaSet of this name.
func OfRevision(name string) string { return labels.Set{edsv1.LabelReplicaSetName: name}.String() }

// owned reports whether an ExtendedDaemonSetReplicaSet with the label of an ExtendedDaemonSet is its own: one that another
// owns is not, one without an owner is.
func owned(ers *edsv1.ExtendedDaemonSetReplicaSet, eds *edsv1.ExtendedDaemonSet) bool {
	owner := metav1.GetControllerOf(ers)
	return owner == nil || owner.UID == eds.UID
}

// List reads all objects of a kind in the namespace, in the order of the API.
func (c *Client) List(ctx context.Context, k *target.Kind, o metav1.ListOptions) ([]unstructured.Unstructured, error) {
	items := []unstructured.Unstructured{}
	o.Limit = page
	for {
		list, err := c.Of(k).List(ctx, o)
		if err != nil {
			return nil, Explain(k, err)
		}
		items = append(items, list.Items...)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return items, nil
		}
	}
}

// Object reads an object.
func (c *Client) Object(ctx context.Context, k *target.Kind, name string) (*unstructured.Unstructured, error) {
	u, err := c.Of(k).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !found(err) {
		return u, Explain(k, err)
	}
	return nil, c.NotFound(ctx, k, name)
}

// NotFound says that there is no such object, and where else one of that name is.
func (c *Client) NotFound(ctx context.Context, k *target.Kind, name string) error {
	if c.Namespace == "" {
		return fmt.Errorf("%s %s not found in any namespace", k.Name, name)
	}
	err := fmt.Errorf("%s %s/%s not found", k.Name, c.Namespace, name)
	if others := c.Elsewhere(ctx, k, Named(name)); len(others) > 0 {
		err = fmt.Errorf("%w, but there is one in %s: use -n", err, strings.Join(others, ", "))
	}
	return err
}

// Elsewhere lists the other namespaces that have such objects, as far as they may be seen.
func (c *Client) Elsewhere(ctx context.Context, k *target.Kind, o metav1.ListOptions) []string {
	o.Limit = page
	list, err := c.Client.Resource(k.Resource).List(ctx, o)
	if err != nil {
		return nil // It was only for a hint.
	}
	var namespaces []string
	for i := range list.Items {
		if namespace := list.Items[i].GetNamespace(); namespace != c.Namespace {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// Named selects the objects of a name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// Decode reads an object into its type.
func Decode(u *unstructured.Unstructured, into any) error {
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s/%s, %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// Part reads a part of an object, such as its status. What it can't read stays empty.
func Part(u *unstructured.Unstructured, field string, into any) {
	content, _, _ := unstructured.NestedMap(u.Object, field)
	if text, err := json.Marshal(content); err == nil {
		_ = json.Unmarshal(text, into)
	}
}

// found reports whether it is the object that was not found, and not its kind.
func found(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && answer.Status().Details != nil && answer.Status().Details.Name != ""
}

// Explain says what an error means here.
func Explain(k *target.Kind, err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Without what libraries say around it.
	}
	if apierrors.IsNotFound(err) && !found(err) {
		return fmt.Errorf("this cluster has no %ss, Moult is not installed in it: %w", k.Name, err)
	}
	return err
}
