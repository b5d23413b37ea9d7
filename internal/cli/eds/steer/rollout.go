// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// halt is an annotation that stops a rollout, and what is said about it.
type halt struct {
	annotation                 string
	isOn, isOff                string
	alreadyOn, notOn, inCanary error
}

var (
	rollingUpdate = halt{
		annotation: edsv1.AnnotationRollingUpdatePaused,
		isOn:       "rolling update is now paused",
		isOff:      "rolling update is now unpaused",
		alreadyOn:  errors.New("rolling update already paused"),
		notOn:      errors.New("rolling update is not paused; cannot unpause"),
		inCanary:   errors.New("cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. You can use the canary pause command instead"),
	}
	rollout = halt{
		annotation: edsv1.AnnotationRolloutFrozen,
		isOn:       "rollout is now frozen",
		isOff:      "rollout is now unfrozen",
		alreadyOn:  errors.New("rollout already frozen"),
		notOn:      errors.New("rollout is not frozen; cannot unfreeze"),
		inCanary:   errors.New("cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. You should either fail or validate the canary first"),
	}
)

// set sets the annotation on or off.
func (h halt) set(on bool) verb {
	return func(c *command, ctx context.Context, name string) error {
		err := c.annotate(ctx, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
			is := eds.Annotations[h.annotation]
			switch {
			case eds.Status.Canary != nil:
				return nil, h.inCanary
			case on && is == edsv1.True:
				return nil, h.alreadyOn
			case on:
				return map[string]any{h.annotation: edsv1.True}, nil
			case is == off || is == "":
				return nil, h.notOn
			}
			return map[string]any{h.annotation: off}, nil
		})
		switch {
		case err != nil:
			return err
		case on:
			c.say(name, h.isOn)
		default:
			c.say(name, h.isOff)
		}
		return nil
	}
}
