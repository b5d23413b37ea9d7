// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// For an unset creationTimestamp k8s.io/api v0.31 wrote null, and later versions write nothing. To put the null back in its
// place, TemplateHash sets the last possible time as a mark, and then replaces the mark.
var (
	unset       = metav1.NewTime(time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC))
	unsetJSON   = []byte(`"creationTimestamp":"9999-12-31T23:59:59Z"`)
	unsetJSON31 = []byte(`"creationTimestamp":null`)
)

// TemplateHash returns the hash of a template: the hexadecimal MD5 of its JSON, without its name, as k8s.io/api v0.31.1
// writes it. ExtendedDaemonSet wrote the same hash on its objects. Newer fields are
// part of the hash when they are set. It panics if the template does not marshal, which no template of the API server does.
func TemplateHash(t *corev1.PodTemplateSpec) string {
	t = t.DeepCopy()
	t.Name = ""
	mark(&t.ObjectMeta)
	for i := range t.Spec.Volumes {
		if e := t.Spec.Volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			mark(&e.VolumeClaimTemplate.ObjectMeta)
		}
	}
	raw, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	sum := md5.Sum(bytes.ReplaceAll(raw, unsetJSON, unsetJSON31))
	return hex.EncodeToString(sum[:])
}

func mark(m *metav1.ObjectMeta) {
	if m.CreationTimestamp.IsZero() {
		m.CreationTimestamp = unset
	}
}
