// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// FuzzTimeout finds timeouts of Plans that are read, and pass before the drain begins.
func FuzzTimeout(f *testing.F) {
	for _, text := range []string{"5m", "0", "-1s", "", "1", "9223372036854775807ns", "2562047h48m", "1e9s", ".5h"} {
		f.Add(text, "halt")
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text, then string) {
		o, err := OptionsOfPlan(&upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString(text)), OnTimeout: upgradev1.DrainOnTimeout(then)})
		if err != nil {
			return
		}
		if d, err := time.ParseDuration(text); err != nil || d != o.Timeout {
			t.Errorf("%q is %s, %v", text, o.Timeout, err)
		}
		if deadline := o.deadline(since); !deadline.IsZero() && !deadline.After(since) || o.timedOut(since, since) != "" {
			t.Errorf("%q ends at %s", text, deadline)
		}
	})
}
