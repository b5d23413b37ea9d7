// SPDX-License-Identifier: Apache-2.0

// Package e2e tries the operator as its users do: the built program, a real API server and, where this machine can run
// them, real machines with real kubelets. All tests share one cluster and one operator; each has its own Plans.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

const (
	namespace = "system-upgrade"
	simulated = 12
	machines  = 3
)

// world is what the tests share.
var world struct {
	*cluster.Cluster
	client.Client
	clientset          kubernetes.Interface
	operator           *operator.Process
	program            string
	agentProgram       string
	operatorKubeconfig string
	dir                string
	// cloudEnv is what the operator needs to speak to the doubles of clouds.
	cloudEnv []string
	// noMachines says why there are none.
	noMachines error
}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: end-to-end tests start a cluster")
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if world.dir, err = os.MkdirTemp("", "moult-e2e-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(world.dir)) }()
	options := cluster.Options{Nodes: simulated, AuditLog: true}
	world.noMachines = cluster.CanRunMachines()
	if world.noMachines == nil {
		options.Machines = machines
	} else if os.Getenv("MOULT_REQUIRE_MACHINES") == "1" {
		return 1, fmt.Errorf("no machines: %w", world.noMachines)
	}
	world.program, world.agentProgram = filepath.Join(world.dir, "moult"), filepath.Join(world.dir, "moult-agent")
	for _, program := range []string{world.program, world.agentProgram} {
		pkg := "moult.dev/moult/cmd/" + filepath.Base(program)
		if err := image.GoBinary(ctx, ".", pkg, program, "-ldflags=-s -w -X main.version=e2e"); err != nil {
			return 1, err
		}
	}
	if _, err := builtPlugin(); err != nil { // Else whichever test needs it first has it built in its own time.
		return 1, err
	}
	if world.Cluster, err = cluster.Start(ctx, options); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, world.Stop()) }()
	if err := prepare(ctx); err != nil {
		return 1, err
	}
	var stopClouds func()
	world.cloudEnv, stopClouds = startClouds()
	defer stopClouds()
	if err := startOperator(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, world.operator.Stop(time.Minute)) }()
	code = m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, operator.Tail(operatorLog(), 60))
	}
	return code, nil
}

// prepare installs what the operator needs: images on the machines, and everything that config/default installs. The
// Deployment is left at no replicas: most tests watch the operator as a process, with the Deployment's own rights. The NodeRollout
// goes again, so that it does not take the hosts of tests.
func prepare(ctx context.Context) error {
	if world.noMachines == nil {
		if err := loadImages(ctx); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), upgradev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := world.Config()
	config.QPS = -1
	var err error
	if world.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if world.clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := install(ctx, world.Kubeconfig()); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"delete", "-f", "../../config/hostupdate/noderollout.yaml"},
		{"scale", "-n", namespace, "deployment/moult", "--replicas=0"},
	} {
		if out, err := kubectl(ctx, args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := undeployed(ctx); err != nil {
		return err
	}
	return operatorCredentials(ctx)
}

// undeployed returns once the Deployment has no pod any more, and will make none: one that is on its way out may still lead.
func undeployed(ctx context.Context) error {
	for {
		left, err := deployed(ctx)
		if err != nil || left == "" {
			return err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the Deployment's pods to end, %s, %w", left, context.Cause(ctx))
		}
	}
}

// deployed says what there is of a Deployment that is to have no replicas, or "".
func deployed(ctx context.Context) (string, error) {
	var d appsv1.Deployment
	if err := world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "moult"}, &d); err != nil {
		return "", err
	}
	var sets appsv1.ReplicaSetList
	var pods corev1.PodList
	labelled := client.MatchingLabels{"app.kubernetes.io/name": "moult"}
	if err := errors.Join(world.List(ctx, &sets, client.InNamespace(namespace), labelled), world.List(ctx, &pods, client.InNamespace(namespace), labelled)); err != nil {
		return "", err
	}
	if d.Status.ObservedGeneration != d.Generation {
		return "it has not been looked at", nil
	}
	for i := range sets.Items {
		if s := &sets.Items[i]; *s.Spec.Replicas != 0 || s.Status.ObservedGeneration != s.Generation || s.Status.Replicas != 0 {
			return s.Name + " has replicas", nil
		}
	}
	if n := len(pods.Items); n > 0 {
		return fmt.Sprintf("%d pods are there", n), nil
	}
	return "", nil
}

// install applies what is shipped. A kind whose definition is new is known a moment later.
func install(ctx context.Context, kubeconfig string) error {
	if out, err := kubectl(ctx, "apply", "--server-side", "-k", "../../config/crd", "--kubeconfig", kubeconfig); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for {
		out, err := kubectl(ctx, "apply", "--server-side", "-k", "../../config/default", "--kubeconfig", kubeconfig)
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

func loadImages(ctx context.Context) error {
	shell, err := image.Shell(ctx, "/bin/busybox")
	if err != nil {
		return err
	}
	for name, spec := range map[string]image.Spec{
		"busybox": shell, "moult": image.Program(image.Operator, world.program, ""), "agent": image.Program(image.Agent, world.agentProgram, ""),
	} {
		tar := filepath.Join(world.dir, name+".tar")
		if err := errors.Join(image.Build(ctx, spec, tar), world.LoadImage(ctx, tar)); err != nil {
			return err
		}
	}
	return nil
}

// operatorCredentials makes a kubeconfig with the service account of the Deployment.
func operatorCredentials(ctx context.Context) error {
	seconds := int64(7200)
	token, err := world.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "moult",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(world.Kubeconfig())
	if err != nil {
		return err
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	world.operatorKubeconfig = filepath.Join(world.dir, "operator.kubeconfig")
	return clientcmd.WriteToFile(*config, world.operatorKubeconfig)
}

func operatorLog() string { return filepath.Join(world.dir, "operator.log") }

func startOperator() (err error) {
	world.operator, err = operator.StartWith(world.program, world.operatorKubeconfig, operatorLog(), world.cloudEnv,
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--debug", "--etcd-certificates="+filepath.Join(world.dir, "etcd-pki"),
		"--image="+image.Operator, "--job-image-pull-policy=Never", "--job-backoff-limit=0")
	return err
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	programs, err := cluster.Binaries(ctx, os.Stderr, "kubectl")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, programs["kubectl"], append([]string{"--kubeconfig", world.Kubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
