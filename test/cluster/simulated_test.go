// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/test/cluster"
)

func TestSimulatedNodes(t *testing.T) {
	c := cluster.New(t, cluster.Options{Nodes: 20, PodSeconds: 0.5, AuditLog: true})
	client := newClient(t, c)

	t.Run("nodes are spread over zones", func(t *testing.T) {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: corev1.LabelTopologyZone + "=zone-b"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(nodes.Items), 7; got != want {
			t.Errorf("%d nodes in zone-b, want %d", got, want)
		}
	})
	t.Run("a job completes", func(t *testing.T) {
		job := createJob(t, client, "completes", nil)
		expectCondition(t, client, job, batchv1.JobComplete)
		pod := podOf(t, client, job)
		if terminated := pod.Status.InitContainerStatuses[0].State.Terminated; terminated == nil || terminated.ExitCode != 0 {
			t.Errorf("init container has state %+v, want it terminated with 0", pod.Status.InitContainerStatuses[0].State)
		}
	})
	t.Run("a job fails", func(t *testing.T) {
		job := createJob(t, client, "fails", map[string]string{"test.moult.dev/fail": "true", "test.moult.dev/seconds": "0.1"})
		expectCondition(t, client, job, batchv1.JobFailed)
	})
	t.Run("a job hangs until it is deleted", func(t *testing.T) {
		job := createJob(t, client, "hangs", map[string]string{"test.moult.dev/hang": "true"})
		other := createJob(t, client, "meanwhile", map[string]string{"test.moult.dev/seconds": "1.5"})
		expectCondition(t, client, other, batchv1.JobComplete)
		if pod := podOf(t, client, job); pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod is %s, want it running", pod.Status.Phase)
		}
		foreground := metav1.DeletePropagationForeground
		if err := client.BatchV1().Jobs(job.Namespace).Delete(t.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Fatal(err)
		}
		expect(t, 10*time.Second, "the job to be gone", func(ctx context.Context) (bool, error) {
			jobs, err := client.BatchV1().Jobs(job.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + job.Name})
			return err == nil && len(jobs.Items) == 0, err
		})
	})
	t.Run("a daemon set is ready, and one that crashes is not", func(t *testing.T) {
		good := createDaemonSet(t, client, "good", nil)
		bad := createDaemonSet(t, client, "bad", map[string]string{"test.moult.dev/crash": "true"})
		expect(t, 10*time.Second, "20 ready pods and 20 crashing", func(ctx context.Context) (bool, error) {
			g, err := client.AppsV1().DaemonSets(good.Namespace).Get(ctx, good.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			b, err := client.AppsV1().DaemonSets(bad.Namespace).Get(ctx, bad.Name, metav1.GetOptions{})
			return err == nil && g.Status.NumberReady == 20 && b.Status.CurrentNumberScheduled == 20 && b.Status.NumberReady == 0, err
		})
	})
	t.Run("a node reboots once for each id", func(t *testing.T) {
		const name = cluster.SimulatedNode + "0003"
		for _, id := range []string{"first", "second"} {
			before := getNode(t, client, name).Status.NodeInfo.BootID
			annotate(t, client, name, fmt.Sprintf(`{"test.moult.dev/reboot":%q,"test.moult.dev/reboot-seconds":"2"}`, id))
			// That it is not ready passes; its boot id, which changes only after that, stays.
			expect(t, time.Minute, fmt.Sprintf("another boot id than %s after reboot %q", before, id), func(ctx context.Context) (bool, error) {
				node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				return err == nil && node.Status.NodeInfo.BootID != before, err
			})
			expectReady(t, client, name, corev1.ConditionTrue)
		}
		after := getNode(t, client, name).Status.NodeInfo.BootID
		annotate(t, client, name, `{"test.moult.dev/reboot":null}`)
		if err := c.AddNodes(t.Context(), 1); err != nil { // long enough for a mistake to show
			t.Fatal(err)
		}
		if node := getNode(t, client, name); node.Status.NodeInfo.BootID != after {
			t.Error("the node rebooted when the annotation was removed")
		}
	})
	t.Run("a node of a name of its own joins, and falls silent", func(t *testing.T) {
		options := cluster.NodeOptions{
			Name: "pool-a", Zone: "zone-x", ProviderID: "test:///pool/a", OSImage: "image-7", Labels: map[string]string{"test.moult.dev/pool": "p"},
		}
		sick := cluster.NodeOptions{Name: "pool-b", NotReady: true}
		for _, o := range []cluster.NodeOptions{options, sick} {
			if err := c.AddNode(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		expectTaint(t, client, "pool-a", "")
		n := getNode(t, client, "pool-a")
		want := []string{"test:///pool/a", "zone-x", "image-7", "p"}
		got := []string{n.Spec.ProviderID, n.Labels[corev1.LabelTopologyZone], n.Status.NodeInfo.OSImage, n.Labels["test.moult.dev/pool"]}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the added node (-want +got):\n%s", diff)
		}
		if err := c.Silence(t.Context(), "pool-a"); err != nil {
			t.Fatal(err)
		}
		expectTaint(t, client, "pool-a", corev1.TaintNodeUnreachable)
		expectTaint(t, client, "pool-b", corev1.TaintNodeNotReady)
		if err := c.AddNodes(t.Context(), 1); err != nil { // its name is not that of another, and the others don't count
			t.Fatal(err)
		}
		for _, name := range []string{"pool-a", "pool-b"} {
			if ready := getNode(t, client, name).Status.Conditions[0]; ready.Status == corev1.ConditionTrue {
				t.Errorf("%s is ready: %+v", name, ready)
			}
			if err := client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Silence(t.Context(), "pool-a"); err != nil {
			t.Errorf("silencing a node that is gone: %v", err)
		}
		if err := c.AddNode(t.Context(), cluster.NodeOptions{Name: cluster.SimulatedNode + "1"}); err == nil {
			t.Error("a node was added under a name that AddNodes might give")
		}
	})
	t.Run("requests are in the audit log", func(t *testing.T) {
		expectFile(t, c.AuditLog(), `"verb":"create"`)
	})
}

func TestTwoClustersSideBySide(t *testing.T) {
	for _, name := range []string{"one", "other"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Options{Nodes: 2, PodSeconds: 0.1})
			client := newClient(t, c)
			expectCondition(t, client, createJob(t, client, "job", nil), batchv1.JobComplete)
			jobs, err := client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(jobs.Items) != 1 {
				t.Errorf("%d jobs, want only this cluster's own", len(jobs.Items))
			}
		})
	}
}

func newClient(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func podTemplate(annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: cluster.ShellImage}},
		},
	}
}

func createJob(t *testing.T, client kubernetes.Interface, name string, annotations map[string]string) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	job.Spec.BackoffLimit = new(int32)
	job.Spec.Template = podTemplate(annotations)
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "first", Image: cluster.ShellImage}}
	job, err := client.BatchV1().Jobs(job.Namespace).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func createDaemonSet(t *testing.T, client kubernetes.Interface, name string, annotations map[string]string) *appsv1.DaemonSet {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template = podTemplate(annotations)
	set.Spec.Template.Labels = labels
	set, err := client.AppsV1().DaemonSets(set.Namespace).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// expect waits for a condition. An error that is the moment's is not the end of it.
func expect(t *testing.T, timeout time.Duration, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		ok, err := condition(ctx)
		if last = err; err != nil && cluster.Passing(err) {
			return false, nil
		}
		return ok, err
	}); err != nil {
		if last != nil && !errors.Is(err, last) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func expectCondition(t *testing.T, client kubernetes.Interface, job *batchv1.Job, want batchv1.JobConditionType) {
	t.Helper()
	expect(t, 20*time.Second, fmt.Sprintf("job %s to be %s", job.Name, want), func(ctx context.Context) (bool, error) {
		job, err := client.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range job.Status.Conditions {
			if condition.Status != corev1.ConditionTrue {
				continue
			}
			switch condition.Type {
			case want:
				return true, nil
			case batchv1.JobComplete, batchv1.JobFailed:
				return false, fmt.Errorf("it is %s", condition.Type)
			}
		}
		return false, nil
	})
}

func podOf(t *testing.T, client kubernetes.Interface, job *batchv1.Job) corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods(job.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Fatalf("job %s has %d pods, want 1", job.Name, len(pods.Items))
	}
	return pods.Items[0]
}

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func annotate(t *testing.T, client kubernetes.Interface, name, annotations string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":%s}}`, annotations)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expectTaint waits until a node has a taint of its state, or none.
func expectTaint(t *testing.T, client kubernetes.Interface, name, want string) {
	t.Helper()
	expect(t, 30*time.Second, fmt.Sprintf("node %s to have the taint %q", name, want), func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == want {
				return true, nil
			}
		}
		return want == "" && len(node.Spec.Taints) == 0, nil
	})
}

func expectReady(t *testing.T, client kubernetes.Interface, name string, want corev1.ConditionStatus) {
	t.Helper()
	expect(t, 20*time.Second, fmt.Sprintf("node %s to be ready: %s", name, want), func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == want, nil
			}
		}
		return false, nil
	})
}
