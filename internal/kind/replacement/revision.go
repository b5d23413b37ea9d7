// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// NextRevision is what the machines of all sets are brought to: the name of their image with what identifies all that they are made of, or, where they have
// revisionOfSeveral images or none, the latter alone. Where machines are told by their nodes, their images are all that counts. told is what the status says of the
// sets: what stood before stays as long as nothing differs from that, also where it is the image's name alone, and as long as not all sets are known.
func (w *World) NextRevision(before string, told []v1alpha1.ScaleSetStatus) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		if !w.Sets[name].Absent {
			names = append(names, name)
		}
	}
	seen, changed := w.Blind == "", false
	var images []string
	sum, models := sha256.New(), sha256.New()
	for _, name := range names {
		s, then := w.Sets[name], v1alpha1.ScaleSetStatus{}
		if i := slices.IndexFunc(told, func(t v1alpha1.ScaleSetStatus) bool { return t.Name == name }); i >= 0 {
			then = told[i]
		}
		model, image := s.Model, s.ImageName
		if s.Known {
			images = append(images, image)
			changed = changed || w.modelChanged(s, &then)
		} else {
			model, image, seen = then.Model, then.Image, false
		}
		_, _ = models.Write([]byte(name + "\x00" + model + "\x00"))
		if w.MatchOSImage {
			model = image
		}
		_, _ = sum.Write([]byte(name + "\x00" + model + "\x00"))
	}
	if len(images) == 0 || !seen && (!changed || before == "") {
		return before
	}
	images = slices.Compact(images)
	switch {
	case len(images) > 1 || images[0] == "":
		if before == several(names, models) && !changed {
			return before
		}
		return several(names, sum)
	case !changed && (before == images[0] || strings.HasPrefix(before, images[0]+"@")):
		return before
	case w.MatchOSImage:
		return images[0]
	}
	return images[0] + "@" + hex.EncodeToString(sum.Sum(nil))[:8]
}

// revisionOfSeveral is the revision of sets that have not one image.
func several(names []string, sum hash.Hash) string {
	text := hex.EncodeToString(sum.Sum(nil))[:12]
	if len(names) == 1 {
		return text
	}
	return strconv.Itoa(len(names)) + "-sets-" + text
}

// modelChanged reports whether what machines are made of is not what the status tells of the set. It says nothing of one that had none: that differs if it has
// machines by now that are to be replaced.
func (w *World) modelChanged(s *Set, told *v1alpha1.ScaleSetStatus) bool {
	switch {
	case w.MatchOSImage:
		return told.Image != "" && told.Image != s.Image
	case told.Model == "" || told.Machines == 0:
		return slices.ContainsFunc(s.Machines, func(m Machine) bool { return !m.UpToDate })
	}
	return told.Model != s.Model
}

// Note is the status of a set, as it was and as it is to be seen now. Of the images before the last one that was complete is remembered, as that one is
// known to work, until something else of what machines are made of changes.
func Note(before v1alpha1.ScaleSetStatus, s *Set, outdated int) v1alpha1.ScaleSetStatus {
	after := before
	after.Name, after.Operations = s.Name, s.Operations
	if s.Known {
		switch {
		case before.Image == "":
		case before.Image != s.Image:
			after.Complete = s.Image == before.PreviousImage // It has been, and is put back.
			if before.Complete {
				after.PreviousImage = before.Image
			} else if after.Complete {
				after.PreviousImage = ""
			}
		case before.Model != "" && before.Model != s.Model:
			after.PreviousImage, after.Complete = "", false // What fails now is not the image.
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
	case s.Image == "":
		return "", "scale set " + s.Name + " is not known yet"
	case s.PreviousImage == "":
		return "", "no image is known that all nodes of scale set " + s.Name + " had before"
	}
	return s.PreviousImage, ""
}
