// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

func newApprove(c *steerCommand) *cobra.Command {
	var wave string
	cmd := c.complete(&cobra.Command{
		Use:   "approve ROLLOUT",
		Short: "Approve the current wave of a rollout, so that the next begins",
		Long: `Approve the current wave of a rollout, so that the next begins: sets the annotation moult.dev/approve to the value that
status.wave.approveWith names. It is for this wave and this revision only. It fails when no wave waits for approval.

The canary of an ExtendedDaemonSet is its first wave; one with validationMode manual waits for approval.`,
		Example: `  kubectl moult approve k3s-agent -n system-upgrade
  kubectl moult approve k3s-agent -n system-upgrade --wave canary
  kubectl moult approve eds/node-exporter -n monitoring
  kubectl moult approve nr/bottlerocket`,
	}, source.Rollouts, func(ctx context.Context, named source.Target) error { return c.approve(ctx, named, wave) })
	cmd.Flags().StringVar(&wave, "wave", "", "Approve only if this is the wave that waits for it.")
	return cmd
}

func (c *steerCommand) approve(ctx context.Context, named source.Target, wave string) error {
	k, _, err := c.src.Find(ctx, named, source.Rollouts...)
	if err != nil {
		return err
	}
	var approved *v1alpha1.WaveStatus
	changed, err := c.write(ctx, k, named.Name, func(u *unstructured.Unstructured) (*source.Change, error) {
		r := wavesOf(k, u)
		if err := r.approvable(wave); err != nil {
			return nil, fmt.Errorf("%s: %w", k.String(named.Name), err)
		}
		approved = r.wave
		if u.GetAnnotations()[v1alpha1.AnnotationApprove] == approved.ApproveWith {
			return nil, nil
		}
		return source.Annotate(map[string]any{v1alpha1.AnnotationApprove: approved.ApproveWith}), nil
	})
	switch {
	case err != nil:
		return err
	case !changed:
		fmt.Fprintf(c.Out, "%s: wave %s is approved already\n", k.String(named.Name), approved.Name)
	default:
		c.say(k, named.Name, fmt.Sprintf("wave %s (%d of %d) approved", approved.Name, approved.Number, approved.Of))
	}
	return nil
}

// waves are the waves of the rollout to approve.
type waves struct {
	wave *v1alpha1.WaveStatus
	// none says why there are no waves; empty when there are.
	none string
	// current is true when the wave is of the rollout's current revision.
	current bool
}

func wavesOf(k *source.Kind, o *unstructured.Unstructured) waves {
	if k == source.DaemonSet {
		eds := source.As[edsv1.ExtendedDaemonSet](o)
		w := waves{wave: eds.Status.Wave}
		if s := &eds.Spec.Strategy; len(s.Waves) == 0 && s.Canary == nil {
			w.none = "it has neither a canary (spec.strategy.canary) nor waves (spec.strategy.waves)"
		}
		// After a failed canary, the wave's revision is not that of the template.
		seen := eds.Status.ObservedGeneration == eds.Generation
		w.current = w.wave != nil && (seen || w.wave.Revision == view.RevisionOf(eds))
		return w
	}
	var w waves
	var strategy *v1alpha1.Strategy
	revision := ""
	if k == source.NodeRollout {
		r := source.As[v1alpha1.NodeRollout](o)
		w.wave, strategy, revision = r.Status.Wave, r.Spec.Strategy, r.Status.Revision
	} else {
		p := source.As[upgradev1.Plan](o)
		w.wave, strategy, revision = p.Status.Wave, p.Spec.Strategy, p.Status.LatestHash
	}
	if strategy == nil || len(strategy.Waves) == 0 {
		w.none = "it has no waves (spec.strategy.waves)"
	}
	w.current = w.wave != nil && w.wave.Revision == revision
	return w
}

// approvable returns why the wave can't be approved; nil if it can.
func (r waves) approvable(wave string) error {
	w := r.wave
	switch {
	case w == nil && r.none != "":
		return errors.New(r.none + ", so there is nothing to approve")
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
	case !r.current || w.ApproveWith == "":
		return fmt.Errorf("wave %s waits at an older revision: the rollout has changed, and begins at its first wave", w.Name)
	}
	return nil
}
