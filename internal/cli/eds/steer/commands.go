// SPDX-License-Identifier: Apache-2.0

// Package steer is how people steer ExtendedDaemonSets: `kubectl eds canary validate`, pause, unpause, fail and reset,
// pause-rolling-update, freeze-rollout and their opposites, and rollback. Each writes to one object, with its resourceVersion
// as precondition, and prints what it wrote in the words that scripts know.
package steer

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	client *object.Client
}

// verb is what is done to the ExtendedDaemonSet of this name.
type verb func(c *command, ctx context.Context, name string) error

// NewCommands makes pause-rolling-update, freeze-rollout, their opposites, and rollback.
func NewCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	c := &command{IOStreams: streams, clock: clk}
	return []*cobra.Command{
		c.complete(cluster, &cobra.Command{
			Use:   "pause-rolling-update",
			Short: "Replace no more outdated pods; pods are still created where there is none",
			Long: `Replace no more outdated pods. Pods are still created where there is none, such as on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rolling-update-paused to true. While there is a canary, pause that: kubectl eds canary pause.`,
		}, rollingUpdate.set(true)),
		c.complete(cluster, &cobra.Command{
			Use:   "unpause-rolling-update",
			Short: "Replace outdated pods again",
			Long:  `Replace outdated pods again. Sets the annotation extendeddaemonset.datadoghq.com/rolling-update-paused to false.`,
		}, rollingUpdate.set(false)),
		c.complete(cluster, &cobra.Command{
			Use:   "freeze-rollout",
			Short: "Replace no outdated pods and create none, not even on new nodes",
			Long: `Replace no outdated pods and create none, not even on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rollout-frozen to true. While there is a canary, fail or validate that first.`,
		}, rollout.set(true)),
		c.complete(cluster, &cobra.Command{
			Use:   "unfreeze-rollout",
			Short: "Replace outdated pods, and create pods, again",
			Long:  `Replace outdated pods, and create pods, again. Sets the annotation extendeddaemonset.datadoghq.com/rollout-frozen to false.`,
		}, rollout.set(false)),
		newRollback(c, cluster),
	}
}

// NewCanaryCommands makes those of `canary`: validate, pause, unpause, fail and reset.
func NewCanaryCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	c := &command{IOStreams: streams, clock: clk}
	commands := []*cobra.Command{
		c.complete(cluster, &cobra.Command{
			Use:   "validate",
			Short: "Validate the canary: all other nodes get its template now",
			Long: `Validate the canary: all other nodes get its template now, by the rolling update, whether the canary is paused, ready or
neither. Sets the annotation extendeddaemonset.datadoghq.com/canary-valid to the name of the canary's
ExtendedDaemonSetReplicaSet: it is for this canary only.`,
		}, (*command).validate),
		c.complete(cluster, &cobra.Command{
			Use:   "pause",
			Short: "Pause the canary: it is not promoted, and no canary pod is created",
			Long: `Pause the canary: it is not promoted, and no canary pod is created. Sets the annotations
extendeddaemonset.datadoghq.com/canary-paused to true and canary-unpaused to false.`,
		}, canaryPause.set(true)),
		c.complete(cluster, &cobra.Command{
			Use:   "unpause",
			Short: "Unpause the canary, also one that was paused by itself",
			Long: `Unpause the canary. If it was paused by itself (spec.strategy.canary.autoPause), it is not paused so again. Sets the
annotations extendeddaemonset.datadoghq.com/canary-paused to false and canary-unpaused to true.`,
		}, canaryPause.set(false)),
		c.complete(cluster, &cobra.Command{
			Use:   "fail",
			Short: "Fail the canary: its nodes get the active template back",
			Long: `Fail the canary: its nodes get the active template back, and its own is not tried again until it changes, or until
kubectl eds canary reset. Sets the condition Canary-Failed in the status of the canary's ExtendedDaemonSetReplicaSet.`,
		}, (*command).fail),
		c.complete(cluster, &cobra.Command{
			Use:   "reset",
			Short: "Reset a failed canary: the same template is tried again",
			Long: `Reset a failed canary: the same template is tried again, from the beginning. Sets the condition Canary-Failed to False in the
status of the ExtendedDaemonSetReplicaSet of spec.template.`,
		}, (*command).reset),
	}
	for _, cmd := range commands {
		cmd.Example = "  kubectl eds canary " + cmd.Name() + " agent -n monitoring"
	}
	return commands
}

// complete gives the cobra command what the verbs share.
func (c *command) complete(cluster config.Config, cmd *cobra.Command, do verb) *cobra.Command {
	if cmd.Example == "" {
		cmd.Example = "  kubectl eds " + cmd.Use + " agent -n monitoring"
	}
	cmd.Use += " [ExtendedDaemonSet name]"
	return object.Complete(cluster, cmd, func(ctx context.Context, client *object.Client, name string) error {
		c.client = client
		return do(c, ctx, name)
	})
}

// annotate sets annotations of an ExtendedDaemonSet. change says which, or why not.
func (c *command) annotate(ctx context.Context, name string, change func(*edsv1.ExtendedDaemonSet) (map[string]any, error)) error {
	return c.client.Write(ctx, target.DaemonSet, name, object.Write, func(u *unstructured.Unstructured) (*source.Change, error) {
		annotations, err := change(source.As[edsv1.ExtendedDaemonSet](u))
		return source.Annotate(annotations), err
	})
}

// say prints what was done to the ExtendedDaemonSet.
func (c *command) say(name, done string) {
	fmt.Fprintf(c.Out, "ExtendedDaemonset '%s/%s' %s\n", c.client.Namespace, name, done)
}
