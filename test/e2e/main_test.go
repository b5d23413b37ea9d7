// SPDX-License-Identifier: Apache-2.0

// Package e2e tries the operator as its users do: the built program, a real API server and, where this machine can run
// them, real machines with real kubelets. All tests share one cluster and one operator; each has its own Plans.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
	// operators is the operator's own namespace.
	operators = "moult-system"
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
	// metrics is the address where the operator serves them.
	metrics string
	dir     string
	// backoffLimit is how often a Plan's Job makes another pod.
	backoffLimit int
	// cloudEnv is what the operator needs to speak to the doubles of clouds.
	cloudEnv []string
	// noMachines says why there are none.
	noMachines error
}

func TestMain(m *testing.M) {
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
	if _, err := builtPlugin(); err != nil {
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
	defer func() { err = errors.Join(err, world.operator.Stop(patience)) }()
	code = m.Run()
	if err := rightsByUse(context.WithoutCancel(ctx), code == 0); err != nil {
		return 1, err
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, operator.Tail(operatorLog(), 20))
	}
	return code, nil
}

// prepare imports the images on the machines, and installs config/default, with agents and what replaces machines. The Deployment has no replicas:
// the tests watch the operator as a process, with the rights of the Deployment.
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
	manifests, err := kubectl(ctx, "kustomize", "testdata/installed")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, manifests)
	}
	manifests = strings.Replace(manifests, "\n  replicas: 1\n", "\n  replicas: 0\n", 1)
	path := filepath.Join(world.dir, "default.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", path}, {"wait", "--for=condition=established", "--timeout=10m", "crds", "--all"},
	} {
		if out, err := kubectl(ctx, args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return operatorCredentials(ctx)
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
	token, err := world.clientset.CoreV1().ServiceAccounts(operators).CreateToken(ctx, "moult",
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

// startOperator returns when the operator has started its work. One that ends before, because the API server did not answer it in time, is
// started again, as a kubelet does.
func startOperator() error {
	log, err := os.OpenFile(operatorLog(), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	var said []byte
	for range 10 {
		if err := runOperator(); err != nil {
			return err
		}
		for running := true; running; {
			select {
			case <-world.operator.Exited():
				running = false
			case <-time.After(100 * time.Millisecond):
			}
			more, err := io.ReadAll(log)
			if err != nil {
				return err
			}
			if said = append(said, more...); bytes.Contains(said, []byte("acquired lease")) {
				return nil
			}
		}
		fmt.Fprintln(os.Stderr, "starting again:", world.operator.Died())
	}
	return world.operator.Died()
}

func runOperator() (err error) {
	if world.metrics == "" {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		world.metrics = free.Addr().String()
		if err := free.Close(); err != nil {
			return err
		}
	}
	// It behaves as in a Pod: it looks for the policy that bounds agents.
	env := append([]string{"KUBERNETES_SERVICE_HOST=e2e", "POD_NAMESPACE=" + operators}, world.cloudEnv...)
	world.operator, err = operator.Start(world.program, world.operatorKubeconfig, operatorLog(), env, "--allow-local-addresses",
		"--metrics-bind-address="+world.metrics, "--metrics-secure=false", "--health-probe-bind-address=0", "--debug", "--install-crds=false",
		"--etcd-certificates="+filepath.Join(world.dir, "etcd-pki"),
		"--leader-elect", "--leader-election-lease-duration=1h", "--leader-election-renew-deadline=55m", // However slow this machine is.
		"--image="+image.Operator, "--job-image-pull-policy=Never", fmt.Sprintf("--job-backoff-limit=%d", world.backoffLimit))
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
