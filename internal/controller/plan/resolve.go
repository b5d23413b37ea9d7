// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// annotationSecretHash holds the hash of a Secret in the cache, in place of its data.
const annotationSecretHash = "moult.dev/hash"

// resolution is what a Plan's spec, secrets and channel come to.
type resolution struct {
	// ready is true when the Plan is valid and resolved.
	ready bool
	// problem says what keeps it from being ready until somebody changes something.
	problem  error
	selector labels.Selector
	window   *rollout.Window
	wake     time.Time
}

// resolve sets the conditions Validated and LatestResolved, the version and the hash.
func (c *Controller) resolve(ctx context.Context, p *upgradev1.Plan, malformed error, now time.Time) resolution {
	status.InitPlan(p, now)
	r := resolution{selector: labels.Nothing()}
	hashes := map[string]string{}
	what, err := parsed{}, malformed
	if err == nil {
		what, err = parse(p, func(name string) (err error) {
			hashes[name], err = c.secretHash(ctx, p.Namespace, name)
			return err
		})
	}
	if err != nil {
		status.SetPlanValidated(p, err, now)
		r.problem = err
		return r
	}
	r.selector, r.window = what.selector, what.window

	version, reason, note, err := c.version(p, &r)
	switch {
	case err != nil:
		status.SetPlanValidated(p, nil, now)
		status.SetPlanUnresolved(p, err, now)
		r.problem = err
		return r
	case version == "":
		status.SetPlanValidated(p, nil, now)
		status.SetPlanUnresolved(p, nil, now)
		return r
	}
	oldVersion, oldHash := p.Status.LatestVersion, p.Status.LatestHash
	p.Status.LatestVersion = version
	if p.Status.LatestHash, err = latestHash(p, hashes); err == nil {
		err = checkLabels(p)
	}
	status.SetPlanValidated(p, err, now)
	if err != nil {
		p.Status.LatestVersion, p.Status.LatestHash = oldVersion, oldHash
		r.problem = err
		return r
	}
	status.SetPlanResolved(p, reason, note, now)
	r.ready = true
	return r
}

// version tells the Plan's version, where it is from, and what else is to be said of it. Without an error and without a
// version the channel has not answered yet.
func (c *Controller) version(p *upgradev1.Plan, r *resolution) (version, reason, note string, err error) {
	key := client.ObjectKeyFromObject(p)
	switch {
	case p.Spec.Version != "":
		c.channels.forget(key)
		version = munge(p.Spec.Version)
		return version, upgradev1.ReasonVersion, "", checkVersion(version)
	case p.Spec.Channel == "":
		c.channels.forget(key)
		return "", "", "", errors.New("cannot resolve plan: missing channel and version")
	}
	known := c.known(p)
	answer, due, problem := c.channels.ask(key, p.Spec.Channel, p.Status.LatestVersion)
	r.wake = due
	if answer != "" {
		if answer = munge(answer); checkVersion(answer) != nil {
			answer, problem = "", checkVersion(answer)
		}
	}
	lower := answer != "" && isDowngrade(p.Status.LatestVersion, answer) && !p.Spec.AllowDowngrade && !c.options.AllowDowngrade
	switch {
	case lower:
		known = p.Status.LatestVersion
		note = fmt.Sprintf("version %s stays: the channel now says %s, which is lower; set spec.allowDowngrade to follow it", known, answer)
	case answer != "":
		known = answer
	}
	if problem != nil {
		if known == "" {
			return "", "", "", problem
		}
		note = "version " + known + " stays: " + problem.Error()
	}
	return known, upgradev1.ReasonChannel, note, nil
}

// known is the version that the Plan's channel led to before, if it is the same channel still.
func (c *Controller) known(p *upgradev1.Plan) string {
	condition := p.Status.Condition(upgradev1.ConditionLatestResolved)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != upgradev1.ReasonChannel {
		return ""
	}
	if p.Status.ObservedGeneration != 0 && p.Status.ObservedGeneration != p.Generation && !c.channels.same(client.ObjectKeyFromObject(p), p.Spec.Channel) {
		return ""
	}
	return p.Status.LatestVersion
}

// secretHash returns the hash of a Secret that counts in a Plan's.
func (c *Controller) secretHash(ctx context.Context, namespace, name string) (string, error) {
	var s corev1.Secret
	if err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &s); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", fmt.Errorf("secrets %q not found", name)
		}
		return "", err
	}
	return s.Annotations[annotationSecretHash], nil
}

// checkLabels refuses labels that would not be valid with version and hash filled in.
func checkLabels(p *upgradev1.Plan) error {
	_, err := postCompleteLabels(p)
	return err
}

// postCompleteLabels are the labels that a node gets, filled in: those that are valid, and what is wrong with another.
func postCompleteLabels(p *upgradev1.Plan) (valid map[string]string, err error) {
	values := map[string]string{"LATEST_VERSION": p.Status.LatestVersion, "LATEST_HASH": p.Status.LatestHash}
	valid = make(map[string]string, len(p.Spec.PostCompleteLabels)+1)
	for _, key := range slices.Sorted(maps.Keys(p.Spec.PostCompleteLabels)) {
		value := expand(p.Spec.PostCompleteLabels[key], values)
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			err = fmt.Errorf("spec.postCompleteLabels has an invalid key %q: %s", key, strings.Join(problems, "; "))
		} else if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			err = fmt.Errorf("spec.postCompleteLabels[%s] is not a valid label value: %s", key, strings.Join(problems, "; "))
		} else {
			valid[key] = value
		}
	}
	return valid, err
}
