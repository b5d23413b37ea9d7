// SPDX-License-Identifier: Apache-2.0

package azure_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/test/clouds"
)

// bare is an environment that tells nothing of Azure.
func bare(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		key, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(key, "AZURE_") || strings.HasPrefix(key, "IDENTITY_") || strings.HasPrefix(key, "MSI_") {
			t.Setenv(key, "")
			if err := os.Unsetenv(key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCredential(t *testing.T) {
	for name, test := range map[string]struct {
		kind v1alpha1.AzureCredential
		env  map[string]string
		want string
	}{
		"auto":       {kind: v1alpha1.AzureCredentialAuto},
		"none given": {kind: ""},
		"managed":    {kind: v1alpha1.AzureCredentialManaged},
		"environment": {v1alpha1.AzureCredentialEnvironment, map[string]string{
			"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s",
		}, ""},
		"environment is empty": {v1alpha1.AzureCredentialEnvironment, nil, "AZURE_TENANT_ID"},
		"workload": {v1alpha1.AzureCredentialWorkload, map[string]string{
			"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_FEDERATED_TOKEN_FILE": filepath.Join(t.TempDir(), "token"),
		}, ""},
		"workload is not set up": {v1alpha1.AzureCredentialWorkload, nil, "credential Workload for Azure"},
		"unknown":                {"Magic", nil, "credential Magic for Azure"},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			for key, value := range test.env {
				t.Setenv(key, value)
			}
			c, err := azure.Credential(test.kind, "")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || (c == nil) != (err != nil) {
				t.Errorf("%v, %v, want %q", c, err, test.want)
			}
		})
	}
}

// TestIdentityChosen sees which identity the endpoint of the machine is asked for.
func TestIdentityChosen(t *testing.T) {
	for name, test := range map[string]struct{ clientID, env, want string }{
		"the only one": {}, "given": {"one", "two", "one"}, "of the environment": {"", "two", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			a := overHTTP(t, open(t, clouds.Options{}, uniform()))
			asked := make(chan string, 9)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.URL.Query().Get("client_id")
				a.azure.ServeHTTP(w, r)
			}))
			defer server.Close()
			t.Setenv("IDENTITY_ENDPOINT", server.URL+"/msi/token")
			if test.env != "" {
				t.Setenv("AZURE_CLIENT_ID", test.env)
			}
			credential, err := azure.Credential(v1alpha1.AzureCredentialAuto, test.clientID)
			if err != nil {
				t.Fatal(err)
			}
			c := provider(t, azure.Options{Endpoint: server.URL, Credential: credential})
			_, err = c.ScaleSet("s").Describe(t.Context())
			// MSAL keeps tokens for the whole process; one that it has is not asked for.
			select {
			case got := <-asked:
				if got != test.want || err != nil {
					t.Errorf("asked for %q, %v; want %q", got, err, test.want)
				}
			default:
				t.Error("nothing was asked")
			}
		})
	}
}

// TestNoProof has no one who can say who the operator is.
func TestNoProof(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   cloud.Kind
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"invalid_client"}`, http.StatusBadRequest)
		}, cloud.KindDenied},
		"down": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, cloud.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			a := overHTTP(t, open(t, clouds.Options{}, uniform()))
			server := httptest.NewServer(test.answer)
			defer server.Close()
			t.Setenv("IDENTITY_ENDPOINT", server.URL)
			// Another identity than other tests', of which no token is kept.
			credential, err := azure.Credential(v1alpha1.AzureCredentialManaged, "unproven-"+name)
			if err != nil {
				t.Fatal(err)
			}
			c := provider(t, azure.Options{Credential: credential, Transport: inProcess{a.azure}})
			if _, err = c.ScaleSet("s").Describe(t.Context()); cloud.KindOf(err) != test.want {
				t.Errorf("%s: %v; want %s", cloud.KindOf(err), err, test.want)
			}
		})
	}
	t.Run("no credential", func(t *testing.T) {
		a := open(t, clouds.Options{}, uniform())
		none, err := azidentity.NewChainedTokenCredential([]azcore.TokenCredential{unavailable{}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := provider(t, azure.Options{Credential: none, Transport: inProcess{a.azure}})
		if _, err := c.ScaleSet("s").Describe(t.Context()); cloud.KindOf(err) != cloud.KindDenied {
			t.Errorf("%v, want denied", err)
		}
	})
}

// unavailable is a credential that lacks what it needs.
type unavailable struct{}

func (unavailable) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, azidentity.NewCredentialUnavailableError("there is none")
}
