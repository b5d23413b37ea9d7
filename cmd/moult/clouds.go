// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/utils/lru"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/cloud/aws"
	"moult.dev/moult/internal/cloud/azure"
	"moult.dev/moult/internal/cloud/gcp"
)

// clouds connects to clouds: once for each distinct provider, when a rollout first needs it. It looks for credentials only then.
type clouds struct {
	azureEndpoint, gcpEndpoint string
	getenv                     func(string) string
	connect                    func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error)
	// connected are the clouds by provider, as JSON.
	connected *lru.Cache
}

// maxClouds is how many connections are kept.
const maxClouds = 64

func newClouds(getenv func(string) string) *clouds {
	c := &clouds{getenv: getenv, connected: lru.New(maxClouds)}
	c.connect = c.dial
	return c
}

func (c *clouds) bind(v *variables) {
	add(v, &c.azureEndpoint, "azure-endpoint", "", "AZURE_RESOURCE_MANAGER_ENDPOINT", "URL of Azure Resource Manager, in place of Azure's own; http on this machine only")
	add(v, &c.gcpEndpoint, "gcp-endpoint", "", "GCP_COMPUTE_ENDPOINT", "URL of Compute Engine, in place of Google's own; http on this machine only")
}

// of returns the cloud of a provider. After an error the next call tries again.
func (c *clouds) of(ctx context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
	key, _ := json.Marshal(p) // Plain data always encodes.
	if made, ok := c.connected.Get(string(key)); ok {
		return made.(cloud.Cloud), nil
	}
	// It may take long, which must not delay rollouts in other clouds. The connection outlives this call.
	made, err := c.connect(context.WithoutCancel(ctx), p.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("connecting to the cloud, %w", err) // made may be a nil pointer in an interface that is not nil.
	}
	c.connected.Add(string(key), made)
	return made, nil
}

// dial connects to the cloud of a provider. The environment may name the subscription and the resource group.
func (c *clouds) dial(ctx context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
	switch {
	case p.Azure != nil:
		subscription := cmp.Or(p.Azure.SubscriptionID, c.getenv("ARM_SUBSCRIPTION_ID"))
		group := cmp.Or(p.Azure.ResourceGroup, c.getenv("ARM_RESOURCE_GROUP"))
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
		return azure.New(azure.Options{SubscriptionID: subscription, ResourceGroup: group, Endpoint: c.azureEndpoint, Credential: credential})
	case p.AWS != nil:
		return aws.New(ctx, p.AWS)
	case p.GCP != nil:
		return gcp.New(ctx, p.GCP, c.gcpEndpoint)
	}
	return nil, cloud.Errorf(cloud.KindInvalid, "spec.replacement.provider names no cloud")
}
