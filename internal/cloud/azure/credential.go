// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// Credential makes one of the operator's credentials. clientID chooses one of several managed or workload identities; default: the environment variable
// AZURE_CLIENT_ID. An empty kind is Auto, which tries those that the environment configures. Credential sends no request.
func Credential(kind v1alpha1.AzureCredential, clientID string) (azcore.TokenCredential, error) {
	// A reconcile waits for the token.
	options := policy.ClientOptions{Retry: policy.RetryOptions{
		MaxRetries: 1, RetryDelay: time.Second, MaxRetryDelay: 5 * time.Second, TryTimeout: 8 * time.Second,
	}}
	credentials := map[v1alpha1.AzureCredential]func() (azcore.TokenCredential, error){
		v1alpha1.AzureCredentialEnvironment: func() (azcore.TokenCredential, error) {
			return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: options})
		},
		v1alpha1.AzureCredentialWorkload: func() (azcore.TokenCredential, error) {
			return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options, ClientID: clientID})
		},
		v1alpha1.AzureCredentialManaged: func() (azcore.TokenCredential, error) {
			o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
			if id := cmp.Or(clientID, os.Getenv("AZURE_CLIENT_ID")); id != "" {
				o.ID = azidentity.ClientID(id)
			}
			return azidentity.NewManagedIdentityCredential(o)
		},
	}
	kind = cmp.Or(kind, v1alpha1.AzureCredentialAuto)
	newCredential := credentials[kind]
	if kind == v1alpha1.AzureCredentialAuto {
		newCredential = func() (azcore.TokenCredential, error) {
			var all []azcore.TokenCredential
			for _, one := range []v1alpha1.AzureCredential{v1alpha1.AzureCredentialEnvironment, v1alpha1.AzureCredentialWorkload, v1alpha1.AzureCredentialManaged} {
				// A credential that lacks a variable is left out.
				if c, err := credentials[one](); err == nil {
					all = append(all, c)
				}
			}
			return azidentity.NewChainedTokenCredential(all, nil)
		}
	}
	if newCredential == nil {
		return nil, fmt.Errorf("credential %q for Azure is none of Auto, Environment, Workload and Managed", kind)
	}
	c, err := newCredential()
	if err != nil {
		return nil, fmt.Errorf("making credential %s for Azure, %w", kind, err)
	}
	return c, nil
}

// markedCredential is a credential whose errors have the kind of tokenErrorKind.
type markedCredential struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (p markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := p.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = cloud.Errorf(tokenErrorKind(err), "authenticating, %s", cloud.OneLine(err.Error()))
	}
	return token, err
}
