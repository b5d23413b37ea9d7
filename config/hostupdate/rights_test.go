// SPDX-License-Identifier: Apache-2.0

// Package hostupdate tests the rights that these manifests give to agents.
package hostupdate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	namespace    = "system-upgrade"
	agentAccount = "moult-agent"
)

// thief is a person who has stolen a token, and does with it what he likes.
type thief struct {
	t     *testing.T
	http  *http.Client
	token string
	// as is whom he asks as, besides.
	as http.Header
}

// steal gives a thief the token of a pod that runs with this account on this node, as the kubelet mounts it.
func steal(t *testing.T, ns, account, node string) *thief {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rights-", Namespace: ns},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	if err := world.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), p, client.GracePeriodSeconds(0)) })
	return stealBound(t, ns, account, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID})
}

// stealBound gives a token that is bound to something, or to nothing.
func stealBound(t *testing.T, ns, account string, bound *authenticationv1.BoundObjectReference) *thief {
	t.Helper()
	token, err := world.clientset.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(world.config)
	config.QPS = -1
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{t: t, http: h, token: token.Status.Token}
}

// asUser is the same thief, who asks as this user.
func (th *thief) asUser(name string, groups ...string) *thief {
	other := *th
	other.as = http.Header{authenticationv1.ImpersonateUserHeader: {name}}
	for _, group := range groups {
		other.as.Add(authenticationv1.ImpersonateGroupHeader, group)
	}
	return &other
}

// asNode is the same thief, who reads as the agent does.
func (th *thief) asNode(name string) *thief { return th.asUser("system:node:" + name) }

// try asks, and gives the status and what was answered. Of a watch it gives the first event.
func (th *thief) try(method, path, contentType string, body []byte) (int, string) {
	th.t.Helper()
	ctx, cancel := context.WithTimeout(th.t.Context(), 5*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, world.config.Host+path, bytes.NewReader(body))
	if err != nil {
		th.t.Fatal(err)
	}
	maps.Copy(request.Header, th.as)
	request.Header.Set("Authorization", "Bearer "+th.token)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := th.http.Do(request)
	if err != nil {
		th.t.Fatalf("%s %s, %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer := make([]byte, 1<<16)
	n, err := io.ReadAtLeast(response.Body, answer, 1)
	if err != nil && !errors.Is(err, io.EOF) {
		th.t.Fatalf("%s %s, %v", method, path, err)
	}
	return response.StatusCode, strings.ReplaceAll(string(answer[:n]), `\"`, `"`)
}

// refused checks that the answer is 403, with these words.
func (th *thief) refused(what, words, method, path, contentType string, body []byte) {
	th.t.Helper()
	if code, answer := th.try(method, path, contentType, body); code != http.StatusForbidden || !strings.Contains(answer, words) {
		th.t.Errorf("%s: %s %s\n%s\nanswered %d, want a refusal with %q\n%s", what, method, path, body, code, words, answer)
	}
}

func (th *thief) allowed(what, method, path, contentType string, body []byte) {
	th.t.Helper()
	if code, answer := th.try(method, path, contentType, body); code >= 300 {
		th.t.Errorf("%s: %s %s\n%s\nanswered %d\n%s", what, method, path, body, code, answer)
	}
}

const (
	mergePatch = string(types.MergePatchType)
	jsonPatch  = string(types.JSONPatchType)
	applyPatch = "application/apply-patch+yaml"
)

func nodePath(name string) string { return "/api/v1/nodes/" + name }

// metadata is a merge patch of a map of the metadata.
func metadata(field string, entries ...string) []byte {
	m := map[string]any{}
	for i := 0; i < len(entries); i += 2 {
		m[entries[i]] = entries[i+1]
	}
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{field: m}})
	return body
}

// agentKeys are the annotations that an agent may write.
func agentKeys() (annotations, labels []string) {
	for _, p := range v1alpha1.HostProtocols {
		annotations = append(annotations, p.Active, p.State, p.Update)
		labels = append(labels, p.Update)
	}
	return append(annotations, v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostPrevious,
		v1alpha1.AnnotationHostAttempts, v1alpha1.AnnotationHostError, v1alpha1.AnnotationHostChecked, v1alpha1.AnnotationHostBoot), labels
}

// world is the API server.
var world struct {
	client.Client
	config    *rest.Config
	clientset kubernetes.Interface
}

// start applies the manifests of the accounts, and returns two nodes.
func start(t *testing.T) (own, other string) {
	t.Helper()
	c := cluster.Shared(t, 2)
	world.config = c.Config()
	world.config.QPS = -1
	var err error
	if world.Client, err = client.New(world.config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if world.clientset, err = kubernetes.NewForConfig(world.config); err != nil {
		t.Fatal(err)
	}
	programs, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := func(ctx context.Context, args ...string) {
		t.Helper()
		args = append(args, "--kubeconfig", c.Kubeconfig())
		if out, err := exec.CommandContext(ctx, programs["kubectl"], args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	files := []string{"-f", "agent-account.yaml", "-f", "agent-policy.yaml"}
	kubectl(t.Context(), "apply", "--server-side", "-f", "../namespace/namespace.yaml") // It stays.
	kubectl(t.Context(), append([]string{"apply", "--server-side"}, files...)...)
	t.Cleanup(func() {
		kubectl(context.WithoutCancel(t.Context()), append([]string{"delete", "--ignore-not-found"}, files...)...)
	})
	kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-k", "direct-reads")
	var names []string
	eventually(t, "two nodes are ready", func(ctx context.Context) (string, bool) {
		var nodes corev1.NodeList
		err := world.List(ctx, &nodes)
		names = nil
		for i := range nodes.Items {
			if n := &nodes.Items[i]; len(n.Spec.Taints) == 0 && len(n.Status.Conditions) > 0 {
				names = append(names, n.Name)
			}
		}
		return fmt.Sprint(names, err), len(names) == 2
	})
	return names[0], names[1]
}

// eventually waits for something that must come.
func eventually(t *testing.T, what string, holds func(context.Context) (string, bool)) {
	t.Helper()
	seen := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (ok bool, _ error) {
		seen, ok = holds(ctx)
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: %s", what, seen)
	}
}

func node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := world.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAPIRights tries what a person can do who has stolen the token of an agent, with the manifests as they are shipped.
func TestAPIRights(t *testing.T) {
	own, other := start(t)
	agent := steal(t, namespace, agentAccount, own)
	foreign := `{"metadata":{"labels":{"e2e.moult.dev/foreign":"a"},"annotations":{"e2e.moult.dev/foreign":"a","` + v1alpha1.AnnotationHostWanted + `":"1.2.3"}}}`
	for _, name := range []string{own, other} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := world.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(foreign))); err != nil {
			t.Fatal(err)
		}
	}
	// Policies hold a moment after they are created.
	key, _ := agentKeys()
	eventually(t, "the policies hold", func(context.Context) (string, bool) {
		code, answer := agent.try(http.MethodPatch, nodePath(other), mergePatch, metadata("annotations", key[0], "a"))
		return answer, code == http.StatusForbidden
	})
	t.Run("needs", func(t *testing.T) { agentMay(t, agent.in(t), own) })
	t.Run("others", func(t *testing.T) { agentLeavesOthersAlone(t, agent.in(t), own, other) })
	t.Run("own", func(t *testing.T) { agentLeavesItsNodeAlone(t, agent.in(t), own) })
	t.Run("everything", func(t *testing.T) { agentMayNothingElse(t, agent.in(t), own) })
	t.Run("impersonation", func(t *testing.T) { agentIsNobodyElse(t, agent.in(t), own, other) })
	t.Run("tokens", func(t *testing.T) { tokensWithoutTheNode(t, own, other) })
	t.Run("richer", func(t *testing.T) { policyBoundsWhatRolesAllow(t, own, other) })
}

// in is the thief in a subtest.
func (th *thief) in(t *testing.T) *thief {
	same := *th
	same.t = t
	return &same
}

// agentMay is what an agent needs.
func agentMay(t *testing.T, agent *thief, own string) {
	t.Helper()
	path := nodePath(own)
	reader := agent.asNode(own)
	reader.allowed("reading the own Node", http.MethodGet, path, "", nil)
	one := "/api/v1/nodes?fieldSelector=" + url.QueryEscape("metadata.name="+own)
	reader.allowed("listing it", http.MethodGet, one, "", nil)
	reader.allowed("watching it", http.MethodGet, one+"&watch=true&resourceVersion=0", "", nil)

	annotations, labels := agentKeys()
	longest := strings.Repeat("x", 1024)
	for _, key := range annotations {
		agent.allowed("setting "+key, http.MethodPatch, path, mergePatch, metadata("annotations", key, "a"))
		agent.allowed("changing "+key, http.MethodPatch, path, mergePatch, metadata("annotations", key, longest))
	}
	for _, key := range labels {
		agent.allowed("labelling "+key, http.MethodPatch, path, mergePatch, metadata("labels", key, "true"))
		agent.allowed("changing the label "+key, http.MethodPatch, path, mergePatch, metadata("labels", key, "false"))
	}
	n := node(t, own)
	for _, key := range annotations {
		if n.Annotations[key] != longest {
			t.Errorf("annotation %s is not what was written", key)
		}
	}
	// With a precondition, both at once, and taken off again.
	gone := map[string]any{}
	for _, key := range annotations {
		gone[key] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": n.ResourceVersion, "annotations": gone, "labels": map[string]any{labels[0]: nil, labels[1]: nil, labels[2]: nil},
	}})
	if err != nil {
		t.Fatal(err)
	}
	agent.allowed("taking all off", http.MethodPatch, path, mergePatch, body)
	if code, answer := agent.try(http.MethodPatch, path, mergePatch, body); code != http.StatusConflict {
		t.Errorf("a write upon a stale Node: answered %d\n%s", code, answer)
	}
	after := node(t, own)
	if diff := cmp.Diff([]string{"a", "1.2.3"}, []string{after.Annotations["e2e.moult.dev/foreign"], after.Annotations[v1alpha1.AnnotationHostWanted]}); diff != "" {
		t.Errorf("what others wrote (-want +got)\n%s", diff)
	}
}

const othersNode = "an agent may only change the Node that its pod runs on"

// agentLeavesOthersAlone: whatever it may do to its own Node, it may not do to another.
func agentLeavesOthersAlone(t *testing.T, agent *thief, own, other string) {
	t.Helper()
	annotations, labels := agentKeys()
	before := node(t, other)
	for _, key := range annotations {
		agent.refused("writing "+key, othersNode, http.MethodPatch, nodePath(other), mergePatch, metadata("annotations", key, "a"))
	}
	for _, key := range labels {
		agent.refused("labelling "+key, othersNode, http.MethodPatch, nodePath(other), mergePatch, metadata("labels", key, "true"))
	}
	agent.refused("writing nothing", othersNode+", which for this token is "+own, http.MethodPatch, nodePath(other), mergePatch, []byte("{}"))
	agent.refused("in dry run", othersNode, http.MethodPatch, nodePath(other)+"?dryRun=All", mergePatch, metadata("annotations", annotations[0], "a"))
	agent.refused("by apply", othersNode, http.MethodPatch, nodePath(other)+"?fieldManager=x&force=true", applyPatch,
		[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+other+`","annotations":{"`+annotations[0]+`":"a"}}}`))
	agent.refused("making one by apply", "nodes", http.MethodPatch, nodePath("none")+"?fieldManager=x", applyPatch,
		[]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"none"}}`))
	agent.refused("renaming the own one", "", http.MethodPut, nodePath(own), "application/json", []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+other+`"}}`))
	for _, path := range []string{nodePath(other), nodePath(other) + "/status", nodePath(other) + "/proxy/"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			agent.refused("another node", "", method, path, "application/json", []byte("{}"))
			agent.asNode(own).refused("another node, read as the own", "", method, path, "application/json", []byte("{}"))
		}
	}
	agent.refused("its status", "nodes/status", http.MethodPatch, nodePath(other)+"/status", mergePatch, []byte(`{"status":{"nodeInfo":{"bootID":"x"}}}`))
	agent.asNode(own).refused("all nodes", "only its own Node", http.MethodGet, "/api/v1/nodes", "", nil)
	agent.asNode(own).refused("a watch of all nodes", "only its own Node", http.MethodGet, "/api/v1/nodes?watch=true", "", nil)
	agent.asNode(own).refused("a list of another", "only its own Node", http.MethodGet, "/api/v1/nodes?fieldSelector="+url.QueryEscape("metadata.name="+other), "", nil)
	after := node(t, other)
	if diff := cmp.Diff([]any{before.Labels, before.Annotations, before.Spec}, []any{after.Labels, after.Annotations, after.Spec}); diff != "" {
		t.Errorf("the other node (-before +after)\n%s", diff)
	}
}

// agentLeavesItsNodeAlone: of its own Node it may change its own keys, and nothing else.
func agentLeavesItsNodeAlone(t *testing.T, agent *thief, own string) {
	t.Helper()
	const (
		spec, labels, annotations = "the spec of its Node", "no label of its Node but update-available", "no annotations of its Node but its own"
		owners, long              = "the finalizers and owners of its Node", "at most 1024 characters"
	)
	path := nodePath(own)
	before := node(t, own)
	key, _ := agentKeys()
	mixed := metadata("annotations", key[0], "a", v1alpha1.AnnotationClaims, "[]")
	type attempt struct{ name, words, kind, body string }
	attempts := []attempt{
		{"cordon", spec, mergePatch, `{"spec":{"unschedulable":true}}`},
		{"taint", spec, mergePatch, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`},
		{"pods' addresses", spec, mergePatch, `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`},
		{"cordon by JSON patch", spec, jsonPatch, `[{"op":"add","path":"/spec/unschedulable","value":true}]`},
		{"taint by strategic patch", spec, string(types.StrategicMergePatchType), `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`},
		{"finalizer", owners, mergePatch, `{"metadata":{"finalizers":["example.com/x"]}}`},
		{"owner", owners, mergePatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1"}]}}`},
		{"another's label", labels, mergePatch, string(metadata("labels", "e2e.moult.dev/foreign", "b"))},
		{"another's label taken off", labels, mergePatch, `{"metadata":{"labels":{"e2e.moult.dev/foreign":null}}}`},
		{"all labels taken off", labels, mergePatch, `{"metadata":{"labels":null}}`},
		{"a new label", labels, mergePatch, string(metadata("labels", "e2e.moult.dev/mine", "b"))},
		{"a role", labels, mergePatch, string(metadata("labels", "node-role.kubernetes.io/control-plane", ""))},
		{"off the load balancers", labels, mergePatch, string(metadata("labels", "node.kubernetes.io/exclude-from-external-load-balancers", "true"))},
		{"a hook's label", labels, mergePatch, string(metadata("labels", v1alpha1.LabelBeforeReboot, "true"))},
		{"an opt-out", labels, mergePatch, string(metadata("labels", v1alpha1.LabelNodeRollout("bottlerocket"), v1alpha1.LabelNodeRolloutDisabled))},
		{"another's annotation", annotations, mergePatch, string(metadata("annotations", "e2e.moult.dev/foreign", "b"))},
		{"another's annotation taken off", annotations, mergePatch, `{"metadata":{"annotations":{"e2e.moult.dev/foreign":null}}}`},
		{"all annotations taken off", annotations, mergePatch, `{"metadata":{"annotations":null}}`},
		{"all annotations replaced", annotations, jsonPatch, `[{"op":"replace","path":"/metadata/annotations","value":{}}]`},
		{"a new annotation", annotations, mergePatch, string(metadata("annotations", "e2e.moult.dev/mine", "b"))},
		{"a claim", annotations, mergePatch, string(metadata("annotations", v1alpha1.AnnotationClaims, "[]"))},
		{"a claim beside an own key", annotations, mergePatch, string(mixed)},
		{"the mark of a cordon", annotations, mergePatch, string(metadata("annotations", v1alpha1.AnnotationCordonedBy, "NodeRollout/x"))},
		{"the record of evictions", annotations, mergePatch, string(metadata("annotations", v1alpha1.AnnotationEvicted, "[]"))},
		{"a retry", annotations, mergePatch, string(metadata("annotations", v1alpha1.AnnotationRetry, "now"))},
		{"the wanted version", annotations, mergePatch, string(metadata("annotations", v1alpha1.AnnotationHostWanted, "6.6.6"))},
		{"the wanted version taken off", annotations, mergePatch, `{"metadata":{"annotations":{"` + v1alpha1.AnnotationHostWanted + `":null}}}`},
		{"a hook", annotations, mergePatch, string(metadata("annotations", "example.com/drained", "true"))},
		{"too much by apply", annotations, applyPatch, `{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"e2e.moult.dev/mine":"a"}}}`},
	}
	for _, p := range v1alpha1.HostProtocols {
		attempts = append(
			attempts,
			attempt{"what is wanted", annotations, mergePatch, string(metadata("annotations", p.Wanted, "reboot-update"))},
			attempt{"the way back", annotations, mergePatch, string(metadata("annotations", p.Wanted, string(v1alpha1.HostActionRollback)))},
			attempt{"the interface", labels, mergePatch, string(metadata("labels", p.InterfaceLabel, "2.0.0"))},
			attempt{"what is active, as a label", labels, mergePatch, string(metadata("labels", p.Active, ""))},
		)
	}
	for _, k := range key {
		attempts = append(attempts, attempt{"too long", long, mergePatch, string(metadata("annotations", k, strings.Repeat("x", 1025)))})
	}
	for _, a := range attempts {
		where := path
		if a.kind == applyPatch {
			where += "?fieldManager=x&force=true"
		}
		agent.refused(a.name, a.words, http.MethodPatch, where, a.kind, []byte(a.body))
		agent.asNode(own).refused(a.name+", as the node", "impersonate-on:associated-node:patch", http.MethodPatch, where, a.kind, []byte(a.body))
	}
	agent.refused("status", "nodes/status", http.MethodPatch, path+"/status", mergePatch, []byte(`{"status":{"nodeInfo":{"bootID":"x"}}}`))
	agent.refused("update", `cannot update resource "nodes"`, http.MethodPut, path, "application/json", []byte("{}"))
	agent.refused("delete", `cannot delete resource "nodes"`, http.MethodDelete, path, "", nil)
	agent.refused("direct read", `cannot get resource "nodes"`, http.MethodGet, path, "", nil)
	agent.refused("kubelet", "nodes/proxy", http.MethodGet, path+"/proxy/pods", "", nil)
	// The API server takes no status here from anybody.
	agent.try(http.MethodPatch, path, mergePatch, []byte(`{"status":{"nodeInfo":{"bootID":"stolen"},"conditions":[]}}`))

	after := node(t, own)
	if after.Status.NodeInfo.BootID == "stolen" || len(after.Status.Conditions) == 0 {
		t.Error("the status was changed")
	}
	if diff := cmp.Diff([]any{before.Labels, before.Annotations, before.Spec, before.Finalizers}, []any{after.Labels, after.Annotations, after.Spec, after.Finalizers}); diff != "" {
		t.Errorf("the own node (-before +after)\n%s", diff)
	}
}

// everybodys are the rights that Kubernetes gives to all who have a token, or to all service accounts.
var everybodys = []string{
	"create authentication.k8s.io/selfsubjectreviews",
	"create authorization.k8s.io/selfsubjectaccessreviews",
	"create authorization.k8s.io/selfsubjectrulesreviews",
	"get certificates.k8s.io/clustertrustbundles",
	"list certificates.k8s.io/clustertrustbundles",
	"watch certificates.k8s.io/clustertrustbundles",
}

// agentMayNothingElse tries every verb on every resource that the API server serves, as itself and as the node.
func agentMayNothingElse(t *testing.T, agent *thief, own string) {
	t.Helper()
	agent.mayOnly(own, "patch nodes")
	for _, path := range []string{"/metrics", "/logs", "/debug/pprof", "/configz", "/statusz", "/flagz"} {
		agent.refused("the API server's own "+path, "", http.MethodGet, path, "", nil)
		agent.asNode(own).refused("the API server's own "+path, "", http.MethodGet, path, "", nil)
	}
}

// mayOnly tries every verb on every resource. As the node nothing of that is allowed, whatever the node may do: it may read one Node,
// by name.
func (th *thief) mayOnly(own string, rights ...string) {
	th.t.Helper()
	rights = append(rights, everybodys...)
	tried := 0
	for _, list := range apiResources(th.t) {
		gv, err := groupVersionPath(list.GroupVersion)
		if err != nil {
			th.t.Fatal(err)
		}
		group := ""
		if before, _, ok := strings.Cut(list.GroupVersion, "/"); ok {
			group = before + "/"
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			for _, verb := range verbsOf(r) {
				right := verb + " " + group + r.Name
				method, path, kind := requestFor(gv, r, verb)
				tried++
				if !slices.Contains(rights, right) {
					th.refused(right, "", method, path, kind, []byte("{}"))
				}
				th.asNode(own).refused(right+" as the node", "", method, path, kind, []byte("{}"))
			}
		}
	}
	if tried < 300 {
		th.t.Errorf("only %d requests were tried", tried)
	}
	th.t.Logf("%d requests refused to the account but for %v, and as many to the node's name", tried, rights)
}

func apiResources(t *testing.T) []*metav1.APIResourceList {
	t.Helper()
	groups, lists, err := world.clientset.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	if len(groups) < 10 || len(lists) < 10 {
		t.Fatalf("discovery gives %d groups and %d versions", len(groups), len(lists))
	}
	return lists
}

func groupVersionPath(gv string) (string, error) {
	switch strings.Count(gv, "/") {
	case 0:
		return "/api/" + gv, nil
	case 1:
		return "/apis/" + gv, nil
	default:
		return "", fmt.Errorf("no group and version: %q", gv)
	}
}

// verbsOf are those that are served, and those that might be.
func verbsOf(r *metav1.APIResource) []string {
	verbs := []string{"get", "create", "update", "patch", "delete"}
	if !strings.Contains(r.Name, "/") {
		verbs = append(verbs, "list", "watch", "deletecollection")
	}
	return verbs
}

// requestFor is the request that has this verb. Names of objects do not matter: rights are judged before they are looked for.
func requestFor(gv string, r *metav1.APIResource, verb string) (method, path, contentType string) {
	resource, sub, _ := strings.Cut(r.Name, "/")
	path = gv
	if r.Namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + resource
	named := path + "/thing"
	if sub != "" {
		named += "/" + sub
	}
	switch verb {
	case "get":
		return http.MethodGet, named, ""
	case "list":
		return http.MethodGet, path, ""
	case "watch":
		return http.MethodGet, path + "?watch=true", ""
	case "create":
		if sub == "" {
			return http.MethodPost, path, "application/json"
		}
		return http.MethodPost, named, "application/json"
	case "update":
		return http.MethodPut, named, "application/json"
	case "patch":
		return http.MethodPatch, named, mergePatch
	case "delete":
		return http.MethodDelete, named, ""
	default:
		return http.MethodDelete, path, ""
	}
}

// agentIsNobodyElse: it may read as its own node, and be no one else.
func agentIsNobodyElse(t *testing.T, agent *thief, own, other string) {
	t.Helper()
	path := nodePath(own)
	for name, other := range map[string]*thief{
		"another node":               agent.asNode(other),
		"a node that is not there":   agent.asNode("none"),
		"its node, with the group":   agent.asUser("system:node:"+own, "system:nodes"),
		"its node, and more":         agent.asUser("system:node:"+own, "system:masters"),
		"an administrator":           agent.asUser("kubernetes-admin", "system:masters"),
		"the operator":               agent.asUser("system:serviceaccount:moult-system:moult"),
		"itself":                     agent.asUser("system:serviceaccount:" + namespace + ":" + agentAccount),
		"the account of Plans' jobs": agent.asUser("system:serviceaccount:" + namespace + ":system-upgrade"),
		"nobody":                     agent.asUser("system:anonymous"),
	} {
		other.refused("being "+name, "impersonate", http.MethodGet, path, "", nil)
		other.refused("being "+name, "impersonate", http.MethodPatch, path, mergePatch, []byte("{}"))
	}
	extra := agent.asUser("system:serviceaccount:" + namespace + ":" + agentAccount)
	extra.as.Set(authenticationv1.ImpersonateUserExtraHeaderPrefix+url.QueryEscape("authentication.kubernetes.io/node-name"), other)
	extra.refused("being the agent of another node", "impersonate", http.MethodPatch, nodePath(other), mergePatch, []byte("{}"))
}

// tokensWithoutTheNode: a token that names no node, or another one, is of no use for this one.
func tokensWithoutTheNode(t *testing.T, own, other string) {
	t.Helper()
	key, _ := agentKeys()
	body := metadata("annotations", key[0], "a")
	unbound := stealBound(t, namespace, agentAccount, nil)
	unbound.refused("a token of no pod", "which for this token is not known", http.MethodPatch, nodePath(own), mergePatch, body)
	unbound.asNode(own).refused("a token of no pod", "impersonate", http.MethodGet, nodePath(own), "", nil)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "rights-", Namespace: namespace}}
	if err := world.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), secret) })
	ofSecret := stealBound(t, namespace, agentAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID})
	ofSecret.refused("a token of a Secret", "which for this token is not known", http.MethodPatch, nodePath(own), mergePatch, body)
	ofSecret.asNode(own).refused("a token of a Secret", "impersonate", http.MethodGet, nodePath(own), "", nil)

	// The API server binds a token to a Node for whoever may make tokens. It then names the Node, but no pod that runs there.
	n := &corev1.Node{}
	if err := world.Get(t.Context(), client.ObjectKey{Name: own}, n); err != nil {
		t.Fatal(err)
	}
	ofNode := stealBound(t, namespace, agentAccount, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: own, UID: n.UID})
	ofNode.refused("a token of the Node alone", "which for this token is not known", http.MethodPatch, nodePath(own), mergePatch, body)

	elsewhere := steal(t, namespace, agentAccount, other)
	elsewhere.refused("the token of another node", othersNode+", which for this token is "+other, http.MethodPatch, nodePath(own), mergePatch, body)
	elsewhere.asNode(own).refused("the token of another node", "impersonate", http.MethodGet, nodePath(own), "", nil)
	elsewhere.asNode(other).allowed("the token of another node, there", http.MethodGet, nodePath(other), "", nil)

	ofDefault := steal(t, namespace, "default", own)
	ofDefault.refused("the token of another account on the node", `cannot patch resource "nodes"`, http.MethodPatch, nodePath(own), mergePatch, body)
	ofDefault.asNode(own).refused("the token of another account on the node", "impersonate", http.MethodGet, nodePath(own), "", nil)
}

// policyBoundsWhatRolesAllow: the policy holds for every account of the name, even one that a person has made an administrator.
func policyBoundsWhatRolesAllow(t *testing.T, own, other string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-rights-"}}
	if err := world.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), ns) })
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: agentAccount, Namespace: ns.Name}}
	if err := world.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-rights-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns.Name, Name: agentAccount}},
	}
	if err := world.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), binding) })
	admin := steal(t, ns.Name, agentAccount, own)
	eventually(t, "the account is an administrator", func(context.Context) (string, bool) {
		code, answer := admin.try(http.MethodGet, nodePath(own), "", nil)
		return answer, code == http.StatusOK
	})
	const (
		only = "an agent may only patch a Node, and none of its subresources"
		// Nothing is lost if the policy does not hold.
		dryRun = "?dryRun=All"
	)
	status := []byte(`{"status":{"nodeInfo":{"bootID":"x"}}}`)
	admin.allowed("its own keys", http.MethodPatch, nodePath(own), mergePatch, metadata("annotations", v1alpha1.AnnotationHostVersion, "1.2.3"))
	admin.refused("its Node's status", only, http.MethodPatch, nodePath(own)+"/status", mergePatch, status)
	admin.refused("another Node's status", only, http.MethodPatch, nodePath(other)+"/status", mergePatch, status)
	admin.refused("its Node's end", only, http.MethodDelete, nodePath(own)+dryRun, "", nil)
	admin.refused("another Node's end", only, http.MethodDelete, nodePath(other)+dryRun, "", nil)
	admin.refused("the end of all", only, http.MethodDelete, "/api/v1/nodes"+dryRun, "", nil)
	admin.refused("a new Node", only, http.MethodPost, "/api/v1/nodes"+dryRun, "application/json", []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"none"}}`))
	admin.refused("a kubelet", only, http.MethodGet, nodePath(other)+"/proxy/pods", "", nil)
	admin.refused("another Node", othersNode, http.MethodPatch, nodePath(other), mergePatch, metadata("annotations", v1alpha1.AnnotationHostVersion, "1.2.3"))
	n := node(t, own)
	n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	n.Spec.Unschedulable, n.ResourceVersion = true, ""
	whole, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	admin.refused("a whole Node", "the spec of its Node", http.MethodPut, nodePath(own), "application/json", whole)
}
