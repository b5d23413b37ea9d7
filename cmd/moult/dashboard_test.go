// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/dashboard"
	"moult.dev/moult/internal/view"
)

// Who has no valid token gets the login page. Others see what they may list.
func TestAPIDashboard(t *testing.T) {
	d := newDaemons(t, 0)
	ctx := t.Context()
	other := d.newNamespace()
	pages := dashboard.New(clock.RealClock{}, dashboard.Reader{})
	pages.Publish(&dashboard.State{Rollouts: []view.Rollout{
		{Kind: "Plan", Namespace: d.namespace, Name: "first"}, {Kind: "Plan", Namespace: other, Name: "second"}, {Kind: "NodeRollout", Name: "third"},
	}})
	door, err := newDoor(d.cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	handler := door.guard(pages)
	lists := func(groups, kinds []string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: groups, Resources: kinds}}
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "some"}, Rules: lists([]string{"upgrade.cattle.io"}, []string{"plans"}),
	}
	all := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: d.namespace},
		Rules: lists([]string{"", "upgrade.cattle.io", "datadoghq.com", "moult.dev"},
			[]string{"plans", "extendeddaemonsets", "noderollouts", "nodedisruptionbudgets", "nodes"}),
	}
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: d.namespace, Name: name}}
	}
	for _, o := range []client.Object{
		role, all,
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "some"}, Subjects: subject("some"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "some"},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: d.namespace}, Subjects: subject("all"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: d.namespace},
		},
	} {
		if err := d.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		if o.GetNamespace() == "" {
			t.Cleanup(func() { _ = d.Delete(context.WithoutCancel(ctx), o) })
		}
	}
	token := func(name string, audiences ...string) string {
		of := d.clientset.CoreV1().ServiceAccounts(d.namespace)
		_, _ = of.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}) // It may be there.
		made, err := of.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	gone := token("gone")
	if err := d.clientset.CoreV1().ServiceAccounts(d.namespace).Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	forged := token("all")
	forged = forged[:len(forged)-4] + strings.ToUpper(forged[len(forged)-4:])
	for name, tc := range map[string]struct {
		token string
		code  int
		sees  string
	}{
		"no token":                      {"", 401, ""},
		"nonsense":                      {"abc", 401, ""},
		"a changed signature":           {forged + "A", 401, ""},
		"a deleted account's":           {gone, 401, ""},
		"a token for another audience":  {token("all", "another"), 401, ""},
		"one who may list nothing":      {token("none"), 200, ""},
		"one who may list in namespace": {token("some"), 200, "first"},
		"one who may list everything":   {token("all"), 200, "first second third"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, byCookie := range []bool{false, true} {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				if byCookie {
					w := httptest.NewRecorder()
					login := httptest.NewRequestWithContext(ctx, http.MethodPost, "/login", strings.NewReader(url.Values{"token": {tc.token}}.Encode()))
					login.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					handler.ServeHTTP(w, login)
					r.AddCookie(w.Result().Cookies()[0])
				} else {
					r.Header.Set("Authorization", "Bearer "+tc.token)
				}
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				var sees []string
				for _, of := range []string{"first", "second", "third"} {
					if strings.Contains(w.Body.String(), "/"+of+`"`) {
						sees = append(sees, of)
					}
				}
				if got := strings.Join(sees, " "); w.Code != tc.code || got != tc.sees {
					t.Errorf("by cookie %t: %d, sees %q", byCookie, w.Code, got)
				}
			}
		})
	}
}
