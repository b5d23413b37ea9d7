// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// DefaultRebootTimeout of spec.hostUpdate.rebootTimeout.
const DefaultRebootTimeout = 15 * time.Minute

// World is the input for judging the turns of one NodeRollout. NewWorld fills it from the spec. The caller sets Fleet, OwnNode and Now,
// and may set Pods.
type World struct {
	Rollout *v1alpha1.NodeRollout
	Fleet   rollout.Fleet
	// OwnNode is the node that the operator runs on.
	OwnNode string
	Now     time.Time
	// Pods returns the pods of a turn's node, and false while they are not known. By default no pods are known.
	Pods func(*Unit) ([]corev1.Pod, bool)

	// Holder is the rollout's name in claims.
	Holder string
	// Ready is false while the spec can't be read. Turns then do not change.
	Ready    bool
	Selector labels.Selector
	Host     v1alpha1.HostUpdate
	// Drains is false if nodes are only cordoned. Exclude is true if nodes are excluded from load balancers. wait is the time for that.
	Drains, Exclude bool
	wait            time.Duration
	rebootTimeout   time.Duration
	// Taint is the key of the taint of outdated nodes.
	Taint string
	// digest identifies the part of the spec whose change makes a new attempt.
	digest string

	// Units sets these from all hosts. Unlabelled are the selected nodes without a label that names their host's interface.
	Revision   string
	Releases   []v1alpha1.HostRelease
	Versions   []v1alpha1.HostVersion
	Unlabelled []string
	// failing are the nodes of updated hosts whose agents fail to look for updates.
	failing []string
	// RolledBack is the version from which hosts are brought back; "" without a rollback.
	RolledBack string
	// newest is the release that was discovered last, at newestSince.
	newest      string
	newestSince time.Time
	// healthy is the fleet with one more budget: spec.health.
	healthy rollout.Fleet
}

// Note says of which updated hosts it is not known whether they should be updated; "" if of none.
func (w *World) Note() string {
	if len(w.failing) == 0 {
		return ""
	}
	return fmt.Sprintf("agents of updated hosts can't look for updates: %d, such as that of %s", len(w.failing), w.failing[0])
}

// HolderOf is the name of a NodeRollout in claims.
func HolderOf(name string) string { return "NodeRollout/" + name }

// NewWorld reads a NodeRollout. The error says why its spec can't be carried out. malformed is the error of decoding it, or nil.
func NewWorld(r *v1alpha1.NodeRollout, malformed error) (*World, error) {
	w := &World{
		Rollout: r, Holder: HolderOf(r.Name), Taint: v1alpha1.TaintOutdated("noderollout", r.Name), Selector: labels.Nothing(), Revision: r.Status.Revision,
		Pods: func(*Unit) ([]corev1.Pod, bool) { return nil, false },
	}
	if malformed != nil {
		return w, malformed
	}
	if err := w.parse(); err != nil {
		return w, err
	}
	w.Ready = true
	if s := rollout.New(r.Spec.Strategy, 0, 1); s.Problem() != "" {
		return w, errors.New(s.Problem()) // Nothing new is started. Turns in progress do not need the strategy.
	}
	return w, nil
}

func (w *World) parse() (err error) {
	spec := &w.Rollout.Spec
	if spec.HostUpdate == nil {
		return errors.New("spec.hostUpdate must be given: {} brings hosts to the newest version that they have to offer")
	}
	w.Host = *spec.HostUpdate
	w.rebootTimeout = ptr.Deref(w.Host.RebootTimeout, metav1.Duration{Duration: DefaultRebootTimeout}).Duration
	attempted := w.Host
	attempted.LabelNodes = false // This field does not affect turns.
	w.digest = nodeturn.Digest(attempted, spec.Drain, spec.Health, w.Rollout.Annotations[v1alpha1.AnnotationRetry])
	w.Drains = spec.Drain == nil || !spec.Drain.Disabled
	exclusion := ptr.Deref(w.Host.ExcludeFromLoadBalancers, v1alpha1.LoadBalancerExclusion{})
	if w.Exclude = !exclusion.Disabled; w.Exclude {
		w.wait = ptr.Deref(exclusion.Wait, metav1.Duration{}).Duration
	}
	w.Selector, err = nodeturn.NodeSelector(spec)
	return err
}

// attempt identifies what a turn on this node is started for. A failed turn is tried again when attempt changes: with another version, or
// revision if versions have no name, after a change of hostUpdate, drain or health in the spec, or when a person asks for a retry.
func (w *World) attempt(n *corev1.Node, version string) string {
	return nodeturn.Digest(w.digest, cmp.Or(version, w.Revision), n.Annotations[v1alpha1.AnnotationRetry])
}

// Hooks returns the hooks that turns wait for before and after the reboot.
func (w *World) Hooks() v1alpha1.RebootHooks { return ptr.Deref(w.Host.Hooks, v1alpha1.RebootHooks{}) }

// CompareVersions compares semantic versions. It is negative if a is older than b, positive if a is newer, and 0 if they are the same. A leading
// v is ignored. A version that can't be parsed is older than any other.
func CompareVersions(a, b string) int {
	if a == b {
		return 0
	}
	switch x, y := parse(a), parse(b); {
	case x == nil && y == nil:
		return strings.Compare(a, b)
	case x == nil || y != nil && x.LessThan(y):
		return -1
	case y == nil || y.LessThan(x):
		return 1
	}
	return 0
}

// parse reads a semantic version; nil if the text is none.
func parse(text string) *version.Version {
	v, _ := version.ParseSemantic(strings.TrimPrefix(text, "v"))
	return v
}

// sameVersion reports whether two versions are known and the same.
func sameVersion(a, b string) bool { return a != "" && b != "" && CompareVersions(a, b) == 0 }

// oldestUpdateAPI is the first version of Bottlerocket whose Update API is complete.
const oldestUpdateAPI = "0.4.1"

// InterfaceLabel returns the label for the interface of a Node's host, by the OS image that the kubelet reports. It returns false if the
// Node already has such a label, and for hosts that are neither Bottlerocket nor Thar.
func InterfaceLabel(n *corev1.Node) (key, value string, ok bool) {
	if _, _, labelled := v1alpha1.HostProtocolOf(n.Labels); labelled {
		return "", "", false
	}
	image := n.Status.NodeInfo.OSImage
	switch version := versionOf(image); {
	case version != "" && CompareVersions(version, oldestUpdateAPI) < 0:
		return v1alpha1.HostProtocols[0].InterfaceLabel, v1alpha1.InterfaceUpdog, true
	case version != "":
		return v1alpha1.HostProtocols[0].InterfaceLabel, v1alpha1.InterfaceUpdateAPI, true
	case strings.HasPrefix(image, "Thar, ") || strings.HasPrefix(image, "Thar "):
		return v1alpha1.HostProtocols[1].InterfaceLabel, v1alpha1.InterfaceUpdog, true
	}
	return "", "", false
}
