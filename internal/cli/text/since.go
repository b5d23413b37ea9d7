// SPDX-License-Identifier: Apache-2.0

package text

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Since is a duration up to now in few letters; empty when the time is not known.
func Since(t *metav1.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time)))
}
