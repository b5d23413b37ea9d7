// SPDX-License-Identifier: Apache-2.0

// Package azure is virtual machine scale sets of Azure, uniform and flexible ones.
//
//	cloud.go       New, and who sends requests
//	describe.go    Describe: the settings of a scale set, from one GET
//	machines.go    Find: the scale sets of nodes; Machines: the machines of a set, page by page
//	change.go      what all changes share: one PATCH or POST, which has an effect once
//	add.go, delete.go, image.go   the three changes
//	error.go       the kinds of Azure's answers
//
// A PATCH writes its token to the scale set's tag moult-operation, in the same request. So a lost answer does no harm.
package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// Options says where scale sets are, and how requests are sent to Azure.
type Options struct {
	// SubscriptionID and ResourceGroup of the scale sets.
	SubscriptionID, ResourceGroup string
	// Endpoint of Azure Resource Manager, which is also the audience of tokens. Default: that of public Azure. It must be https, except on this machine.
	Endpoint string
	// Credential authenticates the operator.
	Credential azcore.TokenCredential
	// Transport sends requests. Default: the SDK's.
	Transport policy.Transporter
}

// Cloud is the scale sets of one resource group.
type Cloud struct {
	subscription, group string
	sets                *armcompute.VirtualMachineScaleSetsClient
	machines            *armcompute.VirtualMachineScaleSetVMsClient
	singles             *armcompute.VirtualMachinesClient
}

// New makes a Cloud of the scale sets of a resource group. It sends no request.
func New(o Options) (*Cloud, error) {
	address := strings.TrimRight(cmp.Or(o.Endpoint, "https://management.azure.com"), "/")
	endpoint, err := cloud.Endpoint(address)
	if err != nil {
		return nil, fmt.Errorf("reading the endpoint of Azure Resource Manager, %w", err)
	}
	factory, err := armcompute.NewClientFactory(o.SubscriptionID, markedCredential{o.Credential}, &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: azcloud.Configuration{
				Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{azcloud.ResourceManager: {Endpoint: address, Audience: address}},
			},
			InsecureAllowCredentialWithHTTP: endpoint.Scheme == "http",
			// Callers repeat requests.
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Telemetry: policy.TelemetryOptions{ApplicationID: "moult"},
			Transport: o.Transport,
			// The state of an operation in a NodeRollout has URLs. Only this endpoint may get a token.
			PerCallPolicies: []policy.Policy{onlyTo{endpoint}},
		},
		DisableRPRegistration: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for Azure, %w", err)
	}
	return &Cloud{
		subscription: o.SubscriptionID,
		group:        o.ResourceGroup,
		sets:         factory.NewVirtualMachineScaleSetsClient(),
		machines:     factory.NewVirtualMachineScaleSetVMsClient(),
		singles:      factory.NewVirtualMachinesClient(),
	}, nil
}

// ScaleSet is the scale set of that name, in any case of letters.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet {
	return cloud.NewScaleSet(&scaleSet{Cloud: c, name: name})
}

// Look implements cloud.Cloud.
func (c *Cloud) Look(name string) cloud.ScaleSet {
	return cloud.NewScaleSet(&scaleSet{c, name, cloud.Seen[string, *armcompute.VirtualMachineScaleSet]{}, cloud.Seen[string, []cloud.Machine]{}})
}

// scaleSet is one scale set.
type scaleSet struct {
	*Cloud
	name         string
	seen         cloud.Seen[string, *armcompute.VirtualMachineScaleSet]
	machinesSeen cloud.Seen[string, []cloud.Machine]
}

// onlyTo refuses requests to other hosts than that of the endpoint, before they have credentials.
type onlyTo struct{ endpoint *url.URL }

// Do implements policy.Policy.
func (o onlyTo) Do(r *policy.Request) (*http.Response, error) {
	if to := r.Raw().URL; to.Scheme != o.endpoint.Scheme || !strings.EqualFold(to.Host, o.endpoint.Host) {
		return nil, cloud.Errorf(cloud.KindDenied, "the URL is not that of the endpoint of Azure Resource Manager")
	}
	return r.Next()
}

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
