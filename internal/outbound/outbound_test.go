// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// No connection is made to an address that only the operator's machine can reach, whatever its spelling.
func TestLocalAddresses(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1:80", "127.8.9.10:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80", "169.254.169.254:80", "[::ffff:169.254.169.254]:80",
		"[fe80::1%eth0]:80", "[fd00:ec2::254]:80", "[fd00:ec2::23]:80", "[fd20:ce::254]:80", "[64:ff9b::a9fe:a9fe]:80", "168.63.129.16:80", "224.0.0.1:80", "nonsense",
	} {
		if refuseLocal("tcp", address, nil) == nil {
			t.Errorf("%s is not refused", address)
		}
	}
	for _, address := range []string{"10.0.0.1:80", "192.0.2.1:443", "[2001:db8::1]:443", "[64:ff9b::c000:201]:443", "[fd00::1]:9090"} {
		if err := refuseLocal("tcp", address, nil); err != nil {
			t.Error(err)
		}
	}
}

func get(t *testing.T, local bool, address string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: NewTransport(local), CheckRedirect: SameHost}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = io.WriteString(w, strings.Repeat("x", maxAnswer+1))
		case "/full":
			_, _ = io.WriteString(w, strings.Repeat("x", maxAnswer))
		case "/elsewhere":
			http.Redirect(w, r, "http://user:secret@example.invalid/there?token=secret", http.StatusMovedPermanently)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		case "/ever":
			http.Redirect(w, r, "/ever", http.StatusMovedPermanently)
		default:
			_, _ = io.WriteString(w, "hello")
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{
		"/large": "larger than 2 MiB", "/elsewhere": "moved to another host, http://example.invalid/there, which", "/ever": "moved 5 times",
	} {
		if _, err := get(t, true, server.URL+path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if text, err := get(t, true, server.URL+"/full"); err != nil || len(text) != maxAnswer {
		t.Errorf("got %d bytes, %v", len(text), err)
	}
	if text, err := get(t, true, server.URL+"/moved"); err != nil || text != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := get(t, false, server.URL); err == nil || !strings.Contains(err.Error(), "--allow-local-addresses") {
		t.Errorf("a local address is reached: %v", err)
	}
}

func TestRedacted(t *testing.T) {
	u, err := url.Parse("https://user:secret@example.com:8443/channel/v1?token=secret#part")
	if err != nil {
		t.Fatal(err)
	}
	if got := Redacted(u); got != "https://example.com:8443/channel/v1" {
		t.Error(got)
	}
}

// FuzzRedacted finds URLs of which a part stays that may be secret.
func FuzzRedacted(f *testing.F) {
	for _, text := range []string{"https://u:p@h/a?b#c", "http:opaque?x", "//h/%3Fq", "https://h/a%23b", "x://[::1]/", "?", "https://h?a#b@c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return // Nothing is sent to it.
		}
		got, err := url.Parse(Redacted(u))
		if err != nil || got.User != nil || got.RawQuery != "" || got.Fragment != "" || got.Host != u.Host {
			t.Errorf("%q became %q, %v", text, Redacted(u), err)
		}
	})
}
