// SPDX-License-Identifier: Apache-2.0

// Package azure is virtual machine scale sets of Azure, uniform and flexible ones.
//
//	New, Credential   to whom requests go, and who sends them                azure.go, credential.go
//	Find              of which scale sets nodes are                          find.go
//	Describe          the scale set as one GET shows it                      describe.go, image.go
//	Machines          its machines, page by page                             machines.go
//	Prepare, Send     one PATCH or POST, which takes effect once             operation.go, memory.go
//	Poll              how that stands, by a resume token or by looking       poll.go
//
// What was sent leaves its token in the scale set's tag moult-operation, in the same PATCH. So an answer that was lost is no loss.
package azure

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	_ "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime" // fills in the endpoints of the clouds
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"moult.dev/moult/internal/cloud"
)

// Options says where scale sets are, and how to speak to Azure.
type Options struct {
	// SubscriptionID and ResourceGroup of the scale sets.
	SubscriptionID, ResourceGroup string
	// Endpoint of Azure Resource Manager. Default: that of public Azure. Those of Azure Government and China are known; any other is taken as its
	// own audience. It must be https, but on loopback.
	Endpoint string
	// Credential proves who asks.
	Credential azcore.TokenCredential
	// Transport sends requests. Default: the SDK's.
	Transport policy.Transporter
}

// Cloud is the scale sets of one resource group.
type Cloud struct {
	subscription, group string
	endpoint            *url.URL
	sets                *armcompute.VirtualMachineScaleSetsClient
	machines            *armcompute.VirtualMachineScaleSetVMsClient
	singles             *armcompute.VirtualMachinesClient

	mu sync.Mutex
	// flexible is which scale sets machines of flexible ones are in, by the machine's name in lower case. That never changes.
	flexible map[string]string
}

var _ cloud.Cloud = (*Cloud)(nil)

// New is the scale sets of a resource group. It asks nothing.
func New(o Options) (*Cloud, error) {
	switch {
	case o.SubscriptionID == "":
		return nil, errors.New("no Azure subscription is given")
	case o.ResourceGroup == "":
		return nil, errors.New("no Azure resource group is given")
	case o.Credential == nil:
		return nil, errors.New("no Azure credential is given")
	}
	where, endpoint, err := configuration(o.Endpoint)
	if err != nil {
		return nil, err
	}
	factory, err := armcompute.NewClientFactory(o.SubscriptionID, proving{o.Credential}, &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud:                           where,
			InsecureAllowCredentialWithHTTP: endpoint.Scheme == "http",
			// Who asks knows better when to ask again, and has no time to wait.
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Telemetry: policy.TelemetryOptions{ApplicationID: "moult"},
			Transport: o.Transport,
		},
		DisableRPRegistration: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for Azure, %w", err)
	}
	return &Cloud{
		subscription: o.SubscriptionID,
		group:        o.ResourceGroup,
		endpoint:     endpoint,
		sets:         factory.NewVirtualMachineScaleSetsClient(),
		machines:     factory.NewVirtualMachineScaleSetVMsClient(),
		singles:      factory.NewVirtualMachinesClient(),
		flexible:     map[string]string{},
	}, nil
}

// ScaleSet is the scale set of that name, in any case of letters. It asks nothing.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet { return &scaleSet{Cloud: c, name: name} }

// scaleSet is one scale set.
type scaleSet struct {
	*Cloud
	name string
}

// configuration says which cloud an endpoint is of.
func configuration(endpoint string) (azcloud.Configuration, *url.URL, error) {
	if endpoint == "" {
		endpoint = azcloud.AzurePublic.Services[azcloud.ResourceManager].Endpoint
	}
	endpoint = strings.TrimRight(endpoint, "/")
	at, err := url.Parse(endpoint)
	if err != nil {
		return azcloud.Configuration{}, nil, fmt.Errorf("reading the endpoint of Azure Resource Manager, %w", err)
	}
	if at.Host == "" || at.Scheme != "https" && (at.Scheme != "http" || !loopback(at.Hostname())) {
		return azcloud.Configuration{}, nil, fmt.Errorf("endpoint %q of Azure Resource Manager must begin with https://, but on loopback", endpoint)
	}
	for _, known := range []azcloud.Configuration{azcloud.AzurePublic, azcloud.AzureGovernment, azcloud.AzureChina} {
		if strings.EqualFold(known.Services[azcloud.ResourceManager].Endpoint, endpoint) {
			return known, at, nil
		}
	}
	return azcloud.Configuration{
		Services: map[azcloud.ServiceName]azcloud.ServiceConfiguration{azcloud.ResourceManager: {Endpoint: endpoint, Audience: endpoint}},
	}, at, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
