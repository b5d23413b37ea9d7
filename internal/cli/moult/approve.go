// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

func newApprove(c *steerCommand) *cobra.Command {
	var wave string
	cmd := c.complete(help("approve ROLLOUT",
		`Approve the current wave of a rollout at its current revision, so that the next begins.
Records your name in status.approval; without the right to patch the status it sets the annotation moult.dev/approve, which has no name.`,
		`  kubectl moult approve k3s-agent -n system-upgrade
  kubectl moult approve k3s-agent -n system-upgrade --wave canary
  kubectl moult approve eds/node-exporter -n monitoring`),
		source.Rollouts, func(ctx context.Context, o source.Object) error { return c.approve(ctx, o, wave) })
	cmd.Flags().StringVar(&wave, "wave", "", "Approve only if this is the wave that waits for it.")
	return cmd
}

func (c *steerCommand) approve(ctx context.Context, o source.Object, wave string) error {
	user, err := c.src.User(ctx)
	if err != nil {
		return err
	}
	var approved *v1alpha1.WaveStatus
	write := func(change func(of string) *source.Change) (bool, error) {
		return c.write(ctx, o, func(u *unstructured.Unstructured) (*source.Change, error) {
			var current bool
			approved, current = waveOf(source.Object{Unstructured: u, Kind: o.Kind})
			if err := checkApprovable(approved, current, wave); err != nil {
				return nil, fmt.Errorf("%s: %w", o, err)
			}
			of, _, _ := unstructured.NestedString(u.Object, "status", "approval", "of")
			if of == approved.ApproveWith || u.GetAnnotations()[v1alpha1.AnnotationApprove] == approved.ApproveWith {
				return nil, nil
			}
			return change(approved.ApproveWith), nil
		})
	}
	changed, err := write(func(of string) *source.Change {
		approval := map[string]any{"approval": map[string]any{"of": of, "by": user}}
		return &source.Change{Merge: map[string]any{"status": approval}, Subresources: []string{"status"}}
	})
	if apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) { // No right to the status, or a definition without this field.
		refused := err
		if changed, err = write(func(of string) *source.Change { return source.Annotate(map[string]any{v1alpha1.AnnotationApprove: of}) }); err != nil {
			err = errors.Join(refused, err)
		}
	}
	switch {
	case err != nil:
		return err
	case !changed:
		fmt.Fprintf(c.Out, "%s: wave %s is approved already\n", o, approved.Name)
	default:
		c.say(o, fmt.Sprintf("wave %s (%d of %d) approved", approved.Name, approved.Number, approved.Of))
	}
	return nil
}

// waveOf returns the current wave of a rollout, and whether it is of the rollout's current revision.
func waveOf(o source.Object) (wave *v1alpha1.WaveStatus, current bool) {
	revision := ""
	switch r := typed(o).(type) {
	case *edsv1.ExtendedDaemonSet:
		// After a failed canary, the wave's revision is not that of the template.
		current = r.Status.ObservedGeneration == r.Generation
		wave, revision = r.Status.Wave, view.RevisionOf(r)
	case *v1alpha1.NodeRollout:
		wave, revision = r.Status.Wave, r.Status.Revision
	case *upgradev1.Plan:
		wave, revision = r.Status.Wave, r.Status.LatestHash
	}
	return wave, current || wave != nil && wave.Revision == revision
}

// checkApprovable returns why the wave can't be approved; nil if it can. wanted is the wave that the command line names.
func checkApprovable(w *v1alpha1.WaveStatus, current bool, wanted string) error {
	switch {
	case w == nil:
		return errors.New("it has no waves, or the operator has not begun with them, so there is nothing to approve")
	case wanted != "" && wanted != w.Name:
		return fmt.Errorf("it is wave %s (%d of %d) that is current, not %s", w.Name, w.Number, w.Of, wanted)
	case w.State != v1alpha1.WaveWaitingForApproval:
		return fmt.Errorf("wave %s (%d of %d) does not wait for approval, it is %s%s", w.Name, w.Number, w.Of, w.State, colon(w.Message))
	case !current || w.ApproveWith == "":
		return fmt.Errorf("wave %s waits at an older revision: the rollout has changed, and begins at its first wave", w.Name)
	}
	return nil
}
