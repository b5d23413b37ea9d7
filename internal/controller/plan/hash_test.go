// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// The vectors were computed by system-upgrade-controller itself.
func TestLatestHash(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s1"},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{"a": []byte("1"), "b": []byte("2")},
	}
	hash := secretHash(secret)
	if hash != "24cc5gtmk8" {
		t.Errorf("secretHash = %q, want 24cc5gtmk8", hash)
	}
	for _, tc := range []struct {
		digest, want string
		secrets      []upgradev1.SecretSpec
	}{
		{want: "dabbc96620fa1303f22294cca31c036c1ff35c727238bde988f622dd"},
		{digest: "spec.concurrency", want: "028bdc350bed9062caea39614b97c9e59fcc6ffed1ca7d2f498c46c0"},
		{digest: "spec.upgrade.envs", want: "3771f67921560494e4fa381c8ba8e9242f422c5dfe557f21fe092b66"},
		{digest: "spec.upgrade.args", want: "e514aee1ffe6cdec0e87087f3934a3b518329b37e4bd769963752661"},
		{digest: "spec.concurrency,spec.upgrade.envs", want: "cc008d56d296ddcf91f32a392dfb389c6010b218232211fab4c5a05d"},
		{digest: "spec.upgrade", want: "5232f0a1fbf00f109aba7769beeed501129b66c45ad6bdec745b3bb0"},
		{digest: "spec.exclusive, spec.concurrency", want: "6fb6e8f10a7904e408555a376887e8475d815574971ae22780b6abac"},
		{secrets: []upgradev1.SecretSpec{{Name: "s1"}}, want: "7175e12ceec29d648e07bc5db63193846a8a230e152901a535100332"},
		{secrets: []upgradev1.SecretSpec{{Name: "s1", IgnoreUpdates: true}}, want: "dabbc96620fa1303f22294cca31c036c1ff35c727238bde988f622dd"},
	} {
		t.Run(tc.digest, func(t *testing.T) {
			p := &upgradev1.Plan{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{upgradev1.AnnotationDigest: tc.digest}},
				Spec: upgradev1.PlanSpec{
					Concurrency: 3, Exclusive: true, ServiceAccountName: "sa", Secrets: tc.secrets,
					Upgrade: &upgradev1.ContainerSpec{
						Image: "alpine", Args: []string{"x", "y z"},
						Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
					},
				},
				Status: upgradev1.PlanStatus{LatestVersion: "v1"},
			}
			got, err := latestHash(p, map[string]string{"s1": hash})
			if err != nil || got != tc.want {
				t.Errorf("latestHash = %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
