// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim is a rollout's right to one node, kept in the Node's annotation AnnotationClaims. An exclusive claim stands
// alone; shared ones stand beside each other. A claim is also the memory of the turn: a controller that starts anew
// reads from it what was begun, and what must be undone at the end.
type Claim struct {
	// Rollout is the holder, as "Kind/namespace/name", or "Kind/name" for a cluster-scoped one.
	Rollout string `json:"rollout"`
	// UID is the holder's uid: a rollout of the same name, made later, is another holder.
	UID types.UID `json:"uid"`
	// Shared is true for a claim that tolerates other shared claims on the node. The default is exclusive.
	Shared bool `json:"shared,omitempty"`
	// Revision is what the node is being brought to.
	Revision string `json:"revision"`
	// Attempt identifies the state of the rollout that this turn was started for. A failed turn is tried again, once, when
	// the rollout's own attempt differs.
	Attempt string `json:"attempt,omitempty"`
	// Turn identifies this turn, so that what earlier turns left behind on the node is not taken for its result.
	Turn string `json:"turn"`
	// Since is when the claim was made, or when the turn was last started again.
	Since metav1.Time `json:"since"`
	// KeptSeconds is how long what the turn leaves behind as its result is kept after its end. A claim that is older, and
	// whose result nobody has seen, may be of a turn that is over.
	KeptSeconds int32 `json:"keptSeconds,omitempty"`
	// Drains is true when the turn evicts the node's pods.
	Drains bool `json:"drains,omitempty"`
	// Uncordon is true when the node was schedulable when it was claimed and a tool that leaves no mark of its own
	// (AnnotationCordonedBy) may cordon it: it is made schedulable at the end.
	Uncordon bool `json:"uncordon,omitempty"`
	// From is the version that the host ran when the turn began, where it is known.
	From string `json:"from,omitempty"`
	// Machine is the cloud's name of the node's machine, where that is to be deleted.
	Machine string `json:"machine,omitempty"`
	// Cordoned is since when the node is cordoned for the change, from which the time of its drain counts. It is anew where
	// somebody has lifted the cordon meanwhile.
	Cordoned *metav1.Time `json:"cordoned,omitempty"`
	// Drained is when the drain was seen to be over, where the node's condition of that name does not say so.
	Drained *metav1.Time `json:"drained,omitempty"`
	// Rebooting is when the host was told to reboot.
	Rebooting *metav1.Time `json:"rebooting,omitempty"`
	// BootID is the boot id that the node had when its host was told to reboot, or before that when its turn began.
	BootID string `json:"bootID,omitempty"`
	// Changed is when the change was done, for a node that was not healthy then.
	Changed *metav1.Time `json:"changed,omitempty"`
	// Soaking is since when the change has been done and the node only keeps its slot.
	Soaking *metav1.Time `json:"soaking,omitempty"`
	// Failed says that, when and why the turn failed.
	Failed *ClaimFailure `json:"failed,omitempty"`
	// Failures is how many turns have failed one after the other for the same attempt.
	Failures int32 `json:"failures,omitempty"`
}

// Skipped reports whether the claim only remembers that the node was skipped.
func (c *Claim) Skipped() bool { return c.Failed != nil && c.Failed.Skipped }

// Parked reports whether the claim disrupts nothing, and only remembers that the node was skipped, or that its machine could not be replaced: it serves as
// before. Nobody needs to keep off the node for it, and it uses up no budget.
func (c *Claim) Parked() bool { return c.Skipped() || c.Failed != nil && c.Machine != "" }

// ClaimFailure says why a turn failed.
type ClaimFailure struct {
	// Reason is one word.
	Reason Reason `json:"reason"`
	// Message says the same to people.
	Message string `json:"message,omitempty"`
	// Time is when it failed.
	Time metav1.Time `json:"time"`
	// Skipped is true when the node was left as it was and given back, so that the rollout goes on without it.
	Skipped bool `json:"skipped,omitempty"`
}

// ParseClaims reads the claims from a Node's annotations. No annotation means no claims. A value that can't be read is
// an error, and the node must be left alone.
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
		if c.Rollout == "" || c.UID == "" {
			return nil, fmt.Errorf("reading annotation %s, a claim names no holder", AnnotationClaims)
		}
	}
	return claims, nil
}

// FormatClaims is the annotation's value for these claims.
func FormatClaims(claims []Claim) (string, error) {
	value, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("writing annotation %s, %w", AnnotationClaims, err)
	}
	return string(value), nil
}
