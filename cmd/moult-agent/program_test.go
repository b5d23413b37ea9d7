// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/bottlerocket/state"
	"moult.dev/moult/test/cluster"
)

// What the program may take at most, in bytes: of memory, as the peak of its resident set, and of disk.
const (
	mostMemory = 25e6
	mostDisk   = 30e6
)

// TestAPIProgram runs the program as it is shipped, for Bottlerocket hosts that are directories here: it updates them by both of
// Bottlerocket's interfaces, and stays small.
func TestAPIProgram(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "moult-agent")
	if err := image.GoBinary(t.Context(), ".", "moult.dev/moult/cmd/moult-agent", binary, "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the program is %.1f MB", float64(info.Size())/1e6)
	if info.Size() > mostDisk {
		t.Errorf("it must be no more than %.0f MB", mostDisk/1e6)
	}
	double, err := bottlerocket.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.Shared(t, 0)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for hostInterface, flag := range map[string]string{v1alpha1.InterfaceUpdateAPI: "--api-socket=", v1alpha1.InterfaceUpdog: "--host-root="} {
		t.Run(hostInterface, func(t *testing.T) {
			if hostInterface == v1alpha1.InterfaceUpdog && os.Geteuid() != 0 {
				t.Skip("chroot needs root")
			}
			//nolint:usetesting // A socket's path must be short.
			root, err := os.MkdirTemp("", "moult-h-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(root) })
			host, err := double.StartIn(t.Context(), root, bottlerocket.Options{
				Interface: hostInterface, Version: "1.19.0", Releases: bottlerocket.Releases("1.20.0"),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := host.Stop(); err != nil {
					t.Error(err)
				}
			})
			if flag == "--api-socket=" {
				flag += host.Root.Path(state.APISocket)
			} else {
				flag += root
			}
			n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "p-", Labels: map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: hostInterface},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p := &process{args: []string{
				binary, "run", "--kubeconfig", c.Kubeconfig(), "--node-name", n.Name, "--boot-id-file", host.Root.Path(state.BootIDFile), flag,
			}}
			p.start(t)
			o := &operator{t: t, client: client, host: host, process: p}
			trace := o.update(n)
			want := slices.Concat([]string{",,"}, bottlerocket.Found, bottlerocket.Updated[:6], bottlerocket.Updated[7:])
			for i := range want {
				want[i] = strings.TrimSuffix(want[i], " cordoned") // This operator cordons nothing.
			}
			if !slices.Equal(trace, want) {
				t.Errorf("the trace is\n%s\nwant\n%s", strings.Join(trace, "\n"), strings.Join(want, "\n"))
			}
			if version, err := host.OSRelease(t.Context(), "VERSION_ID"); err != nil || version != "1.20.0" {
				t.Errorf("the host runs %s, error %v", version, err)
			}
			if boots, err := host.Boots(t.Context()); err != nil || len(boots) != 2 {
				t.Errorf("the host was booted %d times, error %v", len(boots), err)
			}
			p.stop(t)
			t.Logf("the program takes %.1f MB at most, and %.1f MB in the end", p.peak/1e6, p.last/1e6)
			if p.peak > mostMemory {
				t.Errorf("it must be no more than %.0f MB", mostMemory/1e6)
			}
		})
	}
}

// process is the agent's, one after the other.
type process struct {
	args       []string
	cmd        *exec.Cmd
	peak, last float64
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = t.Output(), t.Output()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := p.cmd
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

// measure takes down how much memory it takes.
func (p *process) measure(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skipf("no figures of processes here: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		kilobytes, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmHWM:":
			p.peak = max(p.peak, kilobytes*1024)
		case "VmRSS:":
			p.last = kilobytes * 1024
		}
	}
}

// die is what a reboot does to it.
func (p *process) die(t *testing.T) {
	t.Helper()
	p.measure(t)
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// stop ends it as the kubelet does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.measure(t)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// operator is the operator's half of the protocol.
type operator struct {
	t       *testing.T
	client  kubernetes.Interface
	host    *bottlerocket.Directory
	process *process
}

// update brings the host to what it offers, and returns the trace of the Node.
func (o *operator) update(n *corev1.Node) []string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 5*time.Minute)
	defer cancel()
	stream, err := o.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + n.Name, ResourceVersion: n.ResourceVersion})
	if err != nil {
		o.t.Fatal(err)
	}
	defer stream.Stop()
	p := v1alpha1.HostProtocols[0]
	rebooting := make(chan struct{}, 1)
	var states []*corev1.Node
	for {
		states = append(states, n)
		var say map[string]string
		switch intent := bottlerocket.Intent(n); intent {
		case ",,":
			say = map[string]string{p.Wanted: "stabilize", p.Active: "unknown", p.State: "unknown", p.Update: "unknown"}
		case "stabilize,stabilize,ready true":
			say = map[string]string{p.Wanted: "prepare-update", v1alpha1.AnnotationHostWanted: n.Annotations[v1alpha1.AnnotationHostTarget]}
		case "prepare-update,prepare-update,ready true":
			say = map[string]string{p.Wanted: "perform-update"}
		case "perform-update,perform-update,ready true":
			say = map[string]string{p.Wanted: "reboot-update"}
		case "reboot-update,reboot-update,busy true":
			if len(rebooting) == 0 {
				rebooting <- struct{}{}
				o.awaitBoot(ctx)
				o.process.die(o.t)
				o.process.start(o.t)
			}
		case "reboot-update,reboot-update,ready false":
			say = map[string]string{p.Wanted: "stabilize", p.Active: "stabilize"}
		case bottlerocket.UpToDate:
			return bottlerocket.Trace(states)
		default:
			if strings.Contains(intent, ",error ") {
				o.t.Fatalf("the agent says error: %s", n.Annotations[v1alpha1.AnnotationHostError])
			}
		}
		if say != nil {
			body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion, "annotations": say}})
			if err != nil {
				o.t.Fatal(err)
			}
			_, err = o.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, body, metav1.PatchOptions{})
			if err != nil && !apierrors.IsConflict(err) {
				o.t.Fatal(err)
			}
		}
		event, ok := <-stream.ResultChan()
		if !ok {
			o.t.Fatalf("the watch has ended at %s", bottlerocket.Intent(n))
		}
		n, ok = event.Object.(*corev1.Node)
		if !ok {
			o.t.Fatal(apierrors.FromObject(event.Object))
		}
	}
}

// awaitBoot is until the host has booted for the second time.
func (o *operator) awaitBoot(ctx context.Context) {
	o.t.Helper()
	for {
		boots, err := o.host.Boots(ctx)
		if err != nil {
			o.t.Fatal(err)
		}
		if len(boots) > 1 {
			return
		}
		select {
		case <-ctx.Done():
			o.t.Fatal("the host does not reboot")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
