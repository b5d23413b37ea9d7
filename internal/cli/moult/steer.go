// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
)

// steerCommand is one call of a verb that steers.
type steerCommand struct {
	command
	dryRun flags.DryRun
	src    *source.Source
}

// complete adds the common part of the verbs to the cobra command. Its argument is an object of these kinds.
func (c *steerCommand) complete(cmd *cobra.Command, kinds []*source.Kind, run func(context.Context, source.Object) error) *cobra.Command {
	c.dryRun.Add(cmd)
	return source.VerbOn(c.cluster, cmd, kinds, func(ctx context.Context, src *source.Source, o source.Object) error {
		c.src = src
		return run(ctx, o)
	})
}

// write changes an object. If change returns nil, nothing is written and changed is false.
func (c *steerCommand) write(
	ctx context.Context, o source.Object, change func(*unstructured.Unstructured) (*source.Change, error),
) (changed bool, err error) {
	err = c.src.Write(ctx, o.Kind, o.GetName(), c.patchOptions(), func(u *unstructured.Unstructured) (*source.Change, error) {
		what, err := change(u)
		if changed = what != nil; c.dryRun.Client() {
			what = nil
		}
		return what, err
	})
	return changed, err
}

func (c *steerCommand) patchOptions() metav1.PatchOptions {
	// A definition that lacks a field must not drop it silently.
	return metav1.PatchOptions{FieldManager: "kubectl-moult", DryRun: c.dryRun.Request(), FieldValidation: metav1.FieldValidationStrict}
}

// say prints what was done to an object, as kubectl does.
func (c *steerCommand) say(o source.Object, done string) {
	fmt.Fprintf(c.Out, "%s %s%s\n", o, done, c.dryRun.Suffix())
}
