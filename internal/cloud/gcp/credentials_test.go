// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/gcp"
	"moult.dev/moult/test/clouds"
	double "moult.dev/moult/test/clouds/gcp"
)

func TestCredentials(t *testing.T) {
	p := newProject(t, zonal("pool", 1))
	provider, endpoint := v1alpha1.GCPProvider{Project: double.Project}, p.url
	describe := func(t *testing.T) error {
		t.Helper()
		c, err := gcp.New(t.Context(), &provider, endpoint)
		if err != nil {
			return err
		}
		_, err = c.ScaleSet("zones/europe-west1-b/pool").Describe(t.Context())
		return err
	}
	t.Run("of the machine", func(t *testing.T) {
		if err := describe(t); err != nil {
			t.Error(err)
		}
	})
	t.Run("no service account", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
		wantKind(t, "describing", describe(t), cloud.KindDenied, "token")
	})
	t.Run("no such file", func(t *testing.T) {
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
		wantKind(t, "describing", describe(t), cloud.KindDenied, "finding credentials")
	})
	// A workload's identity: a token of the cluster is exchanged for one of Google.
	t.Run("workload identity", func(t *testing.T) {
		asked := ""
		sts := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked = r.FormValue("subject_token")
			rw.Header().Set("Content-Type", "application/json")
			if asked != "good" {
				rw.WriteHeader(http.StatusBadRequest)
				_, _ = rw.Write([]byte(`{"error":"invalid_grant"}`))
				return
			}
			_, _ = rw.Write([]byte(`{"access_token":"moult-test-token","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",
				"token_type":"Bearer","expires_in":3600}`))
		}))
		defer sts.Close()
		dir := t.TempDir()
		token, config := filepath.Join(dir, "token"), filepath.Join(dir, "config.json")
		write := func(path, text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(token, "good")
		write(config, `{"type":"external_account","audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
			"subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"`+sts.URL+`","credential_source":{"file":"`+token+`"}}`)
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", config)
		if err := describe(t); err != nil || asked != "good" {
			t.Errorf("asked with %q, %v", asked, err)
		}
		write(token, "bad")
		wantKind(t, "describing", describe(t), cloud.KindDenied, "invalid_grant")
	})
	t.Run("another token", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Metadata-Flavor", "Google")
			_, _ = rw.Write([]byte(`{"access_token":"stale","expires_in":3600,"token_type":"Bearer"}`))
		}))
		defer server.Close()
		t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
		wantKind(t, "describing", describe(t), cloud.KindDenied, "Invalid Credentials")
	})
	// The token is asked for when it is needed.
	t.Run("impersonation", func(t *testing.T) {
		provider := provider
		provider.ServiceAccount = "moult@moult-test.iam.gserviceaccount.com"
		if _, err := gcp.New(t.Context(), &provider, endpoint); err != nil {
			t.Error(err)
		}
	})
	t.Run("in clear text over the network", func(t *testing.T) {
		_, err := gcp.New(t.Context(), &provider, "http://compute.example.com")
		wantKind(t, "making a cloud", err, cloud.KindInvalid, "https")
	})
	t.Run("no one there", func(t *testing.T) {
		server := httptest.NewServer(double.Handler(clouds.New(t.Context(), clouds.Options{})))
		server.Close()
		endpoint = server.URL
		wantKind(t, "describing", describe(t), cloud.KindUnavailable, "refused")
	})
}
