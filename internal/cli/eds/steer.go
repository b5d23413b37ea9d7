// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// byPlugin is how the API server records the plugin's writes.
var byPlugin = metav1.PatchOptions{FieldManager: "kubectl-eds"}

// off is the value of annotations that are off.
const off = "false"

// verb steers an ExtendedDaemonSet, by an annotation or in its own way.
type verb struct {
	name, short, long string
	// annotation gets the value, and opposite, where there is one, the other value.
	annotation, value, opposite string
	// done is printed after that, and already is the error that it is so.
	done, already string
	// check says why it can't be set now.
	check func(*edsv1.ExtendedDaemonSet) error
	// do is what other verbs do.
	do func(c *command, ctx context.Context, src *source.Source, name string) error
}

var verbs = []verb{
	{
		name: "pause-rolling-update", short: "Replace no more outdated pods; pods are still created where there is none",
		long: `Replace no more outdated pods. Pods are still created where there is none, such as on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rolling-update-paused to true. While there is a canary, pause that: kubectl eds canary pause.`,
		annotation: edsv1.AnnotationRollingUpdatePaused, value: edsv1.True, check: noCanaryToPause,
		done: "rolling update is now paused", already: "rolling update already paused",
	},
	{
		name: "unpause-rolling-update", short: "Replace outdated pods again",
		long:       `Replace outdated pods again. Sets the annotation extendeddaemonset.datadoghq.com/rolling-update-paused to false.`,
		annotation: edsv1.AnnotationRollingUpdatePaused, value: off, check: noCanaryToPause,
		done: "rolling update is now unpaused", already: "rolling update is not paused; cannot unpause",
	},
	{
		name: "freeze-rollout", short: "Replace no outdated pods and create none, not even on new nodes",
		long: `Replace no outdated pods and create none, not even on new nodes. Sets the annotation
extendeddaemonset.datadoghq.com/rollout-frozen to true. While there is a canary, fail or validate that first.`,
		annotation: edsv1.AnnotationRolloutFrozen, value: edsv1.True, check: noCanaryToFreeze,
		done: "rollout is now frozen", already: "rollout already frozen",
	},
	{
		name: "unfreeze-rollout", short: "Replace outdated pods, and create pods, again",
		long:       `Replace outdated pods, and create pods, again. Sets the annotation extendeddaemonset.datadoghq.com/rollout-frozen to false.`,
		annotation: edsv1.AnnotationRolloutFrozen, value: off, check: noCanaryToFreeze,
		done: "rollout is now unfrozen", already: "rollout is not frozen; cannot unfreeze",
	},
}

var canaryVerbs = []verb{
	{
		name: "validate", short: "Validate the canary: all other nodes get its template now",
		long: `Validate the canary: all other nodes get its template now, by the rolling update, whether the canary is paused, ready or
neither. Sets the annotation extendeddaemonset.datadoghq.com/canary-valid to the name of the canary's
ExtendedDaemonSetReplicaSet: it is for this canary only.`,
		do: (*command).validate,
	},
	{
		name: "pause", short: "Pause the canary: it is not promoted, and no canary pod is created",
		long: `Pause the canary: it is not promoted, and no canary pod is created. Sets the annotations
extendeddaemonset.datadoghq.com/canary-paused to true and canary-unpaused to false.`,
		annotation: edsv1.AnnotationCanaryPaused, value: edsv1.True, opposite: edsv1.AnnotationCanaryUnpaused, check: hasCanary,
		done: "deployment paused set to true", already: "canary deployment already paused",
	},
	{
		name: "unpause", short: "Unpause the canary, also one that was paused by itself",
		long: `Unpause the canary. If it was paused by itself (spec.strategy.canary.autoPause), it is not paused so again. Sets the
annotations extendeddaemonset.datadoghq.com/canary-paused to false and canary-unpaused to true.`,
		annotation: edsv1.AnnotationCanaryPaused, value: off, opposite: edsv1.AnnotationCanaryUnpaused, check: hasCanary,
		done: "deployment paused set to false", already: "canary deployment is not paused; cannot unpause",
	},
	{
		name: "fail", short: "Fail the canary: its nodes get the active template back",
		long: `Fail the canary: its nodes get the active template back, and its own is not tried again until it changes, or until
kubectl eds canary reset. Sets the condition Canary-Failed in the status of the canary's ExtendedDaemonSetReplicaSet.`,
		do: (*command).fail,
	},
	{
		name: "reset", short: "Reset a failed canary: the same template is tried again",
		long: `Reset a failed canary: the same template is tried again, from the beginning. Sets the condition Canary-Failed to False in the
status of the ExtendedDaemonSetReplicaSet of spec.template.`,
		do: (*command).reset,
	},
}

// newVerb makes the command of a verb. Its parents, as in "canary ", come before its name.
func (c *command) newVerb(v *verb, parents string) *cobra.Command {
	return c.one(&cobra.Command{
		Use: v.name + " [ExtendedDaemonSet name]", Short: v.short, Long: v.long,
		Example: "  kubectl eds " + parents + v.name + " agent -n monitoring",
	}, func(ctx context.Context, src *source.Source, name string) error {
		if v.do != nil {
			return v.do(c, ctx, src, name)
		}
		return c.annotate(ctx, src, name, v)
	})
}

// annotate sets the verb's annotation.
func (c *command) annotate(ctx context.Context, src *source.Source, name string, v *verb) error {
	err := writeAnnotations(ctx, src, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		if err := v.check(eds); err != nil {
			return nil, err
		}
		// A canary that autoPause has paused has no annotation.
		if is := eds.Annotations[v.annotation]; is == v.value || is == "" && v.value == off && v.opposite == "" {
			return nil, errors.New(v.already)
		}
		values := map[string]any{v.annotation: v.value}
		switch {
		case v.opposite != "" && v.value == off:
			values[v.opposite] = edsv1.True
		case v.opposite != "":
			values[v.opposite] = off
		}
		return values, nil
	})
	if err == nil {
		c.say(src, name, v.done)
	}
	return err
}

// hasCanary is the error that there is no canary.
func hasCanary(eds *edsv1.ExtendedDaemonSet) error {
	switch {
	case eds.Spec.Strategy.Canary == nil:
		return errors.New("the ExtendedDaemonset does not have a canary strategy")
	case eds.Status.Canary == nil:
		return errors.New("the ExtendedDaemonset does not have an active canary deployment")
	}
	return nil
}

func noCanaryToPause(eds *edsv1.ExtendedDaemonSet) error {
	if eds.Status.Canary != nil {
		return errors.New("cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. " +
			"You can use the canary pause command instead")
	}
	return nil
}

func noCanaryToFreeze(eds *edsv1.ExtendedDaemonSet) error {
	if eds.Status.Canary != nil {
		return errors.New("cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. " +
			"You should either fail or validate the canary first")
	}
	return nil
}

// writeAnnotations sets annotations of an ExtendedDaemonSet. change says which, or why not.
func writeAnnotations(ctx context.Context, src *source.Source, name string, change func(*edsv1.ExtendedDaemonSet) (map[string]any, error)) error {
	return src.Write(ctx, source.DaemonSet, name, byPlugin, func(u *unstructured.Unstructured) (*source.Change, error) {
		annotations, err := change(source.As[edsv1.ExtendedDaemonSet](u))
		return source.Annotate(annotations), err
	})
}

// say prints what was done to the ExtendedDaemonSet.
func (c *command) say(src *source.Source, name, done string) {
	fmt.Fprintf(c.Out, "ExtendedDaemonset '%s/%s' %s\n", src.Namespace, name, done)
}
