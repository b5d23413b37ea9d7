// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

const (
	goodToken    = "good-token-7Hq"
	goodPassword = "good-password-9Zk"
	own          = "moult-system"
	ofSecret     = "AlertsUnreachable: spec.gates.alerts.secretName: "
	ofServer     = "AlertsUnreachable: Prometheus does not answer: "
)

// vault is a Prometheus with TLS that answers who has a credential, and the API server's Secrets.
type vault struct {
	client.Reader
	*httptest.Server
	reads int
	err   error

	mu sync.Mutex
	// accepts is the Authorization header that it answers. seen has those of all requests.
	accepts string
	seen    []string
	answer  http.HandlerFunc
}

func newVault(t *testing.T) *vault {
	v := &vault{accepts: "Bearer " + goodToken, answer: says(200, vector())}
	v.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.seen = append(v.seen, r.Header.Get("Authorization"))
		if v.accepts != "" && r.Header.Get("Authorization") != v.accepts {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		v.answer(w, r)
	}))
	t.Cleanup(v.Close)
	return v
}

// Get implements client.Reader.
func (v *vault) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	v.reads++
	if v.err != nil {
		return v.err
	}
	return v.Reader.Get(ctx, key, o, opts...)
}

// ca is the certificate of a server's authority.
func ca(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func basic(username, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}

func newSecret(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: PrometheusSecret}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// guarded returns a bench with Secrets, and a budget whose gate names one.
func (v *vault) guarded(t *testing.T, secrets ...client.Object) (*bench, *v1alpha1.NodeDisruptionBudget) {
	t.Helper()
	b := newBench(t, secrets...)
	v.Reader = b.Client
	b.gates.api, b.gates.namespace = v, own
	return b, budgetWith(t, "{alerts: {url: '"+v.URL+"', secretName: "+PrometheusSecret+"}}")
}

func TestAlertsGateWithSecret(t *testing.T) {
	other := newVault(t)
	for name, tc := range map[string]struct {
		change func(*vault, map[string]string)
		want   string
	}{
		"token":      {nil, ""},
		"a new line": {func(_ *vault, s map[string]string) { s["token"] += "\n"; s["url"] += "/else?x=y\n" }, ""},
		"password": {func(v *vault, s map[string]string) {
			v.accepts = basic("moult", goodPassword)
			delete(s, "token")
			s["username"], s["password"] = "moult", goodPassword
		}, ""},
		"authority alone": {func(v *vault, s map[string]string) { v.accepts = ""; delete(s, "token") }, ""},
		"alerts": {func(v *vault, _ map[string]string) { v.answer = says(200, vector(sample("A", "firing", "1"))) },
			"AlertsActive: 1 alert is active: A"},
		"wrong token": {func(_ *vault, s map[string]string) { s["token"] = "bad-token" },
			ofSecret + "Prometheus answers 401: Secret moult-system/moult-prometheus must have a token, or a username and password, that may query it"},
		"wrong password": {func(v *vault, s map[string]string) {
			v.accepts = basic("moult", "other")
			delete(s, "token")
			s["username"], s["password"] = "moult", goodPassword
		}, ofSecret + "Prometheus answers 401: "},
		"not allowed": {func(v *vault, _ map[string]string) { v.answer = says(403, "") }, ofSecret + "Prometheus answers 403: "},
		"no authority": {func(_ *vault, s map[string]string) { delete(s, "ca.crt") },
			ofServer + "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"elsewhere": {func(_ *vault, s map[string]string) { s["url"] = other.URL },
			ofSecret + "Secret moult-system/moult-prometheus: key url must be https://127.0.0.1:"},
		"moved": {func(v *vault, _ map[string]string) {
			v.answer = http.RedirectHandler(other.URL+"/api/v1/query?token="+goodToken, http.StatusTemporaryRedirect).ServeHTTP
		}, ofServer + "it has moved to " + other.URL + "/api/v1/query, which is not followed with credentials"},
		"moved on the host": {func(v *vault, _ map[string]string) {
			v.answer = http.RedirectHandler("/api/v1/query", http.StatusPermanentRedirect).ServeHTTP
		}, ofServer + "it has moved to https://127.0.0.1:"},
		"repeated": {func(v *vault, _ map[string]string) {
			v.answer = says(422, `{"status":"error","errorType":"bad_data","error":"what is `+goodToken+`?"}`)
		}, ofServer + "the error is not shown, because it has the credentials"},
		"no Secret": {func(v *vault, _ map[string]string) {
			v.err = apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "x")
		}, ofSecret + "there is no Secret moult-system/moult-prometheus: create it with the keys url, and token or username and password"},
		"no right": {func(v *vault, _ map[string]string) {
			v.err = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", io.EOF)
		}, ofSecret + "the operator may not read Secret moult-system/moult-prometheus: use moult-prometheus, or add the name to the Role moult-prometheus"},
		"no answer": {func(v *vault, _ map[string]string) { v.err = io.ErrUnexpectedEOF },
			ofServer + "reading Secret moult-system/moult-prometheus, unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t)
			s := map[string]string{"url": v.URL, "token": goodToken, "ca.crt": ca(v.Server)}
			if tc.change != nil {
				tc.change(v, s)
			}
			b, from := v.guarded(t, newSecret(s))
			b.poller(from).query(t.Context())
			if got := b.says(from); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			text, err := json.Marshal(b.Budget(from))
			if err != nil || strings.Contains(string(text), goodToken) || strings.Contains(string(text), goodPassword) {
				t.Errorf("it shows %s, %v", text, err)
			}
		})
	}
	if len(other.seen) > 0 {
		t.Errorf("another server got %d requests", len(other.seen))
	}
}

// The Secret is read once a minute, and after a query that failed. A wrong Secret sends nothing.
func TestAlertsGateReadsSecretAgain(t *testing.T) {
	v := newVault(t)
	s := newSecret(map[string]string{"url": v.URL, "token": goodToken, "ca.crt": ca(v.Server)})
	b, from := v.guarded(t, s)
	set := func(key, value string) {
		if s.Data[key] = []byte(value); b.Update(t.Context(), s) != nil {
			t.Fatal("the Secret can't be updated")
		}
	}
	const renewed = "renewed-token"
	p := b.poller(from)
	for _, step := range []struct {
		name    string
		after   time.Duration
		change  func()
		reads   int
		queries int
		failed  bool
	}{
		{"first", 0, nil, 1, 1, false},
		{"soon", 15 * time.Second, nil, 1, 2, false},
		{"a minute later", 45 * time.Second, nil, 2, 3, false},
		{"the server has another token", 15 * time.Second, func() { v.accepts = "Bearer " + renewed; set("token", renewed) }, 2, 4, true},
		{"with the new Secret", 15 * time.Second, nil, 3, 5, false},
		{"the Secret is for another server, and not read yet", 15 * time.Second, func() { set("url", "https://other") }, 3, 6, false},
		{"now it is", time.Minute, nil, 4, 6, true},
		{"again", 15 * time.Second, nil, 5, 6, true},
		{"it is right again", 15 * time.Second, func() { set("url", v.URL) }, 6, 7, false},
	} {
		if b.clock.SetTime(b.clock.Now().Add(step.after)); step.change != nil {
			step.change()
		}
		p.query(t.Context())
		if v.reads != step.reads || len(v.seen) != step.queries || p.failed != step.failed {
			t.Errorf("%s: %d reads, %d queries, %q", step.name, v.reads, len(v.seen), p.failure)
		}
	}
}

func TestCredentials(t *testing.T) {
	const address = "https://prometheus:9090/base"
	right := "https://Prometheus:9090/"
	for name, tc := range map[string]struct {
		data map[string]string
		want string
	}{
		"nothing":              {nil, "key url must be https://prometheus:9090, the scheme and host of spec.gates.alerts.url"},
		"another port":         {map[string]string{"url": "https://prometheus", "token": "t"}, "key url must be"},
		"another scheme":       {map[string]string{"url": "http://prometheus:9090", "token": "t"}, "key url must be"},
		"a part of the host":   {map[string]string{"url": "https://prometheus:9090@other", "token": "t"}, "key url must be"},
		"no URL":               {map[string]string{"url": "https://prometheus:9090\x7f", "token": "t"}, "key url must be"},
		"no credentials":       {map[string]string{"url": right, "token": " \n"}, "key token, or keys username and password, are missing"},
		"too many":             {map[string]string{"url": right, "token": "t", "username": "u"}, "remove key token, or keys username"},
		"no password":          {map[string]string{"url": right, "username": "u"}, "keys username and password are needed together"},
		"no username":          {map[string]string{"url": right, "password": "p"}, "keys username and password are needed together"},
		"no certificate":       {map[string]string{"url": right, "token": "t", "ca.crt": "x"}, "key ca.crt must have certificates in PEM"},
		"token":                {map[string]string{"url": right, "token": "t"}, "<nil>"},
		"username":             {map[string]string{"url": right, "username": "u", "password": "p"}, "<nil>"},
		"another key, ignored": {map[string]string{"url": right, "token": "t", "tls.key": "x"}, "<nil>"},
	} {
		_, err := newCredentials(newSecret(tc.data).Data, address)
		if got := fmt.Sprint(err); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if _, err := newCredentials(newSecret(map[string]string{"url": "http://a", "token": "t"}).Data, "http://a"); err == nil {
		t.Error("credentials are sent over http")
	}
}
