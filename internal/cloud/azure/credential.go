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

// Credential is one of the operator's credentials. clientID chooses one of several managed or workload identities; by default it is the environment
// variable AZURE_CLIENT_ID. Empty is Auto, which tries those that the environment tells of. It asks nothing.
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

// markedCredential is a credential whose errors are told from others.
type markedCredential struct{ azcore.TokenCredential }

// GetToken gets a token, or an error that is tokenError.
func (p markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := p.TokenCredential.GetToken(ctx, o)
	if err != nil {
		return token, &tokenError{err}
	}
	return token, nil
}

// tokenError is why a credential has no token.
type tokenError struct{ error }

// Unwrap is the credential's own error.
func (u *tokenError) Unwrap() error { return u.error }

// NonRetriable tells the SDK not to ask again.
func (*tokenError) NonRetriable() {}
