// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/plan"
)

// parse reads a Plan's spec, and says what is invalid in it. Some checks have system-upgrade-controller's words. The others
// find Plans that would fail for ever without a message. lookup returns an error if a Secret does not exist.
func parse(p *upgradev1.Plan, lookup func(name string) error) (*plan.World, error) {
	w, err := plan.NewWorld(p)
	var missing []string
	for _, s := range p.Spec.Secrets {
		if s.IgnoreUpdates {
			continue
		}
		if err := lookup(s.Name); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		err = errors.New(strings.Join(missing, ", "))
	}
	return w, cmp.Or(checkDrain(p.Spec.Drain), err)
}

// checkDrain refuses drain options that contradict each other, or that can't be parsed.
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

// checkDeadline refuses an onTimeout of a drain that never comes, because its Job ends first.
func checkDeadline(p *upgradev1.Plan, o *plan.JobOptions) error {
	seconds := deadline(p, o)
	if p.Spec.Drain == nil || seconds == nil || cmp.Or(o.KubectlImage, o.KubectlImageWindows) != "" {
		return nil
	}
	d, _ := drain.OptionsOfPlan(p.Spec.Drain) // checkDrain has refused what can't be read.
	most := time.Duration(*seconds) * time.Second
	if d.OnTimeout == "" || d.OnTimeout == drain.HaltOnTimeout || d.Timeout < most {
		return nil
	}
	return fmt.Errorf("spec.drain.timeout, %s, must be less than the deadline of the Job, %s, for onTimeout: %s to come: shorten it, or raise spec.jobActiveDeadlineSecs or its limit",
		d.Timeout, most, d.OnTimeout)
}

// checkVersion refuses a version that is not a valid label value for the Job.
func checkVersion(version string) error {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return fmt.Errorf("version %q can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends", version)
	}
	return nil
}
