// SPDX-License-Identifier: Apache-2.0

// Package setimage is `moult set-image`. It sets the image of new machines on several scale sets, on all or on none.
//
//	command.go  the flags
//	change.go   the change: prepared for every scale set, sent to one after the other, undone on all if one fails; the outcome of each
package setimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cloud"
)

// Alias is the name of Ducklett's program that does this.
const Alias = "update-azure-image-tags"

// Connect makes a cloud.
type Connect func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error)

// pools are the suffixes of the scale sets of a Ducklett cluster, in the order in which its program changes them.
var pools = []string{"-cp", "-agent-pool", "-storage-pool", "-telemetry-pool"}

// command holds the flags of one call.
type command struct {
	genericiooptions.IOStreams
	clock   clock.Clock
	connect Connect
	getenv  func(string) string
	output  flags.Output

	image      string
	provider   flags.Choice
	scaleSets  []string
	dryRun     bool
	timeout    time.Duration
	azure      v1alpha1.AzureProvider
	credential flags.Choice
	aws        v1alpha1.AWSProvider
	gcp        v1alpha1.GCPProvider
}

// The values of --provider.
const (
	providerAzure = "azure"
	providerAWS   = "aws"
	providerGCP   = "gcp"
)

// NewCommand makes the command. getenv returns environment variables. An interrupted context ends the change, and the old images are restored.
func NewCommand(clk clock.Clock, streams genericiooptions.IOStreams, getenv func(string) string, connect Connect) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, connect: connect, getenv: getenv}
	cmd := &cobra.Command{
		Use:     "set-image --imageid IMAGE",
		Aliases: []string{Alias},
		Short:   "Set the image of new machines on several scale sets, on all or on none",
		Long: `Set the image that scale sets make new machines of. This changes no machine: a NodeRollout with spec.replacement replaces them.

Without --scale-set, the scale sets are the four of a Ducklett cluster, in this order: $CLUSTER_NAME-cp, $CLUSTER_NAME-agent-pool,
$CLUSTER_NAME-storage-pool and $CLUSTER_NAME-telemetry-pool. They are in resource group $ARM_RESOURCE_GROUP of subscription
$ARM_SUBSCRIPTION_ID.

All scale sets are read, and their changes prepared, before the first one is changed. Each must exist, and must be one that a
NodeRollout could use. A scale set that is being changed, for example by a rollout, is waited for. Then the scale sets are
changed one after the other. If one fails, or the program is interrupted, those that were changed get their old image again.
A line for each scale set shows its old image, its new image and the outcome.

IMAGE depends on the cloud:

  Azure   the name of an image in the resource group, the id of an image or of a gallery's image version,
          or publisher:offer:sku:version
  AWS     ami-ID, which makes a new version of the launch template, or lt-ID:VERSION, where VERSION is a number
  Google  the name or the path of an instance template

Exit codes: 0 all have the image, or could have it with --dry-run; 1 none was changed, or all were restored; 3 some could not be
restored, and scale sets may have different images.`,
		Example: `  moult set-image -imageid flatcar-stable-1.31.4-v2.0.0-0badc0de
  moult set-image --scale-set pool-a --scale-set pool-b --imageid Canonical:ubuntu-24_04-lts:server:24.04.202611010 --dry-run
  moult set-image --provider aws --region eu-central-1 --scale-set workers --imageid ami-0123456789abcdef0 -o json`,
		Args:         cobra.MaximumNArgs(1),
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVar(&c.image, "imageid", "", "The image.")
	c.provider.Add(cmd, "provider", "The cloud: azure, aws or gcp. Default azure.", providerAzure, providerAWS, providerGCP)
	f.StringArrayVar(&c.scaleSets, "scale-set", nil, "The name of a scale set; can be repeated. Default: the four of $CLUSTER_NAME.")
	f.BoolVar(&c.dryRun, "dry-run", false, "Read and prepare only: wait for nothing, and change nothing.")
	f.DurationVar(&c.timeout, "timeout", 10*time.Minute, "Time limit for the change of one scale set, and before that for waiting until none is being changed.")
	f.StringVar(&c.azure.SubscriptionID, "subscription-id", "", "Azure: the subscription. [$ARM_SUBSCRIPTION_ID]")
	f.StringVar(&c.azure.ResourceGroup, "resource-group", "", "Azure: the resource group. [$ARM_RESOURCE_GROUP]")
	c.credential.Add(cmd, "credential", "Azure: Auto, Environment, Workload or Managed. Default Auto; Managed if $ARM_USE_MANAGED_IDENTITY_EXTENSION is true.",
		string(v1alpha1.AzureCredentialAuto), string(v1alpha1.AzureCredentialEnvironment),
		string(v1alpha1.AzureCredentialWorkload), string(v1alpha1.AzureCredentialManaged))
	f.StringVar(&c.azure.ClientID, "client-id", "", "Azure: the identity, if there are several. [$AZURE_CLIENT_ID]")
	f.StringVar(&c.aws.Region, "region", "", "AWS: the region. [$AWS_REGION]")
	f.StringVar(&c.aws.RoleARN, "role-arn", "", "AWS: a role to assume.")
	f.StringVar(&c.gcp.Project, "project", "", "Google: the project.")
	f.StringSliceVar(&c.gcp.Locations, "location", nil, "Google: zones and regions of the groups.")
	f.StringVar(&c.gcp.ServiceAccount, "service-account", "", "Google: a service account to impersonate.")
	c.output.Add(cmd, flags.JSON, flags.YAML)
	return cmd
}

func (c *command) run(ctx context.Context, args []string) error {
	c.provider.Value = cmp.Or(c.provider.Value, providerAzure)
	switch {
	case len(args) > 0 && c.image != "":
		return errors.New("the image is given twice")
	case len(args) > 0:
		c.image = args[0]
	case c.image == "":
		return errors.New("-imageid must say which image")
	}
	if c.timeout <= 0 {
		return errors.New("--timeout must be more than 0")
	}
	provider, err := c.cloudProvider()
	if err != nil {
		return err
	}
	names, err := c.scaleSetNames()
	if err != nil {
		return err
	}
	connected, err := c.connect(ctx, provider)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", c.provider.Value, err)
	}
	all := &changer{clock: c.clock, image: c.reference(), timeout: c.timeout, notes: c.ErrOut, dryRun: c.dryRun}
	for _, name := range names {
		all.add(name, connected.ScaleSet(name))
	}
	failed := all.run(ctx)
	report := Report{Image: all.image, DryRun: c.dryRun, ScaleSets: []Line{}}
	for _, t := range all.sets {
		report.ScaleSets = append(report.ScaleSets, t.line)
	}
	return cmp.Or(failed, report.write(c.Out, &c.output))
}

// cloudProvider returns the cloud that flags and environment name.
func (c *command) cloudProvider() (*v1alpha1.CloudProvider, error) {
	switch c.provider.Value {
	case providerAWS:
		return &v1alpha1.CloudProvider{AWS: &c.aws}, nil
	case providerGCP:
		if c.gcp.Project == "" {
			return nil, errors.New("--project must be given")
		}
		return &v1alpha1.CloudProvider{GCP: &c.gcp}, nil
	}
	c.azure.SubscriptionID = cmp.Or(c.azure.SubscriptionID, c.getenv("ARM_SUBSCRIPTION_ID"))
	c.azure.ResourceGroup = cmp.Or(c.azure.ResourceGroup, c.getenv("ARM_RESOURCE_GROUP"))
	switch {
	case c.azure.SubscriptionID == "":
		return nil, errors.New("--subscription-id or $ARM_SUBSCRIPTION_ID must be given")
	case c.azure.ResourceGroup == "":
		return nil, errors.New("--resource-group or $ARM_RESOURCE_GROUP must be given")
	}
	c.azure.Credential = v1alpha1.AzureCredential(c.credential.Value)
	if c.getenv("ARM_USE_MANAGED_IDENTITY_EXTENSION") == "true" && c.azure.Credential == "" {
		c.azure.Credential = v1alpha1.AzureCredentialManaged
	}
	return &v1alpha1.CloudProvider{Azure: &c.azure}, nil
}

// scaleSetNames returns the names of the scale sets.
func (c *command) scaleSetNames() ([]string, error) {
	cluster := c.getenv("CLUSTER_NAME")
	switch {
	case slices.Contains(c.scaleSets, ""):
		return nil, errors.New("--scale-set must name one")
	case len(c.scaleSets) > 0:
		return c.scaleSets, nil
	case c.provider.Value != providerAzure:
		return nil, errors.New("--scale-set must be given")
	case cluster == "":
		return nil, errors.New("--scale-set or $CLUSTER_NAME must be given")
	}
	var names []string
	for _, pool := range pools {
		names = append(names, cluster+pool)
	}
	return names, nil
}

// reference returns the image as the cloud shows it. On Azure, a name alone is an image in the resource group.
func (c *command) reference() string {
	if c.provider.Value != providerAzure || strings.ContainsAny(c.image, "/:") {
		return c.image
	}
	return "/subscriptions/" + c.azure.SubscriptionID + "/resourceGroups/" + c.azure.ResourceGroup + "/providers/Microsoft.Compute/images/" + c.image
}
