// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
	"moult.dev/moult/test/tier"
)

// accounts are those whose rights are compared with what they do: the operator's, which replaces machines too, and the agents'.
var accounts = []string{"system:serviceaccount:" + operators + ":moult", "system:serviceaccount:" + namespace + ":moult-agent"}

// unseen are the rights that the audit log does not show in use, and which test uses them, or why the accounts have them.
var unseen = map[string]string{
	`ClusterRole "moult-agent": impersonate-on:associated-node:get nodes`: "an agent that has restarted reads its Node before a reboot: " +
		"TestAPI in internal/agent",
	`ClusterRole "moult-controller": list events`:                                                  "TestAPIReducedRights in cmd/moult",
	`Role "moult-notifications": patch configmaps moult-notifications`:                             notifies,
	`Role "moult-notifications": create configmaps`:                                                notifies,
	`ClusterRole "moult-controller": delete extendeddaemonsetreplicasets.datadoghq.com`:            "TestAPIReducedRights in cmd/moult",
	`ClusterRole "moult-controller": get extendeddaemonsets.datadoghq.com`:                         "TestAPIReducedRights in cmd/moult",
	`ClusterRole "moult-controller": update extendeddaemonsets/finalizers.datadoghq.com`:           admitted,
	`ClusterRole "moult-controller": update extendeddaemonsetreplicasets/finalizers.datadoghq.com`: admitted,
}

// notifies is which test writes what notifications were sent.
const notifies = "TestAPI in internal/controller/notify"

// admitted is why rights on finalizers are there.
const admitted = "the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift runs, refuses owner references without it"

// unseenInShort are those that only the tests with the tag "all" use.
var unseenInShort = map[string]string{
	`ClusterRole "moult-replacement": get nodes`:            "TestControlPlane",
	`Role "moult-kubeadm": get configmaps kubeadm-config`:   "TestControlPlane",
	`Role "moult-kubeadm": patch configmaps kubeadm-config`: "TestControlPlane",
}

// right is a verb on a resource, by a rule of a role.
type right struct{ role, verb, group, resource, name string }

func (r right) String() string {
	text := r.role + ": " + r.verb + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.name != "" {
		text += " " + r.name
	}
	return text
}

// rightsOf takes the rules of a role apart.
func rightsOf(role string, rules []rbacv1.PolicyRule) (all []right) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, right{role, verb, group, resource, name})
					}
				}
			}
		}
	}
	return all
}

// allowedBy is how the API server says in the audit log which role has allowed a request.
var allowedBy = regexp.MustCompile(`^RBAC: allowed by .* of ((?:Cluster)?Role "[^"]+")`)

// usedBy returns which of the rights a request has used: of the role that the API server names, the first that allows it.
func usedBy(e *audit.Event, rights []right) (used []right) {
	verbs := []string{e.Verb}
	if e.Verb == "watch" {
		verbs = append(verbs, "list") // Before Kubernetes 1.34 a watch begins with a list.
	}
	add := func(role, verb, group, resource string) {
		i := slices.IndexFunc(rights, func(r right) bool {
			return (role == "" || r.role == role) && r.verb == verb && r.group == group && r.resource == resource && (r.name == "" || r.name == e.Object.Name)
		})
		if i >= 0 {
			used = append(used, rights[i])
		}
	}
	switch role := allowedBy.FindStringSubmatch(e.Annotations["authorization.k8s.io/reason"]); {
	case e.Refused() || e.Object.Resource == "":
	case e.Impersonated.Username != "":
		add("", "impersonate:associated-node", "authentication.k8s.io", "nodes")
		for _, verb := range verbs {
			add("", "impersonate-on:associated-node:"+verb, e.Object.Group, e.Resource())
		}
	case role != nil:
		for _, verb := range verbs {
			add(role[1], verb, e.Object.Group, e.Resource())
		}
	}
	return used
}

// compareRights returns an error for each right that no request has used and no reason explains, for each reason without such a right, and for each
// request that was refused.
func compareRights(rights []right, requests []*audit.Event, reasons map[string]string, whole bool) error {
	var errs []error
	used, known := map[right]bool{}, map[string]bool{}
	for _, e := range requests {
		for _, r := range usedBy(e, rights) {
			used[r] = true
		}
		decision := e.Annotations["authorization.k8s.io/decision"]
		if decision == "forbid" || decision == "" && e.Response.Code == 403 {
			errs = append(errs, fmt.Errorf("%s has no right to %s %s %s/%s", e.User.Username, e.Verb, e.Resource(), e.Object.Namespace, e.Object.Name))
		}
	}
	for _, r := range rights {
		known[r.String()] = true
		if whole && !used[r] && reasons[r.String()] == "" {
			errs = append(errs, fmt.Errorf("no test uses the right %s: remove it, test it, or explain it in rights_test.go", r))
		}
	}
	for name := range reasons {
		if !known[name] {
			errs = append(errs, fmt.Errorf("rights_test.go explains %s, and there is no such right", name))
		}
	}
	return errors.Join(errs...)
}

// rightsByUse compares what the accounts may do with what they have asked for. Only a run of all tests, with machines for the agents, shows what no
// test uses.
func rightsByUse(ctx context.Context, passed bool) error {
	rights, err := grantedRights(ctx)
	if err != nil {
		return err
	}
	log, err := audit.Open(world.AuditLog())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	var requests []*audit.Event
	err = log.Read(`"system:serviceaccount:`, func(e *audit.Event) {
		if slices.Contains(accounts, e.User.Username) || strings.HasPrefix(e.UserAgent, operator.UserAgent) {
			requests = append(requests, e)
		}
	})
	reasons := maps.Clone(unseen)
	if !tier.All {
		maps.Copy(reasons, unseenInShort)
	}
	chosen := func(name string) string { return flag.Lookup("test." + name).Value.String() }
	whole := passed && world.noMachines == nil && chosen("run")+chosen("list") == "" && slices.Contains([]string{"", "^TestAPI"}, chosen("skip"))
	return errors.Join(err, compareRights(rights, requests, reasons, whole))
}

// grantedRights are those of the roles that are bound to the accounts.
func grantedRights(ctx context.Context) (rights []right, err error) {
	isOurs := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && slices.Contains(accounts, "system:serviceaccount:"+s.Namespace+":"+s.Name)
		})
	}
	var inCluster rbacv1.ClusterRoleBindingList
	var inNamespaces rbacv1.RoleBindingList
	if err := errors.Join(world.List(ctx, &inCluster), world.List(ctx, &inNamespaces)); err != nil {
		return nil, err
	}
	refs := map[rbacv1.RoleRef]string{}
	for _, b := range inCluster.Items {
		if isOurs(b.Subjects) {
			refs[b.RoleRef] = ""
		}
	}
	for _, b := range inNamespaces.Items {
		if isOurs(b.Subjects) {
			refs[b.RoleRef] = b.Namespace
		}
	}
	for ref, namespace := range refs {
		var rules []rbacv1.PolicyRule
		if ref.Kind == "Role" {
			var role rbacv1.Role
			err = world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role)
			rules = role.Rules
		} else {
			var role rbacv1.ClusterRole
			err = world.Get(ctx, client.ObjectKey{Name: ref.Name}, &role)
			rules = role.Rules
		}
		if err != nil {
			return nil, err
		}
		rights = append(rights, rightsOf(fmt.Sprintf("%s %q", ref.Kind, ref.Name), rules)...)
	}
	slices.SortStableFunc(rights, func(a, b right) int { return cmp.Compare(a.role, b.role) })
	return rights, nil
}

// What no request uses is found, and what is refused, and a reason that explains nothing.
func TestRightsAreCompared(t *testing.T) {
	t.Parallel()
	rights := rightsOf(`ClusterRole "c"`, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list", "watch"}},
	})
	event := func(verb, group, resource, name, decision, reason string) *audit.Event {
		e := &audit.Event{Verb: verb, User: audit.User{Username: "u"}, Annotations: map[string]string{}}
		e.Object.Group, e.Object.Resource, e.Object.Name = group, resource, name
		e.Annotations["authorization.k8s.io/decision"], e.Annotations["authorization.k8s.io/reason"] = decision, reason
		return e
	}
	const byRole = `RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "c" to ServiceAccount "moult/moult-system"`
	got := compareRights(rights, []*audit.Event{
		event("patch", "", "nodes", "n", "allow", byRole),
		event("get", "", "namespaces", "other", "allow", byRole),
		event("watch", "apps", "daemonsets", "", "allow", byRole),
		event("get", "", "secrets", "s", "forbid", ""),
	}, map[string]string{`ClusterRole "c": get pods`: "once"}, true)
	want := strings.Join([]string{
		`u has no right to get secrets /s`,
		`no test uses the right ClusterRole "c": patch nodes/status: remove it, test it, or explain it in rights_test.go`,
		`no test uses the right ClusterRole "c": get namespaces kube-system: remove it, test it, or explain it in rights_test.go`,
		`rights_test.go explains ClusterRole "c": get pods, and there is no such right`,
	}, "\n")
	if diff := gocmp.Diff(want, fmt.Sprint(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
