// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
)

// asOverlay returns how to ask the API server with the rights of config/rbac and of a component beside it, and no others. At its end the test fails
// for each right of the component that it has not used.
func asOverlay(t *testing.T, c *cluster.Cluster, component string) *rest.Config {
	t.Helper()
	admin := must(kubernetes.NewForConfig(c.Config()))
	cfg := c.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "overlay:" + component, Groups: []string{"system:authenticated"}}
	var role rbacv1.ClusterRole
	for _, file := range []string{"rbac/controller-role.yaml", component + "/rights.yaml"} {
		role = rbacv1.ClusterRole{}
		text, _, _ := strings.Cut(string(must(os.ReadFile("../../config/"+file))), "\n---\napiVersion: ") // The binding follows.
		if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		role.Name = "overlay-" + role.Name
		name := role.Name
		must(admin.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}))
		must(admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: cfg.Impersonate.UserName}},
		}, metav1.CreateOptions{}))
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			_ = admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
			_ = admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	last := &role.Rules[len(role.Rules)-1]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: cfg.Impersonate.UserName, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: last.Verbs[0], Group: last.APIGroups[0], Resource: last.Resources[0], Name: append(last.ResourceNames, "")[0],
		},
	}}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && got.Status.Allowed, err
	}); err != nil {
		t.Fatalf("the rights of %s: %v", component, err)
	}
	log := must(audit.Open(c.AuditLog()))
	if err := log.Read("\x00", nil); err != nil { // What was asked before.
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer log.Close()
		unused := map[[3]string]bool{}
		for _, rule := range role.Rules {
			if len(rule.Resources) != 1 {
				t.Errorf("a rule of config/%s has %d resources, and one is compared", component, len(rule.Resources))
			}
			for _, verb := range rule.Verbs {
				for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
					unused[[3]string{verb, rule.Resources[0], name}] = true
				}
			}
		}
		if err := log.Read(cfg.Impersonate.UserName, func(e *audit.Event) {
			if e.Response.Code == http.StatusForbidden {
				t.Errorf("%s may not %s %s %s", component, e.Verb, e.Resource(), e.Object.Name)
			}
			if e.Response.Code == http.StatusCreated { // Apply asks for both rights.
				delete(unused, [3]string{"create", e.Resource(), ""})
			}
			if strings.Contains(e.Annotations["authorization.k8s.io/reason"], `"`+role.Name+`"`) {
				delete(unused, [3]string{e.Verb, e.Resource(), ""})
				delete(unused, [3]string{e.Verb, e.Resource(), e.Object.Name})
			}
		}); err != nil {
			t.Error(err)
		}
		for right := range unused {
			t.Errorf("no test uses the right of config/%s to %s", component, strings.Join(right[:], " "))
		}
	})
	return cfg
}
