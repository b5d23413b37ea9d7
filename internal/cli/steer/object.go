// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// attempts bounds how often an object is read and written anew that others write at the same time.
const attempts = 5

// client is for objects of the kind.
func (c *command) client(k *target.Kind) dynamic.ResourceInterface {
	resource := c.src.Client.Resource(k.Resource)
	if k.Namespaced {
		return resource.Namespace(c.namespace)
	}
	return resource
}

// rollout reads the rollout that is named. A name without a kind is a Plan's, or where there is none that of another kind; it is an
// error when there are both.
func (c *command) rollout(ctx context.Context, named target.Target) (*target.Kind, *unstructured.Unstructured, error) {
	if named.Kind != nil {
		o, err := c.get(ctx, named.Kind, named.Name)
		return named.Kind, o, err
	}
	var found *target.Kind
	var object *unstructured.Unstructured
	var failed error
	for _, k := range target.Rollouts {
		o, err := c.client(k).Get(ctx, named.Name, metav1.GetOptions{})
		switch {
		case err == nil && found != nil:
			return nil, nil, fmt.Errorf("there are %s %s and %s %s of the name %q: say %[6]s/%[5]s or %[7]s/%[5]s",
				found.Article, found.Name, k.Article, k.Name, named.Name, found.Short, k.Short)
		case err == nil:
			found, object = k, o
		case apierrors.IsNotFound(err) && known(err), k != target.Plan && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		case failed == nil:
			failed = source.ExplainOf(k, err)
		}
	}
	switch {
	case found != nil:
		return found, object, nil
	case failed != nil:
		return nil, nil, failed
	}
	return nil, nil, c.src.NotFound(ctx, source.Scope{Namespace: c.namespace, Name: named.Name})
}

// get reads an object. A rollout that is not there may be in another namespace: then the error says where.
func (c *command) get(ctx context.Context, k *target.Kind, name string) (*unstructured.Unstructured, error) {
	o, err := c.client(k).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return o, nil
	case !apierrors.IsNotFound(err):
		return nil, source.ExplainOf(k, err)
	case !known(err):
		return nil, fmt.Errorf("this cluster has no %ss, or an older Moult is installed in it: %w", k.Name, err)
	case k.Rollout:
		return nil, c.src.NotFound(ctx, source.Scope{Namespace: c.namespace, Name: name, Kind: k})
	}
	return nil, missing{fmt.Errorf("there is no %s %q", k.Name, name)}
}

// missing is an object that is not there.
type missing struct{ error }

// known reports whether it is the object that was not found, and not its kind.
func known(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && answer.Status().Details != nil && answer.Status().Details.Name != ""
}

// write changes an object that was read before by a merge patch with its resourceVersion as precondition, and reads it
// again when others have written to it meanwhile. change returns nil when there is nothing to change.
func (c *command) write(ctx context.Context, k *target.Kind, o *unstructured.Unstructured, change func(*unstructured.Unstructured) map[string]any) (bool, error) {
	name := o.GetName()
	for attempt := 1; ; attempt++ {
		patch := change(o)
		if patch == nil {
			return false, nil
		}
		options, write := c.dryRun.options()
		if !write {
			return true, nil
		}
		metadata, _ := patch["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["resourceVersion"] = o.GetResourceVersion()
		patch["metadata"] = metadata
		body, err := json.Marshal(patch)
		if err != nil {
			return false, fmt.Errorf("writing %s, %w", k.String(name), err)
		}
		_, err = c.client(k).Patch(ctx, name, types.MergePatchType, body, options)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsConflict(err) || attempt == attempts {
			return false, fmt.Errorf("writing %s, %w", k.String(name), err)
		}
		if o, err = c.get(ctx, k, name); err != nil {
			return false, err
		}
	}
}

// annotate is a patch that sets an annotation.
func annotate(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// nested is a value with these fields around it.
func nested(path []string, value any) map[string]any {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	return map[string]any{path[0]: value}
}
