// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// steering are the lines about what a person has done to the rollout, or is to do.
func steering(r *view.Rollout, now time.Time) []line {
	var all []line
	if r.Paused && r.State != view.Complete {
		all = append(all, line{yellow.Of("  paused: nothing new starts"), dim.Of("  (kubectl moult resume " + named(r) + ")")})
	}
	if r.Halted != "" {
		all = append(all, line{red.Of("  halted: " + r.Halted), dim.Of("  (kubectl moult retry " + named(r) + ")")})
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

// repeated reports whether the rollout's message says only what these lines say.
func repeated(r *view.Rollout) bool {
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
func named(r *view.Rollout) string { return r.Name + " -n " + r.Namespace }
