// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Overrides are what is said for the daemon's pod on one node only.
type Overrides struct {
	// Resources replace those of the template, by container.
	Resources map[string]corev1.ResourceRequirements
	// SettingName and SettingNamespace are of the ExtendedDaemonsetSetting that applies; "" when none does.
	SettingName, SettingNamespace string
	// NodeHash is the MD5 of the node's annotations for this daemon, as ExtendedDaemonSet computes it; "" when there are none.
	NodeHash string
	// Hash is of the Resources: equal amounts have the same, however they are written; "" when nothing is overridden.
	Hash string
}

// OverridesOf returns what applies to a node: the first of the Settings, as SettingsOf orders them, that selects it, and then the node's
// annotations, each of which replaces all that the Setting says of a container. The error is of annotations that are invalid. The
// others apply.
func OverridesOf(
	eds types.NamespacedName, containers []corev1.Container, n *corev1.Node, settings []SettingVerdict,
) (Overrides, error) {
	var o Overrides
	put := func(name string, r corev1.ResourceRequirements) {
		if o.Resources == nil {
			o.Resources = map[string]corev1.ResourceRequirements{}
		}
		o.Resources[name] = r
	}
	applies := func(s SettingVerdict) bool { return s.Problem == "" && s.selector.Matches(labels.Set(n.Labels)) }
	if i := slices.IndexFunc(settings, applies); i >= 0 {
		s := settings[i].Setting
		o.SettingName, o.SettingNamespace = s.Name, s.Namespace
		for _, c := range s.Spec.Containers {
			if slices.ContainsFunc(containers, func(of corev1.Container) bool { return of.Name == c.Name }) {
				put(c.Name, c.Resources)
			}
		}
	}
	var errs []error
	if keys := annotationsFor(eds, n); len(keys) > 0 {
		o.NodeHash = nodeHash(keys, n)
		for _, c := range containers {
			key := annotationPrefix(eds) + c.Name
			value, ok := n.Annotations[key]
			if !ok {
				continue
			}
			var r corev1.ResourceRequirements
			if err := json.Unmarshal([]byte(value), &r); err != nil {
				errs = append(errs, fmt.Errorf("reading annotation %s of node %s, %w", key, n.Name, err))
				continue
			}
			put(c.Name, r)
		}
	}
	o.Hash = overridesHash(o.Resources)
	return o, errors.Join(errs...)
}

func annotationPrefix(eds types.NamespacedName) string {
	return edsv1.AnnotationResourcesPrefix + eds.Namespace + "." + eds.Name + "."
}

// annotationsFor are the keys of the annotations for a daemon.
func annotationsFor(eds types.NamespacedName, n *corev1.Node) []string {
	var keys []string
	for key := range n.Annotations {
		// Most nodes have none: look closely only where there is one for any daemon.
		if strings.HasPrefix(key, edsv1.AnnotationResourcesPrefix) && strings.HasPrefix(key, annotationPrefix(eds)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// nodeHash is over what is written, sorted by key and value together.
func nodeHash(keys []string, n *corev1.Node) string {
	pairs := make([]string, 0, len(keys))
	for _, key := range keys {
		pairs = append(pairs, key+"="+n.Annotations[key])
	}
	slices.Sort(pairs)
	sum := md5.Sum([]byte(strings.Join(pairs, "")))
	return hex.EncodeToString(sum[:])
}

// overridesHash is short, and fit for an annotation.
func overridesHash(all map[string]corev1.ResourceRequirements) string {
	if len(all) == 0 {
		return ""
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		text.WriteString(name + "\n")
		writeList(&text, "limits", r.Limits)
		writeList(&text, "requests", r.Requests)
		for _, c := range r.Claims {
			text.WriteString("claim " + c.Name + " " + c.Request + "\n")
		}
	}
	sum := sha256.Sum256(text.Bytes())
	return hex.EncodeToString(sum[:8])
}

func writeList(text *bytes.Buffer, kind string, list corev1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name].DeepCopy()
		q.Format = resource.DecimalSI // 1Gi and 1073741824 are the same.
		number, suffix := q.CanonicalizeBytes(nil)
		fmt.Fprintf(text, "%s %s %s%s\n", kind, name, number, suffix)
	}
}
