// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
	"moult.dev/moult/internal/kind/quantity"
	"moult.dev/moult/internal/status"
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

// Pack is the cache transform of undecoded rollouts. Beyond KeepLastManager, it keeps spec and status as JSON: as maps they take three times the
// memory, and much of the garbage collector's time. A packed rollout can be encoded, but DeepCopy panics: read it with UnsafeDisableDeepCopy,
// change what Copy returns, and do not set KUBE_CACHE_MUTATION_DETECTOR.
func Pack(object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	for _, field := range []string{"spec", "status"} {
		if content, ok := o.Object[field].(map[string]any); ok {
			text, err := json.Marshal(content)
			if err != nil {
				return nil, fmt.Errorf("packing the %s, %w", o.GetKind(), err)
			}
			o.Object[field] = json.RawMessage(text)
		}
	}
	o.Object[outlined] = newOutline(o)
	return KeepLastManager(o)
}

// Copy returns a copy of a stored rollout, of which the metadata and whole fields may be set. Its outline remains that of the stored one.
func Copy(stored *unstructured.Unstructured) *unstructured.Unstructured {
	fields := maps.Clone(stored.Object)
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		fields["metadata"] = runtime.DeepCopyJSON(metadata)
	}
	return &unstructured.Unstructured{Object: fields}
}

// PatchFrom returns the patch that makes a changed copy of a stored rollout. It fails with a conflict if the rollout has changed since it was read.
func PatchFrom(stored *unstructured.Unstructured) client.Patch {
	from := Copy(stored)
	from.SetResourceVersion("") // So the patch has it, and the API server compares.
	return client.MergeFrom(from)
}

// ReadField decodes a field of a stored rollout. After an error, into has the parts that could be read.
func ReadField(stored *unstructured.Unstructured, field string, into any) error {
	switch content := stored.Object[field].(type) {
	case nil:
		return nil
	case json.RawMessage:
		return json.Unmarshal(content, into)
	default:
		text, err := json.Marshal(content)
		return cmp.Or(err, json.Unmarshal(text, into))
	}
}

// outlined is the field of a packed rollout that has its outline. Patches by PatchFrom leave it out, because it does not differ.
const outlined = "outline"

// outline is the part of a rollout that is needed after each change of a node. There may be thousands of rollouts, so it is decoded once.
type outline struct {
	selector            labels.Selector // nothing if the rollout's own is missing or can't be read
	replaces, isInvalid bool
	approval            *v1alpha1.WaveApproval
}

func outlineOf(stored *unstructured.Unstructured) *outline {
	if o, ok := stored.Object[outlined].(*outline); ok {
		return o
	}
	return newOutline(stored)
}

func newOutline(stored *unstructured.Unstructured) *outline {
	var spec struct {
		NodeSelector            *metav1.LabelSelector
		HostUpdate, Replacement any
	}
	var present struct {
		Conditions []upgradev1.Condition // Not metav1.Condition: a time that it can't read ends the decoding.
		Approval   *v1alpha1.WaveApproval
	}
	unread := ReadField(stored, "spec", &spec)
	_ = ReadField(stored, "status", &present) // What can't be read is as if it was missing.
	o := &outline{replaces: spec.Replacement != nil && spec.HostUpdate == nil, approval: present.Approval}
	selector, invalid := metav1.LabelSelectorAsSelector(spec.NodeSelector)
	if o.selector = selector; unread != nil || invalid != nil {
		o.selector = labels.Nothing()
	}
	o.isInvalid = slices.ContainsFunc(present.Conditions, func(c upgradev1.Condition) bool {
		return c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue && c.ObservedGeneration == stored.GetGeneration() &&
			(c.Reason == status.ReasonInvalid || c.Reason == upgradev1.ReasonNotReady)
	})
	return o
}

// CacheOptions returns the cache options of NodeRollouts: packed, with a resync.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{Object(): {Transform: Pack, SyncPeriod: ptr.To(Resync)}}
}

// Get reads a rollout into stored without decoding it. It returns nil if there is none. stored is the cache's, and must not be changed.
func Get(ctx context.Context, c client.Reader, key types.NamespacedName, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := c.Get(ctx, key, stored, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return stored, nil
}

// Replaces reports whether a stored NodeRollout has spec.replacement and not spec.hostUpdate. Each has its own controller.
func Replaces(stored *unstructured.Unstructured) bool { return outlineOf(stored).replaces }

// Decode converts a stored NodeRollout: see DecodeInto.
func Decode(stored *unstructured.Unstructured) (r *v1alpha1.NodeRollout, malformed, err error) {
	r = &v1alpha1.NodeRollout{}
	malformed, err = DecodeInto(stored, r, &r.Spec, &r.Status)
	return r, malformed, err
}

// DecodeInto converts a stored rollout. If a field has the wrong type, malformed says so, and only the metadata and the status are set.
func DecodeInto[S any](stored *unstructured.Unstructured, r client.Object, spec *S, status any) (malformed, err error) {
	about := map[string]any{"apiVersion": stored.GetAPIVersion(), "kind": stored.GetKind(), "metadata": stored.Object["metadata"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(about, r); err != nil {
		return nil, fmt.Errorf("reading the %s, %w", stored.GetKind(), err)
	}
	var fields any
	badStatus := ReadField(stored, "status", status)
	if malformed = ReadField(stored, "spec", &fields); malformed == nil {
		malformed = quantity.CheckAll("spec", fields)
	}
	if malformed == nil {
		malformed = cmp.Or(ReadField(stored, "spec", spec), badStatus)
	}
	if malformed != nil {
		*spec = *new(S)
		malformed = fmt.Errorf("the %s can't be read: %w", stored.GetKind(), malformed)
	}
	return malformed, nil
}

// StatusOf returns the status of a stored NodeRollout. A part that can't be read is empty, and the next report writes it again.
func StatusOf(stored *unstructured.Unstructured) (s v1alpha1.NodeRolloutStatus) {
	_ = ReadField(stored, "status", &s)
	return s
}
