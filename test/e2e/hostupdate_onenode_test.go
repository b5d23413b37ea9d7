// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/follow"
)

// A cluster of one node, which the operator runs on too, is updated by what is shipped, agents and an example: no one labels the node, and no one
// configures anything.
func TestHostUpdateOfTheOnlyNode(t *testing.T) {
	t.Parallel()
	if world.noMachines != nil {
		t.Skipf("no machines: %v", world.noMachines)
	}
	files := t.TempDir()
	err := hostProgram(t).WriteFiles(files, bottlerocket.Options{
		Interface: v1alpha1.InterfaceUpdateAPI, Version: oldVersion, Releases: bottlerocket.Releases(oldVersion, newVersion),
	})
	if err != nil {
		t.Fatal(err)
	}
	options := cluster.Options{Machines: 1, MachineFiles: files}
	for _, name := range []string{"busybox", "moult", "agent"} {
		options.Images = append(options.Images, filepath.Join(world.dir, name+".tar"))
	}
	c := cluster.New(t, options)
	config := c.Config()
	own, err := client.New(config, client.Options{Scheme: world.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	m := c.Machines()[0]
	before := m.BootID()
	trace := followNode(t, clientset, m.Name())
	app := lonely()
	if err := own.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	deployedReady := func(namespace, name string) (string, bool) {
		d := &appsv1.Deployment{}
		err := own.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d)
		return fmt.Sprint(d.Status, err), err == nil && d.Status.AvailableReplicas == 1
	}
	eventually(t, "the workload runs", func(context.Context) (string, bool) { return deployedReady(app.Namespace, app.Name) })
	if err := install(t.Context(), c.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{
			{"get", "pods,noderollouts,events", "-A", "-o", "wide"}, {"get", "nodes,noderollouts", "-o", "yaml"},
			{"logs", "-n", operators, "deployment/moult", "--tail=60"}, {"logs", "-n", namespace, "daemonset/moult-agent-update-api", "--tail=60"},
		} {
			out, err := kubectl(context.WithoutCancel(t.Context()), append(args, "--kubeconfig", c.Kubeconfig())...)
			t.Logf("kubectl %v: %v\n%s", args, err, out)
		}
	})
	within(t, 3*patience, "the only host is updated", func(ctx context.Context) (string, bool) {
		r := &v1alpha1.NodeRollout{}
		err := own.Get(ctx, client.ObjectKey{Name: "bottlerocket"}, r)
		s := r.Status
		return fmt.Sprintf("%+v %v", s, err), err == nil && s.Counts != nil && s.Counts.Updated == 1 && s.Counts.Total == 1 && s.Revision == newVersion &&
			meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
	eventually(t, "operator and workload run", func(context.Context) (string, bool) {
		why, ok := deployedReady(operators, "moult")
		if ok {
			why, ok = deployedReady(app.Namespace, app.Name)
		}
		return why, ok
	})
	var n corev1.Node
	want := slices.Concat(bottlerocket.Labelled, bottlerocket.Found, bottlerocket.Updated)
	eventually(t, "the host has nothing more to say", func(ctx context.Context) (string, bool) {
		err := own.Get(ctx, client.ObjectKey{Name: m.Name()}, &n)
		intent := bottlerocket.Intent(&n)
		return fmt.Sprint(intent, err), err == nil && intent == want[len(want)-1]
	})
	if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "" {
		t.Errorf("the node is unschedulable %t, with the claims %q", n.Spec.Unschedulable, n.Annotations[v1alpha1.AnnotationClaims])
	}
	if !strings.HasPrefix(n.Status.NodeInfo.OSImage, "Bottlerocket OS "+newVersion) {
		t.Errorf("the node shows %s", n.Status.NodeInfo.OSImage)
	}
	boots, err := bottlerocket.Open(m).Boots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(boots) != 2 || boots[0].BootID != before || boots[1].Version != newVersion {
		t.Errorf("it has booted %v, want two boots", boots)
	}
	got := bottlerocket.Trace(trace(n.ResourceVersion))
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the trace (-want +got)\n%s", diff)
	}
}

// lonely is a workload of one pod, which a drain interrupts.
func lonely() *appsv1.Deployment {
	labels := map[string]string{"app": "lonely"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "lonely", Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers: []corev1.Container{{
						Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
					}},
				},
			},
		},
	}
}

// followNode notes every state of a Node. What it returns waits until it has come to a resourceVersion.
func followNode(t *testing.T, clientset kubernetes.Interface, name string) func(resourceVersion string) []*corev1.Node {
	t.Helper()
	first, err := clientset.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan follow.Change, 1000)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		cancel(follow.Changes(ctx, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "metadata.name=" + name
			return clientset.CoreV1().Nodes().Watch(ctx, o)
		}, first.ResourceVersion, changes))
	}()
	return func(resourceVersion string) []*corev1.Node {
		t.Helper()
		states := []*corev1.Node{first}
		for states[len(states)-1].ResourceVersion != resourceVersion {
			select {
			case c := <-changes:
				if n, ok := c.Object.(*corev1.Node); ok {
					states = append(states, n)
				}
			case <-ctx.Done():
				t.Fatal(context.Cause(ctx), errors.New("before the journal had come so far"))
			}
		}
		return states
	}
}

// install applies what is shipped, and then the NodeRollout. The API server serves a new kind a moment after its definition.
func install(ctx context.Context, kubeconfig string) error {
	for _, folder := range []string{"default", "hostupdate/agents"} {
		if out, err := kubectl(ctx, "apply", "--server-side", "-k", "../../config/"+folder, "--kubeconfig", kubeconfig); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	for {
		out, err := kubectl(ctx, "apply", "--server-side", "-f", "../../examples/noderollout-bottlerocket.yaml", "--kubeconfig", kubeconfig)
		if err == nil {
			return nil
		}
		if !strings.Contains(out, "no matches for kind") && !strings.Contains(out, "could not find the requested resource") {
			return fmt.Errorf("%w\n%s", err, out)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
