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
)

// Credential makes one of the operator's credentials. clientID chooses one of several managed or workload identities; default: the environment variable
// AZURE_CLIENT_ID. An empty kind is Auto, which tries those that the environment configures. Credential sends no request.
func Credential(kind v1alpha1.AzureCredential, clientID string) (azcore.TokenCredential, error) {
	// A reconcile waits for the token.
	options := policy.ClientOptions{Retry: policy.RetryOptions{
		MaxRetries: 1, RetryDelay: time.Second, MaxRetryDelay: 5 * time.Second, TryTimeout: 8 * time.Second,
	}}
	environment := func() (azcore.TokenCredential, error) {
		return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: options})
	}
	workload := func() (azcore.TokenCredential, error) {
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options, ClientID: clientID})
	}
	managed := func() (azcore.TokenCredential, error) {
		o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
		if id := cmp.Or(clientID, os.Getenv("AZURE_CLIENT_ID")); id != "" {
			o.ID = azidentity.ClientID(id)
		}
		return azidentity.NewManagedIdentityCredential(o)
	}
	var c azcore.TokenCredential
	var err error
	switch kind {
	case v1alpha1.AzureCredentialEnvironment:
		c, err = environment()
	case v1alpha1.AzureCredentialWorkload:
		c, err = workload()
	case v1alpha1.AzureCredentialManaged:
		c, err = managed()
	case v1alpha1.AzureCredentialAuto, "":
		var all []azcore.TokenCredential
		for _, newCredential := range []func() (azcore.TokenCredential, error){environment, workload, managed} {
			// A credential that lacks a variable is left out.
			if one, err := newCredential(); err == nil {
				all = append(all, one)
			}
		}
		c, err = azidentity.NewChainedTokenCredential(all, nil)
	default:
		return nil, fmt.Errorf("credential %q for Azure is none of Auto, Environment, Workload and Managed", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("making credential %s for Azure, %w", cmp.Or(kind, v1alpha1.AzureCredentialAuto), err)
	}
	return c, nil
}

// markedCredential is a credential whose errors are tokenErrors.
type markedCredential struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (p markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := p.TokenCredential.GetToken(ctx, o)
	if err != nil {
		return token, &tokenError{err}
	}
	return token, nil
}

// tokenError is an error of a credential.
type tokenError struct{ error }

func (e *tokenError) Unwrap() error { return e.error }
