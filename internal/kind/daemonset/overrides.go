// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/quantity"
)

// Overrides are what differs from the template in the pod of one node.
type Overrides struct {
	// Resources replace those of the template, by container.
	Resources map[string]corev1.ResourceRequirements
	// SettingName and SettingNamespace are of the ExtendedDaemonsetSetting that applies; "" when none does.
	SettingName, SettingNamespace string
	// NodeHash is the MD5 of the node's annotations for this daemon, as ExtendedDaemonSet computes it; "" when there are none.
	NodeHash string
	// Hash is of the Resources, so that 1Gi and 1024Mi are the same; "" when nothing is overridden.
	Hash string
}

// OverridesOf returns the overrides for a node. The first Setting that selects the node applies, in the order of JudgeSettings. A node
// annotation replaces the Setting's resources of its container. The error lists invalid annotations. The
// others apply.
func OverridesOf(
	eds types.NamespacedName, containers []corev1.Container, n *corev1.Node, settings []SettingVerdict,
) (Overrides, error) {
	var o Overrides
	set := func(container string, r corev1.ResourceRequirements) {
		if o.Resources == nil {
			o.Resources = map[string]corev1.ResourceRequirements{}
		}
		o.Resources[container] = r
	}
	applies := func(s SettingVerdict) bool { return s.Problem == "" && s.selector.Matches(labels.Set(n.Labels)) }
	if i := slices.IndexFunc(settings, applies); i >= 0 {
		s := settings[i].Setting
		o.SettingName, o.SettingNamespace = s.Name, s.Namespace
		for _, c := range s.Spec.Containers {
			if slices.ContainsFunc(containers, func(of corev1.Container) bool { return of.Name == c.Name }) {
				set(c.Name, c.Resources)
			}
		}
	}
	prefix := edsv1.AnnotationResourcesPrefix + eds.Namespace + "." + eds.Name + "."
	var pairs []string
	for key, value := range n.Annotations {
		if strings.HasPrefix(key, prefix) {
			pairs = append(pairs, key+"="+value)
		}
	}
	var errs []error
	if len(pairs) > 0 {
		slices.Sort(pairs)
		sum := md5.Sum([]byte(strings.Join(pairs, "")))
		o.NodeHash = hex.EncodeToString(sum[:])
		for _, c := range containers {
			value, ok := n.Annotations[prefix+c.Name]
			if !ok {
				continue
			}
			if r, err := parseResources(value); err != nil {
				errs = append(errs, fmt.Errorf("reading annotation %s%s of node %s, %w", prefix, c.Name, n.Name, err))
			} else {
				set(c.Name, r)
			}
		}
	}
	o.Hash = overridesHash(o.Resources)
	return o, errors.Join(errs...)
}

// parseResources reads the resources in an annotation, which anyone may have written who may write to Nodes.
func parseResources(value string) (corev1.ResourceRequirements, error) {
	var bounded struct {
		Limits, Requests map[corev1.ResourceName]quantity.Bounded
		Claims           []corev1.ResourceClaim
	}
	err := json.Unmarshal([]byte(value), &bounded)
	list := func(of map[corev1.ResourceName]quantity.Bounded) (l corev1.ResourceList) {
		for name, q := range of {
			if l == nil {
				l = corev1.ResourceList{}
			}
			l[name] = q.Quantity
		}
		return l
	}
	return corev1.ResourceRequirements{Limits: list(bounded.Limits), Requests: list(bounded.Requests), Claims: bounded.Claims}, err
}

// overridesHash is short, and fit for an annotation.
func overridesHash(resources map[string]corev1.ResourceRequirements) string {
	if len(resources) == 0 {
		return ""
	}
	text, _ := json.Marshal(resources) // Plain data always encodes.
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
