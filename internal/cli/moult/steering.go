// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var waveStyles = map[v1alpha1.WaveState]text.Style{
	v1alpha1.WaveHalted: text.Red, v1alpha1.WaveUnhealthy: text.Red, v1alpha1.WaveWaitingForApproval: text.Yellow,
	v1alpha1.WaveSoaking: text.Yellow, v1alpha1.WaveProgressing: text.Yellow, v1alpha1.WaveComplete: text.Green,
}

// drawSteering makes the lines about what a person did to the rollout, and what stops it. A zero now leaves out durations and commands.
func drawSteering(r *view.Rollout, now time.Time) text.Lines {
	var all text.Lines
	if r.Paused && r.State != view.Complete {
		paused, resume := "paused", "kubectl moult resume "+source.Arg(r.Kind, r.Namespace, r.Name)
		if r.PausedBy != "" {
			paused, resume = "paused by annotation "+r.PausedBy, unpauseCommand(r.PausedBy, r.Namespace, r.Name)
		}
		all.Add(text.Yellow.Of("  "+paused+": nothing new starts"), text.Dim.When(!now.IsZero(), "  (%s)", resume))
	}
	if w := r.Wave; w != nil && r.State != view.Complete {
		message := waveMessage(r)
		all.Add(
			text.Plain.Format("  wave %d of %d, %s: ", w.Number, w.Of, w.Name), waveStyles[w.State].Of(string(w.State)),
			text.Plain.Format("%s, %d of %d updated", text.For(&w.Since, now), w.Updated, w.Nodes), text.Plain.When(message != "", "; %s", message),
		)
	}
	return all
}

// unpauseCommand is the command that removes an annotation that pauses an ExtendedDaemonSet.
func unpauseCommand(annotation, namespace, name string) string {
	verb := "unpause-rolling-update"
	if annotation == edsv1.AnnotationRolloutFrozen {
		verb = "unfreeze-rollout"
	}
	return "kubectl eds " + verb + " " + name + " -n " + namespace
}

// waveMessage is what the wave's state does not say already.
func waveMessage(r *view.Rollout) string {
	w := r.Wave
	if w == nil || r.Halted != "" || w.State == v1alpha1.WaveWaitingForApproval || w.State == v1alpha1.WaveComplete ||
		w.State == v1alpha1.WaveProgressing && w.Nodes > 0 {
		return ""
	}
	return w.Message
}
