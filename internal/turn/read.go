// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Kind of the rollouts that this package reads.
const Kind = "NodeRollout"

// GroupVersionKind of them.
var GroupVersionKind = v1alpha1.GroupVersion.WithKind(Kind)

// Object is an empty NodeRollout as it is cached: not decoded, so that a bad one harms no other.
func Object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(GroupVersionKind)
	return o
}

// CacheOptions bounds the cache of NodeRollouts to what controllers read.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{Object(): {Transform: cache.TransformStripManagedFields(), SyncPeriod: ptr.To(Resync)}}
}

// Get reads a NodeRollout as it is stored; nil when there is none.
func Get(ctx context.Context, c client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	stored := Object()
	if err := c.Get(ctx, key, stored); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return stored, nil
}

// Replaces reports whether a stored NodeRollout is one with a replacement, and not one with hostUpdate: each has its own controller.
func Replaces(stored *unstructured.Unstructured) bool {
	spec, ok := stored.Object["spec"].(map[string]any)
	return ok && spec["replacement"] != nil && spec["hostUpdate"] == nil
}

// Decode makes a NodeRollout of what is stored. If the text does not fit the type, malformed says why, and only what the report needs is set.
func Decode(stored *unstructured.Unstructured) (r *v1alpha1.NodeRollout, malformed, err error) {
	r = &v1alpha1.NodeRollout{}
	if malformed, err = DecodeInto(stored, r); malformed != nil {
		r = &v1alpha1.NodeRollout{TypeMeta: r.TypeMeta, ObjectMeta: r.ObjectMeta, Status: StatusOf(stored)}
	}
	return r, malformed, err
}

// DecodeInto makes a rollout of what is stored. If the text does not fit the type, malformed says why, and only the name is set.
func DecodeInto(stored *unstructured.Unstructured, r client.Object) (malformed, err error) {
	text, err := stored.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("reading the %s, %w", stored.GetKind(), err)
	}
	if malformed = json.Unmarshal(text, r); malformed == nil {
		return nil, nil
	}
	r.GetObjectKind().SetGroupVersionKind(stored.GroupVersionKind())
	r.SetNamespace(stored.GetNamespace())
	r.SetName(stored.GetName())
	r.SetUID(stored.GetUID())
	r.SetGeneration(stored.GetGeneration())
	r.SetResourceVersion(stored.GetResourceVersion())
	r.SetDeletionTimestamp(stored.GetDeletionTimestamp())
	r.SetFinalizers(stored.GetFinalizers())
	return fmt.Errorf("the %s can't be read: %w", stored.GetKind(), malformed), nil
}

// StatusOf is the status of a stored NodeRollout. A part that can't be read is empty, and is written anew.
func StatusOf(stored *unstructured.Unstructured) v1alpha1.NodeRolloutStatus {
	s := v1alpha1.NodeRolloutStatus{}
	if content, ok := stored.Object["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s)
	}
	return s
}
