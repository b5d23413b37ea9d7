// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/eds/object"
)

func newFail(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "fail",
		Short: "Fail the canary: its nodes get the active template back",
		Long: `Fail the canary: its nodes get the active template back, and its own is not tried again until it changes, or until
kubectl eds canary reset. Sets the condition Canary-Failed in the status of the canary's ExtendedDaemonSetReplicaSet.`,
		Example: `  kubectl eds canary fail agent -n monitoring`,
	}, c.fail
}

func (c *command) fail(ctx context.Context, name string) error {
	eds, err := c.client.Get(ctx, name)
	if err != nil {
		return err
	}
	revision, err := canary(eds)
	if err != nil {
		return err
	}
	err = c.client.SetCondition(ctx, revision, func(ers *edsv1.ExtendedDaemonSetReplicaSet) (edsv1.Condition, error) {
		switch {
		case object.CanaryFailed(ers) != nil:
			return edsv1.Condition{}, errors.New("canary deployment already failed")
		case ers.Status.Status == edsv1.ReplicaSetActive:
			return edsv1.Condition{}, fmt.Errorf("canary replicaset '%s' is active already; cannot fail it", revision)
		}
		return c.failed(metav1.ConditionTrue, edsv1.ReasonManuallyFailed), nil
	})
	if err != nil {
		return err
	}
	// The revision's status says a moment later than the ExtendedDaemonSet's that it is active. Of an active one the failure says nothing.
	if eds, err = c.client.Get(ctx, name); err != nil {
		return err
	}
	if eds.Status.ActiveReplicaSet == revision {
		return fmt.Errorf("canary replicaset '%s' has become active in this moment; cannot fail it: see kubectl eds rollback", revision)
	}
	c.sayOfRevision(name, "canary deployment set to failed") // Scripts know it so, with the name of the ExtendedDaemonSet.
	return nil
}

func newReset(c *command) (*cobra.Command, func(context.Context, string) error) {
	return &cobra.Command{
		Use:   "reset",
		Short: "Reset a failed canary: the same template is tried again",
		Long: `Reset a failed canary: the same template is tried again, from the beginning. Sets the condition Canary-Failed to False in the
status of the ExtendedDaemonSetReplicaSet of spec.template.`,
		Example: `  kubectl eds canary reset agent -n monitoring`,
	}, c.reset
}

func (c *command) reset(ctx context.Context, name string) error {
	eds, err := c.client.Get(ctx, name)
	if err != nil {
		return err
	}
	revisions, err := c.client.Revisions(ctx, eds)
	if err != nil {
		return err
	}
	revision, err := resettable(eds, revisions)
	if err != nil {
		return err
	}
	err = c.client.SetCondition(ctx, revision, func(ers *edsv1.ExtendedDaemonSetReplicaSet) (edsv1.Condition, error) {
		if object.CanaryFailed(ers) == nil {
			return edsv1.Condition{}, errors.New("canary deployment already reset")
		}
		return c.failed(metav1.ConditionFalse, edsv1.ReasonReset), nil
	})
	if err == nil {
		c.sayOfRevision(revision, "canary deployment reset")
	}
	return err
}

// resettable is the name of the revision whose canary has failed and is to be tried again: that of spec.template.
func resettable(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) (string, error) {
	var failed []string
	for i := range revisions {
		if r := &revisions[i]; object.CanaryFailed(r) != nil && r.Name != eds.Status.ActiveReplicaSet {
			failed = append(failed, r.Name)
		}
	}
	if len(failed) == 0 {
		return "", errors.New("no canary deployment of the ExtendedDaemonset has failed; cannot reset")
	}
	if i := object.InSpec(eds, revisions); i >= 0 {
		if r := &revisions[i]; object.CanaryFailed(r) == nil || r.Name == eds.Status.ActiveReplicaSet {
			return "", fmt.Errorf("spec.template is that of '%s', whose canary has not failed; cannot reset that of %s", r.Name, strings.Join(failed, ", "))
		}
		return revisions[i].Name, nil
	}
	if len(failed) > 1 {
		return "", fmt.Errorf("none of the failed canaries %s has the template of the ExtendedDaemonset; cannot reset", strings.Join(failed, ", "))
	}
	return failed[0], nil
}

// failed is the condition that says that a canary has failed, or has not.
func (c *command) failed(is metav1.ConditionStatus, reason string) edsv1.Condition {
	now := c.now()
	return edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: is, Reason: reason, LastTransitionTime: now, LastUpdateTime: now}
}

// sayOfRevision tells what was done to the ExtendedDaemonSetReplicaSet.
func (c *command) sayOfRevision(name, done string) {
	fmt.Fprintf(c.Out, "ExtendedDaemonSetReplicaSet '%s/%s' %s\n", c.client.Namespace, name, done)
}
