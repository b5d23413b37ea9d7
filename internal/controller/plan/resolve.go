// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/status"
)

// annotationSecretHash holds the hash of a Secret in the cache, in place of its data.
const annotationSecretHash = "moult.dev/hash" //nolint:gosec // It is a name.

// resolve sets the conditions Validated and LatestResolved, the version and the hash. It returns the world for judging turns. wake is when the
// channel is polled again. problem says what a person must change in the Plan.
func (c *Controller) resolve(ctx context.Context, p *upgradev1.Plan, malformed error, now time.Time) (w *plan.World, wake time.Time, problem error) {
	status.InitPlan(p, now)
	hashes := map[string]string{}
	w, err := parse(p, func(name string) (err error) {
		hashes[name], err = c.secretHash(ctx, p.Namespace, name)
		return err
	})
	w.Job, w.OwnNode, w.Now = &c.options.Job, c.options.NodeName, now
	if err = cmp.Or(malformed, c.options.Reserved.check(p), err, checkDeadline(p, w.Job)); err != nil {
		status.SetPlanValidated(p, err, now)
		return w, wake, err
	}
	version, reason, note, wake, err := c.version(p)
	if err != nil || version == "" {
		status.SetPlanValidated(p, nil, now)
		status.SetPlanUnresolved(p, err, now)
		if p.Spec.Version == "" && p.Spec.Channel != "" {
			err = nil // The channel is polled again, so the Plan is not stalled.
		}
		return w, wake, err
	}
	oldVersion, oldHash := p.Status.LatestVersion, p.Status.LatestHash
	p.Status.LatestVersion = version
	if p.Status.LatestHash, err = latestHash(p, hashes); err == nil {
		restore(p)
		_, err = postCompleteLabels(p)
	}
	status.SetPlanValidated(p, err, now)
	if err != nil {
		p.Status.LatestVersion, p.Status.LatestHash = oldVersion, oldHash
		return w, wake, err
	}
	status.SetPlanResolved(p, reason, note, now)
	w.Ready, w.Irreversible = true, irreversible(p, hashes)
	return w, wake, nil
}

// version returns the Plan's version, its source, a note about it, and when the channel is polled again. If both version and error are empty,
// the channel has not answered yet.
func (c *Controller) version(p *upgradev1.Plan) (version, reason, note string, wake time.Time, err error) {
	key := client.ObjectKeyFromObject(p)
	switch {
	case p.Spec.Version != "":
		c.channels.forget(key)
		version = munge(p.Spec.Version)
		return version, upgradev1.ReasonVersion, "", wake, checkVersion(version)
	case p.Spec.Channel == "":
		c.channels.forget(key)
		return "", "", "", wake, errors.New("cannot resolve plan: missing channel and version")
	}
	known, last := lastVersion(p), resolvedVersion(p)
	answer, wake, problem := c.channels.ask(key, p.Spec.Channel, known, last)
	if answer != "" {
		if answer = munge(answer); checkVersion(answer) != nil {
			answer, problem = "", checkVersion(answer)
		}
	}
	lower := answer != "" && isDowngrade(last, answer) && !p.Spec.AllowDowngrade && !c.options.AllowDowngrade
	switch {
	case lower:
		known = last
		note = fmt.Sprintf("version %s stays: the channel now says %s, which is lower; set spec.allowDowngrade to follow it", known, answer)
	case answer != "":
		known = answer
	}
	if problem != nil {
		if known == "" {
			return "", "", "", wake, problem
		}
		note = "version " + known + " stays: " + problem.Error()
	}
	return known, upgradev1.ReasonChannel, note, wake, nil
}

// lastVersion returns the version that the Plan's channel gave before, or "" if the Plan has changed since: it may have another channel
// now.
func lastVersion(p *upgradev1.Plan) string {
	condition := p.Status.Condition(upgradev1.ConditionLatestResolved)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != upgradev1.ReasonChannel {
		return ""
	}
	if p.Status.ObservedGeneration != 0 && p.Status.ObservedGeneration != p.Generation {
		return ""
	}
	return resolvedVersion(p)
}

// secretHash returns the hash of a Secret, which is part of the Plan's hash.
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

// postCompleteLabels returns the valid labels that a node gets, with variables expanded. The error describes an invalid label.
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

var variable = regexp.MustCompile(`\$\$|\$\([^)]*\)`)

// expand replaces $(NAME) by its value as Kubernetes does in a container's arguments: $$ is a literal $, and an unknown name stays as it is.
func expand(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[strings.TrimSuffix(strings.TrimPrefix(found, "$("), ")")]; ok {
			return value
		}
		return found
	})
}

// munge makes a version fit for labels and image tags.
func munge(v string) string { return strings.ReplaceAll(v, "+", "-") }

// isDowngrade reports whether to is lower than from. It compares the leading numbers. If these are equal, and the rest differs
// only in its numbers (such as -k3s1 and -k3s10), it compares all numbers.
func isDowngrade(from, to string) bool {
	a, errA := version.ParseGeneric(from)
	b, errB := version.ParseGeneric(to)
	if errA != nil || errB != nil {
		return false
	}
	if b.LessThan(a) || a.LessThan(b) {
		return b.LessThan(a)
	}
	if digits.ReplaceAllString(from, "#") != digits.ReplaceAllString(to, "#") {
		return false
	}
	return slices.CompareFunc(digits.FindAllString(from, -1), digits.FindAllString(to, -1), compareNumbers) > 0
}

var digits = regexp.MustCompile("[0-9]+")

// compareNumbers compares texts of digits, of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
