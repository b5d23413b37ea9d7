// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// noCloud is one of which nothing is asked.
type noCloud struct{ cloud.Cloud }

// A cloud is made when it is first asked for, once for each distinct provider, and again when it could not be made.
func TestCloudsAreMadeOnce(t *testing.T) {
	c := newClouds(in(nil))
	var mu sync.Mutex
	made, fails := map[string]int{}, true
	c.connect = func(ctx context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
		mu.Lock()
		defer mu.Unlock()
		made[p.AWS.Region]++
		if ctx.Done() != nil {
			t.Error("the cloud would end with the first who asks for it")
		}
		if fails && p.AWS.Region == "b" {
			fails = false
			return nil, errors.New("not now")
		}
		return &noCloud{}, nil
	}
	aws := func(region string) *v1alpha1.CloudProvider {
		return &v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: region}}
	}
	first, err := c.of(t.Context(), aws("a"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if again, err := c.of(t.Context(), aws("a")); err != nil || again != first {
				t.Errorf("got another cloud, %v", err)
			}
		})
	}
	all.Wait()
	if _, err := c.of(t.Context(), aws("b")); err == nil {
		t.Error("a cloud that can't be made is one")
	}
	if other, err := c.of(t.Context(), aws("b")); err != nil || other == first {
		t.Errorf("got %v, %v", other, err)
	}
	if made["a"] != 1 || made["b"] != 2 {
		t.Errorf("made %v", made)
	}
}

// A cloud that does not answer does not delay rollouts in another.
func TestCloudsConnectApart(t *testing.T) {
	c, slow := newClouds(in(nil)), make(chan bool)
	c.connect = func(_ context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
		if p.AWS != nil {
			slow <- true
			<-slow
		}
		return &noCloud{}, nil
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = c.of(t.Context(), &v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}) })
	<-slow
	if _, err := c.of(t.Context(), &v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{}}); err != nil {
		t.Error(err)
	}
	slow <- true
	waiting.Wait()
}

// What is missing is said, before any credentials are looked for.
// Whoever changes a provider again and again does not make the operator keep all these clouds.
func TestCloudsAreBounded(t *testing.T) {
	c := newClouds(in(nil))
	c.connect = func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) { return &noCloud{}, nil }
	for i := range 3 * maxClouds {
		if _, err := c.of(t.Context(), &v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: strconv.Itoa(i)}}); err != nil {
			t.Fatal(err)
		}
		if n := c.connected.Len(); n > maxClouds {
			t.Fatalf("%d clouds are kept", n)
		}
	}
}

func TestCloudsOfHalfAProvider(t *testing.T) {
	for name, tc := range map[string]struct {
		environment map[string]string
		provider    v1alpha1.CloudProvider
		want        string
	}{
		"no subscription": {nil, v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{ResourceGroup: "g"}}, "$ARM_SUBSCRIPTION_ID of the operator, must say the subscription"},
		"no group":        {map[string]string{"ARM_SUBSCRIPTION_ID": "s"}, v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{}}, "$ARM_RESOURCE_GROUP of the operator, must say the resource group"},
		"nothing":         {nil, v1alpha1.CloudProvider{}, "names no cloud"},
	} {
		if _, err := newClouds(in(tc.environment)).of(t.Context(), &tc.provider); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v, want %q", name, err, tc.want)
		}
	}
}
