// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

var update = flag.Bool("update", false, "write the golden files anew")

// patience bounds a hang.
const patience = 5 * time.Minute

// tomorrow is a clock by which all that a test makes is a day old. A time limit ends when the test says so.
type tomorrow struct {
	clock.RealClock
	limit chan time.Time
}

func (c tomorrow) NewTimer(time.Duration) clock.Timer { return limit(c.limit) }

type limit chan time.Time

func (l limit) C() <-chan time.Time    { return l }
func (limit) Stop() bool               { return true }
func (limit) Reset(time.Duration) bool { return true }

func (tomorrow) Now() time.Time { return time.Now().Add(26 * time.Hour) }

// bench is a namespace of a real cluster.
type bench struct {
	client.Client
	*testing.T
	config    *rest.Config
	namespace string
	// limit ends the time limit of a command.
	limit chan time.Time
}

// Load implements source.Config.
func (b *bench) Load() (*rest.Config, string, error) { return b.config, b.namespace, nil }

// TestAPI runs the commands against a real API server. No operator runs: objects have the status that a test gives them.
func TestAPI(t *testing.T) {
	config := cluster.Shared(t, 0).Config()
	config.QPS = -1
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, edsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	// Those of other tests are not to be listed.
	var others edsv1.ExtendedDaemonSetList
	if err := c.List(t.Context(), &others); err != nil {
		t.Fatal(err)
	}
	for i := range others.Items {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), &others.Items[i])); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]func(*bench){
		"get":           getSets,
		"get-elsewhere": getElsewhere,
		"get-ers":       getRevisions,
		"formats":       getInFormats,
		"watch":         watchSets,
		"pods":          showPods,
		"watch-pods":    watchPods,
		"rights":        showPodsWithoutNodes,
		"history":       showHistory,
		"validate":      validateCanary,
		"pause":         pauseCanary,
		"fail":          failAndResetCanary,
		"halts":         haltRollouts,
		"rollback":      rollBack,
		"diff":          diffCanary,
		"wait":          waitForSet,
		"arguments":     refuseArguments,
		"complete":      completeNames,
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{Client: c, T: t, config: config, namespace: "eds-" + name, limit: make(chan time.Time)}
			b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
			test(b)
		})
	}
}

func (b *bench) create(o client.Object) {
	b.Helper()
	if err := b.Create(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.Context()), o, client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
			b.Error(err)
		}
	})
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "foo"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: image, Args: []string{"--of", image}}, {Name: "side", Image: "side:1"}},
		},
	}
}

// set makes an ExtendedDaemonSet with the template of this image, and a status.
func (b *bench) set(name, image string, change ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	b.Helper()
	eds := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec:       edsv1.ExtendedDaemonSetSpec{Template: template(image)},
	}
	eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
	eds.Status = edsv1.ExtendedDaemonSetStatus{
		State: edsv1.StateRunning, ActiveReplicaSet: name + "-a", Desired: 3, Current: 3, Ready: 2, Available: 2, UpToDate: 3,
	}
	for _, change := range change {
		change(eds)
	}
	status := eds.Status
	b.create(eds)
	eds.Status = status
	b.writeStatus(eds)
	return eds
}

func (b *bench) writeStatus(o client.Object) {
	b.Helper()
	if err := b.Status().Update(b.Context(), o); err != nil {
		b.Fatal(err)
	}
}

// canary gives an ExtendedDaemonSet a canary of the revision NAME-b.
func canary(eds *edsv1.ExtendedDaemonSet) {
	eds.Status.State = edsv1.StateCanary
	eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: eds.Name + "-b", Nodes: []string{"node-2", "node-1"}}
}

// revision makes an ExtendedDaemonSetReplicaSet named after it, with the template of this image.
func (b *bench) revision(
	eds *edsv1.ExtendedDaemonSet, suffix, image string, change ...func(*edsv1.ExtendedDaemonSetReplicaSet),
) *edsv1.ExtendedDaemonSetReplicaSet {
	b.Helper()
	ers := &edsv1.ExtendedDaemonSetReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.namespace, Name: eds.Name + "-" + suffix,
			Labels: map[string]string{edsv1.LabelName: eds.Name}, Annotations: map[string]string{edsv1.AnnotationTemplateHash: "hash-of-" + suffix},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(eds, edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))},
		},
		Spec: edsv1.ExtendedDaemonSetReplicaSetSpec{Template: template(image), TemplateGeneration: "hash-of-" + suffix},
	}
	ers.Status = edsv1.ExtendedDaemonSetReplicaSetStatus{Status: edsv1.ReplicaSetUnknown}
	for _, change := range change {
		change(ers)
	}
	status := ers.Status
	b.create(ers)
	if status.Status != "" {
		ers.Status = status
		b.writeStatus(ers)
	}
	return ers
}

func role(is edsv1.ReplicaSetStatus, pods int32) func(*edsv1.ExtendedDaemonSetReplicaSet) {
	return func(ers *edsv1.ExtendedDaemonSetReplicaSet) {
		ers.Status = edsv1.ExtendedDaemonSetReplicaSetStatus{Status: is, Desired: pods, Current: pods, Ready: pods, Available: pods}
	}
}

// read reads an object anew.
func read[T client.Object](b *bench, o T) T {
	b.Helper()
	if err := b.Get(b.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		b.Fatal(err)
	}
	return o
}

// run runs a command line. It returns what was written, or the error.
func (b *bench) run(args ...string) (out, errOut string) {
	b.Helper()
	var stdout, stderr bytes.Buffer
	if err := b.start(b.Context(), &stdout, &stderr, args...); err != nil {
		return stdout.String(), stderr.String() + "error: " + err.Error()
	}
	return stdout.String(), stderr.String()
}

func (b *bench) start(ctx context.Context, out, errOut interface{ Write([]byte) (int, error) }, args ...string) error {
	cmd := NewCommand(tomorrow{limit: b.limit}, genericiooptions.IOStreams{Out: out, ErrOut: errOut}, b)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	return cmd.ExecuteContext(ctx)
}

// says runs a command line and compares what it says; of an error, after "error: ".
func (b *bench) says(want string, args ...string) {
	b.Helper()
	out, errOut := b.run(args...)
	if got := strings.TrimSuffix(out+errOut, "\n"); got != want {
		b.Errorf("%v says\n\t%s\nwant\n\t%s", args, got, want)
	}
}

// shows runs a command line and compares what it writes with a file of testdata.
func (b *bench) shows(name string, args ...string) {
	b.Helper()
	out, errOut := b.run(args...)
	if errOut != "" {
		b.Errorf("%v says %s", args, errOut)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		b.Errorf("%v: %s", args, diff)
	}
}

// screen is what a command has written so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// follows runs a command line until the test ends or stop is called, which returns its error.
func (b *bench) follows(args ...string) (s *screen, stop func() error) {
	ctx, cancel := context.WithCancel(b.Context())
	s = &screen{}
	ended := make(chan error, 1)
	go func() { ended <- b.start(ctx, s, s, args...) }()
	once := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			b.Errorf("%v does not end", args)
			return nil
		}
	})
	b.Cleanup(func() { _ = once() })
	return s, once
}

// until waits until there is a text on the screen.
func (b *bench) until(s *screen, text string) {
	b.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(patience)
	for !strings.Contains(s.String(), text) {
		select {
		case <-ticker.C:
		case <-late:
			b.Fatalf("it never says %q, but\n%s", text, s.String())
		}
	}
}
