// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// two makes an ExtendedDaemonSet that runs, and one whose canary is paused.
func (b *bench) two() (running, paused *edsv1.ExtendedDaemonSet) {
	running = b.set("bar", "bar:1", func(eds *edsv1.ExtendedDaemonSet) {
		eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
		eds.Status.IgnoredUnresponsiveNodes = 1
	})
	paused = b.set("foo", "foo:2", canary, func(eds *edsv1.ExtendedDaemonSet) {
		eds.Status.State, eds.Status.Reason = edsv1.StateCanaryPaused, "ErrImagePull"
		eds.Status.Canary.Nodes = []string{"node-5", "node-1", "node-2", "node-3", "node-4"}
	})
	return running, paused
}

func getSets(b *bench) {
	b.two()
	b.shows("get", "get")
	b.shows("get-foo", "get", "foo")
	b.shows("get-foo", "get", "eds/foo")
	b.shows("get-wide", "get", "-o", "wide")
	b.shows("get-foo", "get", "-A", "foo")
	out, _ := b.run("get", "--all-namespaces")
	if lines := strings.Count(out, "\n  eds-get "); lines != 2 {
		b.Errorf("of all namespaces it shows %d lines of this:\n%s", lines, out)
	}
	b.says("error: ExtendedDaemonSet eds-get/nope not found", "get", "nope")
	b.says("error: ExtendedDaemonSet nope not found in any namespace", "get", "nope", "-A")
	b.says(`error: "pod/foo" names no ExtendedDaemonSet: the word before the slash must be extendeddaemonset`, "get", "pod/foo")
}

func getElsewhere(b *bench) {
	b.set("only-here", "foo:1")
	b.namespace = "default"
	b.says("error: ExtendedDaemonSet default/only-here not found; ExtendedDaemonSet only-here is in eds-get-elsewhere: use -n", "get", "only-here")
	b.says("error: ExtendedDaemonSet default/only-here not found; ExtendedDaemonSet only-here is in eds-get-elsewhere: use -n", "canary", "fail", "only-here")
	out, errOut := b.run("get")
	const header = "  NAMESPACE  NAME  DESIRED  CURRENT  READY  UP-TO-DATE  AVAILABLE  IGNORED UNRESPONSIVE NODES  STATUS  REASON  ACTIVE RS  CANARY RS  AGE  \n"
	if out != header {
		b.Errorf("%q, want %q", out, header)
	}
	if want := "No ExtendedDaemonSets in namespace default: -A shows those of all namespaces.\n"; errOut != want {
		b.Errorf("%q, want %q", errOut, want)
	}
}

func getRevisions(b *bench) {
	eds := b.set("foo", "foo:2")
	b.revision(eds, "a", "foo:1", role(edsv1.ReplicaSetActive, 2))
	b.revision(eds, "b", "foo:2", role(edsv1.ReplicaSetCanary, 1))
	b.revision(eds, "c", "foo:3", func(ers *edsv1.ExtendedDaemonSetReplicaSet) { ers.Status.Status = "" })
	b.shows("get-ers", "get-ers")
	b.shows("get-ers-wide", "get-ers", "-o", "wide")
	b.shows("get-ers-b", "get-ers", "foo-b")
	b.says("error: ExtendedDaemonSetReplicaSet eds-get-ers/nope not found", "get-ers", "nope")
}

func getInFormats(b *bench) {
	b.two()
	b.says("extendeddaemonset.datadoghq.com/bar\nextendeddaemonset.datadoghq.com/foo", "get", "-o", "name")
	out, _ := b.run("get", "foo", "-o", "json")
	var one edsv1.ExtendedDaemonSet
	err := json.Unmarshal([]byte(out), &one)
	if err != nil || one.Kind != "ExtendedDaemonSet" || one.Status.State != edsv1.StateCanaryPaused || one.ManagedFields != nil {
		b.Errorf("%v: %s", err, out)
	}
	out, _ = b.run("get", "-o", "yaml")
	var all edsv1.ExtendedDaemonSetList
	if err := yaml.Unmarshal([]byte(out), &all); err != nil || all.Kind != "List" || len(all.Items) != 2 || all.Items[0].APIVersion != "datadoghq.com/v1alpha1" {
		b.Errorf("%v: %s", err, out)
	}
	b.says("error: invalid argument \"csv\" for \"-o, --output\" flag: it must be wide, json, yaml, name, jsonpath= or go-template= with a template", "get", "-o", "csv")
	b.namespace = "default"
	if out, _ := b.run("get", "-o", "json"); json.Unmarshal([]byte(out), &all) != nil || len(all.Items) != 0 {
		b.Error(out)
	}
}

func watchSets(b *bench) {
	eds := b.set("foo", "foo:1")
	table, stop := b.follows("get", "-w")
	named, _ := b.follows("get", "foo", "-w")
	names, _ := b.follows("get", "-w", "-o", "name")
	documents, _ := b.follows("get", "-w", "-o", "yaml")
	for _, s := range []*screen{table, named} {
		b.until(s, "AGE")
		b.until(s, "Running")
	}
	b.until(names, "extendeddaemonset.datadoghq.com/foo\n")
	b.until(documents, "state: Running")
	canary(eds)
	b.writeStatus(eds)
	b.until(table, "Canary")
	b.until(named, "Canary")
	b.until(names, "foo\nextendeddaemonset.datadoghq.com/foo\n")
	b.until(documents, "state: Canary")
	if n := strings.Count(documents.String(), "---\n"); n != 1 {
		b.Errorf("%d separators of documents, want 1:\n%s", n, documents)
	}
	b.set("new", "foo:1")
	b.until(table, "new")
	// The new one is shown once or twice: it gets its status after it was made.
	others := 0
	for line := range strings.Lines(table.String()) {
		if !strings.Contains(line, "new") {
			others++
		}
	}
	if lines := strings.Count(table.String(), "\n"); others != 3 || lines > 5 || strings.Count(table.String(), "AGE") != 1 {
		b.Errorf("it shows more, or less, than a header and what changed:\n%s", table)
	}
	if strings.Contains(named.String(), "new") {
		b.Errorf("it shows another than foo:\n%s", named)
	}
	if err := b.Delete(b.Context(), eds); err != nil {
		b.Fatal(err)
	}
	if err := stop(); err != nil {
		b.Errorf("a watch that is stopped ends with %v", err)
	}
	b.says("error: ExtendedDaemonSet eds-watch/nope not found", "get", "nope", "-w")
}

// nodes makes one that is ready and one that is not, for a test of this name.
func (b *bench) nodes() (ready, notReady string) {
	for name, is := range map[string]corev1.ConditionStatus{b.namespace + "-1": corev1.ConditionTrue, b.namespace + "-2": corev1.ConditionFalse} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		b.create(n)
		b.setReady(n, is)
	}
	return b.namespace + "-1", b.namespace + "-2"
}

// setReady writes a node's status. Others write to the node at the same time.
func (b *bench) setReady(n *corev1.Node, is corev1.ConditionStatus) {
	b.Helper()
	before := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	if err := b.Status().Patch(b.Context(), n, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}

// waitForAccount waits until pods can be made.
func (b *bench) waitForAccount() {
	b.Helper()
	if err := cluster.WaitForAccounts(b.Context(), b, b.namespace); err != nil {
		b.Fatal(err)
	}
}

// pod makes a pod of a revision on a node. It is ready when its reason is empty.
func (b *bench) pod(name, eds, revision, node, reason string, change ...func(*corev1.Pod)) *corev1.Pod {
	b.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: name, Labels: map[string]string{edsv1.LabelName: eds, edsv1.LabelReplicaSetName: revision},
		},
		Spec: corev1.PodSpec{NodeName: node, SchedulerName: "none", Containers: []corev1.Container{{Name: "main", Image: "foo"}, {Name: "side", Image: "side"}}},
	}
	ready := corev1.ConditionTrue
	if reason != "" {
		ready = corev1.ConditionFalse
	}
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, Reason: reason}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: reason == "", RestartCount: 2}, {Name: "side", Ready: true, RestartCount: 1}},
	}
	for _, change := range change {
		change(p)
	}
	status := p.Status
	b.create(p)
	p.Status = status
	b.writeStatus(p)
	return p
}

func pending(p *corev1.Pod) {
	p.Status = corev1.PodStatus{
		Phase: corev1.PodPending,
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
			{Name: "side", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
		},
	}
}

// bound binds a pod to a node that it is not scheduled to yet.
func bound(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
}

func showPods(b *bench) {
	ready, notReady := b.nodes()
	b.waitForAccount()
	eds := b.set("foo", "foo:2", canary)
	b.revision(eds, "a", "foo:1")
	b.pod("foo-a-1", "foo", "foo-a", ready, "")
	b.pod("foo-a-2", "foo", "foo-a", notReady, "ContainersNotReady")
	b.pod("foo-b-1", "foo", "foo-b", ready, "")
	b.pod("foo-b-2", "foo", "foo-b", notReady, "", pending)
	b.pod("foo-b-3", "foo", "foo-b", "", "", bound(ready))
	b.pod("other-a-1", "other", "other-a", ready, "ContainersNotReady")

	// One of the same name elsewhere is another.
	elsewhere := &bench{Client: b.Client, T: b.T, config: b.config, namespace: "eds-pods-elsewhere"}
	elsewhere.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere.namespace}})
	elsewhere.waitForAccount()
	elsewhere.pod("foo-b-9", "foo", "foo-b", ready, "ContainersNotReady")

	b.shows("pods-canary", "canary", "pods", "foo")
	b.shows("pods-canary", "pods", "--select", "canary", "foo")
	b.shows("pods-not-ready", "pods", "foo", "--select=not-ready")
	b.shows("pods-wide", "pods", "foo", "--select=not-ready", "-o", "wide")
	b.says("pod/foo-a-2\npod/foo-b-2\npod/foo-b-3", "pods", "foo", "--select=not-ready", "-o", "name")
	out, _ := b.run("canary", "pods", "foo", "-o", "json")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) != 3 || list.Items[0].Kind != "Pod" || list.Items[0].APIVersion != "v1" {
		b.Errorf("%v: %s", err, out)
	}
	b.says("error: missing --select flag", "pods", "foo")
	b.says("error: invalid argument \"all\" for \"--select\" flag: it must be canary or not-ready", "pods", "foo", "--select=all")
	b.says("error: ExtendedDaemonSet eds-pods/nope not found", "pods", "nope", "--select=canary")
	b.set("bar", "bar:1")
	b.says("error: the ExtendedDaemonset is not currently running a canary replicaset", "canary", "pods", "bar")
	b.says("error: the ExtendedDaemonset is not currently running a canary replicaset", "pods", "--select=canary", "bar")
}

// showPodsWithoutNodes goes on where the user may not list nodes.
func showPodsWithoutNodes(b *bench) {
	b.waitForAccount()
	b.set("foo", "foo:2", canary)
	b.pod("foo-b-1", "foo", "foo-b", "", "")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "viewer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{edsv1.GroupVersion.Group}, Resources: []string{"extendeddaemonsets", "extendeddaemonsetreplicasets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}
	b.create(role)
	b.config = rest.CopyConfig(b.config)
	b.config.Impersonate.UserName = "someone"
	if _, errOut := b.run("canary", "pods", "foo"); !strings.Contains(errOut, "forbidden") {
		b.Errorf("without the rights it says %s", errOut)
	}
	b.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "viewer"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "someone"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
	})
	// The API server learns of roles a moment later.
	for end := time.Now().Add(patience); ; {
		out, errOut := b.run("canary", "pods", "foo")
		if strings.Contains(errOut, "Nodes can't be listed") && strings.Contains(out, "Unknown") {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("%s\n%s", out, errOut)
		}
	}
}

func watchPods(b *bench) {
	ready, _ := b.nodes()
	b.waitForAccount()
	b.set("foo", "foo:2", canary)
	p := b.pod("foo-b-1", "foo", "foo-b", ready, "ContainersNotReady")
	fine := b.pod("foo-b-2", "foo", "foo-b", ready, "")
	all, _ := b.follows("canary", "pods", "foo", "-w")
	some, _ := b.follows("pods", "foo", "--select=not-ready", "-w")
	b.until(all, "foo-b-1")
	b.until(all, "foo-b-2")
	b.until(some, "foo-b-1")
	p.Status.Conditions[0].Status, p.Status.Conditions[0].Reason = corev1.ConditionTrue, ""
	p.Status.ContainerStatuses[0].Ready = true
	b.writeStatus(p)
	for _, s := range []*screen{all, some} {
		b.until(s, "foo-b-1  2/2")
	}
	b.setReady(read(b, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ready}}), corev1.ConditionFalse)
	b.until(all, "false")
	if strings.Contains(some.String(), fine.Name) {
		b.Errorf("it shows a pod that is ready, and was all the time:\n%s", some)
	}
	if strings.Contains(some.String(), "false") {
		b.Errorf("it shows what becomes of a pod that is ready:\n%s", some)
	}
}

func showHistory(b *bench) {
	eds := b.set("foo", "foo:3")
	cause := func(text string) func(*edsv1.ExtendedDaemonSetReplicaSet) {
		return func(ers *edsv1.ExtendedDaemonSetReplicaSet) { ers.Annotations["kubernetes.io/change-cause"] = text }
	}
	b.revision(eds, "a", "foo:1", cause("first"))
	b.revision(eds, "b", "foo:2", role(edsv1.ReplicaSetActive, 3), cause("kubectl set image eds/foo main=foo:2"))
	b.revision(eds, "c", "foo:3", func(ers *edsv1.ExtendedDaemonSetReplicaSet) {
		ers.Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "CrashLoopBackOff"}}
	})
	other := b.set("other", "foo:4")
	stranger := b.revision(eds, "d", "foo:4", func(ers *edsv1.ExtendedDaemonSetReplicaSet) {
		ers.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))}
	})
	b.shows("history", "history", "foo")
	b.shows("history-wide", "history", "foo", "-o", "wide")
	const kind = "extendeddaemonsetreplicaset.datadoghq.com/"
	b.says(kind+"foo-a\n"+kind+"foo-b\n"+kind+"foo-c", "history", "foo", "-o", "name")
	out, _ := b.run("history", "foo", "-o", "json")
	var list edsv1.ExtendedDaemonSetReplicaSetList
	err := json.Unmarshal([]byte(out), &list)
	if err != nil || len(list.Items) != 3 || list.Items[0].Kind != "ExtendedDaemonSetReplicaSet" || strings.Contains(out, stranger.Name) {
		b.Errorf("%v: %s", err, out)
	}
	b.set("new", "foo:1")
	if _, errOut := b.run("history", "new"); errOut != "ExtendedDaemonSet eds-history/new has no revisions yet.\n" {
		b.Error(errOut)
	}
}

// TestFlags are kubectl's, and the verbs' own.
func TestFlags(t *testing.T) {
	for verb, flags := range map[string][]string{
		"get": {"output", "watch", "all-namespaces"}, "get-ers": {"output", "watch", "all-namespaces"}, "pods": {"output", "watch", "select"},
		"history": {"output"}, "wait": {"timeout", "percent", "min"}, "rollback": {"to-revision"},
	} {
		cmd, _, err := NewCommand(tomorrow{}, noStreams, nowhere{}).Find([]string{verb})
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range flags {
			if cmd.LocalFlags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", verb, flag)
			}
		}
	}
}
