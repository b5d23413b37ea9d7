// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// Change is what is written to an object: a merge patch, or a JSON patch. It needs no resourceVersion: Write adds it.
type Change struct {
	Merge map[string]any
	JSON  []map[string]any
	// Subresources names the subresource to write; none is the object itself.
	Subresources []string
}

// Write changes an object, with its resourceVersion as precondition. change gets the current object, and returns nil if there is
// nothing to write. After a conflict, Write reads the object again and retries.
func (src *Source) Write(
	ctx context.Context, k *Kind, name string, o metav1.PatchOptions, change func(*unstructured.Unstructured) (*Change, error),
) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u, err := src.Get(ctx, k, name)
		if err != nil {
			return err
		}
		c, err := change(u)
		if err != nil || c == nil {
			return err
		}
		err = src.patch(ctx, k, u, o, c)
		if _, unknown, ok := strings.Cut(fmt.Sprint(err), "strict decoding error: "); ok {
			err = errors.New("its CustomResourceDefinition is not of this version: " + unknown)
		}
		if err != nil {
			return fmt.Errorf("writing %s, %w", k.String(name), err)
		}
		return nil
	})
}

func (src *Source) patch(ctx context.Context, k *Kind, u *unstructured.Unstructured, o metav1.PatchOptions, c *Change) error {
	how, version := types.MergePatchType, u.GetResourceVersion()
	var content any = c.Merge
	if c.JSON != nil {
		how = types.JSONPatchType
		content = append([]map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": version}}, c.JSON...)
	} else if err := unstructured.SetNestedField(c.Merge, version, "metadata", "resourceVersion"); err != nil {
		return err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = src.Of(k).Patch(ctx, u.GetName(), how, body, o, c.Subresources...)
	return err
}

// Annotate is a change that sets annotations; nil removes one.
func Annotate(annotations map[string]any) *Change {
	return &Change{Merge: map[string]any{"metadata": map[string]any{"annotations": annotations}}}
}
