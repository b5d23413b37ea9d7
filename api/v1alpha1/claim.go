// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim is a rollout's right to one node, kept in the Node's annotation AnnotationClaims. An exclusive claim is the only
// one on its node; several shared claims may be on one node. A claim also records the progress of the turn. After a restart
// the controller reads from it what was begun and what it must undo.
type Claim struct {
	// rollout is the holder, as "Kind/namespace/name", or "Kind/name" for a cluster-scoped one.
	// +required
	Rollout string `json:"rollout"`
	// uid is the holder's uid: a rollout of the same name, made later, is another holder.
	// +required
	UID types.UID `json:"uid"`
	// shared is true for a claim that tolerates other shared claims on the node. The default is exclusive.
	// +optional
	Shared bool `json:"shared,omitempty"`
	// revision is what the node is being brought to.
	// +required
	Revision string `json:"revision"`
	// attempt identifies the state of the rollout that this turn was started for. A failed turn is tried again, once, when
	// the rollout's own attempt differs.
	// +optional
	Attempt string `json:"attempt,omitempty"`
	// turn identifies this turn, so that what earlier turns left behind on the node is not taken for its result.
	// +required
	Turn string `json:"turn"`
	// since is when the claim was made, or when the turn was last restarted.
	// +required
	Since metav1.Time `json:"since"`
	// keptSeconds is how long the turn's Job is kept after its end. If the claim is older and the Job is gone, the turn may
	// have ended.
	// +optional
	KeptSeconds int32 `json:"keptSeconds,omitempty"`
	// drains is true when the turn evicts the node's pods.
	// +optional
	Drains bool `json:"drains,omitempty"`
	// uncordon is true when the node was schedulable at the claim, and a tool that does not set AnnotationCordonedBy may
	// cordon it. The node is uncordoned at the end.
	// +optional
	Uncordon bool `json:"uncordon,omitempty"`
	// from is the host's version at the start of the turn, if known.
	// +optional
	From string `json:"from,omitempty"`
	// back is true when the host returns to its other partitions, which hold the revision.
	// +optional
	Back bool `json:"back,omitempty"`
	// machine is the cloud's name of the node's machine, if the turn deletes it.
	// +optional
	Machine string `json:"machine,omitempty"`
	// cordoned is when the node was cordoned for the change. The drain's timeout counts from it. It is set again when the
	// node was uncordoned in between.
	// +optional
	Cordoned *metav1.Time `json:"cordoned,omitempty"`
	// drained is when the drain of a Plan's turn was complete. Its Job continues then.
	// +optional
	Drained *metav1.Time `json:"drained,omitempty"`
	// rebooting is when the host was ordered to reboot.
	// +optional
	Rebooting *metav1.Time `json:"rebooting,omitempty"`
	// bootID is the node's boot id when its host was ordered to reboot. Before that it is the boot id at the start of the
	// turn.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// changed is when the change was done, if the node was not healthy then.
	// +optional
	Changed *metav1.Time `json:"changed,omitempty"`
	// soaking is when the soak began: the change is done, and the node only keeps its slot.
	// +optional
	Soaking *metav1.Time `json:"soaking,omitempty"`
	// failed says when and why the turn failed; nil if it did not.
	// +optional
	Failed *ClaimFailure `json:"failed,omitempty"`
	// failures is how many turns have failed in a row for the same attempt.
	// +optional
	Failures int32 `json:"failures,omitempty"`
}

// Skipped reports whether the claim only records that the node was skipped.
func (c *Claim) Skipped() bool { return c.Failed != nil && c.Failed.Skipped }

// RecordsResult reports whether the claim only records a result: the node was skipped, or its machine could not be replaced. The
// node serves as before, other rollouts may claim it, and it uses up no budget.
func (c *Claim) RecordsResult() bool { return c.Skipped() || c.Failed != nil && c.Machine != "" }

// ClaimFailure says why a turn failed.
type ClaimFailure struct {
	// reason is one word.
	// +required
	Reason Reason `json:"reason"`
	// message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
	// time is when it failed.
	// +required
	Time metav1.Time `json:"time"`
	// skipped is true when the node was released unchanged, and the rollout continues without it.
	// +optional
	Skipped bool `json:"skipped,omitempty"`
}

// ParseClaims reads the claims from a Node's annotations. No annotation means no claims. A value that can't be read is an
// error, and no rollout may take the node.
func ParseClaims(annotations map[string]string) ([]Claim, error) {
	value, ok := annotations[AnnotationClaims]
	if !ok || value == "" {
		return nil, nil
	}
	var claims []Claim
	if err := json.Unmarshal([]byte(value), &claims); err != nil {
		return nil, fmt.Errorf("reading annotation %s, %w", AnnotationClaims, err)
	}
	for _, c := range claims {
		if c.Rollout == "" || c.UID == "" || !c.canBeWritten() {
			return nil, fmt.Errorf("reading annotation %s, a claim has no rollout or uid, or a year of more than four digits", AnnotationClaims)
		}
	}
	return claims, nil
}

// canBeWritten reports whether all times have a year of four digits in UTC: others are written so that they can't be read.
func (c *Claim) canBeWritten() bool {
	times := []*metav1.Time{&c.Since, c.Cordoned, c.Drained, c.Rebooting, c.Changed, c.Soaking}
	if c.Failed != nil {
		times = append(times, &c.Failed.Time)
	}
	return !slices.ContainsFunc(times, func(t *metav1.Time) bool { return t != nil && (t.UTC().Year() < 0 || t.UTC().Year() > 9999) })
}

// FormatClaims returns the value of AnnotationClaims for these claims.
func FormatClaims(claims []Claim) (string, error) {
	value, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("writing annotation %s, %w", AnnotationClaims, err)
	}
	return string(value), nil
}
