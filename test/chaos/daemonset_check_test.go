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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// check looks at all that has happened, and at how things are at the end. looked is when the last operator was started.
func (d *daemonChaos) check(ctx context.Context, looked time.Time) {
	d.t.Helper()
	now := d.objects(ctx, daemonNamespace,
		&corev1.PodList{}, &edsv1.ExtendedDaemonSetList{}, &edsv1.ExtendedDaemonSetReplicaSetList{})
	d.until(ctx, "the journal is up to date", func() (bool, error) { return d.journal.has(now) })
	r := newDaemonReplay(d)
	for _, e := range d.journal.inOrder() {
		r.next(e)
	}
	r.end(d.images)
	d.checkAudit(r, looked)
	d.t.Logf("%d templates, %d outages; at most %d nodes were without an available pod, %d of them because of the update, and at most %d had two pods",
		len(d.images), d.outages.count, r.mostLost, r.mostUpdated, r.mostDoubled)
	for _, text := range r.excused {
		d.t.Logf("what a dead operator had sent arrived late: %s", text)
	}
}

// checkAudit compares what the API server says was made with what the journal has seen, and looks whether an operator that
// finds all done writes anything.
func (d *daemonChaos) checkAudit(r *daemonReplay, looked time.Time) {
	d.t.Helper()
	log, err := audit.Open(d.cluster.AuditLog())
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	accepted, refused, idle := map[string]int{}, map[string]int{}, map[string]int{}
	err = log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
		what := e.Verb + " " + e.Resource()
		switch e.Response.Code {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity:
			d.t.Errorf("the API server has refused %s %s: %d", what, e.Object.Name, e.Response.Code)
		}
		if reads(e) {
			return
		}
		if e.Refused() {
			refused[fmt.Sprintf("%s: %d", what, e.Response.Code)]++
			return
		}
		accepted[what]++
		if e.Received.After(looked) {
			idle[what+" "+e.Object.Name]++
		}
	})
	if err != nil {
		d.t.Fatal(err)
	}
	// An answer that nobody was there to hear is logged as refused.
	if n := accepted["create pods"]; n > r.pods {
		d.t.Errorf("the API server has made %d pods, and the journal has seen %d", n, r.pods)
	}
	if len(idle) > 0 {
		d.t.Errorf("an operator that found all done has written %v", idle)
	}
	d.t.Logf("what the operators have written: %v; what the API server has refused: %v", accepted, refused)
}

// reads reports whether a request changes nothing of a rollout.
func reads(e *audit.Event) bool {
	switch e.Verb {
	case "get", "list", "watch":
		return true
	}
	switch e.Object.Resource {
	case "events", "leases", "customresourcedefinitions", "subjectaccessreviews", "selfsubjectaccessreviews":
		return true
	}
	return false
}

// cause is why a node is without an available pod.
type cause string

const (
	// atFirst it has not had one yet.
	atFirst cause = "at first"
	// byUpdate the operator has deleted it.
	byUpdate cause = "by the update"
	// byItself the node was not ready, and its pod not since.
	byItself cause = "by itself"
)

// daemonNode is a node with its pods.
type daemonNode struct {
	ready bool
	// disturbed is true from when the node is not ready until it is, and has an available pod.
	disturbed bool
	pods      map[string]*corev1.Pod
	// had are the pods that were ready once.
	had map[string]bool
	// delayed is true from when the node was disturbed with two pods on it until there is one again.
	delayed bool
	// lost is why there is no available pod; empty when there is one. late is true where a dead operator has deleted it.
	lost cause
	late bool
}

// available is a pod that is, of a revision if that is not empty.
func (n *daemonNode) available(revision string) *corev1.Pod {
	for _, p := range n.pods {
		if serves(p) && (revision == "" || revisionOf(p) == revision) {
			return p
		}
	}
	return nil
}

// staying are the pods that are not on their way out.
func (n *daemonNode) staying() (pods []*corev1.Pod) {
	for _, p := range n.pods {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, p)
		}
	}
	return pods
}

// daemonReplay goes through the journal and checks what has to hold after every single change.
type daemonReplay struct {
	faults
	surge bool
	nodes map[string]*daemonNode
	set   *edsv1.ExtendedDaemonSet
	// revisions by name, and their names by the hash of the template.
	revisions map[string]*edsv1.ExtendedDaemonSetReplicaSet
	hashes    map[string]string
	// actives are the active revisions so far, and canaries the nodes that each revision was tried on.
	actives  []string
	canaries map[string][]string
	// made counts "node image": how many pods there were.
	made map[string]int
	// lateMade and lateDeleted are the pods that a dead operator has made and deleted, and excused is what came of it.
	lateMade, lateDeleted map[types.UID]bool
	excused               []string

	pods, mostLost, mostUpdated, mostDoubled int
}

func newDaemonReplay(d *daemonChaos) *daemonReplay {
	r := &daemonReplay{
		faults: newFaults(d.t), surge: d.surge,
		nodes: map[string]*daemonNode{}, revisions: map[string]*edsv1.ExtendedDaemonSetReplicaSet{}, hashes: map[string]string{},
		canaries: map[string][]string{}, made: map[string]int{}, lateMade: map[types.UID]bool{}, lateDeleted: map[types.UID]bool{},
	}
	for _, w := range d.gate.lateWrites() {
		of := map[string]map[types.UID]bool{http.MethodPost: r.lateMade, http.MethodDelete: r.lateDeleted}[w.method]
		if of == nil || !strings.Contains(w.path, "/pods") || w.code < http.StatusOK || w.code >= http.StatusBadRequest {
			continue
		}
		o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(w.object, nil, nil)
		if err != nil {
			d.t.Fatalf("reading what was written late, %v", err)
		}
		switch o := o.(type) {
		case *corev1.Pod:
			of[o.UID] = true
		case *metav1.Status:
			if o.Details != nil {
				of[o.Details.UID] = true
			}
		}
	}
	return r
}

// excuse takes note of what a late write has brought about, which no operator can prevent, only repair.
func (r *daemonReplay) excuse(e entry, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if what := fmt.Sprintf("at revision %d, %s: %s", e.revision, e.object.GetName(), text); !r.wrong[text] {
		r.excused = append(r.excused, what)
	}
	r.wrong[text] = true
}

func (r *daemonReplay) next(e entry) {
	r.t.Helper()
	switch o := e.object.(type) {
	case *corev1.Node:
		r.node(e, o)
	case *corev1.Pod:
		r.pod(e, o)
	case *edsv1.ExtendedDaemonSetReplicaSet:
		r.revision(e, o)
	case *edsv1.ExtendedDaemonSet:
		r.daemonSet(e, o)
	}
}

func (r *daemonReplay) nodeOf(name string) *daemonNode {
	n, ok := r.nodes[name]
	if !ok {
		n = &daemonNode{ready: true, pods: map[string]*corev1.Pod{}, had: map[string]bool{}, lost: atFirst}
		r.nodes[name] = n
	}
	return n
}

func (r *daemonReplay) node(e entry, o *corev1.Node) {
	r.t.Helper()
	if e.deleted {
		r.errorf(e, "it was deleted")
		return
	}
	n := r.nodeOf(o.Name)
	n.ready = nodeReady(o)
	switch {
	case !n.ready:
		n.disturbed = true
		if n.lost != "" {
			n.lost = byItself
		}
	case n.lost == "":
		n.disturbed = false
	}
	if o.Spec.Unschedulable || o.Annotations["moult.dev/claims"] != "" {
		r.errorf(e, "the rollout has taken the node")
	}
}

// revision checks that there is one for each template, and that none goes that is needed.
func (r *daemonReplay) revision(e entry, o *edsv1.ExtendedDaemonSetReplicaSet) {
	r.t.Helper()
	if e.deleted {
		for name, n := range r.nodes {
			for _, p := range n.pods {
				if revisionOf(p) == o.Name {
					r.errorf(e, "it was deleted, and pod %s on node %s is one of it", p.Name, name)
				}
			}
		}
		if s := r.set; s != nil && (s.Status.ActiveReplicaSet == o.Name || s.Status.Canary != nil && s.Status.Canary.ReplicaSet == o.Name) {
			r.errorf(e, "it was deleted, and is in use")
		}
		delete(r.revisions, o.Name)
		return
	}
	hash := o.Annotations[edsv1.AnnotationTemplateHash]
	if hash == "" || hash != o.Spec.TemplateGeneration {
		r.errorf(e, "its hashes are %q and %q", hash, o.Spec.TemplateGeneration)
	}
	if other, ok := r.hashes[hash]; ok && other != o.Name {
		r.errorf(e, "it is another one of the same template, besides %s", other)
	}
	r.hashes[hash] = o.Name
	r.revisions[o.Name] = o
}

// daemonSet checks which nodes the canary is on, and that revisions become active one after the other, each after its canary.
func (r *daemonReplay) daemonSet(e entry, o *edsv1.ExtendedDaemonSet) {
	r.t.Helper()
	if e.deleted {
		r.errorf(e, "it was deleted")
		return
	}
	old := r.set
	r.set = o
	if c := o.Status.Canary; c != nil {
		nodes := slices.Sorted(slices.Values(c.Nodes))
		if known, ok := r.canaries[c.ReplicaSet]; ok && !slices.Equal(known, nodes) && len(known) > 0 {
			r.errorf(e, "the canary of %s was on %v, and now is on %v", c.ReplicaSet, known, nodes)
		}
		if len(nodes) > daemonCanaries {
			r.errorf(e, "the canary is on %v", nodes)
		}
		r.canaries[c.ReplicaSet] = nodes
	}
	active := o.Status.ActiveReplicaSet
	if len(r.actives) > 0 && r.actives[len(r.actives)-1] == active || active == "" && len(r.actives) == 0 {
		return
	}
	if slices.Contains(r.actives, active) || active == "" {
		r.errorf(e, "%q is active again, after %v", active, r.actives)
	}
	r.actives = append(r.actives, active)
	if len(r.actives) == 1 {
		return
	}
	if old.Status.Canary == nil || old.Status.Canary.ReplicaSet != active {
		r.errorf(e, "%s was promoted, and was no canary: %+v", active, old.Status.Canary)
		return
	}
	if len(r.canaries[active]) != daemonCanaries {
		r.errorf(e, "%s was promoted, and was on %v", active, r.canaries[active])
	}
	for _, name := range r.canaries[active] {
		if n := r.nodeOf(name); n.available(active) == nil && n.lost != byItself {
			r.errorf(e, "%s was promoted, and is not available on node %s", active, name)
		}
	}
}

func (r *daemonReplay) pod(e entry, p *corev1.Pod) {
	r.t.Helper()
	name := boundTo(p)
	if name == "" {
		r.errorf(e, "it is meant for no node")
		return
	}
	n := r.nodeOf(name)
	was, old := n.available("") != nil, n.pods[p.Name]
	if e.deleted {
		delete(n.pods, p.Name)
		delete(n.had, p.Name)
	} else {
		n.pods[p.Name] = p
	}
	if podReady(p) && !e.deleted {
		n.had[p.Name] = true
	}
	if old == nil && !e.deleted {
		r.born(e, p, name)
	}
	switch is := n.available("") != nil; {
	case is:
		n.lost = ""
		if n.ready {
			n.disturbed = false
		}
	case was:
		n.lost, n.late = r.why(n, p), r.lateDeleted[p.UID]
		r.mayLose(e, p, name)
	}
	r.count(e)
}

// why says why a node lost its last available pod by this change of one.
func (r *daemonReplay) why(n *daemonNode, p *corev1.Pod) cause {
	if n.disturbed || p.DeletionTimestamp == nil {
		return byItself
	}
	for _, other := range n.staying() {
		if n.had[other.Name] {
			return byItself // It was available, and is not by itself.
		}
	}
	return byUpdate
}

// born checks a new pod: who has made it, and that a canary's is on a node of the canary.
func (r *daemonReplay) born(e entry, p *corev1.Pod, name string) {
	r.t.Helper()
	r.pods++
	revision := revisionOf(p)
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Name != revision || p.Labels[edsv1.LabelName] != daemonSetName {
		r.errorf(e, "it was made by %+v and has the labels %v", owner, p.Labels)
	}
	rs := r.revisions[revision]
	if rs == nil {
		r.errorf(e, "its revision is %q, and there is none", revision)
		return
	}
	strays := false
	if s := r.set; s != nil && s.Status.ActiveReplicaSet != "" && s.Status.ActiveReplicaSet != revision {
		c := s.Status.Canary
		strays = c == nil || c.ReplicaSet != revision || !slices.Contains(c.Nodes, name)
	}
	key := name + " " + rs.Spec.Template.Spec.Containers[0].Image
	if r.lateMade[p.UID] && (strays || r.made[key] > 0) {
		r.excuse(e, "made for node %s", name)
		return
	}
	r.made[key]++
	if strays {
		r.errorf(e, "it is one of %s on node %s, when %s is active and the canary %+v", revision, name, r.set.Status.ActiveReplicaSet, r.set.Status.Canary)
	}
}

// mayLose checks whether the update may take a node's available pod.
func (r *daemonReplay) mayLose(e entry, p *corev1.Pod, name string) {
	r.t.Helper()
	if r.nodes[name].lost != byUpdate || r.set == nil {
		return
	}
	if c := r.set.Status.Canary; c != nil && !slices.Contains(c.Nodes, name) {
		if r.lateDeleted[p.UID] {
			r.excuse(e, "deleted on node %s", name)
			return
		}
		r.errorf(e, "it was deleted on node %s, and the canary is on %v", name, c.Nodes)
	}
}

// count checks how many nodes are without an available pod now, and how many have two pods.
func (r *daemonReplay) count(e entry) {
	r.t.Helper()
	lost, updated, lates, doubled, lateDoubled := 0, []string(nil), 0, []string(nil), 0
	for name, n := range r.nodes {
		if n.lost != "" && n.lost != atFirst {
			lost++
		}
		if n.lost == byUpdate {
			updated = append(updated, name)
			if n.late {
				lates++
			}
		}
		pods := n.staying()
		if len(pods) > 1 {
			r.twoPods(e, name, pods)
		}
		// Who waits for a node that is not ready may start another one meanwhile.
		if n.delayed = len(pods) > 1 && (n.delayed || n.disturbed); len(pods) > 1 && !n.delayed {
			doubled = append(doubled, name)
			if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return r.lateMade[p.UID] }) {
				lateDoubled++
			}
		}
	}
	r.mostLost, r.mostUpdated, r.mostDoubled = max(r.mostLost, lost), max(r.mostUpdated, len(updated)), max(r.mostDoubled, len(doubled))
	limit, doubles := daemonTenth, 0
	if r.surge {
		limit, doubles = 0, daemonTenth
	}
	if len(updated) > limit {
		slices.Sort(updated)
		if len(updated)-lates <= limit {
			r.excuse(e, "%d nodes are without an available pod because of the update", len(updated))
		} else {
			r.errorf(e, "%d nodes are without an available pod because of the update, and only %d may be: %v", len(updated), limit, updated)
		}
	}
	if r.surge && len(doubled) > doubles {
		slices.Sort(doubled)
		if len(doubled)-lateDoubled <= doubles {
			r.excuse(e, "%d nodes have two pods", len(doubled))
		} else {
			r.errorf(e, "%d nodes have two pods, and only %d may: %v", len(doubled), doubles, doubled)
		}
	}
}

// twoPods checks whether a node may have these.
func (r *daemonReplay) twoPods(e entry, name string, pods []*corev1.Pod) {
	r.t.Helper()
	if r.surge && len(pods) == 2 && revisionOf(pods[0]) != revisionOf(pods[1]) {
		return
	}
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	// One of another revision may have taken the place of what comes late, but not another one of the same.
	revisions := sets.New[string]()
	for _, p := range pods {
		revisions.Insert(revisionOf(p))
	}
	if revisions.Len() == len(pods) && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return r.lateMade[p.UID] }) {
		r.excuse(e, "node %s has the pods %v", name, names)
		return
	}
	r.errorf(e, "node %s has the pods %v", name, names)
}

// end checks what must be true at the end.
func (r *daemonReplay) end(images []string) {
	r.t.Helper()
	want := map[string]int{}
	last := ""
	if len(r.actives) > 0 {
		last = r.actives[len(r.actives)-1]
	}
	for name, n := range r.nodes {
		for _, image := range images {
			want[name+" "+image] = 1
		}
		pods := podsOf(n)
		if len(pods) != 1 || !serves(pods[0]) || revisionOf(pods[0]) != last || pods[0].Spec.Containers[0].Image != images[len(images)-1] {
			r.t.Errorf("node %s has at the end %s", name, describe(pods))
			continue
		}
		if _, ok := pods[0].Labels[edsv1.LabelReplicaSetCanary]; ok {
			r.t.Errorf("pod %s on node %s is still labelled as a canary", pods[0].Name, name)
		}
	}
	if len(r.nodes) != daemonNodes {
		r.t.Errorf("the journal knows %d nodes", len(r.nodes))
	}
	if diff := cmp.Diff(want, r.made); diff != "" {
		r.t.Errorf("how many pods there were for each node and template (-want +got)\n%s", diff)
	}
	var got []string
	for _, name := range r.actives {
		if rs := r.revisions[name]; rs != nil {
			got = append(got, rs.Spec.Template.Spec.Containers[0].Image)
		}
	}
	// Those without pods are kept up to the history's limit, which is 10 and the active one.
	if kept := min(len(images), 11); !slices.Equal(got, images[len(images)-kept:]) {
		r.t.Errorf("the revisions that were active, as far as they are kept, are of %v, and asked for was %v", got, images)
	}
	for name, rs := range r.revisions {
		status, current := edsv1.ReplicaSetUnknown, int32(0)
		if name == last {
			status, current = edsv1.ReplicaSetActive, daemonNodes
		}
		if is := &rs.Status; is.Status != status || is.Current != current || is.Desired != current || is.Available != current {
			r.t.Errorf("revision %s is reported as %s with %d pods of %d, %d of them available", name, is.Status, is.Current, is.Desired, is.Available)
		}
	}
}

func podsOf(n *daemonNode) (pods []*corev1.Pod) {
	for _, p := range n.pods {
		pods = append(pods, p)
	}
	return pods
}

func describe(pods []*corev1.Pod) string {
	if len(pods) == 0 {
		return "no pods"
	}
	var texts []string
	for _, p := range pods {
		texts = append(texts, fmt.Sprintf("pod %s of %s, %s, ready %v, deleted %v", p.Name, revisionOf(p), p.Status.Phase, podReady(p), p.DeletionTimestamp))
	}
	return strings.Join(texts, "; ")
}

func revisionOf(p *corev1.Pod) string { return p.Labels[edsv1.LabelReplicaSetName] }

// boundTo is the node that a pod is on, or is meant for.
func boundTo(p *corev1.Pod) string {
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
