// SPDX-License-Identifier: Apache-2.0

// Package approval tests the rights that these manifests give to people.
package approval

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"moult.dev/moult/test/cluster"
)

// setup is a rollout of each kind that waits for approval, and who may do what.
const setup = `
apiVersion: v1
kind: Namespace
metadata: {name: approval}
---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: r, namespace: approval}
spec:
  version: v1
  nodeSelector: {matchLabels: {of: approval}}
  upgrade: {image: i}
  strategy: {waves: [{name: canary, size: 1, approval: Manual}]}
---
apiVersion: moult.dev/v1alpha1
kind: NodeRollout
metadata: {name: approval}
spec:
  nodeSelector: {matchLabels: {of: approval}}
  hostUpdate: {}
  strategy: {waves: [{name: canary, size: 1, approval: Manual}]}
---
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata: {name: r, namespace: approval}
spec:
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}
  strategy: {waves: [{name: canary, size: 1, approval: Manual}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approval-editor}
rules:
- apiGroups: [upgrade.cattle.io, moult.dev, datadoghq.com]
  resources: [plans, noderollouts, extendeddaemonsets]
  verbs: [get, create, update, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approval-operator}
rules:
- apiGroups: [upgrade.cattle.io, moult.dev, datadoghq.com]
  resources: [plans/status, noderollouts/status, extendeddaemonsets/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
- apiGroups: [datadoghq.com]
  resources: [extendeddaemonsetreplicasets]
  verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: approval-reporter}
rules:
- apiGroups: [upgrade.cattle.io, moult.dev, datadoghq.com]
  resources: [plans/status, noderollouts/status, extendeddaemonsets/status]
  verbs: [patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approval-reporter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approval-reporter}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: reporter}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approval-approver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: moult-approver}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: approver}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: both}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approval-editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approval-editor}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: editor}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: both}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approval-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: approval-operator}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}
`

// waits is the status of a rollout whose first wave waits for approval.
const waits = `{"status":{%s"wave":{"name":"canary","number":1,"of":2,"revision":"v1","state":"WaitingForApproval",` +
	`"since":"2026-11-20T12:00:00Z","nodes":1,"updated":1,"approveWith":"canary@v1"}}}`

const (
	annotated = `{"metadata":{"annotations":{"moult.dev/approve":"canary@v1"}}}`
	validated = `{"metadata":{"annotations":{"extendeddaemonset.datadoghq.com/canary-valid":"r-1"}}}`
	ordered   = `{"spec":{"strategy":{"order":[{"by":"Zone"}]}}}`
	unwaved   = `{"spec":{"strategy":{"waves":null}}}`
	reported  = `{"status":{"observedGeneration":7}}`
)

func approvedBy(name string) string {
	return `{"status":{"approval":{"of":"canary@v1","by":"` + name + `"}}}`
}

// TestAPIApproval: whoever may approve can't edit, whoever may edit can't approve, and nobody approves in another's name.
func TestAPIApproval(t *testing.T) {
	c := cluster.Shared(t, 0)
	kubectl(t, c, "apply", "--server-side", "-k", "../crd")
	manifest := filepath.Join(t.TempDir(), "setup.yaml")
	if err := os.WriteFile(manifest, []byte(setup), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kubectl(t, c, "delete", "--ignore-not-found", "-k", ".")
		kubectl(t, c, "delete", "--ignore-not-found", "--wait=false", "-f", manifest)
	})
	kubectl(t, c, "apply", "--server-side", "-k", ".")
	// The kinds are known a moment after their definitions.
	eventually(t, func(ctx context.Context) error { return run(ctx, c, "apply", "--server-side", "-f", manifest) })
	kinds := map[string]string{
		"plans":              "/apis/upgrade.cattle.io/v1/namespaces/approval/plans/r",
		"noderollouts":       "/apis/moult.dev/v1alpha1/noderollouts/approval",
		"extendeddaemonsets": "/apis/datadoghq.com/v1alpha1/namespaces/approval/extendeddaemonsets/r",
	}
	for kind, path := range kinds {
		counts := ""
		if kind == "extendeddaemonsets" { // Required there.
			counts = `"activeReplicaSet":"r-0","available":0,"current":0,"desired":0,"ignoredUnresponsiveNodes":0,"ready":0,"upToDate":0,`
		}
		if err := patch(t, c, "", path+"/status", fmt.Sprintf(waits, counts), false); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(context.Context) error {
		if err := patch(t, c, "approver", kinds["plans"]+"/status", approvedBy("someone"), true); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy does not hold yet: %w", err)
		}
		return patch(t, c, "approver", kinds["plans"]+"/status", approvedBy("approver"), true)
	})
	for kind, path := range kinds {
		for _, tc := range []struct {
			name, user, subresource, body string
			want                          bool
		}{
			{"an approver approves", "approver", "/status", approvedBy("approver"), true},
			{"an approver forges another's name", "approver", "/status", approvedBy("someone"), false},
			{"an approver reports", "approver", "/status", reported, false},
			{"an approver removes the wave", "approver", "/status", `{"status":{"wave":null}}`, false},
			{"an approver edits", "approver", "", ordered, false},
			{"an approver annotates", "approver", "", annotated, false},
			{"an editor edits", "editor", "", ordered, true},
			{"an editor approves", "editor", "/status", approvedBy("editor"), false},
			{"an editor annotates", "editor", "", annotated, false},
			{"an editor validates a canary", "editor", "", validated, false},
			{"an editor removes the need", "editor", "", unwaved, false},
			{"one who may both approves", "both", "/status", approvedBy("both"), true},
			{"one who may both annotates", "both", "", annotated, true},
			{"one who may both removes the need", "both", "", unwaved, true},
			{"one who may both forges", "both", "/status", approvedBy("someone"), false},
			{"the operator reports", "operator", "/status", reported, true},
			{"one who may only patch a status reports", "reporter", "/status", reported, false},
			{"the operator approves", "operator", "/status", approvedBy("operator"), false},
			{"an administrator repairs a status", "", "/status", reported, true},
		} {
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				err := patch(t, c, tc.user, path+tc.subresource, tc.body, true)
				if (err == nil) != tc.want || err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("want allowed %t, got %v", tc.want, err)
				}
			})
		}
	}
	t.Run("an editor creates what is approved", func(t *testing.T) {
		body := `{"apiVersion":"moult.dev/v1alpha1","kind":"NodeRollout","metadata":{"name":"new","annotations":{"moult.dev/approve":"canary@v1"}},` +
			`"spec":{"nodeSelector":{},"hostUpdate":{}}}`
		post := as(t, c, "editor").Verb(http.MethodPost).AbsPath("/apis/moult.dev/v1alpha1/noderollouts").Param("dryRun", "All")
		if err := post.Body([]byte(body)).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	})
}

// as returns a client of a user; "" is the cluster's administrator.
func as(t *testing.T, c *cluster.Cluster, user string) rest.Interface {
	t.Helper()
	config := c.Config()
	config.QPS = -1
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient()
}

func patch(t *testing.T, c *cluster.Cluster, user, path, body string, dry bool) error {
	t.Helper()
	r := as(t, c, user).Patch("application/merge-patch+json").AbsPath(path).Body([]byte(body))
	if dry {
		r = r.Param("dryRun", "All")
	}
	return r.Do(t.Context()).Error()
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) {
	t.Helper()
	if err := run(context.WithoutCancel(t.Context()), c, args...); err != nil {
		t.Fatal(err)
	}
}

func run(ctx context.Context, c *cluster.Cluster, args ...string) error {
	programs, err := cluster.Binaries(ctx, os.Stderr, "kubectl")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, programs["kubectl"], append(args, "--kubeconfig", c.Kubeconfig())...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return nil
}

// eventually waits for something that must come.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	var err error
	if wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err = try(ctx)
		return err == nil, nil
	}) != nil {
		t.Fatal(err)
	}
}
