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
	switch kind {
	case v1alpha1.AzureCredentialEnvironment:
		return environment(options)
	case v1alpha1.AzureCredentialWorkload:
		return workload(options, clientID)
	case v1alpha1.AzureCredentialManaged:
		return managed(options, clientID)
	case v1alpha1.AzureCredentialAuto, "":
		var all []azcore.TokenCredential
		// Those that lack a variable are not meant.
		if c, err := environment(options); err == nil {
			all = append(all, c)
		}
		if c, err := workload(options, clientID); err == nil {
			all = append(all, c)
		}
		c, err := managed(options, clientID)
		if err != nil {
			return nil, err
		}
		chain, err := azidentity.NewChainedTokenCredential(append(all, c), nil)
		if err != nil {
			return nil, fmt.Errorf("making a credential for Azure, %w", err)
		}
		return chain, nil
	default:
		return nil, fmt.Errorf("credential %q for Azure is none of Auto, Environment, Workload and Managed", kind)
	}
}

func environment(o policy.ClientOptions) (azcore.TokenCredential, error) {
	c, err := azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: o})
	if err != nil {
		return nil, fmt.Errorf("making a credential for Azure of the environment, %w", err)
	}
	return c, nil
}

func workload(o policy.ClientOptions, clientID string) (azcore.TokenCredential, error) {
	c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: o, ClientID: clientID})
	if err != nil {
		return nil, fmt.Errorf("making a credential for Azure of the workload identity, %w", err)
	}
	return c, nil
}

func managed(o policy.ClientOptions, clientID string) (azcore.TokenCredential, error) {
	options := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o}
	if id := cmp.Or(clientID, os.Getenv("AZURE_CLIENT_ID")); id != "" {
		options.ID = azidentity.ClientID(id)
	}
	c, err := azidentity.NewManagedIdentityCredential(options)
	if err != nil {
		return nil, fmt.Errorf("making a credential for Azure of the managed identity, %w", err)
	}
	return c, nil
}

// proving is a credential whose errors are told from others.
type proving struct{ azcore.TokenCredential }

// GetToken gets a token, or an error that is unproven.
func (p proving) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := p.TokenCredential.GetToken(ctx, o)
	if err != nil {
		return token, &unproven{err}
	}
	return token, nil
}

// unproven is why a credential has no token.
type unproven struct{ error }

// Unwrap is the credential's own error.
func (u *unproven) Unwrap() error { return u.error }

// NonRetriable tells the SDK not to ask again.
func (*unproven) NonRetriable() {}
