// SPDX-License-Identifier: Apache-2.0

// Package build compiles programs, with progress to look at. It imports the standard library alone: it runs before any
// module is downloaded.
//
// No time limit covers a build. A build that was interrupted goes on where it was, because Go keeps each compiled package.
package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Flags are those of every build here, and the Makefile's: what is compiled with other flags is compiled once more.
// Without grpcnotrace the linker keeps every method of the clouds' clients, because gRPC's debug pages call methods by
// name. Without debug information the compiler is a fifth faster.
var Flags = []string{"-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false"}

// Program is a program to build.
type Program struct {
	// Name is what progress and errors call it.
	Name string
	// Dir is a folder in the module that the package is of. Empty: the working directory.
	Dir string
	// Package is the package to build, as seen from Dir.
	Package string
	// Output is the file to write. It appears when it is whole.
	Output string
	// LDFlags are flags of the linker besides -s -w.
	LDFlags string
	// Large makes progress show how many packages are left, and refuses to begin without room for them. Counting them takes seconds.
	Large bool
	// Env has what the build needs besides the environment, each as NAME=value. Example: GOOS=linux.
	Env []string
}

// Build builds the program, whether it is there or not. Progress goes to log.
func (p Program) Build(ctx context.Context, log io.Writer) (err error) {
	if err := checkGo(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.Output), 0o755); err != nil {
		return err
	}
	// What a killed build has left is removed by the next one, and not left among all temporary files.
	work := p.Output + ".work"
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(work)

	watch := newProgress(log, p.Name)
	defer func() { watch.end(err) }()
	if p.Large {
		var stale atomic.Int64
		err = p.goCommand(ctx, work, func(line string, isOutput bool) bool {
			if isOutput {
				stale.Add(1)
			}
			return isOutput || watch.downloads(line)
		}, append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, Flags...)...)
		if err != nil {
			return fmt.Errorf("finding out what %s consists of, %w", p.Name, err)
		}
		watch.compiles(stale.Load())
		if err := checkRoom(ctx, stale.Load()); err != nil {
			return err
		}
	}

	partial := filepath.Join(work, "program")
	args := append([]string{"build", "-v", "-ldflags", strings.TrimSpace("-s -w " + p.LDFlags), "-o", partial}, Flags...)
	err = p.goCommand(ctx, work, func(line string, isOutput bool) bool {
		// With -v, Go prints the path of each package that it compiles.
		compiled := !strings.ContainsAny(line, " \t:")
		if compiled {
			watch.done.Add(1)
		}
		return compiled || watch.downloads(line)
	}, args...)
	if err != nil {
		return fmt.Errorf("building %s, %w", p.Name, err)
	}
	return os.Rename(partial, p.Output)
}

// checkGo says what to do where there is no compiler.
func checkGo() error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("Go is not installed, or not in PATH: see https://go.dev/doc/install") //nolint:staticcheck // It is a name.
	}
	return nil
}

// goCommand runs go on the package. It gives each line of standard output and standard error to expect, and all lines
// that expect does not know are in the error.
func (p Program) goCommand(ctx context.Context, work string, expect func(line string, isOutput bool) bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(args, p.Package)...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=", "GOTMPDIR="+work)
	cmd.Env = append(cmd.Env, p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	// The kernel ends the child with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var unknown []string
	for i, pipe := range []io.Reader{stdout, stderr} {
		group.Go(func() {
			lines := bufio.NewReader(pipe) // A scanner stops at a long line, and go waits for a reader.
			for err := error(nil); err == nil; {
				var line string
				line, err = lines.ReadString('\n')
				if line = strings.TrimRight(line, "\r\n"); line != "" && !expect(line, i == 0) {
					mu.Lock()
					unknown = append(unknown, line)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	if err := cmd.Wait(); err != nil {
		return explain(ctx, err, strings.Join(unknown[max(0, len(unknown)-30):], "\n"))
	}
	return nil
}

// explain says in one sentence why go failed, where what it printed is a known reason.
func explain(ctx context.Context, err error, output string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, known := range []struct{ sign, sentence string }{
		{"no space left on device", "the disk is full: make room where `go env GOCACHE GOMODCACHE` says, and try again"},
		{"cannot allocate memory", "there is too little memory: linking the cluster's programs takes about 3 GiB"},
		{"signal: killed", "the kernel killed the compiler, most likely for want of memory: linking the cluster's programs takes about 3 GiB"},
		{"no such host", noNetwork},
		{"connection refused", noNetwork},
		{"network is unreachable", noNetwork},
		{"i/o timeout", noNetwork},
		{"TLS handshake timeout", noNetwork},
		{"module lookup disabled", noNetwork},
	} {
		if strings.Contains(output, known.sign) {
			return fmt.Errorf("%s (%s)", known.sentence, lineWith(output, known.sign))
		}
	}
	return fmt.Errorf("%w\n%s", err, output)
}

const noNetwork = "Go can't download modules: it needs a network, or a module proxy in GOPROXY that answers"

func lineWith(text, sign string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, sign) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// progress says every ten seconds how far a build is.
type progress struct {
	log     io.Writer
	name    string
	started time.Time
	modules atomic.Int64
	// done and all count packages. all is 0 where it is not known.
	done, all atomic.Int64
	stop      chan struct{}
	stopped   chan struct{}
}

func newProgress(log io.Writer, name string) *progress {
	p := &progress{log: log, name: name, started: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(p.stopped)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(p.log, "building %s: %s, %s\n", p.name, p.where(), p.elapsed())
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// downloads reports whether Go says by this line that it downloads a module.
func (p *progress) downloads(line string) bool {
	is := strings.HasPrefix(line, "go: downloading")
	if is {
		p.modules.Add(1)
	}
	return is
}

func (p *progress) compiles(n int64) {
	p.all.Store(n)
	fmt.Fprintf(p.log, "building %s: %d packages to compile\n", p.name, n)
}

// where says how far the build is.
func (p *progress) where() string {
	done, all := p.done.Load(), p.all.Load()
	switch {
	case all == 0 && done == 0:
		return fmt.Sprintf("%d modules downloaded", p.modules.Load())
	case all == 0:
		return fmt.Sprintf("%d packages compiled", done)
	case done >= all:
		return "linking"
	}
	return fmt.Sprintf("%d of %d packages compiled", done, all)
}

func (p *progress) elapsed() time.Duration { return time.Since(p.started).Truncate(time.Second) }

func (p *progress) end(err error) {
	close(p.stop)
	<-p.stopped
	if err == nil && p.elapsed() >= time.Second {
		fmt.Fprintf(p.log, "building %s: done in %s\n", p.name, p.elapsed())
	}
}
