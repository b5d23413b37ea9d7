// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"maps"
	"slices"
	"strconv"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
)

// NextRevision is the revision of all sets: the name of their image with a hash of their models. With several images or none it is the hash without a
// name. With MatchOSImage only images count. The previous revision stays while no set differs from its status. The first revision waits until all
// sets are known.
func (w *World) NextRevision(before string, in []v1alpha1.ScaleSetStatus) string {
	all, changed := w.Unreadable == "", false
	images := map[string]bool{}
	var models []string
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		s, then := w.Sets[name], v1alpha1.ScaleSetStatus{}
		if s.Deleted {
			continue
		}
		if i := slices.IndexFunc(in, func(t v1alpha1.ScaleSetStatus) bool { return t.Name == name }); i >= 0 {
			then = in[i]
		}
		model, image := then.Model, then.Image
		if all = all && s.Known; s.Known {
			model, image = s.Model, s.ImageName
			images[image] = true
			changed = changed || w.modelChanged(s, &then)
		}
		if w.MatchOSImage {
			model = image
		}
		models = append(models, name, model)
	}
	digest := nodeturn.Digest(models)
	one := slices.Collect(maps.Keys(images))
	switch {
	case len(images) == 0, before == "" && !all, before != "" && !changed:
		return before
	case len(images) > 1:
		return strconv.Itoa(len(models)/2) + "-sets-" + digest[:12]
	case one[0] == "":
		return digest[:12]
	case w.MatchOSImage:
		return one[0]
	}
	return one[0] + "@" + digest[:8]
}

// modelChanged reports whether the model of a set differs from its status. For a set that had no machines, status does not say: it has changed if it
// has outdated machines now.
func (w *World) modelChanged(s *Set, before *v1alpha1.ScaleSetStatus) bool {
	switch {
	case w.MatchOSImage:
		return before.Image != "" && before.Image != s.Image
	case before.Model == "" || before.Machines == 0:
		return slices.ContainsFunc(s.Machines, func(m cloud.Machine) bool { return !m.UpToDate })
	}
	return before.Model != s.Model
}

// NextSetStatus is the status of a set. It keeps the last image that was complete, which is known to work, until another part of the model changes.
func NextSetStatus(before v1alpha1.ScaleSetStatus, s *Set, outdated int) v1alpha1.ScaleSetStatus {
	after := before
	after.Name, after.Operations = s.Name, s.Operations
	if s.Known {
		switch {
		case before.Image == "":
		case before.Image != s.Image:
			after.Complete = s.Image == before.PreviousImage // It was complete before.
			if before.Complete {
				after.PreviousImage = before.Image
			} else if after.Complete {
				after.PreviousImage = ""
			}
		case before.Model != "" && before.Model != s.Model:
			after.PreviousImage, after.Complete = "", false // Another part of the model changed.
		}
		after.Image, after.Model, after.Capacity, after.Machines, after.Outdated = s.Image, s.Model, int32(s.Capacity), int32(len(s.Machines)), int32(outdated)
	}
	reason, message := s.Trouble, s.TroubleMessage
	switch {
	case reason != "":
	case s.Unfit != "":
		reason, message = v1alpha1.ReasonScaleSetUnfit, s.Unfit
	case s.isBusy():
		reason, message = v1alpha1.ReasonScaleSetBusy, s.Busy
	}
	after.Reason, after.Message = reason, nodeturn.Short(message)
	if reason == "" {
		after.Since = nil
	}
	return after
}
