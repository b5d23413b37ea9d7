// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	// namespace is the operator's.
	namespace = "system-upgrade"
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
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, i)
		})
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
		return len(nodes) == b.size && !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
			_, why := unavailable(&n)
			return why != "" || len(n.Spec.Taints) > 0
		}), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the nodes, %w", err)
	}
	return nil
}

// deploy returns when so many Deployments are available, each with so many pods.
func (b *bench) deploy(ctx context.Context, deployments int, replicas int32) error {
	if deployments == 0 {
		return nil
	}
	say("creating %d Deployments of %d pods", deployments, replicas)
	const namespace = "workloads"
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	all := b.raw.AppsV1().Deployments(namespace)
	_, err := each(ctx, deployments, writers, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("workload-%03d", i+1)
		labels := map[string]string{"app": name}
		_, err := all.Create(ctx, &appsv1.Deployment{
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
		return err
	})
	if err != nil {
		return fmt.Errorf("creating Deployments, %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, b.patience(0), true, func(ctx context.Context) (bool, error) {
		list, err := all.List(ctx, metav1.ListOptions{})
		return err == nil && !slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool { return d.Status.AvailableReplicas != replicas }), err
	})
	if err != nil {
		return fmt.Errorf("waiting for Deployments, %w", err)
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
		all, one := metav1.ListOptions{}, metav1.ListOptions{Limit: 1}
		j, jErr := jobs.List(ctx, one)
		p, pErr := pods.List(ctx, one)
		err := errors.Join(jErr, pErr)
		switch {
		case err != nil:
		case len(j.Items) > 0:
			err = jobs.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, all)
		case len(p.Items) > 0:
			err = pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, all)
		default:
			return true, nil
		}
		return false, ignore(err, cluster.Passing)
	})
	if err != nil {
		return fmt.Errorf("emptying namespace %s, %w", namespace, err)
	}
	return nil
}

// startOperator returns when the operator has filled its caches.
func (b *bench) startOperator(ctx context.Context) (*operator.Process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	probes := listener.Addr().String()
	listener.Close()
	// Jobs stay until they are counted.
	args := append([]string{"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=" + probes, "--job-ttl-seconds-after-finish=86400"}, b.args...)
	p, err := operator.Start(b.program, b.cluster.Kubeconfig(), b.operatorLog(), b.env, args...)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Exited():
			return false, p.Died()
		default:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // It does not listen yet.
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("waiting for the operator to be ready, %w", err)
	}
	return p, nil
}

func (b *bench) operatorLog() string { return filepath.Join(b.cluster.Dir(), "log", "moult.log") }

// stuck adds to an error what the object's status and the operator's log say.
func (b *bench) stuck(ctx context.Context, object client.Object, progress string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	getErr := b.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	object.SetManagedFields(nil)
	seen := fmt.Sprintf("%+v", object)
	if getErr != nil {
		seen = getErr.Error()
	}
	return fmt.Errorf("%w\n  %s\n  %.10000s\n%s", err, progress, seen, operator.Tail(b.operatorLog(), 20))
}
