// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// maxDigestFields bounds the work for one Plan: a field may be the whole spec.
const maxDigestFields = 100

// latestHash identifies the state to which a Plan brings nodes. It is the same hash as system-upgrade-controller's, so nodes
// that already have that label are not upgraded again. It is the SHA-224 of the version, the service account, the fields that the
// digest annotation names, and the hashes of secrets without ignoreUpdates. The parts follow in this order without separators.
func latestHash(p *upgradev1.Plan, secretHashes map[string]string) (string, error) {
	h := sha256.New224()
	h.Write([]byte(p.Status.LatestVersion))
	h.Write([]byte(p.Spec.ServiceAccountName))
	if paths := p.Annotations[upgradev1.AnnotationDigest]; paths != "" {
		fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(p) // Plain data always converts.
		if strings.Count(paths, ",") >= maxDigestFields {
			return "", fmt.Errorf("hashing plan, annotation %s names more than %d fields", upgradev1.AnnotationDigest, maxDigestFields)
		}
		for path := range strings.SplitSeq(paths, ",") {
			h.Write([]byte(digestField(fields, strings.Split(path, "."))))
		}
	}
	for _, s := range p.Spec.Secrets {
		if !s.IgnoreUpdates {
			h.Write([]byte(secretHashes[s.Name]))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digestField returns the field at a path through maps. An absent field is empty. Only the first element of a list counts.
func digestField(fields map[string]any, path []string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(fields, path...)
	if items, ok := value.([]any); ok {
		if len(items) == 0 {
			return ""
		}
		value = items[0]
	}
	if value == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(value))
}

// secretHash returns kubectl's hash of a Secret: ten characters that form no word.
func secretHash(s *corev1.Secret) string {
	fields := map[string]any{"kind": "Secret", "type": s.Type, "name": s.Name, "data": s.Data}
	if s.Immutable != nil {
		fields["immutable"] = *s.Immutable
	}
	text, _ := json.Marshal(fields) // Plain data always encodes.
	sum := sha256.Sum256(text)
	return wordless.Replace(hex.EncodeToString(sum[:])[:10])
}

var wordless = strings.NewReplacer("0", "g", "1", "h", "3", "k", "a", "m", "e", "t")
