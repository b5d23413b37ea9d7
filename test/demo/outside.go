// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"moult.dev/moult/hack/image"
)

// Where no machine can run the operator's pod, it runs as a process beside the cluster and stays until the demo is removed.
const pidFile = "moult.pid"

func (d *demo) runOutside(ctx context.Context) error {
	// On simulated nodes its pod would only look as if it ran.
	if err := d.kubectl(ctx, nil, "scale", "deployment/moult", "-n", namespace, "--replicas=0"); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(d.dir, "moult.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.bin("moult"), "controller", "--kubeconfig="+d.cluster.Kubeconfig(), "--image="+image.Operator,
		"--metrics-bind-address=0", "--health-probe-bind-address=0")
	cmd.Env = []string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the operator, %w", err)
	}
	fmt.Fprintf(d.details(), "The operator runs outside of the cluster, as process %d; its log is %s.\n", cmd.Process.Pid, log.Name())
	return os.WriteFile(filepath.Join(d.dir, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// stopOutside ends that process, if it is still the one that was started.
func stopOutside(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return nil // It never was.
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("reading %s, %w", pidFile, err)
	}
	program := filepath.Join(dir, "bin", "moult")
	ours := func() bool {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && strings.TrimSuffix(link, " (deleted)") == program
	}
	if !ours() {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending the operator, %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for ours() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("ending the operator, process %d, %w", pid, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
