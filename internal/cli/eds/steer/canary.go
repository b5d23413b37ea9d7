// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// off is the value of annotations that are off.
const off = "false"

func newValidate(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "validate",
		Short: "Validate the canary: all other nodes get its template now",
		Long: `Validate the canary: all other nodes get its template now, by the rolling update, whether the canary is paused, ready or
neither. Sets the annotation extendeddaemonset.datadoghq.com/canary-valid to the name of the canary's
ExtendedDaemonSetReplicaSet: it is for this canary only.`,
		Example: `  kubectl eds canary validate agent -n monitoring`,
	}, c.validate
}

func (c *command) validate(ctx context.Context, name string) error {
	var valid string
	err := c.client.Annotate(ctx, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		if eds.Status.Canary == nil {
			return nil, errors.New("the ExtendedDaemonset is not currently running a canary replicaset")
		}
		valid = eds.Status.Canary.ReplicaSet
		if eds.Annotations[edsv1.AnnotationCanaryValid] == valid {
			return nil, fmt.Errorf("canary replicaset '%s' already validated", valid)
		}
		return map[string]any{edsv1.AnnotationCanaryValid: valid}, nil
	})
	if err == nil {
		fmt.Fprintf(c.Out, "Canary replicaset '%s' was validated properly for extendeddaemonset %s/%s.\n", valid, c.client.Namespace, name)
	}
	return err
}

func newPause(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "pause",
		Short: "Pause the canary: it is not promoted, and no canary pod is created",
		Long: `Pause the canary: it is not promoted, and no canary pod is created. Sets the annotations
extendeddaemonset.datadoghq.com/canary-paused to true and canary-unpaused to false.`,
		Example: `  kubectl eds canary pause agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.setPaused(ctx, name, true) }
}

func newUnpause(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "unpause",
		Short: "Let a paused canary go on, also one that was paused by itself",
		Long: `Let a paused canary go on. If it was paused by itself (spec.strategy.canary.autoPause), it is not paused so again. Sets the
annotations extendeddaemonset.datadoghq.com/canary-paused to false and canary-unpaused to true.`,
		Example: `  kubectl eds canary unpause agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.setPaused(ctx, name, false) }
}

func (c *command) setPaused(ctx context.Context, name string, paused bool) error {
	err := c.client.Annotate(ctx, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		if _, err := canary(eds); err != nil {
			return nil, err
		}
		switch is := eds.Annotations[edsv1.AnnotationCanaryPaused]; {
		case paused && is == edsv1.True:
			return nil, errors.New("canary deployment already paused")
		case paused:
			return map[string]any{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: off}, nil
		case is == off:
			return nil, errors.New("canary deployment is not paused; cannot unpause")
		}
		return map[string]any{edsv1.AnnotationCanaryPaused: off, edsv1.AnnotationCanaryUnpaused: edsv1.True}, nil
	})
	if err == nil {
		c.sayOf(name, fmt.Sprintf("deployment paused set to %t", paused))
	}
	return err
}
