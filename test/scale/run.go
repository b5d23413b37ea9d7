// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	namespace = "system-upgrade"
	// patience bounds each step that does not grow with the number of nodes.
	patience = time.Minute
)

// bench is what the steps of a run in one cluster share.
type bench struct {
	options
	// size is how many nodes the cluster has.
	size    int
	cluster *cluster.Cluster
	// raw is the fastest client there is: protobuf, and no limit.
	raw kubernetes.Interface
	// plans is a client that knows Moult's kinds.
	plans   client.WithWatch
	program string
	// env is what the operator finds in its environment.
	env []string
	// newNodes is how many were added.
	newNodes int
}

// newBench is one for the sizes' number i.
func newBench(o options, i int, program string) *bench {
	b := &bench{options: o, size: o.sizes[i], program: program}
	if o.dir != "" && len(o.sizes) > 1 {
		b.dir = filepath.Join(o.dir, fmt.Sprintf("%d-%d", i+1, b.size))
	}
	return b
}

// run measures, prints what it has found, and leaves nothing behind.
func run(ctx context.Context, o options, out io.Writer) error {
	temporary, err := os.MkdirTemp("", "moult-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	say("building the operator")
	program, err := operator.Build(ctx, temporary)
	if err != nil {
		return err
	}
	switch o.kind {
	case kindDaemonSet:
		return runDaemons(ctx, o, program, out)
	case kindHostUpdate:
		return runHosts(ctx, o, program, out)
	case kindReplacement:
		return runReplacements(ctx, o, program, out)
	}
	var done []*measured
	var problems []error
	for i, size := range o.sizes {
		b := newBench(o, i, program)
		m, err := b.measure(ctx)
		if err != nil {
			// What was measured before is told all the same.
			problems = append(problems, fmt.Errorf("measuring %d nodes, %w", size, err))
			break
		}
		if err := m.print(out); err != nil {
			return err
		}
		done = append(done, m)
		problems = append(problems, m.verify())
	}
	if len(o.sizes) > 1 {
		problems = append(problems, printTable(out, rowsOf(done)))
	}
	if len(done) > 0 {
		problems = append(problems, printJSON(out, done, len(o.sizes) > 1))
	}
	return errors.Join(problems...)
}

// measure measures in a cluster of its own.
func (b *bench) measure(ctx context.Context) (m *measured, err error) {
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Dir: b.dir, Nodes: b.size, PodSeconds: b.podSeconds, AuditLog: true}); err != nil {
		return nil, fmt.Errorf("starting a cluster, %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	subjects := []subject{b.plain()}
	if b.guarded {
		if err := b.deploy(ctx, deployments, replicas); err != nil {
			return nil, fmt.Errorf("making workloads, %w", err)
		}
		p := startPrometheus()
		defer p.stop()
		subjects = append(subjects, b.withGuards(p))
	}
	if b.guardedFirst {
		slices.Reverse(subjects)
	}
	say("asking the operator for one Job to copy")
	shape, err := b.template(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the operator for one Job, %w", err)
	}
	m = &measured{options: b.options, size: b.size}
	if !b.noBare {
		if m.bare, err = b.bare(ctx, shape); err != nil {
			return nil, fmt.Errorf("running the bare loop, %w", err)
		}
	}
	for i, s := range subjects {
		r, err := b.rollout(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("running the %s rollout, %w", s.name, err)
		}
		if s.guarded() {
			m.guardedRollout = r
		} else {
			m.plainRollout = r
		}
		if i < len(subjects)-1 {
			if err := b.clear(ctx, s, r); err != nil {
				return nil, fmt.Errorf("clearing up after the %s rollout, %w", s.name, err)
			}
		}
	}
	return m, nil
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
	// Jobs stay until they have been counted, however long that takes.
	args := append([]string{
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes, "--job-ttl-seconds-after-finish=86400",
	}, b.args...)
	p, err := operator.StartWith(b.program, b.cluster.Kubeconfig(), b.operatorLog(), b.env, args...)
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
