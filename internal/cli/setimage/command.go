// SPDX-License-Identifier: Apache-2.0

// Package setimage is `moult set-image`: it sets the image that scale sets make new machines of, on all of them or on none.
//
//	image.go    what a person calls an image, as the clouds take it
//	change.go   the change: prepared and checked on every set, sent to one after the other, put back where one fails
//	report.go   what became of each set
package setimage

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
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

// pools are the scale sets of a cluster of Ducklett's, by what follows the cluster's name, in the order in which its program changes them.
var pools = []string{"-cp", "-agent-pool", "-storage-pool", "-telemetry-pool"}

// command is one call.
type command struct {
	genericiooptions.IOStreams
	clock   clock.Clock
	connect Connect
	lookup  func(string) (string, bool)
	token   func() string
	output  flags.Output

	image      string
	provider   string
	scaleSets  []string
	dryRun     bool
	timeout    time.Duration
	azure      v1alpha1.AzureProvider
	credential string
	aws        v1alpha1.AWSProvider
	gcp        v1alpha1.GCPProvider
}

// NewCommand makes the command. Environment variables are looked up by lookup.
func NewCommand(clk clock.Clock, streams genericiooptions.IOStreams, lookup func(string) (string, bool), connect Connect) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, connect: connect, lookup: lookup, token: newToken}
	cmd := &cobra.Command{
		Use:     "set-image --imageid IMAGE",
		Aliases: []string{Alias},
		Short:   "Set the image that scale sets make new machines of, on all of them or on none",
		Long: `Set the image that scale sets make new machines of. No machine is touched: a NodeRollout with spec.replacement does that.

Without --scale-set these are the four of a cluster that Ducklett looks after, in this order: $CLUSTER_NAME-cp, $CLUSTER_NAME-agent-pool,
$CLUSTER_NAME-storage-pool and $CLUSTER_NAME-telemetry-pool, in the resource group $ARM_RESOURCE_GROUP of the subscription
$ARM_SUBSCRIPTION_ID.

Every scale set is looked at, and its change prepared, before the first is changed: each must be there, and be one that a NodeRollout could
use. Those that are being changed, as a rollout does all the time, are waited for. Then they are changed one after the other. A set that
has changed meanwhile is looked at again first. When one fails, or the program is interrupted, those that were changed get their old image
again. A line for each set says its old image, its new one, and the result.

IMAGE is, of Azure, the name of an image in the resource group, the id of an image or of a version of a gallery's image, or
publisher:offer:sku:version; of AWS ami-ID, of which a new version of the launch template is made, or lt-ID:VERSION with the number of a
version, not $Latest or $Default; of Google the name or the path of an instance template.

Exit codes: 0 all of them have the image (with --dry-run: could have it); 1 none was changed, or those that were are put back; 3 some could
not be put back, and have different images.`,
		Example: `  moult set-image -imageid flatcar-stable-1.31.4-v2.0.0-0badc0de
  moult set-image --scale-set pool-a --scale-set pool-b --imageid Canonical:ubuntu-24_04-lts:server:24.04.202611010 --dry-run
  moult set-image --provider aws --region eu-central-1 --scale-set workers --imageid ami-0123456789abcdef0 -o json`,
		Args:         cobra.MaximumNArgs(1),
		SilenceUsage: true,
	}
	f := cmd.Flags()
	f.StringVar(&c.image, "imageid", "", "The image.")
	f.StringVar(&c.provider, "provider", "azure", "The cloud: azure, aws or gcp.")
	f.StringArrayVar(&c.scaleSets, "scale-set", nil, "A scale set, by name; may be given again. Default: the four of $CLUSTER_NAME.")
	f.BoolVar(&c.dryRun, "dry-run", false, "Look and prepare, wait for nothing, and change nothing.")
	f.DurationVar(&c.timeout, "timeout", 10*time.Minute, "How long the change of one scale set may take; before that, how long to wait until none is being changed.")
	f.StringVar(&c.azure.SubscriptionID, "subscription-id", "", "Azure: the subscription. [$ARM_SUBSCRIPTION_ID]")
	f.StringVar(&c.azure.ResourceGroup, "resource-group", "", "Azure: the resource group. [$ARM_RESOURCE_GROUP]")
	f.StringVar(&c.credential, "credential", "", "Azure: Auto, Environment, Workload or Managed. Default Auto; Managed where $ARM_USE_MANAGED_IDENTITY_EXTENSION is true.")
	f.StringVar(&c.azure.ClientID, "client-id", "", "Azure: which of several identities. [$AZURE_CLIENT_ID]")
	f.StringVar(&c.aws.Region, "region", "", "AWS: the region. [$AWS_REGION]")
	f.StringVar(&c.aws.RoleARN, "role-arn", "", "AWS: a role to assume.")
	f.StringVar(&c.gcp.Project, "project", "", "Google: the project.")
	f.StringSliceVar(&c.gcp.Locations, "location", nil, "Google: zones and regions to look for the groups in.")
	f.StringVar(&c.gcp.ServiceAccount, "service-account", "", "Google: a service account to impersonate.")
	c.output.Add(cmd, flags.JSON, flags.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return c.run(ctx, args)
	}
	return cmd
}

func (c *command) run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && c.image != "":
		return errors.New("the image is given twice")
	case len(args) > 0:
		c.image = args[0]
	}
	if c.timeout <= 0 {
		return errors.New("--timeout must be more than 0")
	}
	provider, err := c.where()
	if err != nil {
		return err
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	image, err := reference(provider, c.image)
	if err != nil {
		return err
	}
	connected, err := c.connect(ctx, provider)
	if err != nil {
		return fmt.Errorf("connecting to %s, %w", c.provider, err)
	}
	all := &changer{clock: c.clock, token: c.token, image: image, timeout: c.timeout, notes: c.ErrOut, dryRun: c.dryRun}
	for _, name := range names {
		all.sets = append(all.sets, &target{name: name, set: connected.ScaleSet(name)})
	}
	failed := all.run(ctx)
	report := Report{Image: image, DryRun: c.dryRun, ScaleSets: []Line{}}
	for _, t := range all.sets {
		report.ScaleSets = append(report.ScaleSets, t.line)
	}
	if err := report.write(c.Out, &c.output); err != nil && failed == nil {
		return err
	}
	return failed
}

// where is the cloud, by flags and environment.
func (c *command) where() (*v1alpha1.CloudProvider, error) {
	value := func(flag *string, name string) {
		if text, ok := c.lookup(name); ok && *flag == "" {
			*flag = text
		}
	}
	switch c.provider {
	case "azure":
		value(&c.azure.SubscriptionID, "ARM_SUBSCRIPTION_ID")
		value(&c.azure.ResourceGroup, "ARM_RESOURCE_GROUP")
		var missing []string
		if c.azure.SubscriptionID == "" {
			missing = append(missing, "--subscription-id or $ARM_SUBSCRIPTION_ID")
		}
		if c.azure.ResourceGroup == "" {
			missing = append(missing, "--resource-group or $ARM_RESOURCE_GROUP")
		}
		if len(missing) > 0 {
			return nil, errors.New(strings.Join(missing, ", and ") + " must be given")
		}
		if managed, _ := c.lookup("ARM_USE_MANAGED_IDENTITY_EXTENSION"); managed == "true" && c.credential == "" {
			c.credential = string(v1alpha1.AzureCredentialManaged)
		}
		c.azure.Credential = v1alpha1.AzureCredential(cmp.Or(c.credential, string(v1alpha1.AzureCredentialAuto)))
		known := []v1alpha1.AzureCredential{
			v1alpha1.AzureCredentialAuto, v1alpha1.AzureCredentialEnvironment, v1alpha1.AzureCredentialWorkload, v1alpha1.AzureCredentialManaged,
		}
		if !slices.Contains(known, c.azure.Credential) {
			return nil, fmt.Errorf("--credential must be Auto, Environment, Workload or Managed, not %q", c.credential)
		}
		return &v1alpha1.CloudProvider{Azure: &c.azure}, nil
	case "aws":
		return &v1alpha1.CloudProvider{AWS: &c.aws}, nil
	case "gcp":
		if c.gcp.Project == "" {
			return nil, errors.New("--project must be given")
		}
		return &v1alpha1.CloudProvider{GCP: &c.gcp}, nil
	}
	return nil, fmt.Errorf("--provider must be azure, aws or gcp, not %q", c.provider)
}

// names are the scale sets' names.
func (c *command) names() ([]string, error) {
	if len(c.scaleSets) > 0 {
		for i, name := range c.scaleSets {
			switch {
			case name == "":
				return nil, errors.New("--scale-set must name one")
			case slices.Contains(c.scaleSets[:i], name), c.provider == "azure" && slices.ContainsFunc(c.scaleSets[:i], fold(name)):
				return nil, fmt.Errorf("scale set %s is given twice", name)
			}
		}
		return c.scaleSets, nil
	}
	cluster, _ := c.lookup("CLUSTER_NAME")
	switch {
	case c.provider != "azure":
		return nil, errors.New("--scale-set must be given")
	case cluster == "":
		return nil, errors.New("--scale-set or $CLUSTER_NAME must be given")
	}
	names := make([]string, len(pools))
	for i, pool := range pools {
		names[i] = cluster + pool
	}
	return names, nil
}

// fold reports whether Azure takes names for the same.
func fold(name string) func(string) bool {
	return func(other string) bool { return strings.EqualFold(name, other) }
}

// newToken is a token that no other change has.
func newToken() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // It never fails.
	return hex.EncodeToString(random)
}
