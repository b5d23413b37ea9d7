// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/notification"
)

// answerWithin is how long the operator has for a test without --timeout. askEvery is how often its answer is read.
const answerWithin, askEvery = 30 * time.Second, 500 * time.Millisecond

func newNotify(c command) *cobra.Command {
	var namespace string
	cmd := help("notify --test",
		`Let the operator send a test notification to each webhook, and print how each answered. The exit code is 1 if one failed.
The webhooks are in the Secret moult-notifications in the operator's namespace. You need the right to patch the ConfigMap of that name.`,
		`  kubectl moult notify --test
  kubectl moult notify --test --timeout 1m`)
	cmd.Flags().Bool("test", false, "Send a test. It is required.")
	_ = cmd.MarkFlagRequired("test") // It is there.
	cmd.Flags().StringVar(&namespace, "operator-namespace", "", "The operator's namespace. Default: that of the Deployment with the label app.kubernetes.io/name=moult.")
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, _ source.Target) error {
		if namespace == "" {
			found, err := source.ReadLabelled[appsv1.Deployment](ctx, src, source.Deployment, "moult")
			if err != nil {
				return fmt.Errorf("finding the operator (--operator-namespace names its namespace), %w", err)
			}
			if len(found) != 1 {
				return fmt.Errorf("%d Deployments have the label app.kubernetes.io/name=moult: name the operator's namespace by --operator-namespace", len(found))
			}
			namespace = found[0].Namespace
			lacks, err := denied(ctx, src, source.Access, accountOf(&found[0]), namespace, []right{{"list", source.Secret, "", notification.Name}})
			if err == nil && len(lacks) > 0 { // Who may not ask this waits for the test.
				return fmt.Errorf("the operator may not read Secret %s/%s: apply config/rbac/notifications.yaml, and restart it", namespace, notification.Name)
			}
		}
		return c.testNotifications(ctx, src, namespace)
	})
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

// awaitTest asks until the answer is there. The request stays the same, so the right to patch is enough.
func (c *command) awaitTest(ctx context.Context, src *source.Source, namespace string) (result notification.TestResult, err error) {
	of := c.clock.Now().UTC().Format(time.RFC3339Nano)
	request := corev1apply.ConfigMap(notification.Name, namespace).WithAnnotations(map[string]string{v1alpha1.AnnotationTestNotifications: of})
	err = wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		m, err := src.Core.ConfigMaps(namespace).Apply(ctx, request, metav1.ApplyOptions{FieldManager: "kubectl-moult", Force: true})
		if err != nil {
			return false, fmt.Errorf("asking the operator for a test, %w", err)
		}
		result = notification.TestResult{} // The answer of the test before may have had more fields.
		return json.Unmarshal([]byte(m.Data[notification.KeyTest]), &result) == nil && result.Of == of, nil
	})
	return result, err
}
