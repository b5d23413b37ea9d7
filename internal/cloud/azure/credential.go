// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
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
	var chain []azcore.TokenCredential
	var errs []error
	for _, one := range []struct {
		kind v1alpha1.AzureCredential
		make func() (azcore.TokenCredential, error)
	}{
		{v1alpha1.AzureCredentialEnvironment, func() (azcore.TokenCredential, error) {
			return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: options})
		}},
		{v1alpha1.AzureCredentialWorkload, func() (azcore.TokenCredential, error) {
			return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options, ClientID: clientID})
		}},
		{v1alpha1.AzureCredentialManaged, func() (azcore.TokenCredential, error) {
			o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
			if id := cmp.Or(clientID, os.Getenv("AZURE_CLIENT_ID")); id != "" {
				o.ID = azidentity.ClientID(id)
			}
			return azidentity.NewManagedIdentityCredential(o)
		}},
	} {
		if auto := kind == "" || kind == v1alpha1.AzureCredentialAuto; !auto && kind != one.kind {
			continue
		}
		if c, err := one.make(); err != nil {
			errs = append(errs, err) // Auto leaves out a credential that lacks a variable.
		} else {
			chain = append(chain, c)
		}
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("making credential %s for Azure, %w", kind, errors.Join(errs...))
	}
	return azidentity.NewChainedTokenCredential(chain, nil)
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
