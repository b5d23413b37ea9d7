// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
)

func TestReadAsNode(t *testing.T) {
	for as, want := range map[ReadAsNode][]string{"": {"system:node:n1", ""}, "auto": {"system:node:n1", ""}, "always": {"system:node:n1"}, "never": {""}} {
		configs, err := as.configs(&rest.Config{}, "n1")
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
	if _, err := ReadAsNode("perhaps").configs(&rest.Config{}, "n1"); err == nil {
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

// readsThatAreRefused: a token that is bound to no node may not act as one.
func readsThatAreRefused(t *testing.T, config *rest.Config) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "node-reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	reader := func(as ReadAsNode, config *rest.Config) *reader {
		r, err := newReader(limited(config), as, n.Name, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	reads := account(t, config, client, "reads", true)
	r := reader(ReadAsNodeAuto, reads)
	for wait := 0; ; wait++ { // Until the API server knows of the binding.
		if _, err := reader(ReadAsNodeNever, reads).get(t.Context()); err == nil {
			break
		} else if !apierrors.IsForbidden(err) || wait == 1000 {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got, err := r.get(t.Context()); err != nil || got == nil || got.UID != n.UID {
			t.Fatalf("%v, error %v", got, err)
		}
	}
	if got := len(log.with("work in another")); got != 1 || r.first.Load() != 1 {
		t.Errorf("said %d times, remembers %d", got, r.first.Load())
	}
	if got, from, err := r.list(t.Context()); err != nil || got == nil || got.UID != n.UID || from == "" {
		t.Errorf("%v from %q, error %v", got, from, err)
	}
	if _, err := reader(ReadAsNodeAlways, reads).get(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("reading as the node alone: %v", err)
	}

	refused := reader(ReadAsNodeAuto, account(t, config, client, "nobody", false))
	for range 3 {
		_, err := refused.get(t.Context())
		if err == nil || !strings.Contains(err.Error(), "neither as system:node:"+n.Name) || !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
	}
	if got := len(log.with("can't be read")); got != 1 || refused.first.Load() != 0 {
		t.Errorf("said %d times, begins with %d", got, refused.first.Load())
	}
	l, err := NewLabeller(LabellerOptions{NodeName: n.Name, Config: reads})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.read(t.Context()); err != nil || got.Metadata.ResourceVersion == "" || l.first != 1 {
		t.Errorf("the labeller reads %v in way %d, error %v", got, l.first, err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), n.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestDeadSocket: where the host refuses connections for long, a new process may see another socket.
func TestDeadSocket(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	a := &Agent{options: Options{Clock: clock}}
	finish := func(action v1alpha1.HostAction, err error) error {
		a.work = &work{action: action}
		return a.finish(outcome{err: err})
	}
	refused := error(syscall.ECONNREFUSED)
	for _, step := range []struct {
		after  time.Duration
		action v1alpha1.HostAction
		err    error
		ends   bool
	}{
		{0, "", refused, false},
		{5 * time.Minute, v1alpha1.HostActionStabilize, refused, false},
		{4 * time.Minute, "", nil, false},
		{time.Minute, "", refused, false},
		{9 * time.Minute, "", refused, false},
		{time.Minute, v1alpha1.HostActionReboot, refused, false},
		{time.Minute, v1alpha1.HostActionStabilize, refused, true},
	} {
		clock.Step(step.after)
		if err := finish(step.action, step.err); (err != nil) != step.ends {
			t.Errorf("%s later %q ends with %v: error %v", step.after, step.action, step.err, err)
		}
	}
}

func TestAlive(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	a := &Agent{options: Options{Clock: clock}}
	if err := a.Alive(); err != nil {
		t.Error(err)
	}
	now := clock.Now()
	a.busySince.Store(&now)
	clock.Step(stuck)
	if err := a.Alive(); err != nil {
		t.Error(err)
	}
	clock.Step(time.Second)
	if err := a.Alive(); err == nil {
		t.Error("a round that takes so long is none")
	}
}

func TestSight(t *testing.T) {
	node := func(uid types.UID, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	s := newSight()
	if n, synced := s.now(); n != nil || synced {
		t.Error("it knows something")
	}
	s.see(node("old", "9"))
	s.see(node("old", "10"))
	s.see(node("old", "9")) // What the watch sends late.
	if n, _ := s.now(); n.ResourceVersion != "10" {
		t.Errorf("it sees %s", n.ResourceVersion)
	}
	s.see(node("new", "12"))
	s.miss(node("old", "11")) // The one before.
	if n, _ := s.now(); n == nil || n.ResourceVersion != "12" {
		t.Errorf("it sees %v", n)
	}
	s.miss(node("new", "13"))
	if n, synced := s.now(); n != nil || !synced {
		t.Errorf("it sees %v", n)
	}
	s.see(node("old", "odd"))
	s.see(node("old", "other"))
	if n, _ := s.now(); n.ResourceVersion != "other" {
		t.Errorf("it sees %s", n.ResourceVersion)
	}
}
