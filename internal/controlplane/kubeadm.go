// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The ConfigMap in which kubeadm keeps the configuration of a cluster, and its key.
const (
	kubeadmConfig        = "kubeadm-config"
	clusterConfiguration = "ClusterConfiguration"
)

// versionLine matches the line of a ClusterConfiguration that has the version, as kubeadm writes it, up to the end of the version.
var versionLine = regexp.MustCompile(`(?m)^(kubernetesVersion:[ \t]*["']?)[^\s"'#]+`)

// SetVersion writes kubernetesVersion of ConfigMap kubeadm-config, which joining machines read, if it differs. It replaces a newer version only where
// older is true. Without that ConfigMap it does nothing.
func (p *Plane) SetVersion(ctx context.Context, to string, older bool) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeadmConfig}}
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(cm), cm); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s/%s, %w", cm.Namespace, cm.Name, err)
	}
	before := cm.DeepCopy()
	edited, err := withVersion(cm.Data[clusterConfiguration], to, older)
	if err != nil {
		return fmt.Errorf("changing %s of ConfigMap %s/%s, %w", clusterConfiguration, cm.Namespace, cm.Name, err)
	}
	if edited == cm.Data[clusterConfiguration] {
		return nil
	}
	cm.Data[clusterConfiguration] = edited
	if err := p.client.Patch(ctx, cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing %s of ConfigMap %s/%s, %w", clusterConfiguration, cm.Namespace, cm.Name, err)
	}
	return nil
}

// withVersion returns a ClusterConfiguration with another Kubernetes version, and the rest of the text unchanged. It returns the same text when that is its
// version already, with or without a v, when its version is newer and may not become older, or when it has none.
func withVersion(text, to string, older bool) (string, error) {
	want, err := utilversion.ParseSemantic(to)
	if err != nil {
		return "", fmt.Errorf("%q is not a version of Kubernetes", to)
	}
	now, err := versionIn(text)
	if err != nil || now == "" {
		return text, err
	}
	if have, err := utilversion.ParseSemantic(now); err == nil && (have.EqualTo(want) || !older && want.LessThan(have)) {
		return text, nil
	}
	edited := versionLine.ReplaceAllString(text, "${1}v"+bare(to))
	if got, err := versionIn(edited); err != nil || bare(got) != bare(to) {
		return "", fmt.Errorf("no line kubernetesVersion: %s was found: write it on one line, as kubeadm does", now)
	}
	return edited, nil
}

func versionIn(clusterConfiguration string) (string, error) {
	var config struct {
		KubernetesVersion string `json:"kubernetesVersion"`
	}
	err := yaml.Unmarshal([]byte(clusterConfiguration), &config)
	return config.KubernetesVersion, err
}

// VersionOf returns the Kubernetes version in an image's name, without a v: the third of exactly five parts between hyphens, as in
// flatcar-stable-1.36.2-v0.3.0-cc9e4ddc. False: the name has none.
func VersionOf(image string) (string, bool) {
	parts := strings.Split(image, "-")
	if len(parts) != 5 {
		return "", false
	}
	if _, err := utilversion.ParseSemantic(parts[2]); err != nil {
		return "", false
	}
	return bare(parts[2]), true
}

// bare returns a version without its leading v.
func bare(version string) string { return strings.TrimPrefix(version, "v") }
