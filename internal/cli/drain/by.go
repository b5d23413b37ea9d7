// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/node"
)

// Where a pod learns which Plan its Job belongs to, and its own namespace, which is the Plan's.
const (
	planVariable      = "SYSTEM_UPGRADE_PLAN_NAME"
	namespaceVariable = "POD_NAMESPACE"
	namespaceFile     = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// environment is what the command knows of the process that runs it.
type environment struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
}

func process() environment { return environment{getenv: os.Getenv, readFile: os.ReadFile} }

// by is the rollout that the command cordons for, or empty when a person runs it.
func (e environment) by() (string, error) {
	plan := e.getenv(planVariable)
	if plan == "" {
		return "", nil
	}
	namespace := e.getenv(namespaceVariable)
	if namespace == "" {
		content, err := e.readFile(namespaceFile)
		if err != nil {
			return "", fmt.Errorf("finding the namespace of Plan %s, %w", plan, err)
		}
		namespace = strings.TrimSpace(string(content))
	}
	return node.Holder("Plan", types.NamespacedName{Namespace: namespace, Name: plan}), nil
}
