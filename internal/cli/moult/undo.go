// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/eds"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

func newUndo(c *steerCommand) *cobra.Command {
	return c.complete(help("undo ROLLOUT",
		`Return a rollout to its previous revision, a few nodes at a time.
That is the last complete version of a Plan or of hosts before this one, or an ExtendedDaemonSet's previous template. It fails if none is known.`,
		`  kubectl moult undo k3s-agent -n system-upgrade
  kubectl moult undo eds/node-exporter -n monitoring --dry-run=server`), source.Rollouts, c.undo)
}

func (c *steerCommand) undo(ctx context.Context, o source.Object) error {
	to, note := "", text.When(o.Kind == source.NodeRollout, "; hosts that run a newer version go back only if they offer this one")
	_, err := c.write(ctx, o, func(u *unstructured.Unstructured) (change *source.Change, err error) {
		field := []string{"spec", "version"}
		switch r := typed(source.Object{Unstructured: u, Kind: o.Kind}).(type) {
		case *edsv1.ExtendedDaemonSet:
			change, to, err = eds.Rollback(ctx, c.src, u, "")
			return change, err
		case *v1alpha1.NodeRollout:
			field = []string{"spec", "hostUpdate", "version"}
			to, err = previousHostVersion(r)
		case *upgradev1.Plan:
			to, err = previousVersion(r)
			note = text.When(r.Spec.Channel != "", "; its channel counts again when spec.version is removed")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o, err)
		}
		return nested(field, to), nil
	})
	if err == nil {
		c.say(o, "returns to "+to+note)
	}
	return err
}

// errNoVersion: undo does not guess. What a person put there by hand, or nodes had in part, is no version to return to.
var errNoVersion = errors.New("no version before this one is known that all nodes had: set the version in the spec")

// previousVersion is the version that all nodes had before a Plan's present one.
func previousVersion(p *upgradev1.Plan) (string, error) {
	s := &p.Status
	last := ""
	if c := s.LastComplete; c != nil {
		last = upgradev1.RunOf(c.Version, c.Hash)
	}
	return previous(s.RolledBack != nil, upgradev1.RunOf(s.LatestVersion, s.LatestHash), last, s.History)
}

// previousHostVersion is the version that all hosts ran before a NodeRollout's present one.
func previousHostVersion(r *v1alpha1.NodeRollout) (string, error) {
	s := &r.Status
	if r.Spec.Replacement != nil {
		return "", errors.New("its revision is the image of its scale sets: set status.scaleSets[].previousImage there by moult set-image")
	}
	return previous(s.RolledBack != "", s.Revision, s.LastComplete, s.History)
}

// previous is the version of the last complete revision, or of the one before if that is the present one. A Plan's revision also has a hash, and that
// of a reboot is no version.
func previous(rolledBack bool, now, last string, runs []v1alpha1.Run) (string, error) {
	present, _, _ := strings.Cut(now, "@")
	if rolledBack {
		return "", fmt.Errorf("it has been rolled back to %s: set that version in the spec", present)
	}
	for _, r := range append([]v1alpha1.Run{{Revision: last, Result: v1alpha1.RunComplete}}, runs...) {
		if r.Result != v1alpha1.RunComplete || r.Revision == "" || r.Revision == now {
			continue
		}
		if version, _, _ := strings.Cut(r.Revision, "@"); version != present && !strings.HasPrefix(version, "reboot-") {
			return version, nil
		}
		break
	}
	return "", errNoVersion
}
