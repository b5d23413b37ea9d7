// SPDX-License-Identifier: Apache-2.0

// Package follow sees every change of some objects, in order and without a gap.
package follow

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

// Begin begins a watch.
type Begin func(context.Context, metav1.ListOptions) (watch.Interface, error)

// WatchWithContext makes Begin a watcher as client-go has them.
func (b Begin) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return b(ctx, o)
}

// Change is an object as it became, or as it was when it was deleted.
type Change struct {
	Type   watch.EventType
	Object metav1.Object
}

// Changes sends every change after a resourceVersion to changes, until the context ends or a change is lost, which is an error. A watch that the API server
// ends or refuses is begun again where it ended.
func Changes(ctx context.Context, begin Begin, resourceVersion string, changes chan<- Change) error {
	watching, err := watchtools.NewRetryWatcherWithContext(ctx, resourceVersion, begin)
	if err != nil {
		return err
	}
	defer watching.Stop()
	for e := range watching.ResultChan() {
		if e.Type == watch.Error {
			return fmt.Errorf("watching, %w", apierrors.FromObject(e.Object))
		}
		object, err := meta.Accessor(e.Object)
		if err != nil {
			return err
		}
		select {
		case changes <- Change{e.Type, object}:
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}
