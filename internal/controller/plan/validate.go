// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/rollout"
)

// parsed is what a valid Plan's text means.
type parsed struct {
	selector labels.Selector
	window   *rollout.Window
}

// selectorError is a node selector that can't be read. system-upgrade-controller has an Event of its own for it.
type selectorError struct{ error }

func isSelectorError(err error) bool {
	_, ok := errors.AsType[selectorError](err)
	return ok
}

// parse reads a Plan's spec. The first things it looks at are system-upgrade-controller's, in its order and its words; the
// rest is what that leaves to fail for ever and in silence. lookup says whether a Secret exists.
func parse(p *upgradev1.Plan, lookup func(name string) error) (parsed, error) {
	var out parsed
	if err := checkDrain(p.Spec.Drain); err != nil {
		return out, err
	}
	if w := p.Spec.Window; w != nil {
		days := make([]string, len(w.Days))
		for i, day := range w.Days {
			days[i] = string(day)
		}
		var err error
		if out.window, err = rollout.NewWindow(days, w.StartTime, w.EndTime, w.TimeZone); err != nil {
			return out, fmt.Errorf("spec.window is invalid, %w", err)
		}
	}
	if d := p.Spec.PostCompleteDelay; d != nil && d.Duration < 0 {
		return out, errors.New("spec.postCompleteDelay is negative")
	}
	var missing []string
	for _, s := range p.Spec.Secrets {
		if !s.IgnoreUpdates {
			if err := lookup(s.Name); err != nil {
				missing = append(missing, err.Error())
			}
		}
	}
	if len(missing) > 0 {
		return out, errors.New(strings.Join(missing, ", "))
	}

	if s := rollout.New(p.Spec.Strategy, 0, 1); s.Problem() != "" {
		return out, errors.New(s.Problem())
	}
	if problems := validation.IsValidLabelValue(p.Name); len(problems) > 0 {
		return out, fmt.Errorf("metadata.name must serve as a label value on Jobs and nodes: %s", strings.Join(problems, "; "))
	}
	if p.Spec.Upgrade == nil || p.Spec.Upgrade.Image == "" {
		return out, errors.New("spec.upgrade.image must name an image")
	}
	var err error
	if out.selector, err = metav1.LabelSelectorAsSelector(p.Spec.NodeSelector); err != nil {
		return out, selectorError{fmt.Errorf("spec.nodeSelector is invalid, %w", err)}
	}
	return out, nil
}

// checkDrain refuses options of a drain that contradict each other, or that the drain itself could not read.
func checkDrain(d *upgradev1.DrainSpec) error {
	if d == nil {
		return nil
	}
	if d.DeleteEmptydirData != nil && d.DeleteLocalData != nil {
		return errors.New("spec.drain cannot specify both deleteEmptydirData and deleteLocalData")
	}
	o, err := drain.OptionsOfPlan(d)
	if err == nil && d.OnTimeout != "" && d.Timeout != nil && o.Timeout <= 0 {
		err = fmt.Errorf("spec.drain.timeout is %s, and must be positive for onTimeout: %s to come", o.Timeout, d.OnTimeout)
	}
	return err
}

// checkVersion refuses a version that could not stand as a label on the Job.
func checkVersion(version string) error {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return fmt.Errorf("version %q can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", version)
	}
	return nil
}
