// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func newPauseRollingUpdate(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "pause-rolling-update",
		Short: "Replace no more outdated pods; pods are still created where there is none",
		Long: `Replace no more outdated pods. Pods are still created where there is none, such as on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rolling-update-paused to true. While there is a canary, pause that: kubectl eds canary pause.`,
		Example: `  kubectl eds pause-rolling-update agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.set(ctx, name, rollingUpdate, true) }
}

func newUnpauseRollingUpdate(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:     "unpause-rolling-update",
		Short:   "Replace outdated pods again",
		Long:    `Replace outdated pods again. Sets the annotation extendeddaemonset.datadoghq.com/rolling-update-paused to false.`,
		Example: `  kubectl eds unpause-rolling-update agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.set(ctx, name, rollingUpdate, false) }
}

func newFreeze(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "freeze-rollout",
		Short: "Replace no outdated pods and create none, not even on new nodes",
		Long: `Replace no outdated pods and create none, not even on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rollout-frozen to true. While there is a canary, fail or validate that first.`,
		Example: `  kubectl eds freeze-rollout agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.set(ctx, name, rollout, true) }
}

func newUnfreeze(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:     "unfreeze-rollout",
		Short:   "Replace outdated pods, and create pods, again",
		Long:    `Replace outdated pods, and create pods, again. Sets the annotation extendeddaemonset.datadoghq.com/rollout-frozen to false.`,
		Example: `  kubectl eds unfreeze-rollout agent -n monitoring`,
	}, func(ctx context.Context, name string) error { return c.set(ctx, name, rollout, false) }
}

// halt is an annotation that stops a rollout, and what is said about it.
type halt struct {
	annotation                 string
	isOn, isOff                string
	alreadyOn, notOn, inCanary error
}

var (
	rollingUpdate = halt{
		annotation: edsv1.AnnotationRollingUpdatePaused,
		isOn:       "rolling update is now paused",
		isOff:      "rolling update is now unpaused",
		alreadyOn:  errors.New("rolling update already paused"),
		notOn:      errors.New("rolling update is not paused; cannot unpause"),
		inCanary:   errors.New("cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. You can use the canary pause command instead"),
	}
	rollout = halt{
		annotation: edsv1.AnnotationRolloutFrozen,
		isOn:       "rollout is now frozen",
		isOff:      "rollout is now unfrozen",
		alreadyOn:  errors.New("rollout already frozen"),
		notOn:      errors.New("rollout is not frozen; cannot unfreeze"),
		inCanary:   errors.New("cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. You should either fail or validate the canary first"),
	}
)

func (c *command) set(ctx context.Context, name string, h halt, on bool) error {
	err := c.client.Annotate(ctx, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		is := eds.Annotations[h.annotation]
		switch {
		case eds.Status.Canary != nil:
			return nil, h.inCanary
		case on && is == edsv1.True:
			return nil, h.alreadyOn
		case on:
			return map[string]any{h.annotation: edsv1.True}, nil
		case is == off || is == "":
			return nil, h.notOn
		}
		return map[string]any{h.annotation: off}, nil
	})
	switch {
	case err != nil:
		return err
	case on:
		c.sayOf(name, h.isOn)
	default:
		c.sayOf(name, h.isOff)
	}
	return nil
}
