// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/rollout"
)

// pass is one reconcile of a live ExtendedDaemonSet.
type pass struct {
	*Controller
	key types.NamespacedName
	// stored is as it was read, and eds a copy whose status is being made.
	stored, eds *edsv1.ExtendedDaemonSet
	spec        *edsv1.ExtendedDaemonSetSpec
	strategy    *edsv1.ExtendedDaemonSetSpecStrategy
	now, wake   time.Time
	cost        time.Duration
	// problem is what is wrong with the spec, or with the revision that it calls for, so that nothing is done.
	problem       error
	problemReason string

	// What the caches show. None of it is ever changed.
	fleet    fleet.Snapshot
	nodes    []*corev1.Node // by name
	sets     []*edsv1.ExtendedDaemonSetReplicaSet
	pods     []*corev1.Pod
	settings []*edsv1.ExtendedDaemonsetSetting
	migrates bool // pods of a DaemonSet are among them
	// kept are those of a DaemonSet that is still there.
	kept map[types.UID]bool

	// hash is the revision that is wanted, target its set, and active that of all nodes but the canary's.
	hash           string
	target, active *edsv1.ExtendedDaemonSetReplicaSet
	targetSite     *site
	// revisions has what is to be written of each set, by name.
	revisions map[string]*revision

	spots    []spot
	orphans  []*corev1.Pod // on no node that there is
	unplaced map[string]string
	canary   *trial
	memo     *memo

	limits   limits
	decision rollout.Decision
	// sawUnits are the units that the engine has decided about.
	sawUnits []rollout.Unit
	plan     actions
	deeds    deeds
	// slowed is that a request for a pod has taken its time, and failed.
	slowed atomic.Bool
	// misread says what of the strategy can't be understood, or "".
	misread string
}

// gather reads what the caches show.
func (p *pass) gather(ctx context.Context) error {
	var err error
	if p.fleet, err = p.Controller.fleet.Snapshot(ctx); err != nil {
		return err
	}
	p.memo = p.memos.of(p.key)
	p.nodes = p.memo.sorted(p.fleet)
	ours := []client.ListOption{client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy}
	var sets edsv1.ExtendedDaemonSetReplicaSetList
	if err := p.client.List(ctx, &sets, append(ours, client.MatchingLabels{edsv1.LabelName: p.key.Name})...); err != nil {
		return fmt.Errorf("listing revisions, %w", err)
	}
	for i := range sets.Items {
		if rs := &sets.Items[i]; rs.DeletionTimestamp == nil && owns(p.eds, rs) {
			p.sets = append(p.sets, rs)
		}
	}
	slices.SortFunc(p.sets, func(a, b *edsv1.ExtendedDaemonSetReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var pods corev1.PodList
	if err := p.Controller.pods.List(ctx, &pods, append(ours, client.MatchingFields{indexName: p.key.Name})...); err != nil {
		return fmt.Errorf("listing pods, %w", err)
	}
	p.pods = make([]*corev1.Pod, 0, len(pods.Items))
	for i := range pods.Items {
		if pod := &pods.Items[i]; p.isDaemon(pod) {
			p.pods = append(p.pods, pod)
		}
	}
	old, kept, err := p.legacy.pods(ctx, p.key, p.eds.Annotations[edsv1.AnnotationOldDaemonset], p.nodes, p.now)
	if err != nil {
		return err
	}
	p.kept = kept
	p.migrates = len(old) > 0
	p.pods = append(p.pods, old...)
	p.expected.observe(p.key, p.pods, p.now)
	var settings edsv1.ExtendedDaemonsetSettingList
	if err := p.client.List(ctx, &settings, ours...); err != nil {
		return fmt.Errorf("listing settings, %w", err)
	}
	p.heed(settings.Items)
	return nil
}

// heed finds the Settings that count. What their status says of that comes a moment later: by it, pods would be replaced twice when one
// goes that another was in conflict with.
func (p *pass) heed(settings []edsv1.ExtendedDaemonsetSetting) {
	verdicts := daemon.SettingsOf(settings, p.key.Name)
	if daemon.MayMeet(verdicts) {
		daemon.JudgeSettings(verdicts, func(yield func(map[string]string) bool) {
			for _, n := range p.nodes {
				if !yield(n.Labels) {
					return
				}
			}
		})
	}
	for i := range verdicts {
		if verdicts[i].Problem == "" {
			p.settings = append(p.settings, verdicts[i].Setting)
		}
	}
}

// owns reports whether a set is one of the ExtendedDaemonSet's, or is nobody's.
func owns(eds *edsv1.ExtendedDaemonSet, rs *edsv1.ExtendedDaemonSetReplicaSet) bool {
	owner := metav1.GetControllerOf(rs)
	return owner == nil || owner.UID == eds.UID
}

// isDaemon reports whether a pod with the ExtendedDaemonSet's label is its own: it was made for one of its revisions, or has
// nobody who looks after it.
func (p *pass) isDaemon(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return (owner == nil || owner.Kind == kindReplicaSet) && daemon.NodeOf(pod) != ""
}

const kindReplicaSet = "ExtendedDaemonSetReplicaSet"

// ofSet is the name of the revision that a pod was made for, or "".
func ofSet(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == kindReplicaSet {
		return owner.Name
	}
	return ""
}
