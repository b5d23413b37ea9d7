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
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	namespace = "system-upgrade"
	// patience bounds each step that does not grow with the number of nodes.
	patience = time.Minute
)

// bench is what the steps of a run share.
type bench struct {
	options
	cluster *cluster.Cluster
	// raw is the fastest client there is: protobuf, and no limit.
	raw kubernetes.Interface
	// plans is a client that knows Plans.
	plans   client.WithWatch
	program string
}

// run measures, prints what it has found, and leaves nothing behind.
func run(ctx context.Context, o options) (err error) {
	temporary, err := os.MkdirTemp("", "moult-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	b := &bench{options: o}
	say("building the operator")
	if b.program, err = operator.Build(ctx, temporary); err != nil {
		return err
	}
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: o.dir, Nodes: o.nodes, PodSeconds: o.podSeconds, AuditLog: true}); err != nil {
		return fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return err
	}
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	say("asking the operator for one Job to copy")
	shape, err := b.template(ctx)
	if err != nil {
		return fmt.Errorf("asking the operator for one Job, %w", err)
	}
	bare, err := b.bare(ctx, shape)
	if err != nil {
		return fmt.Errorf("running the bare loop, %w", err)
	}
	r, err := b.rollout(ctx)
	if err != nil {
		return fmt.Errorf("running the rollout, %w", err)
	}
	r.bare = bare
	if err := r.print(os.Stdout, &o); err != nil {
		return err
	}
	return r.verify()
}

// say reports progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (b *bench) connect() error {
	config := b.cluster.Config()
	config.UserAgent = "scale"
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme)); err != nil {
		return err
	}
	var err error
	if b.plans, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	b.raw, err = kubernetes.NewForConfig(config)
	return err
}

// makeNamespace returns when pods can be made in the namespace: the Job controller waits ever longer where they can't.
func (b *bench) makeNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := b.raw.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making namespace %s, %w", name, err)
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := b.raw.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ignore(err, apierrors.IsNotFound)
	})
	if err != nil {
		return fmt.Errorf("waiting for the service account of namespace %s, %w", name, err)
	}
	return nil
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}

// startOperator returns when the operator has filled its caches.
func (b *bench) startOperator(ctx context.Context) (*operator.Process, error) {
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	probes, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args := append([]string{"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes}, b.args...)
	p, err := operator.Start(b.program, b.cluster.Kubeconfig(), b.operatorLog(), args...)
	if err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Exited():
			return false, p.Died()
		default:
			return ready(ctx, "http://"+probes+"/readyz"), nil
		}
	})
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("waiting for the operator to be ready, %w", err)
	}
	return p, nil
}

func (b *bench) operatorLog() string { return filepath.Join(b.cluster.Dir(), "log", "moult.log") }

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// freeAddress is one that nobody listens on just now.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
