// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
	"moult.dev/moult/internal/kind/quantity"
)

// Kind is the kind of the rollouts that this package reads.
const Kind = "NodeRollout"

// GroupVersionKind of NodeRollouts.
var GroupVersionKind = v1alpha1.GroupVersion.WithKind(Kind)

// Object returns an empty NodeRollout.
func Object() *unstructured.Unstructured { return Undecoded(GroupVersionKind) }

// Undecoded returns an empty rollout of a kind. The cache holds them undecoded, so that a malformed one does not affect others.
func Undecoded(kind schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o
}

// KeepLastManager is a cache transform. Of the managed fields it keeps the name of the client that wrote the spec last.
func KeepLastManager(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(history.LastManager(o.GetManagedFields()))
	}
	return object, nil
}

// CacheOptions returns the cache options of NodeRollouts: few managed fields, and a resync.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{Object(): {Transform: KeepLastManager, SyncPeriod: ptr.To(Resync)}}
}

// Get reads a rollout into stored without decoding it. It returns nil if there is none. stored is the cache's, and must not be changed.
func Get(ctx context.Context, c client.Reader, key types.NamespacedName, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := c.Get(ctx, key, stored, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return stored, nil
}

// Replaces reports whether a stored NodeRollout has spec.replacement and not spec.hostUpdate. Each has its own controller.
func Replaces(stored *unstructured.Unstructured) bool {
	spec, ok := stored.Object["spec"].(map[string]any)
	return ok && spec["replacement"] != nil && spec["hostUpdate"] == nil
}

// Decode converts a stored NodeRollout: see DecodeInto.
func Decode(stored *unstructured.Unstructured) (r *v1alpha1.NodeRollout, malformed, err error) {
	r = &v1alpha1.NodeRollout{}
	malformed, err = DecodeInto(stored, r, &r.Status)
	return r, malformed, err
}

// DecodeInto converts a stored rollout. If a field has the wrong type, malformed says so, and only the metadata and the status are set.
func DecodeInto(stored *unstructured.Unstructured, r client.Object, status any) (malformed, err error) {
	text, err := stored.MarshalJSON()
	if err == nil {
		malformed = quantity.CheckAll("spec", stored.Object["spec"])
	}
	if err == nil && malformed == nil {
		malformed = json.Unmarshal(text, r)
	}
	if malformed != nil {
		malformed = fmt.Errorf("the %s can't be read: %w", stored.GetKind(), malformed)
		readable := map[string]any{"apiVersion": stored.GetAPIVersion(), "kind": stored.GetKind(), "metadata": stored.Object["metadata"]}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(readable, r)
		DecodeStatus(stored, status)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the %s, %w", stored.GetKind(), err)
	}
	return malformed, nil
}

// StatusOf returns the status of a stored NodeRollout.
func StatusOf(stored *unstructured.Unstructured) (s v1alpha1.NodeRolloutStatus) {
	DecodeStatus(stored, &s)
	return s
}

// DecodeStatus sets s to the status of a stored rollout. A part that can't be read is empty, and the next report writes it again.
func DecodeStatus(stored *unstructured.Unstructured, s any) {
	if content, ok := stored.Object["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, s)
	}
}
