// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// latestHash identifies what a Plan brings nodes to, bit for bit as system-upgrade-controller does, so that a node that it
// has labelled is not upgraded again: the SHA-224 of version, service account, the fields that the digest annotation
// names, and the hashes of the secrets that count, in the order of the spec, with nothing between them.
func latestHash(p *upgradev1.Plan, secretHashes map[string]string) (string, error) {
	h := sha256.New224()
	h.Write([]byte(p.Status.LatestVersion))
	h.Write([]byte(p.Spec.ServiceAccountName))
	if paths := p.Annotations[upgradev1.AnnotationDigest]; paths != "" {
		fields, err := asMap(p)
		if err != nil {
			return "", fmt.Errorf("hashing plan, %w", err)
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

func asMap(p *upgradev1.Plan) (map[string]any, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	fields := map[string]any{}
	return fields, decoder.Decode(&fields)
}

// digestField walks a path through maps only. A field that is not there is empty; only the first element of a list counts.
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

// secretHash is kubectl's hash of a Secret: ten characters that spell no word.
func secretHash(s *corev1.Secret) (string, error) {
	fields := map[string]any{"kind": "Secret", "type": s.Type, "name": s.Name, "data": s.Data}
	if s.Immutable != nil {
		fields["immutable"] = *s.Immutable
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("hashing secret %s, %w", s.Name, err)
	}
	sum := sha256.Sum256(text)
	return wordless.Replace(hex.EncodeToString(sum[:])[:10]), nil
}

var wordless = strings.NewReplacer("0", "g", "1", "h", "3", "k", "a", "m", "e", "t")
