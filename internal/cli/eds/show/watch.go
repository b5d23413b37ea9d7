// SPDX-License-Identifier: Apache-2.0

package show

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"moult.dev/moult/internal/cli/eds/feed"
	"moult.dev/moult/internal/cli/eds/object"
)

// followObjects shows objects of one kind with each of their changes.
func (c *command) followObjects(
	ctx context.Context, client *object.Client, p *printer, name string, which metav1.ListOptions, show func(*unstructured.Unstructured) row,
) error {
	f := feed.New(client.Client)
	objects, err := f.Add(&unstructured.Unstructured{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = which.FieldSelector
			list, err := client.Of(p.kind).List(ctx, o)
			return list, object.Explain(p.kind, err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = which.FieldSelector
			return client.Of(p.kind).Watch(ctx, o)
		},
	}, false)
	if err != nil {
		return err
	}
	known := name == ""
	return c.follow(ctx, f, p, func() ([]row, error) {
		var rows []row
		for _, o := range objects.All() {
			rows = append(rows, show(o.(*unstructured.Unstructured)))
		}
		switch {
		case len(rows) > 0:
			known = true
		case !known:
			return nil, client.NotFound(ctx, p.kind, name)
		case name != "":
			return nil, fmt.Errorf("%s %s has been deleted", p.kind.Name, name)
		}
		return rows, nil
	})
}

// follow writes rows when they change, until the context ends.
func (c *command) follow(ctx context.Context, f *feed.Feed, p *printer, look func() ([]row, error)) error {
	ended := f.Run(ctx, c.clock, func() (bool, error) {
		rows, err := look()
		if err != nil {
			return false, err
		}
		slices.SortFunc(rows, func(a, b row) int {
			return strings.Compare(a.namespace+"\x00"+a.name, b.namespace+"\x00"+b.name)
		})
		return false, p.changes(rows, c.clock.Now())
	})
	if ctx.Err() == nil {
		return ended
	}
	return nil // Whoever called has seen enough.
}
