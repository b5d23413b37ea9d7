// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/notification"
)

// answerWithin is how long the operator has for a test without --timeout.
const answerWithin = 30 * time.Second

func newNotify(c command) *cobra.Command {
	var test bool
	var namespace string
	cmd := help("notify --test",
		`Let the operator send a test notification to each webhook, and print how each answered. The exit code is 1 if one failed.
The webhooks are in the Secret moult-notifications in the operator's namespace. You need the right to patch the ConfigMap of that name.`,
		`  kubectl moult notify --test
  kubectl moult notify --test --timeout 1m`)
	cmd.Flags().BoolVar(&test, "test", false, "Send a test. It is required.")
	cmd.Flags().StringVar(&namespace, "operator-namespace", "", "The operator's namespace. Default: that of the Deployment with the label app.kubernetes.io/name=moult.")
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		if !test {
			return errors.New("say --test: notifications are sent by the operator, and this command only tests them")
		}
		if namespace == "" {
			var err error
			if namespace, err = operatorNamespace(ctx, src); err != nil {
				return err
			}
		}
		return c.testNotifications(ctx, src, namespace)
	})
}

// operatorNamespace returns the namespace of the one operator that has a ready pod.
func operatorNamespace(ctx context.Context, src *source.Source) (string, error) {
	found, err := source.ReadLabelled[appsv1.Deployment](ctx, src, source.Deployment, "moult")
	switch {
	case err != nil:
		return "", fmt.Errorf("finding the operator (--operator-namespace names its namespace), %w", err)
	case len(found) == 0:
		return "", errors.New(noOperator + ": --operator-namespace names the namespace of an operator that runs elsewhere")
	case len(found) > 1:
		return "", fmt.Errorf("%d Deployments have the label app.kubernetes.io/name=moult: choose one by --operator-namespace", len(found))
	case found[0].Status.ReadyReplicas == 0:
		return "", fmt.Errorf("the operator does not run: Deployment %s/%s has no ready pod", found[0].Namespace, found[0].Name)
	}
	return found[0].Namespace, nil
}

// testNotifications asks for a test, waits for its result, and prints it.
func (c *command) testNotifications(ctx context.Context, src *source.Source, namespace string) error {
	if _, limited := ctx.Deadline(); !limited {
		within, cancel := context.WithTimeoutCause(ctx, answerWithin, exitError{fmt.Errorf("%s have passed", answerWithin), exitTimeout})
		defer cancel()
		ctx = within
	}
	result, err := c.awaitTest(ctx, src, namespace)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the operator in namespace %s has not answered (kubectl moult check says whether it runs), %w", namespace, context.Cause(ctx))
	case err != nil:
		return err
	case result.Error != "":
		return errors.New(result.Error)
	}
	failed, rows := 0, [][]string{{"WEBHOOK", "RESULT"}}
	for _, w := range result.Webhooks {
		rows = append(rows, []string{w.Name, w.Result})
		if w.Result != notification.OK {
			failed++
		}
	}
	if err := c.printTable(rows); err != nil || failed == 0 {
		return err
	}
	return fmt.Errorf("%d of %d webhooks failed", failed, len(result.Webhooks))
}

func (c *command) awaitTest(ctx context.Context, src *source.Source, namespace string) (result notification.TestResult, err error) {
	maps, of := src.Core.ConfigMaps(namespace), c.clock.Now().UTC().Format(time.RFC3339Nano)
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: notification.Name, Annotations: map[string]string{v1alpha1.AnnotationTestNotifications: of}}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": wanted.Annotations}})
	if err != nil {
		return result, err
	}
	if _, err = maps.Patch(ctx, notification.Name, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return result, fmt.Errorf("asking the operator for a test, %w", err)
	}
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", notification.Name).String()}
	watched, err := maps.Watch(ctx, only)
	if err != nil {
		return result, fmt.Errorf("watching ConfigMap %s/%s, %w", namespace, notification.Name, err)
	}
	defer watched.Stop()
	for e := range watched.ResultChan() {
		if m, ok := e.Object.(*corev1.ConfigMap); ok && json.Unmarshal([]byte(m.Data[notification.KeyTest]), &result) == nil && result.Of == of {
			return result, nil
		}
	}
	return result, cmp.Or(context.Cause(ctx), errors.New("the watch of the operator's answer has ended: try again"))
}
