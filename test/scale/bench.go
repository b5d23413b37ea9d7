// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	// namespace is the operator's, and workloads that of pods to evict.
	namespace = "system-upgrade"
	workloads = "workloads"
	// patience bounds each step that does not grow with the number of nodes.
	patience = 10 * time.Minute
	// writers is how many writes are in flight at once.
	writers = 32
)

// bench is what all measurements in one cluster share.
type bench struct {
	options
	size    int
	cluster *cluster.Cluster
	// raw is the fastest client: protobuf, and no limit.
	raw kubernetes.Interface
	// client knows Moult's kinds.
	client  client.Client
	program string
	// env is the operator's environment.
	env []string
	// stops end what setup has started, after its context has ended.
	stops []func()
	// peers are those to measure beside it.
	peers []*peer
}

// say reports progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (b *bench) connect() error {
	config := b.cluster.Config()
	config.UserAgent = "scale"
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), edsv1.AddToScheme(scheme))
	if err != nil {
		return err
	}
	if b.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	b.raw, err = kubernetes.NewForConfig(config)
	return err
}

// patience bounds one stage. It only ends runs that hang.
func (b *bench) patience(ideal time.Duration) time.Duration {
	return 10*time.Minute + 4*ideal + time.Duration(b.size)*(500*time.Millisecond+seconds(b.startSeconds))
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}

// makeNamespace returns when pods can be created in the namespace.
func (b *bench) makeNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := ignore(b.client.Create(ctx, ns), apierrors.IsAlreadyExists); err != nil {
		return fmt.Errorf("creating namespace %s, %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return cluster.WaitForAccounts(ctx, b.client, name)
}

// create creates an object. The operator installs its CRDs, which the API server may not serve at once.
func (b *bench) create(ctx context.Context, object client.Object) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := b.client.Create(ctx, object)
		return err == nil, ignore(ignore(err, apierrors.IsNotFound), meta.IsNoMatchError)
	})
}

// each calls do for 0 to n-1, so many at once, and says how long that took.
func each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	err := group.Wait()
	return time.Since(began), err
}

// nodes lists all nodes.
func (b *bench) nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := b.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// untilReady returns when there are as many nodes as there should be, and pods can be scheduled to all of them.
func (b *bench) untilReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, b.patience(0), true, func(ctx context.Context) (bool, error) {
		nodes, err := b.nodes(ctx)
		return len(nodes) == b.size && !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return !isReady(&n) || len(n.Spec.Taints) > 0 }), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the nodes, %w", err)
	}
	return nil
}

// deploy returns when so many Deployments have all their pods, which are placed anew where there were some.
func (b *bench) deploy(ctx context.Context, deployments int, replicas int32) error {
	if deployments == 0 {
		return nil
	}
	say("creating %d Deployments of %d pods", deployments, replicas)
	if err := b.makeNamespace(ctx, workloads); err != nil {
		return err
	}
	pods := b.raw.CoreV1().Pods(workloads)
	err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("deleting pods, %w", err)
	}
	_, err = each(ctx, deployments, writers, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("workload-%03d", i+1)
		labels := map[string]string{"app": name}
		_, err := b.raw.AppsV1().Deployments(workloads).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(replicas),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/workload"}}},
				},
			},
		}, metav1.CreateOptions{})
		return ignore(err, apierrors.IsAlreadyExists)
	})
	if err != nil {
		return fmt.Errorf("creating Deployments, %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, b.patience(0), true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		waits := func(p corev1.Pod) bool { return !podReady(&p) }
		return err == nil && len(list.Items) == deployments*int(replicas) && !slices.ContainsFunc(list.Items, waits), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the pods of Deployments, %w", err)
	}
	return nil
}

// deployForNodes creates pods to evict, for each node as many as --pods-per-node says.
func (b *bench) deployForNodes(ctx context.Context) error {
	const replicas = 20
	return b.deploy(ctx, (b.size*b.podsPerNode+replicas-1)/replicas, replicas)
}

// clear deletes objects, and all Jobs and pods of a namespace, and returns when these are gone.
func (b *bench) clear(ctx context.Context, namespace string, objects ...client.Object) error {
	background := metav1.DeletePropagationBackground
	for _, object := range objects {
		if err := b.client.Delete(ctx, object, client.PropagationPolicy(background)); err != nil {
			return fmt.Errorf("deleting %s, %w", object.GetName(), err)
		}
	}
	jobs, pods := b.raw.BatchV1().Jobs(namespace), b.raw.CoreV1().Pods(namespace)
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, b.patience(0), true, func(ctx context.Context) (bool, error) {
		all := metav1.ListOptions{}
		jErr := jobs.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, all)
		pErr := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, all)
		left, err := pods.List(ctx, all)
		err = errors.Join(jErr, pErr, err)
		return err == nil && len(left.Items) == 0, ignore(err, cluster.Passing)
	})
	if err != nil {
		return fmt.Errorf("emptying namespace %s, %w", namespace, err)
	}
	return nil
}

// stuck adds to an error what the object's status and the program's log say.
func (b *bench) stuck(ctx context.Context, object client.Object, progress, log string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err = errors.Join(err, b.client.Get(ctx, client.ObjectKeyFromObject(object), object))
	object.SetManagedFields(nil)
	return fmt.Errorf("%w\n  %s\n  %.10000s\n%s", err, progress, fmt.Sprintf("%+v", object), operator.Tail(log, 20))
}
