// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Notes for people who may not list everything.
const (
	NoNodes    = "Nodes can't be listed: only those that a rollout's status lists are shown."
	NoBudgets  = "NodeDisruptionBudgets can't be listed: what they forbid is known only where a rollout's status says so."
	NoGated    = "Pods and namespaces can't all be listed: whether a pod on a node closes a gate is known only where a rollout's status says so."
	NoPodsSeen = "Pods, revisions and settings of ExtendedDaemonSets can't all be listed: only the nodes that a status lists are shown."
	NoOthers   = "ExtendedDaemonSets and NodeRollouts, or their pods, can't all be listed: nodes where others of them work may count as free."
	NoOperator = "The operator's own node, which goes last, is not known: the operator's pods, or its Lease, can't be read."
)

// Explain rewrites an API error about objects of a kind in plain words.
func Explain(k *Kind, err error) error {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok {
		err = answer // Drop the libraries' wrapping.
	}
	if apierrors.IsNotFound(err) && !isObjectNotFound(err) {
		return fmt.Errorf("this cluster does not know %ss, is Moult installed? (%w)", k.Name, err)
	}
	return err
}

// isObjectNotFound reports whether the object was not found, and not its kind.
func isObjectNotFound(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && answer.Status().Details != nil && answer.Status().Details.Name != ""
}

// NotFound is the error that no object of these kinds has the name. There is at least one kind. It lists namespaces that have one.
func (src *Source) NotFound(ctx context.Context, name string, kinds ...*Kind) error {
	k := kinds[0]
	switch {
	case !k.Namespaced:
		return fmt.Errorf("%s %s not found", k.Name, name)
	case src.Namespace == "":
		return fmt.Errorf("%s %s not found in any namespace", k.Name, name)
	}
	err := fmt.Errorf("%s %s/%s not found", k.Name, src.Namespace, name)
	for _, k := range kinds {
		if !k.Namespaced {
			continue
		}
		namespaces := sets.New[string]()
		_ = Each(ctx, src.In("", k), Named(name), func(o *metav1.PartialObjectMetadata) { namespaces.Insert(o.Namespace) }) // It is only a hint.
		if others := sets.List(namespaces.Delete(src.Namespace)); len(others) > 0 {
			err = fmt.Errorf("%w; %s %s is in %s: use -n", err, k.Name, name, strings.Join(others, ", "))
		}
	}
	return err
}

// Nothing says that there are no objects called so.
func (src *Source) Nothing(called string) string {
	if src.Namespace == "" {
		return "No " + called + " in any namespace."
	}
	return "No " + called + " in namespace " + src.Namespace + ": -A shows those of all namespaces."
}
