// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/clouds/gcp"
)

// replacementOptions say what to measure of replacements.
type replacementOptions struct {
	cloud          string
	surge          string
	machineSeconds float64
}

func (o *replacementOptions) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.cloud, "cloud", "azure", "replacement: the cloud that is played: "+strings.Join(playedClouds(), ", "))
	flags.StringVar(&o.surge, "surge", "10%", "replacement: how many machines more there may be, and how many are replaced at once, as a count or in percent")
	flags.Float64Var(&o.machineSeconds, "machine-seconds", 2, "replacement: how long it takes to make a machine, and to delete one")
}

var surgePattern = regexp.MustCompile(`^([1-9][0-9]?%?|100%?)$`)

func (o *replacementOptions) validate() error {
	switch _, known := doubles[o.cloud]; {
	case !known:
		return fmt.Errorf("--cloud %q is none of %s", o.cloud, strings.Join(playedClouds(), ", "))
	case !surgePattern.MatchString(o.surge):
		return fmt.Errorf("--surge %q is no count, and no percentage, from 1 to 100", o.surge)
	case o.machineSeconds < 0:
		return fmt.Errorf("--machine-seconds may not be negative")
	}
	return nil
}

func (o *replacementOptions) machineTime() time.Duration {
	return time.Duration(o.machineSeconds * float64(time.Second))
}

// atOnce is how many of so many machines may be more.
func (o *replacementOptions) atOnce(machines int) int {
	text, percent := strings.CutSuffix(o.surge, "%")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0 // validate has refused it
	}
	if percent {
		n = (machines*n + 99) / 100
	}
	return min(n, v1alpha1.MaxMachineTurns)
}

// idealReplacement is how long a rollout would take if only making and deleting machines took time.
func (o *options) idealReplacement(nodes int) time.Duration {
	return time.Duration(roundsOf(nodes, o.replacement.atOnce(nodes))) * 2 * o.replacement.machineTime()
}

// replacementPatience bounds each stage.
func (o *options) replacementPatience(nodes int) time.Duration {
	if o.timeout > 0 {
		return o.timeout
	}
	return 5*time.Minute + 4*o.idealReplacement(nodes) + time.Duration(nodes)*500*time.Millisecond
}

// double is a cloud that is played.
type double struct {
	// set is what the scale set is called.
	set   string
	zones []string
	// zonal is true where the operator chooses the zone of a new machine, and not the cloud.
	zonal    bool
	provider v1alpha1.CloudProvider
	identify func(set, zone, id string) (providerID, nodeName string)
	id       func(set string, n int) string
	handler  func(*clouds.World) http.Handler
	env      func(url string) []string
}

// page is how many machines are on one page of a list, where the cloud has pages.
const page = 100

// doubles are the clouds by name.
var doubles = map[string]double{
	"azure": {
		set: "pool", zones: []string{azure.Location + "-1", azure.Location + "-2", azure.Location + "-3"},
		provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{SubscriptionID: azure.SubscriptionID, ResourceGroup: azure.ResourceGroup}},
		identify: azure.Identify, env: azure.Env,
		handler: func(w *clouds.World) http.Handler { return azure.New(w, azure.Options{Page: page}) },
	},
	"aws": {
		set: "pool", zones: []string{aws.Region + "a", aws.Region + "b", aws.Region + "c"}, zonal: true,
		provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: aws.Region}},
		identify: aws.Identify, id: aws.InstanceID, env: aws.Env,
		handler: func(w *clouds.World) http.Handler { return aws.HandlerWithPages(w, page) },
	},
	"gcp": {
		set: "regions/europe-west3/pool", zones: []string{"europe-west3-a", "europe-west3-b", "europe-west3-c"},
		provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: gcp.Project, Locations: []string{"europe-west3"}}},
		identify: gcp.Identify, id: gcp.ID, env: gcp.Env, handler: gcp.Handler,
	},
}

func playedClouds() []string { return slices.Sorted(maps.Keys(doubles)) }
