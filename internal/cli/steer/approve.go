// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

func newApprove(c *command) *cobra.Command {
	var wave string
	cmd := &cobra.Command{
		Use:   "approve ROLLOUT",
		Short: "Approve the current wave of a rollout, so that the next begins",
		Long: `Approve the current wave of a rollout, so that the next begins: sets the annotation moult.dev/approve to the value that
status.wave.approveWith names. It is for this wave and this revision only. It fails when no wave waits for approval.`,
		Example: `  kubectl moult approve k3s-agent -n system-upgrade
  kubectl moult approve k3s-agent -n system-upgrade --wave canary`,
	}
	cmd = c.mount(cmd, func(ctx context.Context, arg string) error { return c.approve(ctx, arg, wave) }, target.Rollouts...)
	cmd.Flags().StringVar(&wave, "wave", "", "Approve only if this is the wave that waits for it.")
	c.dryRun.complete(cmd)
	return cmd
}

func (c *command) approve(ctx context.Context, arg, wave string) error {
	named, err := target.Parse(arg, target.Rollouts...)
	if err != nil {
		return err
	}
	k := target.Plan
	o, err := c.get(ctx, k, named.Name)
	if err != nil {
		return err
	}
	var refused error
	var approved *v1alpha1.WaveStatus
	changed, err := c.write(ctx, k, o, func(o *unstructured.Unstructured) map[string]any {
		p := source.DecodePlan(o)
		if refused = approvable(p, wave); refused != nil {
			return nil
		}
		approved = p.Status.Wave
		if p.Annotations[v1alpha1.AnnotationApprove] == approved.ApproveWith {
			return nil
		}
		return annotate(v1alpha1.AnnotationApprove, approved.ApproveWith)
	})
	switch {
	case err != nil:
		return err
	case refused != nil:
		return fmt.Errorf("%s: %w", k.String(named.Name), refused)
	case !changed:
		fmt.Fprintf(c.Out, "%s: wave %s is approved already\n", k.String(named.Name), approved.Name)
	default:
		c.say(k, named.Name, fmt.Sprintf("wave %s (%d of %d) approved", approved.Name, approved.Number, approved.Of))
	}
	return nil
}

// approvable says why there is nothing to approve.
func approvable(p *upgradev1.Plan, wave string) error {
	w := p.Status.Wave
	switch {
	case w == nil && (p.Spec.Strategy == nil || len(p.Spec.Strategy.Waves) == 0):
		return errors.New("it has no waves (spec.strategy.waves), so there is nothing to approve")
	case w == nil:
		return errors.New("the operator has not begun with its waves, so there is nothing to approve")
	case wave != "" && wave != w.Name:
		return fmt.Errorf("it is wave %s (%d of %d) that is current, not %s", w.Name, w.Number, w.Of, wave)
	case w.State != v1alpha1.WaveWaitingForApproval:
		text := fmt.Sprintf("wave %s (%d of %d) does not wait for approval, it is %s", w.Name, w.Number, w.Of, w.State)
		if w.Message != "" {
			text += ": " + w.Message
		}
		return errors.New(text)
	case w.Revision != p.Status.LatestHash || w.ApproveWith == "":
		return fmt.Errorf("wave %s waits at an older revision: the rollout has changed, and begins at its first wave", w.Name)
	}
	return nil
}
