// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestInterfaceLabel(t *testing.T) {
	const bottlerocket, thar = "bottlerocket.aws/updater-interface-version", "thar.amazonaws.com/platform-version"
	const current = "Bottlerocket OS 1.20.3 (aws-k8s-1.30)"
	for name, tc := range map[string]struct {
		image  string
		labels map[string]string
		want   [2]string
	}{
		"Bottlerocket":                 {current, nil, [2]string{bottlerocket, "2.0.0"}},
		"the first with an Update API": {"Bottlerocket OS 0.4.1 (aws-k8s-1.15)", nil, [2]string{bottlerocket, "2.0.0"}},
		"the last without":             {"Bottlerocket OS 0.4.0 (aws-k8s-1.15)", nil, [2]string{bottlerocket, "1.0.0"}},
		"a version that is invalid":    {"Bottlerocket OS newest", nil, [2]string{}},
		"Thar to 0.2.0":                {"Thar, The Operating System", nil, [2]string{thar, "1.0.0"}},
		"Thar 0.2.1":                   {"Thar, The Operating System (0.2.1)", nil, [2]string{thar, "1.0.0"}},
		"the first Bottlerocket":       {"Bottlerocket OS 0.3.0", nil, [2]string{bottlerocket, "1.0.0"}},
		"another host":                 {"Debian GNU/Linux 13 (trixie)", nil, [2]string{}},
		"not reported yet":             {"", nil, [2]string{}},
		"labelled by a person":         {current, map[string]string{bottlerocket: "1.0.0"}, [2]string{}},
		"labelled for Dogswatch":       {current, map[string]string{thar: "x"}, [2]string{}},
		"labelled as a sentinel host":  {current, map[string]string{"moult.dev/updater-interface-version": "sentinel"}, [2]string{}},
		"labelled with an empty value": {current, map[string]string{bottlerocket: ""}, [2]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}}
			n.Status.NodeInfo.OSImage = tc.image
			key, value, ok := InterfaceLabel(n)
			if got := [2]string{key, value}; got != tc.want || ok != (key != "") {
				t.Errorf("%v, %t, want %v", got, ok, tc.want)
			}
		})
	}
}
