// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/dashboard"
	"moult.dev/moult/internal/view"
	"moult.dev/moult/test/audit"
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
	door, err := newAccess(d.cluster.Config(), must(rest.HTTPClientFor(d.cluster.Config())))
	if err != nil {
		t.Fatal(err)
	}
	handler := door.guard(pages)
	lists := func(groups, kinds []string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: groups, Resources: kinds}}
	}
	roleIn := func(namespace string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "some"}, Rules: lists([]string{"upgrade.cattle.io"}, []string{"plans"})}
	}
	bindingIn := func(namespace string, subjects []rbacv1.Subject) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "some"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "some"},
		}
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
		roleIn(d.namespace), roleIn(other), all, bindingIn(d.namespace, subject("some")), bindingIn(other, subject("elsewhere")),
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
		"an expired one":                {expire(t, d, token("all"), -time.Hour), 401, ""},
		"the same that is not expired":  {expire(t, d, token("all"), time.Hour), 200, "first second third"},
		"a token for another audience":  {token("all", "another"), 401, ""},
		"one who may list nothing":      {token("none"), 200, ""},
		"one who may list in namespace": {token("some"), 200, "first"},
		"one who may list elsewhere":    {token("elsewhere"), 200, "second"},
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
				refused := tc.code == 401 && tc.token != ""
				if got := strings.Contains(w.Body.String(), "The token was refused"); got != refused {
					t.Errorf("by cookie %t: the page says that a token was refused: %t", byCookie, got)
				}
				if refused && strings.Contains(w.Body.String(), tc.token) {
					t.Error("the page repeats the token")
				}
				if out := strings.Contains(w.Body.String(), `action="/logout"`); out != (byCookie && tc.code == 200) {
					t.Errorf("by cookie %t: a button to log out: %t", byCookie, out)
				}
				for _, path := range []string{
					"/fleet.json", "/changes", "/nodes/n", "/nodes?name=n", "/rollouts/NodeRollout/-/third", "/logs/NodeRollout/-/third/n", "/assets/dashboard.js",
				} {
					if tc.code == 200 {
						break
					}
					r, w := r.Clone(ctx), httptest.NewRecorder()
					r.URL = must(url.Parse(path))
					if handler.ServeHTTP(w, r); w.Code != 401 || strings.Contains(w.Body.String(), "third") {
						t.Errorf("by cookie %t: %s: %d", byCookie, path, w.Code)
					}
				}
			}
		})
	}
}

// expire returns the token with another time of expiry, signed by the cluster's key.
func expire(t *testing.T, d *daemons, token string, after time.Duration) string {
	t.Helper()
	parts := strings.Split(token, ".")
	var claims map[string]any
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(parts[1])), &claims); err != nil {
		t.Fatal(err)
	}
	claims["exp"] = time.Now().Add(after).Unix()
	parts[1] = base64.RawURLEncoding.EncodeToString(must(json.Marshal(claims)))
	block, _ := pem.Decode(must(os.ReadFile(filepath.Join(filepath.Dir(d.cluster.Kubeconfig()), "pki", "service-account.key"))))
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	a, b, err := ecdsa.Sign(rand.Reader, must(x509.ParseECPrivateKey(block.Bytes)), digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	a.FillBytes(signature[:32])
	b.FillBytes(signature[32:])
	parts[2] = base64.RawURLEncoding.EncodeToString(signature)
	return strings.Join(parts, ".")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Who logs out has no token in the browser any more. A link can't do it.
func TestLogout(t *testing.T) {
	handler := (&access{}).guard(http.NotFoundHandler())
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/logout", nil))
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(cookies) != 1 || cookies[0].Value != "" || cookies[0].MaxAge >= 0 {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
}

// The account of config/dashboard may do what the pages need, whatever the operator's name is, and nothing else. Nothing can be changed.
func TestAPIDashboardRole(t *testing.T) {
	d := newDaemons(t, 1)
	requests, err := audit.Open(d.cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	if err := requests.Read("\x00", nil); err != nil { // What was asked before.
		t.Fatal(err)
	}
	unused := d.dashboardRole()
	d.create(d.daemon("pages", "i"))
	d.create(&v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: d.namespace},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{Gates: &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{
			{NamespaceSelector: &metav1.LabelSelector{}},
		}}},
	})
	// Two pods of an operator: the one that has the Lease works.
	const operator = "an-operator"
	for _, name := range []string{"first", "second"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name, Labels: map[string]string{upgradev1.LabelController: operator}}}
		pod.Spec.NodeName, pod.Spec.Containers = "elsewhere", []corev1.Container{{Name: "c", Image: "i"}}
		d.create(pod)
	}
	d.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: operator}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("second")},
	})
	config := d.cluster.Config()
	config.Impersonate.UserName = "system:serviceaccount:moult-system:moult-dashboard"
	src, err := source.Connect(inCluster{config})
	if err != nil {
		t.Fatal(err)
	}
	door, err := newAccess(config, must(rest.HTTPClientFor(config)))
	if err != nil {
		t.Fatal(err)
	}
	pages := moult.NewPages(clock.RealClock{}, src)
	pages.WithoutLogs()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pages.Run(ctx) }()
	body := ""
	d.await("the pages show the cluster", func() string {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if body = w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, d.namespace+"/pages") {
			return body
		}
		return ""
	})
	if strings.Contains(body, `class="note"`) {
		t.Errorf("something is not shown:\n%s", body)
	}
	accounts := d.clientset.CoreV1().ServiceAccounts(d.namespace)
	viewer := must(accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}}, metav1.CreateOptions{}))
	token := must(accounts.CreateToken(ctx, viewer.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	r, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header.Set("Authorization", "Bearer "+token.Status.Token)
	if door.guard(pages).ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("a viewer gets %d", w.Code)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := requests.Read(config.Impersonate.UserName, func(e *audit.Event) {
		if e.Impersonated.Username != config.Impersonate.UserName || e.Object.Resource == "" {
			return
		}
		if e.Response.Code == http.StatusForbidden && e.Resource() != "leases" { // The Lease is looked for in two namespaces.
			t.Errorf("it may not %s %s in namespace %q", e.Verb, e.Resource(), e.Object.Namespace)
		}
		delete(unused, [3]string{e.Verb, e.Object.Group, e.Resource()})
		if e.Verb == "watch" { // Before Kubernetes 1.34 a watch begins with a list.
			delete(unused, [3]string{"list", e.Object.Group, e.Resource()})
		}
	}); err != nil {
		t.Fatal(err)
	}
	for right := range unused {
		t.Errorf("the dashboard does not use the right to %s %s/%s", right[0], right[1], right[2])
	}
}

// dashboardRole creates the roles of config/dashboard, with the test's namespace as that of the Lease. It returns what they allow: verb, group and
// resource. A user that is impersonated needs no ServiceAccount.
func (d *daemons) dashboardRole() map[[3]string]bool {
	d.Helper()
	manifest := string(must(os.ReadFile("../../config/dashboard/role.yaml")))
	manifest = strings.ReplaceAll(manifest, "namespace: system-upgrade\n", "namespace: "+d.namespace+"\n")
	rights := map[[3]string]bool{}
	for part := range strings.SplitSeq(manifest, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(part), &o.Object); err != nil {
			d.Fatal(err)
		}
		if o.GetKind() == "ServiceAccount" {
			continue
		}
		d.create(o)
		var role rbacv1.ClusterRole // Roles have the same rules.
		if err := yaml.Unmarshal([]byte(part), &role); err != nil {
			d.Fatal(err)
		}
		for _, rule := range role.Rules {
			asks := rule.APIGroups[0] == "authentication.k8s.io" || rule.APIGroups[0] == "authorization.k8s.io"
			for _, verb := range rule.Verbs {
				if asks != (verb == "create") || !asks && !slices.Contains([]string{"get", "list", "watch"}, verb) {
					d.Errorf("the role may %s %v", verb, rule.Resources)
				}
				for _, resource := range rule.Resources {
					rights[[3]string{verb, rule.APIGroups[0], resource}] = true
				}
			}
		}
	}
	return rights
}
