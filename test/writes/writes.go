// SPDX-License-Identifier: Apache-2.0

// Package writes records what changes in an API server, so that two runs of a controller can be compared.
package writes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Record has a line for each write that changed an object. The zero value is ready for use.
type Record struct {
	mu sync.Mutex
	// step has the lines since the last Step. Nodes are written in parallel, so their order means nothing.
	lines, step []string
}

// Client returns c with its writes recorded.
func (r *Record) Client(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return r.write(ctx, c, "create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return r.write(ctx, c, "update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return r.write(ctx, c, "patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return r.write(ctx, c, "delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return r.write(ctx, c, "update "+sub, o, func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return r.write(ctx, c, "patch "+sub, o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, what client.Object, opts ...client.SubResourceCreateOption) error {
			return r.write(ctx, c, "create "+sub, o, func() error { return c.SubResource(sub).Create(ctx, o, what, opts...) })
		},
	})
}

// Step ends a step: what was written in it is sorted.
func (r *Record) Step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.step)
	r.lines, r.step = append(r.lines, r.step...), nil
}

// Lines are the writes so far, those of one step in alphabetical order.
func (r *Record) Lines() []string {
	r.Step()
	return r.lines
}

// write records what do changes of the object.
func (r *Record) write(ctx context.Context, c client.Client, verb string, o client.Object, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	before, err := stored(ctx, c, gvk, o)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := stored(ctx, c, gvk, o)
	if err != nil {
		return err
	}
	patch, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return fmt.Errorf("comparing %s %s, %w", gvk.Kind, o.GetName(), err)
	}
	if text := string(patch); text != "{}" {
		r.step = append(r.step, fmt.Sprintf("%s %s %s: %s", verb, gvk.Kind, o.GetName(), text))
	}
	return nil
}

// stored is the object as the API server has it, without what each write changes. One that is not there is empty.
func stored(ctx context.Context, c client.Client, gvk schema.GroupVersionKind, o client.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	err := c.Get(ctx, client.ObjectKeyFromObject(o), u)
	if apierrors.IsNotFound(err) {
		return &unstructured.Unstructured{Object: map[string]any{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s, %w", gvk.Kind, o.GetName(), err)
	}
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	u.SetGeneration(0)
	if u.GetDeletionTimestamp() != nil {
		u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(0, 0)}) // The API server's own time.
	}
	return u, nil
}
