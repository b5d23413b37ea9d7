// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// byPlugin names the plugin in managed fields.
var byPlugin = metav1.PatchOptions{FieldManager: "kubectl-eds"}

// off is the value of annotations that are off.
const off = "false"

// verb changes an ExtendedDaemonSet by an annotation, or in its own way.
type verb struct {
	// short is what the verb does. details is more of its help; a verb with an annotation needs no details.
	name, short, details string
	// annotation gets the value, and opposite, if it is not "", the negated value.
	annotation, value, opposite string
	// done is printed afterwards. already is the error if the annotation has the value.
	done, already string
	// refusal is the error while a canary runs. A verb with an annotation and no refusal needs a canary.
	refusal string
	// do, if it is set, is done instead of setting the annotation.
	do func(c *command, ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error
}

const (
	useCanaryPause = "cannot pause rolling update: the ExtendedDaemonset has an active canary deployment. " +
		"You can use the canary pause command instead"
	endCanaryFirst = "cannot freeze rollout: the ExtendedDaemonset has an active canary deployment. " +
		"You should either fail or validate the canary first"
)

var verbs = []verb{
	{
		name: "pause-rolling-update", short: "Replace no more outdated pods; pods are still created where there is none",
		annotation: edsv1.AnnotationRollingUpdatePaused, value: edsv1.True, refusal: useCanaryPause,
		done: "rolling update is now paused", already: "rolling update already paused",
	},
	{
		name: "unpause-rolling-update", short: "Replace outdated pods again",
		annotation: edsv1.AnnotationRollingUpdatePaused, value: off, refusal: useCanaryPause,
		done: "rolling update is now unpaused", already: "rolling update is not paused; cannot unpause",
	},
	{
		name: "freeze-rollout", short: "Replace no outdated pods and create none, not even on new nodes",
		annotation: edsv1.AnnotationRolloutFrozen, value: edsv1.True, refusal: endCanaryFirst,
		done: "rollout is now frozen", already: "rollout already frozen",
	},
	{
		name: "unfreeze-rollout", short: "Replace outdated pods, and create pods, again",
		annotation: edsv1.AnnotationRolloutFrozen, value: off, refusal: endCanaryFirst,
		done: "rollout is now unfrozen", already: "rollout is not frozen; cannot unfreeze",
	},
}

var canaryVerbs = []verb{
	{
		name: "validate", short: "Validate the canary: all other nodes get its template now, even if it is paused or not ready",
		details: `Sets the annotation extendeddaemonset.datadoghq.com/canary-valid to the name of the canary's ExtendedDaemonSetReplicaSet.
It applies to this canary only.`,
		do: (*command).validate,
	},
	{
		name: "pause", short: "Pause the canary: it is not promoted, and no canary pod is created",
		annotation: edsv1.AnnotationCanaryPaused, value: edsv1.True, opposite: edsv1.AnnotationCanaryUnpaused,
		done: "deployment paused set to true", already: "canary deployment already paused",
	},
	{
		name: "unpause", short: "Unpause the canary; autoPause does not pause it again",
		annotation: edsv1.AnnotationCanaryPaused, value: off, opposite: edsv1.AnnotationCanaryUnpaused,
		done: "deployment paused set to false", already: "canary deployment is not paused; cannot unpause",
	},
	{
		name: "fail", short: "Fail the canary: its nodes get the active template back",
		details: `The canary's template is not tried again until kubectl eds canary reset. Sets the condition Canary-Failed
in the status of the canary's ExtendedDaemonSetReplicaSet.`,
		do: (*command).fail,
	},
	{
		name: "reset", short: "Reset a failed canary: the same template is tried again",
		details: `Sets the condition Canary-Failed to False in the status of the ExtendedDaemonSetReplicaSet of spec.template.`,
		do:      (*command).reset,
	},
}

// newVerb returns the command of a verb. parents is what comes before its name on the command line, such as "canary ".
func (c *command) newVerb(v *verb, parents string) *cobra.Command {
	details := v.details
	if v.annotation != "" {
		details = "Sets the annotation " + v.annotation + " to " + v.value + "."
	}
	return c.one(&cobra.Command{
		Use: v.name + " [ExtendedDaemonSet name]", Short: v.short, Long: v.short + ".\n\n" + details,
		Example: "  kubectl eds " + parents + v.name + " agent -n monitoring",
	}, func(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) error {
		if v.do != nil {
			return v.do(c, ctx, src, eds)
		}
		return c.annotate(ctx, src, eds.Name, v)
	})
}

// annotate sets the verb's annotation.
func (c *command) annotate(ctx context.Context, src *source.Source, name string, v *verb) error {
	err := writeAnnotations(ctx, src, name, func(eds *edsv1.ExtendedDaemonSet) (map[string]any, error) {
		switch err := checkCanary(eds); {
		case v.refusal == "" && err != nil:
			return nil, err
		case v.refusal != "" && eds.Status.Canary != nil:
			return nil, errors.New(v.refusal)
		}
		// A canary that autoPause has paused has no annotation.
		if is := eds.Annotations[v.annotation]; is == v.value || is == "" && v.value == off && v.opposite == "" {
			return nil, errors.New(v.already)
		}
		values := map[string]any{v.annotation: v.value}
		if v.opposite != "" {
			values[v.opposite] = strconv.FormatBool(v.value == off)
		}
		return values, nil
	})
	if err == nil {
		c.say("ExtendedDaemonset", src, name, v.done)
	}
	return err
}

// checkCanary returns an error if no canary runs.
func checkCanary(eds *edsv1.ExtendedDaemonSet) error {
	switch {
	case eds.Spec.Strategy.Canary == nil:
		return errors.New("the ExtendedDaemonset does not have a canary strategy")
	case eds.Status.Canary == nil:
		return errors.New("the ExtendedDaemonset does not have an active canary deployment")
	}
	return nil
}

// writeAnnotations sets the annotations of an ExtendedDaemonSet that change returns.
func writeAnnotations(ctx context.Context, src *source.Source, name string, change func(*edsv1.ExtendedDaemonSet) (map[string]any, error)) error {
	return src.Write(ctx, source.DaemonSet, name, byPlugin, func(u *unstructured.Unstructured) (*source.Change, error) {
		annotations, err := change(source.As[edsv1.ExtendedDaemonSet](u))
		return source.Annotate(annotations), err
	})
}

// say prints what was done to an object.
func (c *command) say(kind string, src *source.Source, name, done string) {
	fmt.Fprintf(c.Out, "%s '%s/%s' %s\n", kind, src.Namespace, name, done)
}
