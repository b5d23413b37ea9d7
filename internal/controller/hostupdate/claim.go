// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
)

// newClaim starts a turn, or starts one over that has failed.
func (t *unit) newClaim(w *world) v1alpha1.Claim {
	claim := v1alpha1.Claim{
		Rollout:  w.holder,
		UID:      w.rollout.UID,
		Revision: hostupdate.RevisionOf(t.verdict.Version, w.revision),
		Attempt:  w.attempt(t.Node, t.verdict.Version),
		Turn:     strconv.FormatInt(w.now.UnixNano(), 36),
		Since:    metav1.Time{Time: w.now},
		Drains:   w.drains,
		From:     t.report.Version,
		BootID:   t.report.BootID,
	}
	if c := t.Claim; c != nil {
		claim.Uncordon = c.Uncordon && c.Changed != nil && t.Node.Spec.Unschedulable // It is cordoned still for the turn that failed.
		if c.Attempt == claim.Attempt {
			claim.Failures = c.Failures
		}
	}
	return claim
}

// adoption is the claim on a node whose host another operator, or this one before somebody took its claim away, has told to reboot. What the
// node was brought to is known where this one had said it; then who had cordoned it is known, too. Another operator has cordoned the node and
// makes it schedulable whoever had; but none speaks the protocol that is Moult's own.
func (t *unit) adoption(w *world) v1alpha1.Claim {
	version := t.Node.Annotations[v1alpha1.AnnotationHostWanted]
	theirs := version == "" && !strings.HasPrefix(t.report.Protocol.Wanted, v1alpha1.GroupName+"/")
	claim := v1alpha1.Claim{
		Rollout:   w.holder,
		UID:       w.rollout.UID,
		Revision:  hostupdate.RevisionOf(version, w.revision),
		Attempt:   w.attempt(t.Node, version),
		Turn:      strconv.FormatInt(w.now.UnixNano(), 36),
		Since:     metav1.Time{Time: w.now},
		Uncordon:  theirs && t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == "",
		Rebooting: &metav1.Time{Time: w.now},
		BootID:    t.report.RebootingFrom,
	}
	if t.report.Active != v1alpha1.HostActionReboot {
		claim.BootID = t.report.BootID // It is still to go down.
	}
	return claim
}
