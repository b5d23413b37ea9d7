// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=configmaps,namespace=kube-system,resourceNames=kubeadm-config,verbs=get;patch

// clusterConfiguration is the key of the ConfigMap in which kubeadm keeps the configuration of a cluster.
const clusterConfiguration = "ClusterConfiguration"

// versionLine matches the line of a ClusterConfiguration that has the version, as kubeadm writes it: what is before the version, and the version.
var versionLine = regexp.MustCompile(`(?m)^(kubernetesVersion:[ \t]*["']?)([^\s"'#]+)`)

// SetVersion writes kubernetesVersion of ConfigMap kubeadm-config, which joining machines read, if it differs. It replaces a newer version only where
// older is true. Without that ConfigMap it does nothing.
func (p *Plane) SetVersion(ctx context.Context, to string, older bool) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}}
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

// withVersion returns a ClusterConfiguration with another Kubernetes version, and the rest of the text unchanged. The text stays the same if it has that
// version already, with or without a v, or has no version. It also stays if its version is newer and older is false.
func withVersion(text, to string, older bool) (string, error) {
	want, err := utilversion.ParseSemantic(to)
	if err != nil {
		return "", fmt.Errorf("%q is not a version of Kubernetes", to)
	}
	line := versionLine.FindStringSubmatch(text)
	switch {
	case line == nil && !strings.Contains(text, "kubernetesVersion"):
		return text, nil
	case line == nil:
		return "", errors.New("there is no line kubernetesVersion: write it on one line, as kubeadm does")
	}
	have, err := utilversion.ParseSemantic(line[2])
	switch {
	case err != nil:
		return "", fmt.Errorf("kubernetesVersion %q is not a version: write it on one line, as kubeadm does", line[2])
	case have.EqualTo(want), !older && want.LessThan(have):
		return text, nil
	}
	return versionLine.ReplaceAllString(text, "${1}v"+want.String()), nil
}

// VersionOf returns the Kubernetes version in an image's name, without a v: the third of exactly five parts between hyphens, as in
// flatcar-stable-1.36.2-v0.3.0-cc9e4ddc. False: the name has none.
func VersionOf(image string) (string, bool) {
	if parts := strings.Split(image, "-"); len(parts) == 5 {
		if version, err := utilversion.ParseSemantic(parts[2]); err == nil {
			return version.String(), true
		}
	}
	return "", false
}
