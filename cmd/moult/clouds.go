// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/spf13/pflag"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/aws"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/internal/cloud/gcp"
)

// clouds makes clouds: one for each distinct provider, when it is first asked for. Before that no credentials are looked for.
type clouds struct {
	azureEndpoint, gcpEndpoint string
	lookup                     func(string) (string, bool)
	// connect makes one.
	connect func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error)

	mu   sync.Mutex
	made map[string]*connection
}

// connection is a cloud, once it is made.
type connection struct {
	mu    sync.Mutex
	cloud cloud.Cloud
}

func newClouds(lookup func(string) (string, bool)) *clouds {
	c := &clouds{lookup: lookup, made: map[string]*connection{}}
	c.connect = c.dial
	return c
}

func (c *clouds) bind(flags *pflag.FlagSet, v *variables) {
	flags.StringVar(&c.azureEndpoint, "azure-endpoint", "", "URL of Azure Resource Manager, in place of Azure's own; http on this machine only")
	v.env("azure-endpoint", "AZURE_RESOURCE_MANAGER_ENDPOINT")
	flags.StringVar(&c.gcpEndpoint, "gcp-endpoint", "", "URL of Compute Engine, in place of Google's own; http on this machine only")
	v.env("gcp-endpoint", "GCP_COMPUTE_ENDPOINT")
}

// check says which of the endpoints can't be used: credentials are sent there.
func (c *clouds) check() (problems []error) {
	for _, of := range []struct{ flag, value string }{{"azure-endpoint", c.azureEndpoint}, {"gcp-endpoint", c.gcpEndpoint}} {
		if of.value == "" {
			continue
		}
		if _, err := cloud.Endpoint(of.value); err != nil {
			problems = append(problems, fmt.Errorf("reading --%s, %w", of.flag, err))
		}
	}
	return problems
}

// of is the cloud of a provider. One that could not be made is tried again when it is next asked for.
func (c *clouds) of(ctx context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
	key, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("reading the provider, %w", err)
	}
	c.mu.Lock()
	made := c.made[string(key)]
	if made == nil {
		made = &connection{}
		c.made[string(key)] = made
	}
	c.mu.Unlock()
	made.mu.Lock()
	defer made.mu.Unlock()
	if made.cloud != nil {
		return made.cloud, nil
	}
	// It outlives whoever has asked first.
	found, err := c.connect(context.WithoutCancel(ctx), p.DeepCopy())
	if err != nil {
		return nil, err
	}
	made.cloud = found
	return found, nil
}

// dial makes a cloud of what the provider and the environment say.
func (c *clouds) dial(ctx context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
	environment := func(name string) string { value, _ := c.lookup(name); return value }
	switch {
	case p.Azure != nil:
		subscription, group := cmp.Or(p.Azure.SubscriptionID, environment("ARM_SUBSCRIPTION_ID")), cmp.Or(p.Azure.ResourceGroup, environment("ARM_RESOURCE_GROUP"))
		switch {
		case subscription == "":
			return nil, cloud.Errorf(cloud.KindDenied, "spec.replacement.provider.azure.subscriptionID, or $ARM_SUBSCRIPTION_ID of the operator, must say the subscription")
		case group == "":
			return nil, cloud.Errorf(cloud.KindDenied, "spec.replacement.provider.azure.resourceGroup, or $ARM_RESOURCE_GROUP of the operator, must say the resource group")
		}
		credential, err := azure.Credential(p.Azure.Credential, p.Azure.ClientID)
		if err != nil {
			return nil, cloud.Errorf(cloud.KindDenied, "finding credentials for Azure, %w", err)
		}
		made, err := azure.New(azure.Options{SubscriptionID: subscription, ResourceGroup: group, Endpoint: c.azureEndpoint, Credential: credential})
		return connected("Azure", made, err)
	case p.AWS != nil:
		made, err := aws.New(ctx, aws.Options{Region: p.AWS.Region, RoleARN: p.AWS.RoleARN})
		return connected("AWS", made, err)
	case p.GCP != nil:
		made, err := gcp.New(ctx, gcp.Options{
			Project: p.GCP.Project, Locations: p.GCP.Locations, ServiceAccount: p.GCP.ServiceAccount, Endpoint: c.gcpEndpoint,
		})
		return connected("Google Cloud", made, err)
	}
	return nil, cloud.Errorf(cloud.KindInvalid, "spec.replacement.provider names no cloud")
}

// connected tells a cloud from none: what could not be made must not be taken for one.
func connected(name string, made cloud.Cloud, err error) (cloud.Cloud, error) {
	if err != nil {
		return nil, fmt.Errorf("connecting to %s, %w", name, err)
	}
	return made, nil
}
