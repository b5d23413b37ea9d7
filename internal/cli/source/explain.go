// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/internal/cli/text"
)

// Notes for people who may not list everything.
const (
	NoNodes    = "Nodes can't be listed: only those that a rollout's status lists are shown."
	NoBudgets  = "NodeDisruptionBudgets can't be listed: what they forbid is known only where a rollout's status says so."
	NoGated    = "Pods and namespaces can't all be listed: whether a pod on a node closes a gate is known only where a rollout's status says so."
	NoPodsSeen = "Pods, revisions and settings of ExtendedDaemonSets can't all be listed: only the nodes that a status lists are shown."
	NoOperator = "The operator's own node, which goes last, is not known: the operator's pods, or its Lease, can't be read."
)

// Explain rewrites an API error about objects of a kind in plain words.
func Explain(k *Kind, err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Drop the libraries' wrapping.
	}
	if apierrors.IsNotFound(err) && !isObjectNotFound(err) {
		return fmt.Errorf("this cluster has no %ss, Moult is not installed in it: %w", k.Name, err)
	}
	return err
}

// isObjectNotFound reports whether the object was not found, and not its kind.
func isObjectNotFound(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && answer.Status().Details != nil && answer.Status().Details.Name != ""
}

// NotFound is the error that there is no object of the name. It lists namespaces that have one. Without a kind it may be any rollout.
func (src *Source) NotFound(ctx context.Context, kind *Kind, name string) error {
	k := kind
	if k == nil {
		k = Rollouts[0]
	}
	switch {
	case !k.Namespaced:
		return fmt.Errorf("%s %s not found", k.Name, name)
	case src.Namespace == "":
		return fmt.Errorf("%s %s not found in any namespace", k.Name, name)
	}
	err := fmt.Errorf("%s %s/%s not found", k.Name, src.Namespace, name)
	if others := src.elsewhere(ctx, k, name); len(others) > 0 {
		err = fmt.Errorf("%w, but there is one in %s: use -n", err, strings.Join(others, ", "))
	}
	if kind != nil {
		return err
	}
	for _, k := range Rollouts[1:] {
		if others := src.elsewhere(ctx, k, name); len(others) > 0 {
			err = fmt.Errorf("%w; there is %s %q in %s", err, k.withArticle(), name, strings.Join(others, ", "))
		}
	}
	return err
}

// Nothing says that there are no objects of these kinds, and which namespaces have some. called is the kinds' common name.
func (src *Source) Nothing(ctx context.Context, called string, kinds ...*Kind) string {
	if src.Namespace == "" {
		return "No " + called + " in any namespace."
	}
	var others []string
	for _, k := range kinds {
		others = append(others, src.elsewhere(ctx, k, "")...)
	}
	slices.Sort(others)
	said := "No " + called + " in namespace " + src.Namespace + "."
	if others = slices.Compact(others); len(others) > 0 {
		said += " There are some in " + strings.Join(others, ", ") + ": use -n, or -A for all."
	}
	return said
}

// elsewhere lists other namespaces that have such objects, as far as they may be seen: it is only a hint.
func (src *Source) elsewhere(ctx context.Context, k *Kind, name string) []string {
	if !k.Namespaced {
		return nil
	}
	all, err := List[metav1.PartialObjectMetadata](ctx, src.In("", k), Named(name))
	if err != nil {
		return nil
	}
	var namespaces []string
	for i := range all {
		if namespace := all[i].Namespace; namespace != src.Namespace {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// hiddenNote names the kinds of rollouts that can't be listed, and those that are shown.
func hiddenNote(errs map[*Kind]error) string {
	var unknown, denied, others []string
	for _, k := range Rollouts {
		switch err := errs[k]; {
		case err == nil:
			others = append(others, k.Name+"s")
		case apierrors.IsNotFound(err):
			unknown = append(unknown, k.Name+"s")
		default:
			denied = append(denied, k.Name+"s")
		}
	}
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, "This cluster does not know "+text.And(unknown))
	}
	if len(denied) > 0 {
		parts = append(parts, text.And(denied)+" can't be listed")
	}
	return strings.Join(parts, ", and ") + ": only " + text.And(others) + " are shown."
}
