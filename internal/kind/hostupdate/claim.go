// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// NewClaim returns the claim of a turn that begins, or that begins again after a failure.
func (w *World) NewClaim(t *Unit) v1alpha1.Claim {
	claim := w.claim(t, t.Verdict.Version)
	claim.Drains, claim.From, claim.BootID, claim.Back = w.Drains, t.Report.Version, t.Report.BootID, t.Verdict.Back
	if c := t.Claim; c != nil {
		claim.Uncordon = c.Uncordon && c.Changed != nil && t.Node.Spec.Unschedulable // The node is still cordoned by the failed turn.
		if c.Attempt == claim.Attempt {
			claim.Failures = c.Failures
		}
	}
	return claim
}

// Adoption returns the claim on a node whose host has an order to reboot and no claim. Another operator gave the order, or Moult did and its
// claim was removed. Only Moult writes the wanted version and who cordoned the node, and only Moult uses its own protocol. Other operators always
// uncordon the node, so Adoption does that for them.
func (w *World) Adoption(t *Unit) v1alpha1.Claim {
	version := t.Node.Annotations[v1alpha1.AnnotationHostWanted]
	theirs := version == "" && !strings.HasPrefix(t.Report.Protocol.Wanted, v1alpha1.GroupName+"/")
	claim := w.claim(t, version)
	claim.Uncordon = theirs && t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == ""
	claim.Rebooting, claim.BootID = &metav1.Time{Time: w.Now}, t.Report.RebootingFrom
	if t.Report.Active != v1alpha1.HostActionReboot {
		claim.BootID = t.Report.BootID // The host has not gone down yet.
	}
	return claim
}

func (w *World) claim(t *Unit, version string) v1alpha1.Claim {
	return v1alpha1.Claim{
		Rollout: w.Holder, UID: w.Rollout.UID, Revision: RevisionOf(version, w.Revision), Attempt: w.attempt(t.Node, version),
		Turn: strconv.FormatInt(w.Now.UnixNano(), 36), Since: metav1.Time{Time: w.Now},
	}
}
