// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/clouds/gcp"
)

// replaceCloud is a cloud, with scale sets of one kind.
type replaceCloud struct {
	name     string
	provider v1alpha1.CloudProvider
	zones    []string
	settings map[string]string
	identify func(set, zone, id string) (providerID, nodeName string)
	id       func(set string, n int) string
	handler  func(*clouds.World) http.Handler
	env      func(url string) []string
	// punctual is true where a call that arrives late is done as it stands, whatever has happened since: a capacity that is set to a number.
	punctual bool
	// set is the scale set of that name, as the cloud names it, and image the nth image.
	set   func(name string) string
	image func(n int) string
}

// replaceClouds are all of them.
func replaceClouds() []*replaceCloud {
	asItIs := func(name string) string { return name }
	return []*replaceCloud{
		{
			name: "azure", provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{Credential: v1alpha1.AzureCredentialManaged}},
			zones: []string{"westeurope-1", "westeurope-2", "westeurope-3"}, identify: azure.Identify,
			handler: azure.Handler, env: azure.Env, set: asItIs, image: imageName,
		},
		{
			name: "aws", provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}},
			zones: []string{"eu-central-1a", "eu-central-1b", "eu-central-1c"}, identify: aws.Identify, id: aws.InstanceID,
			handler: aws.Handler, env: aws.Env, set: asItIs, image: imageName,
		},
		{
			name: "gcp", provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: gcp.Project}},
			zones: []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"}, identify: gcp.Identify, id: gcp.ID,
			handler: gcp.Handler, env: gcp.Env, image: imageName,
			set: func(name string) string { return "regions/europe-west1/" + name },
		},
	}
}

// replaceFlavours are all clouds, with the kinds of scale sets that are dealt with differently.
func replaceFlavours() []*replaceCloud {
	flavours := replaceClouds()
	for _, c := range replaceClouds() {
		c.name += "-other"
		switch {
		case c.provider.Azure != nil:
			c.settings, c.identify = map[string]string{"mode": "Flexible"}, azure.IdentifyFlexible
		case c.provider.AWS != nil:
			c.settings, c.punctual = map[string]string{"policy": "mixed"}, true
		case c.provider.GCP != nil:
			c.zones = c.zones[:1]
			c.set = func(name string) string { return "zones/" + c.zones[0] + "/" + name }
		}
		flavours = append(flavours, c)
	}
	return flavours
}

func imageName(n int) string { return fmt.Sprintf("image-%d", n) }

// world is one of the cloud.
func (c *replaceCloud) world(ctx context.Context, h clouds.Hosts) *clouds.World {
	return clouds.New(ctx, clouds.Options{
		Hosts: h, CreateTime: 500 * time.Millisecond, DeleteTime: 500 * time.Millisecond, Identify: c.identify, ID: c.id,
	})
}

// scaleSet is one whose machines are of a pool.
func (c *replaceCloud) scaleSet(p *pool, machines int) clouds.Set {
	return clouds.Set{
		Name: p.set, Image: c.image(0), Capacity: machines, Zones: c.zones, Settings: c.settings, Labels: map[string]string{labelPool: p.rollout},
	}
}

// setImage makes new machines of the nth image.
func (c *replaceCloud) setImage(p *pool, n int) error {
	return p.world.Edit(p.set, func(s *clouds.Set) error {
		s.Image = c.image(n)
		return nil
	})
}

// rollout replaces the machines of a pool.
func (c *replaceCloud) rollout(p *pool, surge, atOnce int) *v1alpha1.NodeRollout {
	return &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: p.rollout},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelPool: p.rollout}},
			Strategy: &v1alpha1.Strategy{
				MaxConcurrent: ptr.To(intstr.FromInt(atOnce)),
				Retries:       &v1alpha1.Retries{Limit: 100, Backoff: &metav1.Duration{Duration: 2 * time.Second}, MaxBackoff: &metav1.Duration{Duration: 4 * time.Second}},
			},
			Replacement: &v1alpha1.Replacement{
				Provider: c.provider, Surge: ptr.To(intstr.FromInt(surge)), CheckPeriod: &metav1.Duration{Duration: 5 * time.Second},
			},
		},
	}
}
