// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// off is the value of annotations that are off.
const off = "false"

// toggle is an annotation that stops something, and what is said about it.
type toggle struct {
	annotation string
	// opposite is an annotation that gets the opposite value; "" for none.
	opposite         string
	isOn, isOff      string
	alreadyOn, notOn error
	// check says why it can't be set now.
	check func(*edsv1.ExtendedDaemonSet) error
}

var (
	canaryPause = toggle{
		annotation: edsv1.AnnotationCanaryPaused,
		opposite:   edsv1.AnnotationCanaryUnpaused,
		isOn:       "deployment paused set to true",
		isOff:      "deployment paused set to false",
		alreadyOn:  errors.New("canary deployment already paused"),
		notOn:      errors.New("canary deployment is not paused; cannot unpause"),
		check: func(eds *edsv1.ExtendedDaemonSet) error {
			_, err := canaryOf(eds)
			return err
		},
	}
	rollingUpdate = toggle{
		annotation: edsv1.AnnotationRollingUpdatePaused,
		isOn:       "rolling update is now paused",
		isOff:      "rolling update is now unpaused",
		alreadyOn:  errors.New("rolling update already paused"),
		notOn:      errors.New("rolling update is not paused; cannot unpause"),
		check:      withoutCanary("cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. You can use the canary pause command instead"),
	}
	rollout = toggle{
		annotation: edsv1.AnnotationRolloutFrozen,
		isOn:       "rollout is now frozen",
		isOff:      "rollout is now unfrozen",
		alreadyOn:  errors.New("rollout already frozen"),
		notOn:      errors.New("rollout is not frozen; cannot unfreeze"),
		check:      withoutCanary("cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. You should either fail or validate the canary first"),
	}
)

// withoutCanary refuses while there is a canary.
func withoutCanary(message string) func(*edsv1.ExtendedDaemonSet) error {
	return func(eds *edsv1.ExtendedDaemonSet) error {
		if eds.Status.Canary != nil {
			return errors.New(message)
		}
		return nil
	}
}

// set sets the annotation on or off.
func (t *toggle) set(on bool) verb {
	return func(c *command, ctx context.Context, name string) error {
		value, opposite, done := edsv1.True, off, t.isOn
		if !on {
			value, opposite, done = off, edsv1.True, t.isOff
		}
		err := c.annotate(ctx, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
			if err := t.check(eds); err != nil {
				return nil, err
			}
			switch is := eds.Annotations[t.annotation]; {
			case on && is == edsv1.True:
				return nil, t.alreadyOn
			// A canary that autoPause has paused has no annotation.
			case !on && (is == off || is == "" && t.opposite == ""):
				return nil, t.notOn
			}
			values := map[string]any{t.annotation: value}
			if t.opposite != "" {
				values[t.opposite] = opposite
			}
			return values, nil
		})
		if err == nil {
			c.say(name, done)
		}
		return err
	}
}
