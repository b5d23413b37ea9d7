// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What kubeadm keeps of a cluster, and where.
const (
	kubeadmConfig        = "kubeadm-config"
	clusterConfiguration = "ClusterConfiguration"
	clusterStatus        = "ClusterStatus"
	kubernetesVersion    = "kubernetesVersion"
	apiEndpoints         = "apiEndpoints"
)

// errInPlace is said of YAML that is written in a way that a value can't be changed in without changing more.
var errInPlace = errors.New("it is written in a way that can't be changed in place")

// editKubeadm changes the text below a key of ConfigMap kubeadm-config, if that is there, with a precondition on what was read.
func (p *Plane) editKubeadm(ctx context.Context, key string, edit func(text string) (string, error)) (changed bool, err error) {
	cm, err := p.readKubeadm(ctx)
	if err != nil {
		return false, err
	}
	before := cm.DeepCopy()
	if changed, err = editIn(cm, key, edit); err != nil || !changed {
		return false, err
	}
	if err := p.client.Patch(ctx, cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("writing %s of ConfigMap %s/%s, %w", key, cm.Namespace, cm.Name, err)
	}
	return true, nil
}

// readKubeadm reads ConfigMap kubeadm-config. There is nothing in it where it is not there.
func (p *Plane) readKubeadm(ctx context.Context) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: kubeadmConfig}}
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(cm), cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s, %w", cm.Namespace, cm.Name, err)
	}
	return cm, nil
}

// editIn changes the text below a key of a ConfigMap, if that is there, and writes nothing.
func editIn(cm *corev1.ConfigMap, key string, edit func(text string) (string, error)) (changed bool, err error) {
	text, ok := cm.Data[key]
	if !ok {
		return false, nil
	}
	edited, err := edit(text)
	if err != nil {
		return false, fmt.Errorf("changing %s of ConfigMap %s/%s, %w", key, metav1.NamespaceSystem, kubeadmConfig, err)
	}
	cm.Data[key] = edited
	return edited != text, nil
}

// withVersion is a ClusterConfiguration with another Kubernetes version, and not one byte changed beside. It is the same text when that is its
// version already, with or without a v, or a newer one that may not become older, or when it names none.
func withVersion(text, to string, older bool) (string, error) {
	if !version.MatchString(to) {
		return "", fmt.Errorf("%q is no version of Kubernetes", to)
	}
	doc, top, err := parse(text)
	if err != nil || top == nil {
		return text, err
	}
	_, value := entry(top, kubernetesVersion)
	if value < 0 {
		return text, nil
	}
	v := top.Content[value]
	if v.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("%s in line %d is no text", kubernetesVersion, v.Line)
	}
	if bare(v.Value) == bare(to) || !older && Newer(v.Value, to) {
		return text, nil
	}
	edited, err := spliced(text, v, "v"+bare(to))
	if err != nil {
		return "", fmt.Errorf("%s in line %d: %w", kubernetesVersion, v.Line, err)
	}
	v.Value, v.Tag = "v"+bare(to), "!!str"
	return edited, confirm(edited, doc)
}

// Newer reports whether one version is newer than another; one that is no version is not.
func Newer(one, other string) bool {
	a, err := utilversion.ParseSemantic(bare(one))
	if err != nil {
		return false
	}
	b, err := utilversion.ParseSemantic(bare(other))
	return err == nil && b.LessThan(a)
}

// withoutEndpoint is a ClusterStatus without a node's API endpoint, and not one byte changed beside if it is written as kubeadm does. It is
// the same text when the node is not in it.
func withoutEndpoint(text, node string) (string, error) {
	doc, top, err := parse(text)
	if err != nil || top == nil {
		return text, err
	}
	key, at := entry(top, apiEndpoints)
	if at < 0 || top.Content[at].Kind != yaml.MappingNode {
		return text, nil
	}
	endpoints := top.Content[at]
	own, _ := entry(endpoints, node)
	if own < 0 {
		return text, nil
	}
	edited, ok := cut(text, endpoints.Content[own], endpoints.Content[own+1])
	endpoints.Content = append(endpoints.Content[:own:own], endpoints.Content[own+2:]...)
	if ok && len(endpoints.Content) == 0 {
		edited, ok = emptied(edited, top.Content[key])
	}
	if ok && confirm(edited, doc) == nil {
		return edited, nil
	}
	// Not as kubeadm writes it: what it says is kept, and how it is set out is not.
	again, err := yaml.Marshal(doc)
	if err != nil {
		return "", err
	}
	return string(again), confirm(string(again), doc)
}

// parse reads YAML. There is no mapping when there is no text.
func parse(text string) (doc, top *yaml.Node, err error) {
	doc = &yaml.Node{}
	if err := yaml.Unmarshal([]byte(text), doc); err != nil {
		return nil, nil, err
	}
	if doc.Kind == 0 {
		return doc, nil, nil
	}
	top = doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, nil, errors.New("it is no mapping")
	}
	return doc, top, nil
}

// entry is where the key and the value of an entry of a mapping stand in its content, -1 if it has none.
func entry(mapping *yaml.Node, name string) (key, value int) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return i, i + 1
		}
	}
	return -1, -1
}

// confirm checks that a text says what a document does.
func confirm(text string, want *yaml.Node) error {
	got, _, err := parse(text)
	if err == nil && !alike(got, want) {
		err = errInPlace
	}
	return err
}

// alike reports whether two nodes say the same, however they are written.
func alike(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.ShortTag() != b.ShortTag() || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !alike(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// spliced is the text with another value in place of a scalar, in the same quotes.
func spliced(text string, n *yaml.Node, value string) (string, error) {
	at, ok := offset(text, n)
	if !ok {
		return "", errInPlace
	}
	quote := ""
	switch n.Style {
	case 0:
	case yaml.SingleQuotedStyle:
		quote = "'"
	case yaml.DoubleQuotedStyle:
		quote = `"`
	default:
		return "", errInPlace
	}
	old := quote + n.Value + quote
	if n.Value == "" || !strings.HasPrefix(text[at:], old) {
		return "", errInPlace
	}
	return text[:at] + quote + value + quote + text[at+len(old):], nil
}

// offset is where in the text a node begins.
func offset(text string, n *yaml.Node) (int, bool) {
	at := 0
	for range n.Line - 1 {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			return 0, false
		}
		at += end + 1
	}
	column := 1
	for i := range text[at:] {
		if column == n.Column {
			return at + i, true
		}
		column++
	}
	return 0, false
}

// cut is the text without the lines of an entry of a mapping in block style: that of its key, and those below it that are further in.
func cut(text string, key, value *yaml.Node) (string, bool) {
	if value.Kind == yaml.SequenceNode {
		return "", false // It need not be further in.
	}
	lines := strings.SplitAfter(text, "\n")
	first := key.Line - 1
	if first >= len(lines) || strings.TrimLeft(lines[first][:min(key.Column-1, len(lines[first]))], " ") != "" {
		return "", false
	}
	end := first + 1
	for i := end; i < len(lines); i++ {
		content := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(content) == "" || content[0] == '#' {
			continue
		}
		if len(lines[i])-len(content) < key.Column {
			break
		}
		end = i + 1
	}
	return strings.Join(lines[:first], "") + strings.Join(lines[end:], ""), true
}

// emptied is the text with {} after a key that nothing is left below.
func emptied(text string, key *yaml.Node) (string, bool) {
	at, ok := offset(text, key)
	if !ok || !strings.HasPrefix(text[at:], key.Value+":") {
		return "", false
	}
	at += len(key.Value) + 1
	return text[:at] + " {}" + text[at:], true
}
