// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/audit"
)

func TestReadAsNode(t *testing.T) {
	for as, want := range map[ReadAsNode][]string{"": {"system:node:n1", ""}, "auto": {"system:node:n1", ""}, "always": {"system:node:n1"}, "never": {""}} {
		configs, err := as.readConfigs(&rest.Config{}, "n1")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range configs {
			got = append(got, c.Impersonate.UserName)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Errorf("%q reads as %q, want %q", as, got, want)
		}
	}
	if _, err := ReadAsNode("perhaps").readConfigs(&rest.Config{}, "n1"); err == nil {
		t.Error("perhaps is taken")
	}
}

// account is how a new service account, whose token is bound to no node, reaches the API server. It may read nodes or nothing.
func account(t *testing.T, config *rest.Config, client kubernetes.Interface, name string, reads bool) *rest.Config {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}
	accounts := client.CoreV1().ServiceAccounts(meta.Namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if reads {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: meta.Namespace}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	its := rest.AnonymousClientConfig(config)
	its.BearerToken = token.Status.Token
	return its
}

// readsThatAreRefused: a token that is bound to no node may not act as one. It reads with the rights of config/hostupdate/direct-reads, and uses
// each of them.
func readsThatAreRefused(t *testing.T, config *rest.Config, auditLog string) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../../config/hostupdate/direct-reads/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(manifest), "\n---\n")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	role.Name = "node-reader"
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	reader := func(as ReadAsNode, config *rest.Config) *nodeClient {
		c, err := newNodeClient(config, as, n.Name, log.logger())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	reads := account(t, config, client, "reads", true)
	c := reader(ReadAsNodeAuto, reads)
	for wait := 0; ; wait++ { // Until the API server knows of the binding.
		if _, err := reader(ReadAsNodeNever, reads).get(t.Context()); err == nil {
			break
		} else if !apierrors.IsForbidden(err) || wait == 1000 {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got, err := c.get(t.Context()); err != nil || got == nil || got.UID != n.UID {
			t.Fatalf("%v, error %v", got, err)
		}
	}
	if got := len(log.with("allowed as the other")); got != 1 || c.preferred.Load() != 1 {
		t.Errorf("logged %d times, prefers %d", got, c.preferred.Load())
	}
	observed := newObservation()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		reader(ReadAsNodeAuto, reads).watch(ctx, observed)
	}()
	await(t, observed.changed, "the Node to be observed")
	cancel()
	<-watched
	if got, synced := observed.get(); !synced || got == nil || got.UID != n.UID {
		t.Errorf("observes %v, %t", got, synced)
	}
	used := map[string]bool{}
	requests, err := audit.Open(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	if err := requests.Read(`\"node-reader\"`, func(e *audit.Event) {
		used[e.Verb+" "+e.Resource()] = true
		used["list "+e.Resource()] = used["list "+e.Resource()] || e.Watch() // Before Kubernetes 1.34 a watch begins with a list.
	}); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		for _, right := range rule.Verbs {
			for _, resource := range rule.Resources {
				if !used[right+" "+resource] {
					t.Errorf("no test uses the right of config/hostupdate/direct-reads to %s %s", right, resource)
				}
			}
		}
	}
	if _, err := reader(ReadAsNodeAlways, reads).get(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("reading as the node alone: %v", err)
	}

	refused, err := New(Options{NodeName: n.Name, Config: account(t, config, client, "nobody", false)})
	if err != nil {
		t.Fatal(err)
	}
	err = refused.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "reading as system:node:"+n.Name) || !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), n.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestDeadSocket: where the host refuses connections in several checks in a row, a new process may see another socket.
func TestDeadSocket(t *testing.T) {
	a := &Agent{}
	refused := error(syscall.ECONNREFUSED)
	for i, step := range []struct {
		action v1alpha1.HostAction
		err    error
		ends   bool
	}{
		{"", refused, false},
		{v1alpha1.HostActionStabilize, refused, false},
		{"", nil, false},
		{"", refused, false},
		{"", refused, false},
		{"", refused, false},
		{"", refused, false},
		{v1alpha1.HostActionReboot, refused, false},
		{"", errors.New("another error"), false},
		{v1alpha1.HostActionStabilize, refused, true},
	} {
		a.work = &work{action: step.action}
		if err := a.finish(outcome{err: step.err}); (err != nil) != step.ends {
			t.Errorf("step %d: %q ends with %v: error %v", i, step.action, step.err, err)
		}
	}
}

func TestObservation(t *testing.T) {
	node := func(uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	o := newObservation()
	expect := func(want string, wantSynced bool) {
		t.Helper()
		got, synced := "", false
		n, synced := o.get()
		if n != nil {
			got = n.ResourceVersion
		}
		if got != want || synced != wantSynced {
			t.Errorf("observed %q, %t; want %q, %t", got, synced, want, wantSynced)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	expect("", false)
	do(o.Replace([]any{node("old", "9")}, "9"))
	do(o.Update(node("old", "10")))
	do(o.Update(node("old", "9"))) // The watch sends it late.
	expect("10", true)
	do(o.Add(node("new", "12")))
	do(o.Delete(node("old", "11"))) // The previous Node.
	expect("12", true)
	do(o.Delete(node("new", "13")))
	expect("", true)
	do(o.Update(node("new", "12"))) // The answer to a write comes late.
	expect("", true)
	do(o.Add(node("old", "odd")))
	do(o.Update(node("old", "other")))
	expect("other", true)
	do(o.Replace(nil, "14"))
	expect("", true)
}
