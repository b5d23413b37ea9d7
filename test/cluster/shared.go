// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SharedDir is the environment variable that names the directory of the cluster that Shared returns.
const SharedDir = "MOULT_TEST_CLUSTER"

// Shared returns a cluster without machines and with an audit log, with that many simulated nodes. It is the one in the
// directory that the environment variable SharedDir names, or else a new one for this test. One test at a time may use
// it. When the test ends, Shared deletes all nodes. The test deletes all else that is not in a namespace of its own.
func Shared(t testing.TB, nodes int) *Cluster {
	t.Helper()
	dir := os.Getenv(SharedDir)
	if dir == "" {
		return New(t, Options{Nodes: nodes, AuditLog: true})
	}
	c, err := Connect(dir)
	if err != nil {
		t.Fatalf("connecting to the cluster in %s=%s: %v", SharedDir, dir, err)
	}
	t.Cleanup(func() {
		all := c.client.CoreV1().Nodes()
		if err := all.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Errorf("deleting the nodes: %v", err)
		}
	})
	if err := c.AddNodes(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	return c
}
