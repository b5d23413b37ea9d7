// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// steering are the lines about what a person has done to the rollout, or is to do.
func steering(r *view.Rollout, now time.Time) []line {
	var all []line
	if r.Paused && r.State != view.Complete {
		all = append(all, paused(r))
	}
	if r.Halted != "" {
		all = append(all, line{red.Of("  halted: " + r.Halted)})
		if r.Kind != target.DaemonSet.Name {
			all[len(all)-1] = append(all[len(all)-1], dim.Of("  (kubectl moult retry "+named(r)+")"))
		}
	}
	if c := r.Canary; c != nil && c.State != view.CanaryProgressing {
		all = append(all, canary(r))
	}
	if w := r.Wave; w != nil && r.State != view.Complete {
		l := line{plain.Of(fmt.Sprintf("  wave %d of %d, %s: ", w.Number, w.Of, w.Name)), colourOfWave(w.State).Of(string(w.State))}
		if age := text.Since(&w.Since, now); !w.Since.IsZero() && !now.IsZero() {
			l = append(l, plain.Of(" for "+age))
		}
		l = append(l, plain.Of(fmt.Sprintf(", %d of %d updated", w.Updated, w.Nodes)))
		if message := waveMessage(r); message != "" {
			l = append(l, plain.Of("; "+message))
		}
		if w.State == v1alpha1.WaveWaitingForApproval {
			l = append(l, dim.Of("  (kubectl moult approve "+named(r)+")"))
		}
		all = append(all, l)
	}
	return all
}

// paused says by what the rollout is paused, where that is not its strategy.
func paused(r *view.Rollout) line {
	by, what, how := "", "nothing new starts", "kubectl moult resume "+named(r)
	switch r.PausedBy {
	case edsv1.AnnotationRollingUpdatePaused:
		by, how = " by annotation "+r.PausedBy, "kubectl eds unpause-rolling-update "+r.Name+" -n "+r.Namespace
	case edsv1.AnnotationRolloutFrozen:
		by, how = " by annotation "+r.PausedBy, "kubectl eds unfreeze-rollout "+r.Name+" -n "+r.Namespace
		what = "no pod is replaced, and none is made"
	}
	return line{yellow.Of("  paused" + by + ": " + what), dim.Of("  (" + how + ")")}
}

// canary says why a canary is paused or has failed.
func canary(r *view.Rollout) line {
	c := r.Canary
	style, did, how := yellow, "paused", "unpause"
	if c.State == view.CanaryFailed {
		style, did, how = red, "failed", "reset"
	}
	said := "  canary " + c.Revision + " " + did
	if why := c.Said(); why != "" {
		said += ": " + why
	}
	return line{style.Of(said), dim.Of("  (kubectl eds canary " + how + " " + r.Name + " -n " + r.Namespace + ")")}
}

// repeated reports whether the rollout's message says only what these lines say.
func repeated(r *view.Rollout) bool {
	if c := r.Canary; c != nil && c.State == view.CanaryFailed && c.Revision != "" && strings.Contains(r.Message, c.Revision) {
		return true
	}
	return r.Halted != "" && strings.Contains(r.Message, r.Halted) || waveMessage(r) != "" && strings.Contains(r.Message, waveMessage(r))
}

// waveMessage is what the wave's state does not say already.
func waveMessage(r *view.Rollout) string {
	if r.Wave == nil || r.Halted != "" {
		return ""
	}
	switch r.Wave.State {
	case v1alpha1.WaveSoaking, v1alpha1.WaveUnhealthy, v1alpha1.WaveHalted:
		return r.Wave.Message
	case v1alpha1.WaveProgressing:
		if r.Wave.Nodes == 0 {
			return r.Wave.Message
		}
	case v1alpha1.WaveWaitingForApproval, v1alpha1.WaveComplete:
	}
	return ""
}

func colourOfWave(s v1alpha1.WaveState) style {
	switch s {
	case v1alpha1.WaveHalted, v1alpha1.WaveUnhealthy:
		return red
	case v1alpha1.WaveWaitingForApproval, v1alpha1.WaveSoaking, v1alpha1.WaveProgressing:
		return yellow
	case v1alpha1.WaveComplete:
	}
	return green
}

// named is how a command line names the rollout.
func named(r *view.Rollout) string { return target.Arg(r.Kind, r.Namespace, r.Name) }
