// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

const (
	daemonPool     = "daemons"
	daemonNodes    = 10
	daemonCanaries = 2
	// daemonMost is how many pods may be replaced at once.
	daemonMost         = 3
	daemonStartSeconds = "0.3"
	daemonCanary       = time.Second
	// surging is the ExtendedDaemonSet that has maxSurge. The other one has maxUnavailable.
	surging = "surge"
)

// daemons are ExtendedDaemonSets on the same nodes, whose template changes as soon as the last one is everywhere.
type daemons struct {
	*harness
	sets []string
	// pools have so many nodes in all. Only those of daemonPool are made for the daemons.
	pools []string
	nodes int
	// images of each so far.
	images map[string][]string
}

const (
	makesPods       = "creating a pod"
	deletesPods     = "deleting a pod"
	patchesPods     = "patching a pod"
	makesRevisions  = "creating a revision"
	reportsState    = "writing the ExtendedDaemonSet's status"
	reportsRevision = "writing a revision's status"
)

func (d *daemons) name() string { return "ExtendedDaemonSet" }

// targets has no late write: a pod that a dead operator makes or deletes late is one too many, which no operator can prevent.
func (d *daemons) targets() []target {
	pods := []target{{name: makesPods, most: 8}, {name: deletesPods, most: 8}}
	return append(slices.Repeat(pods, 3), target{name: patchesPods, most: 3}, target{name: makesRevisions}, target{name: reportsState, most: 6},
		target{name: reportsState, most: 6}, target{name: reportsRevision, most: 6})
}

func (d *daemons) writeOf(r *http.Request, _ []byte) string {
	path, patches := r.URL.Path, r.Method == http.MethodPatch || r.Method == http.MethodPut
	switch {
	case strings.HasSuffix(path, "/eviction"):
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/pods"):
		return makesPods
	case r.Method == http.MethodDelete && strings.Contains(path, "/pods/"):
		return deletesPods
	case patches && strings.Contains(path, "/pods/"):
		return patchesPods
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/extendeddaemonsetreplicasets"):
		return makesRevisions
	case patches && strings.Contains(path, "/extendeddaemonsets/"):
		return reportsState
	case patches && strings.Contains(path, "/extendeddaemonsetreplicasets/"):
		return reportsRevision
	}
	return ""
}

func (d *daemons) prepare(ctx context.Context) {
	d.t.Helper()
	if slices.Contains(d.pools, daemonPool) {
		d.addNodes(ctx, daemonPool, d.nodes, nil, "")
	}
}

func (d *daemons) begin(ctx context.Context) {
	d.t.Helper()
	d.journal.follow(ctx, &edsv1.ExtendedDaemonSetList{}, d.namespace, nil)
	d.journal.follow(ctx, &edsv1.ExtendedDaemonSetReplicaSetList{}, d.namespace, nil)
	d.images = map[string][]string{}
	onPools := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: labelPool, Operator: corev1.NodeSelectorOpIn, Values: d.pools},
		}}},
	}}}
	for _, name := range d.sets {
		d.images[name] = []string{"example.com/" + name + ":v1"}
		rolling := edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
			SlowStartIntervalDuration: &metav1.Duration{Duration: time.Second}, SlowStartAdditiveIncrease: ptr.To(intstr.FromInt(d.nodes)),
			MaxUnavailable: ptr.To(intstr.FromInt32(daemonMost)),
		}
		if name == surging {
			rolling.MaxUnavailable, rolling.MaxSurge = nil, ptr.To(intstr.FromInt32(daemonMost))
		}
		d.create(ctx, &edsv1.ExtendedDaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name},
			Spec: edsv1.ExtendedDaemonSetSpec{
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{
						Labels: map[string]string{"app": name}, Annotations: map[string]string{"test.moult.dev/start-seconds": daemonStartSeconds},
					},
					Spec: corev1.PodSpec{
						Affinity:   onPools,
						Containers: []corev1.Container{{Name: "daemon", Image: d.images[name][0]}},
					},
				},
				Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
					RollingUpdate: rolling,
					Canary: &edsv1.ExtendedDaemonSetSpecStrategyCanary{
						Replicas: ptr.To(intstr.FromInt32(daemonCanaries)),
						Duration: &metav1.Duration{Duration: daemonCanary}, NoRestartsDuration: &metav1.Duration{Duration: daemonCanary},
					},
				},
			},
		})
	}
}

// missingOf says what is missing until the last image of a set is on each node, in the pods and in the status.
func (d *daemons) missingOf(name string) string {
	image, pods, ready := d.last(name), 0, 0
	d.journal.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			if p, ok := o.(*corev1.Pod); ok && p.Labels[edsv1.LabelName] == name {
				if pods++; serves(p) && imageOf(p.Spec) == image {
					ready++
				}
			}
		}
	})
	set := find[*edsv1.ExtendedDaemonSet](d.journal, name)
	if set == nil {
		return "there is no ExtendedDaemonSet " + name
	}
	is := &set.Status
	revision := find[*edsv1.ExtendedDaemonSetReplicaSet](d.journal, is.ActiveReplicaSet)
	counts := []int32{is.Desired, is.Current, is.Ready, is.Available, is.UpToDate}
	if pods == d.nodes && ready == d.nodes && is.ObservedGeneration == set.Generation && is.State == edsv1.StateRunning && is.Canary == nil &&
		revision != nil && imageOf(revision.Spec.Template.Spec) == image && !slices.ContainsFunc(counts, func(n int32) bool { return int(n) != d.nodes }) {
		return ""
	}
	return fmt.Sprintf("%s: %d pods, %d of it and ready; reported: %s, %d up to date, %d available, canary %+v",
		image, pods, ready, is.State, is.UpToDate, is.Available, is.Canary)
}

func (d *daemons) missing() (text string) {
	for name := range d.images {
		if missing := d.missingOf(name); missing != "" {
			text += missing + "; "
		}
	}
	return text
}

// ask asks for the next image of both.
func (d *daemons) ask(ctx context.Context) error {
	for name, images := range d.images {
		image := fmt.Sprintf("example.com/%s:v%d", name, len(images)+1)
		set := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := d.patch(ctx, set, `{"spec":{"template":{"spec":{"containers":[{"name":"daemon","image":%q}]}}}}`, image); err != nil {
			return err
		}
		d.images[name] = append(images, image)
	}
	return nil
}

// busy reports whether a node has not the image that is asked for.
func (d *daemons) busy(ctx context.Context) (bool, error) {
	var sets edsv1.ExtendedDaemonSetList
	var pods corev1.PodList
	if err := d.client.List(ctx, &sets, client.InNamespace(d.namespace)); err != nil {
		return false, err
	}
	if err := d.client.List(ctx, &pods, client.InNamespace(d.namespace)); err != nil {
		return false, err
	}
	for i := range sets.Items {
		done := 0
		for j := range pods.Items {
			if p := &pods.Items[j]; p.Labels[edsv1.LabelName] == sets.Items[i].Name && serves(p) && imageOf(p.Spec) == imageOf(sets.Items[i].Spec.Template.Spec) {
				done++
			}
		}
		if done < d.nodes {
			return true, nil
		}
	}
	return false, nil
}

func (d *daemons) invariants() (all []invariant) {
	for name := range d.images {
		all = append(all, newDaemonReplay(name, d.pools).invariants()...)
	}
	return all
}

func (d *daemons) last(name string) string { return d.images[name][len(d.images[name])-1] }

func (d *daemons) checkEnd(r *replay) {
	d.t.Helper()
	for name, images := range d.images {
		pods := map[string]int{}
		for _, o := range r.objects {
			if p, ok := o.(*corev1.Pod); ok && p.Labels[edsv1.LabelName] == name {
				pods[nodeOf(p)]++
				if _, canary := p.Labels[edsv1.LabelReplicaSetCanary]; canary || !serves(p) || imageOf(p.Spec) != d.last(name) {
					d.t.Errorf("at the end pod %s is of %s, serves %t, and is labelled as canary %t", p.Name, imageOf(p.Spec), serves(p), canary)
				}
			}
		}
		want := map[string]int{}
		for node, n := range r.nodes {
			if slices.Contains(d.pools, n.Labels[labelPool]) {
				want[node] = 1
			}
		}
		if diff := cmp.Diff(want, pods); diff != "" {
			d.t.Errorf("the pods of %s on each node at the end (-want +got)\n%s", name, diff)
		}
		d.t.Logf("ExtendedDaemonSet %s had %d templates", name, len(images))
	}
}

// daemonReplay is what there is of one ExtendedDaemonSet after each change.
type daemonReplay struct {
	name  string
	pools []string
	set   *edsv1.ExtendedDaemonSet
	// pods by node.
	pods map[string]map[string]*corev1.Pod
	// lost are nodes whose last available pod the update has deleted. Those that another rollout has claimed since hold no slot.
	lost, claimed sets.Set[string]
	// unready are nodes that once were not ready. A node may get another pod meanwhile.
	unready sets.Set[string]
	// actives are the active revisions so far, and canaries the nodes on which each was tried.
	actives  []string
	canaries map[string][]string
	// made are "node image" of the pods so far, and hashes the revisions by the hash of their template.
	made   sets.Set[string]
	hashes map[string]string
}

func newDaemonReplay(name string, pools []string) *daemonReplay {
	return &daemonReplay{
		name: name, pools: pools, pods: map[string]map[string]*corev1.Pod{}, canaries: map[string][]string{},
		lost: sets.New[string](), claimed: sets.New[string](), unready: sets.New[string](), made: sets.New[string](), hashes: map[string]string{},
	}
}

func (d *daemonReplay) invariants() []invariant {
	ofPods := func(name string, check func(old, p *corev1.Pod, deleted bool) string) invariant {
		return of(name, func(_ *replay, old, p *corev1.Pod, deleted bool) string {
			if p.Labels[edsv1.LabelName] != d.name {
				return ""
			}
			return check(old, p, deleted)
		})
	}
	most, doubles := daemonMost, 0
	if d.name == surging {
		most, doubles = 0, daemonMost
	}
	return []invariant{
		of("a revision is made once for a template, and goes only when it is not in use", d.revision),
		of("a canary keeps its nodes, and a revision is promoted once, when it is available there", d.promotion),
		ofPods("a node gets one pod for a template, and one of a canary only if it is among its nodes", func(old, p *corev1.Pod, deleted bool) string {
			if old != nil || deleted {
				return ""
			}
			key := nodeOf(p) + " " + imageOf(p.Spec)
			if d.made.Has(key) || nodeOf(p) == "" {
				return "it is another one for node and image " + key
			}
			d.made.Insert(key)
			return d.outsideCanary(revisionOf(p), nodeOf(p))
		}),
		ofPods("no more pods are unavailable because of the update than may be", func(old, p *corev1.Pod, deleted bool) string {
			node := nodeOf(p)
			had := old != nil && serves(old)
			d.keep(p, deleted)
			switch {
			case d.available(node, "") != nil:
				d.lost.Delete(node)
			case had && (p.DeletionTimestamp != nil || deleted) && !d.unready.Has(node) && !d.claimed.Has(node):
				d.lost.Insert(node)
				if c := d.set.Status.Canary; c != nil && !slices.Contains(c.Nodes, node) {
					return fmt.Sprintf("node %s lost its pod, and the canary is on %v", node, c.Nodes)
				}
			}
			if d.lost.Len() > most {
				return fmt.Sprintf("the nodes are %v, and %d may be", sets.List(d.lost), most)
			}
			return ""
		}),
		ofPods("no node has two pods, but for a surge", func(*corev1.Pod, *corev1.Pod, bool) string {
			var duplicates []string
			for node, pods := range d.pods {
				revisions := sets.New[string]()
				staying := 0
				for _, p := range pods {
					if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
						staying++
						revisions.Insert(revisionOf(p))
					}
				}
				if staying > 2 || staying != revisions.Len() {
					return fmt.Sprintf("node %s has %d pods of the revisions %v", node, staying, sets.List(revisions))
				}
				if staying == 2 && (d.name != surging || !d.unready.Has(node)) {
					duplicates = append(duplicates, node)
				}
			}
			if len(duplicates) > doubles {
				slices.Sort(duplicates)
				return fmt.Sprintf("the nodes are %v, and %d may have", duplicates, doubles)
			}
			return ""
		}),
		ofNodes("an ExtendedDaemonSet takes no node", func(r *replay, _, n *corev1.Node) string {
			if !slices.Contains(d.pools, n.Labels[labelPool]) {
				return ""
			}
			if !nodeReady(n) {
				d.unready.Insert(n.Name)
			}
			if d.claimed.Delete(n.Name); r.claims[n.Name].Rollout != "" {
				d.claimed.Insert(n.Name)
				d.lost.Delete(n.Name)
			}
			// Nodes of other pools are cordoned and claimed by other rollouts.
			if n.Labels[labelPool] == daemonPool && (n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "") ||
				strings.HasPrefix(r.claims[n.Name].Rollout, "ExtendedDaemonSet") {
				return "it is cordoned or claimed"
			}
			return ""
		}),
	}
}

func (d *daemonReplay) keep(p *corev1.Pod, deleted bool) {
	node := nodeOf(p)
	if d.pods[node] == nil {
		d.pods[node] = map[string]*corev1.Pod{}
	}
	if d.pods[node][p.Name] = p; deleted {
		delete(d.pods[node], p.Name)
	}
}

// available is a pod that serves on a node, of a revision if that is not empty.
func (d *daemonReplay) available(node, revision string) *corev1.Pod {
	for _, p := range d.pods[node] {
		if serves(p) && (revision == "" || revisionOf(p) == revision) {
			return p
		}
	}
	return nil
}

// outsideCanary says what is wrong with a pod of a revision on a node.
func (d *daemonReplay) outsideCanary(revision, node string) string {
	if d.set == nil || d.set.Status.ActiveReplicaSet == "" || d.set.Status.ActiveReplicaSet == revision {
		return ""
	}
	if c := d.set.Status.Canary; c == nil || c.ReplicaSet != revision || !slices.Contains(c.Nodes, node) {
		return fmt.Sprintf("it is one of %s on node %s, when %s is active and the canary is %+v", revision, node, d.set.Status.ActiveReplicaSet, c)
	}
	return ""
}

func (d *daemonReplay) revision(_ *replay, _, o *edsv1.ExtendedDaemonSetReplicaSet, deleted bool) string {
	if o.Labels[edsv1.LabelName] != d.name {
		return ""
	}
	if deleted {
		for node := range d.pods {
			if d.available(node, o.Name) != nil {
				return "it was deleted, and has a pod on node " + node
			}
		}
		if s := d.set; s.Status.ActiveReplicaSet == o.Name || s.Status.Canary != nil && s.Status.Canary.ReplicaSet == o.Name {
			return "it was deleted, and is in use"
		}
		return ""
	}
	hash := o.Annotations[edsv1.AnnotationTemplateHash]
	if other := d.hashes[hash]; hash == "" || other != "" && other != o.Name {
		return fmt.Sprintf("its hash is %q, and that of %q too", hash, other)
	}
	d.hashes[hash] = o.Name
	return ""
}

func (d *daemonReplay) promotion(_ *replay, old, o *edsv1.ExtendedDaemonSet, deleted bool) string {
	if o.Name != d.name {
		return ""
	}
	if d.set = o; deleted {
		return "it was deleted"
	}
	if c := o.Status.Canary; c != nil {
		nodes := slices.Sorted(slices.Values(c.Nodes))
		known := d.canaries[c.ReplicaSet]
		d.canaries[c.ReplicaSet] = nodes
		if len(known) > 0 && !slices.Equal(known, nodes) || len(nodes) > daemonCanaries {
			return fmt.Sprintf("the canary of %s was on %v, and now is on %v", c.ReplicaSet, known, nodes)
		}
	}
	active := o.Status.ActiveReplicaSet
	if len(d.actives) > 0 && d.actives[len(d.actives)-1] == active || active == "" && len(d.actives) == 0 {
		return ""
	}
	again := slices.Contains(d.actives, active) || active == ""
	d.actives = append(d.actives, active)
	switch {
	case again:
		return fmt.Sprintf("%q is active again, after %v", active, d.actives)
	case len(d.actives) == 1:
		return ""
	case old.Status.Canary == nil || old.Status.Canary.ReplicaSet != active || len(d.canaries[active]) != daemonCanaries:
		return fmt.Sprintf("%s was promoted, and the canary was %+v", active, old.Status.Canary)
	}
	for _, node := range d.canaries[active] {
		if d.available(node, active) == nil && !d.unready.Has(node) {
			return fmt.Sprintf("%s was promoted, and is not available on node %s", active, node)
		}
	}
	return ""
}

// serves reports whether a pod is ready, and stays.
func serves(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && podReady(p) }

func imageOf(s corev1.PodSpec) string { return s.Containers[0].Image }

func revisionOf(p *corev1.Pod) string { return p.Labels[edsv1.LabelReplicaSetName] }

// nodeOf is the node that a pod is on, or is meant for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
