// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
)

// asProgram makes the test's own program be moult.
const asProgram = "MOULT_TEST_IS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is moult, called by a name with these arguments, in this environment.
func program(ctx context.Context, t *testing.T, environment []string, called string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{called}, args...)
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + t.TempDir()}, environment...)
	return cmd
}

// output is what a program prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// runOperator runs the operator until the test ends. ended receives its error when it ends by itself.
func runOperator(t *testing.T, kubeconfig string, args ...string) (log *output, ended <-chan error) {
	t.Helper()
	log = &output{}
	cmd := program(context.WithoutCancel(t.Context()), t, []string{"KUBECONFIG=" + kubeconfig}, "moult",
		append([]string{"controller", "--install-crds=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited, gone := make(chan error, 1), make(chan struct{})
	go func() { exited <- cmd.Wait(); close(gone) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-gone
		if t.Failed() {
			t.Log(log)
		}
	})
	return log, exited
}
