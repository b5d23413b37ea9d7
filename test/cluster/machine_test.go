// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/test/cluster"
)

func TestMachines(t *testing.T) {
	files := t.TempDir()
	writeProgram(t, filepath.Join(files, cluster.BootDir, "first"), "echo first >/run/moult-first")
	c := cluster.New(t, cluster.Options{Machines: 2, Nodes: 2, MachineFiles: files})
	client := newClient(t, c)
	one, two := c.Machine("machine-1"), c.Machine("machine-2")

	t.Run("the first has the control plane's label", func(t *testing.T) {
		const label = "node-role.kubernetes.io/control-plane"
		if _, ok := getNode(t, client, one.Name()).Labels[label]; !ok {
			t.Errorf("%s has no label %s", one.Name(), label)
		}
		if _, ok := getNode(t, client, two.Name()).Labels[label]; ok {
			t.Errorf("%s has the label %s", two.Name(), label)
		}
	})
	t.Run("a privileged job changes the machine", func(t *testing.T) {
		job := runOnMachine(t, client, one.Name(), "privileged", privileged, cluster.ShellImage, "sh", "-ec", `
			echo disk > /host/etc/moult-test
			echo memory > /host/run/moult-test
			cat /proc/sys/kernel/random/boot_id > /host/etc/moult-boot-id
			chroot /host hostname > /host/etc/moult-hostname`)
		expectCondition(t, client, job, batchv1.JobComplete)
		expectContent(t, one, "/etc/moult-test", "disk\n")
		expectContent(t, one, "/run/moult-test", "memory\n")
		expectContent(t, one, "/etc/moult-hostname", one.Name()+"\n")
		expectContent(t, one, "/etc/moult-boot-id", one.BootID()+"\n")
		for _, elsewhere := range []func(string) ([]byte, error){two.ReadFile, os.ReadFile} {
			if _, err := elsewhere("/etc/moult-test"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file was written elsewhere too: %v", err)
			}
		}
	})
	t.Run("machines have the files that they were given, from their first boot on", func(t *testing.T) {
		for _, m := range []*cluster.Machine{one, two} {
			expectContent(t, m, "/run/moult-first", "first\n")
		}
	})
	t.Run("a machine runs its own programs at each boot, and its services", func(t *testing.T) {
		testPrograms(t, two)
	})
	t.Run("a reboot loses memory and keeps the disk", func(t *testing.T) {
		before := one.BootID()
		if err := one.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if one.BootID() == before {
			t.Error("the boot id is the same")
		}
		if got := getNode(t, client, one.Name()).Status.NodeInfo.BootID; got != one.BootID() {
			t.Errorf("the node has boot id %s, want the machine's, %s", got, one.BootID())
		}
		expectContent(t, one, "/etc/moult-test", "disk\n")
		if _, err := one.ReadFile("/run/moult-test"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("reading a file of the last boot's memory: %v, want that it does not exist", err)
		}
	})
	t.Run("a machine that asks for a reboot gets one", func(t *testing.T) {
		before := one.BootID()
		// The command ends with the machine, one way or the other.
		_, _ = one.Exec(t.Context(), "systemctl", "reboot")
		expect(t, 20*time.Second, "a new boot id", func(context.Context) (bool, error) {
			after := one.BootID()
			return after != "" && after != before, nil
		})
		if err := one.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a pod reaches the API server as its service account", func(t *testing.T) {
		if err := c.LoadImage(t.Context(), kubectlImage(t)); err != nil {
			t.Fatal(err)
		}
		job := runOnMachine(t, client, two.Name(), "whoami", nil, kubectl, "kubectl", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		expectCondition(t, client, job, batchv1.JobComplete)
		log, err := client.CoreV1().Pods(job.Namespace).GetLogs(podOf(t, client, job).Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(log), "system:serviceaccount:default:default"; got != want {
			t.Errorf("kubectl says %q, want %q", got, want)
		}
	})
	t.Run("machines are added and removed", func(t *testing.T) { testFleet(t, c, client, one) })
	t.Run("a cut-off machine and one that is off are not ready", func(t *testing.T) {
		if err := one.CutOff(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := two.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*cluster.Machine{one, two} {
			if err := m.WaitNotReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if output, err := one.Exec(t.Context(), "hostname"); err != nil || strings.TrimSpace(string(output)) != one.Name() {
			t.Errorf("hostname in the cut-off machine: %q, %v", output, err)
		}
		if err := two.WriteFile("/etc/moult-test", []byte("while off\n"), 0o644); err != nil {
			t.Error(err)
		}
		if err := one.Reconnect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := two.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectContent(t, two, "/etc/moult-test", "while off\n")
	})
}

func writeProgram(t *testing.T, path, script string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func testPrograms(t *testing.T, m *cluster.Machine) {
	if out, err := m.Exec(t.Context(), "mkdir", "-p", cluster.ServiceDir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	service := filepath.Join(cluster.ServiceDir, "ticker")
	for path, script := range map[string]string{
		// It is slow, and sees what is there after it.
		filepath.Join(cluster.BootDir, "last"): "sleep 1; cat /run/moult-first >/run/moult-last; ls /run/containerd >>/run/moult-last 2>&1",
		service:                                "echo $$ >>/run/moult-ticker; exec sleep 1000",
		// Nothing is the worse for it.
		filepath.Join(cluster.ServiceDir, "broken"): "",
	} {
		mode, text := fs.FileMode(0o755), "#!/bin/sh\n"+script+"\n"
		if script == "" {
			mode = 0o644
		}
		if err := m.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	pids := func(n int) []string {
		t.Helper()
		var all []string
		expect(t, 20*time.Second, "the service runs", func(context.Context) (bool, error) {
			data, err := m.ReadFile("/run/moult-ticker")
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			all = strings.Fields(string(data))
			return len(all) == n, err
		})
		return all
	}
	alive := func(pid string) bool {
		_, err := m.Exec(t.Context(), "test", "-d", "/proc/"+pid)
		return err == nil
	}
	reload := func() {
		t.Helper()
		if err := m.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reload()
	first := pids(1)[0]
	reload() // which changes nothing for what runs
	if out, err := m.Exec(t.Context(), "kill", "-9", first); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if second := pids(2)[1]; second == first || !alive(second) {
		t.Errorf("the service that was killed as %s is %s", first, second)
	}
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := m.ReadFile("/run/moult-last")
	if got := string(data); err != nil || !strings.HasPrefix(got, "first\n") || !strings.Contains(got, "No such file") {
		t.Errorf("the last program of the boot saw %q, %v; want the work of the first, and no containerd", got, err)
	}
	last := pids(1)[0]
	if out, err := m.Exec(t.Context(), "rm", service); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reload()
	expect(t, 20*time.Second, "the service has ended", func(context.Context) (bool, error) { return !alive(last), nil })
}

// privileged gives a pod the whole machine, as the Jobs of upgrade plans have it.
func privileged(pod *corev1.PodSpec) {
	pod.HostPID, pod.HostNetwork, pod.HostIPC = true, true, true
	yes := true
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
	pod.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/"},
	}}}
}

func runOnMachine(t *testing.T, client kubernetes.Interface, machine, name string, change func(*corev1.PodSpec), image string, command ...string) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	job.Spec.BackoffLimit = new(int32)
	job.Spec.Template.Spec = corev1.PodSpec{
		NodeName:      machine,
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: image, Command: command}},
	}
	if change != nil {
		change(&job.Spec.Template.Spec)
	}
	job, err := client.BatchV1().Jobs(job.Namespace).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

const kubectl = "moult.dev/test/kubectl:1"

func kubectlImage(t *testing.T) string {
	t.Helper()
	programs, err := cluster.Binaries(t.Context(), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubectl.tar")
	image := cluster.Image{Ref: kubectl, Files: map[string]string{"/usr/bin/kubectl": programs["kubectl"]}}
	if err := image.Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func expectContent(t *testing.T, m *cluster.Machine, path, want string) {
	t.Helper()
	got, err := m.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	if string(got) != want {
		t.Errorf("%s on %s contains %q, want %q", path, m.Name(), got, want)
	}
}

func expectFile(t *testing.T, path, want string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), want) {
		t.Errorf("%s does not contain %s", path, want)
	}
}
