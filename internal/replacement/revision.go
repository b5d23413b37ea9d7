// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"moult.dev/moult/api/v1alpha1"
)

// Revision is what the machines of all sets are brought to: the name of their image, or, where they have several or none, what identifies all that
// they are made of. before is kept while a set is not known.
func Revision(sets map[string]*Set, before string) string {
	if len(sets) == 0 {
		return before
	}
	names := slices.Sorted(maps.Keys(sets))
	image, sum := sets[names[0]].ImageName, sha256.New()
	for _, name := range names {
		s := sets[name]
		if !s.Known {
			return before
		}
		if s.ImageName != image {
			image = ""
		}
		_, _ = sum.Write([]byte(s.Name + "\x00" + s.Model + "\x00"))
	}
	if image != "" {
		return image
	}
	text := hex.EncodeToString(sum.Sum(nil))[:12]
	if len(names) == 1 {
		return text
	}
	return strconv.Itoa(len(names)) + "-sets-" + text
}

// Note is the status of a set, as it was and as it is to be seen now. The image before is remembered when it changes, but for one that was taken out
// again because it had failed, and until something else of what machines are made of changes.
func Note(before v1alpha1.ScaleSetStatus, s *Set, outdated int) v1alpha1.ScaleSetStatus {
	after := before
	after.Name, after.Operations = s.Name, s.Operations
	if s.Known {
		switch {
		case before.Image == "":
		case before.Image != s.Image && before.RolledBack != before.Image:
			after.PreviousImage = before.Image
		case before.Image != s.Image, before.Model != "" && before.Model != s.Model:
			after.PreviousImage = "" // The image before has failed, or what fails now is not the image.
		}
		after.Image, after.Model, after.Capacity, after.Machines, after.Outdated = s.Image, s.Model, int32(s.Capacity), int32(len(s.Machines)), int32(outdated)
	}
	reason, message := s.Reason, s.Message
	switch {
	case reason != "":
	case s.Trouble != "":
		reason, message = s.Trouble, s.TroubleMessage
	case s.Unfit != "":
		reason, message = v1alpha1.ReasonScaleSetUnfit, s.Unfit
	case s.NoRoom != "":
		reason, message = s.NoRoom, s.NoRoomMessage
	case s.Busy != "" && len(s.Operations) == 0:
		reason, message = v1alpha1.ReasonScaleSetBusy, s.Busy
	}
	after.Reason, after.Message = reason, short(message)
	if reason == "" {
		after.Since = nil
	}
	return after
}

// Rollback is the image that a set is to have again; why is what keeps that from being done, where nothing can be.
func Rollback(s *v1alpha1.ScaleSetStatus) (image, why string) {
	switch {
	case s.Image == "" || s.RolledBack == s.Image && s.PreviousImage == "":
		return "", "scale set " + s.Name + " is not known yet"
	case s.RolledBack != "" && s.PreviousImage == "":
		return "", "" // It has been done.
	case s.PreviousImage == "":
		return "", "the image that scale set " + s.Name + " had before is not known"
	}
	return s.PreviousImage, ""
}
