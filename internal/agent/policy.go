// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errNoPolicy says that nothing bounds what a stolen token of an agent can do.
var errNoPolicy = errors.New("the API server would let this agent change any label of its Node: " +
	"the ValidatingAdmissionPolicy moult-agent or its binding is missing, apply config/hostupdate")

// forbidden is a write that the policy moult-agent refuses.
const forbidden = `{"metadata":{"labels":{"moult.dev/agent-may-not-write-this":"true"}}}`

// requirePolicy tries a forbidden write as a dry run. It returns nil once that is refused, or the context ends, and errNoPolicy if it is accepted.
// Other errors, such as a Node that does not exist yet, do not tell: it tries again.
func (a *Agent) requirePolicy(ctx context.Context) error {
	again := backoff(time.Second, time.Minute)
	for {
		_, err := a.client.patch(ctx, []byte(forbidden), metav1.DryRunAll)
		switch {
		case err == nil:
			return errNoPolicy
		case apierrors.IsForbidden(err):
			return nil
		}
		a.log.Info("it is not known yet if the policy moult-agent is there", "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-a.clock.After(again.Step()):
		}
	}
}
