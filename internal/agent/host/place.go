// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// searchPath is where commands without a slash are looked for on the host.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// initMounts is the mount namespace of the host's process 1. It needs hostPID.
const initMounts = "/proc/1/ns/mnt"

// endGrace is the default of place.grace.
const endGrace = 10 * time.Second

// maxOutput bounds what is kept of each of a command's streams.
const maxOutput = 64 << 10

// place is where on the host commands run and files are looked for. The zero place is the agent's own.
type place struct {
	// root is a directory in which the host's root is mounted; commands run in a chroot there. "" or "/": none.
	root string
	// mounts is the file of a mount namespace, such as /proc/1/ns/mnt; it comes before root.
	mounts string
	// grace is how long a command may take to end before it is killed. Its background processes have the same
	// time to close its streams. 0 means endGrace.
	grace time.Duration
}

// do calls a function with the place's root as its root directory. Other goroutines of the function keep the agent's root.
func (p place) do(f func() error) error {
	if p.mounts == "" && (p.root == "" || p.root == "/") {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, and no other ever runs on it.
		runtime.LockOSThread()
		err := p.enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// result is the output and exit status of a command that ended.
type result struct {
	stdout, stderr string
	// code is the exit code, -1 if a signal ended it. status says it in words.
	code   int
	status string
}

// failure returns why the command has failed, or nil.
func (r *result) failure() error {
	if r.code == 0 {
		return nil
	}
	return errors.New(strings.TrimSuffix(r.status+": "+cmp.Or(brief(r.stderr), brief(r.stdout)), ": "))
}

// maxBrief bounds what an error repeats of the output of a command or server, in bytes.
const maxBrief = 600

// brief returns the end of a text, on one line.
func brief(text string) string {
	kept := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(kept) > maxBrief {
		kept = "..." + strings.ToValidUTF8(kept[len(kept)-maxBrief:], "")
	}
	return kept
}

// run runs a command in the place until it ends. The error says that it could not run, or is the context's.
func (p place) run(ctx context.Context, argv ...string) (*result, error) {
	// Opened before entering the place: the host's root may have no /dev.
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()

	var stdout, stderr output
	var cmd *exec.Cmd
	err = p.do(func() error {
		path, err := lookUp(argv[0])
		if err != nil {
			return err
		}
		cmd = exec.CommandContext(ctx, path, argv[1:]...)
		cmd.Args[0] = argv[0]
		cmd.Dir = "/"
		// Old versions of updog need TERM for their log.
		cmd.Env = append(os.Environ(), "PATH="+searchPath, "TERM=xterm", "LANG=C")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = null, &stdout, &stderr
		cmd.WaitDelay = cmp.Or(p.grace, endGrace)
		group(cmd)
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("running %s, %w", argv[0], err)
	}
	err = cmd.Wait()
	if err != nil && ctx.Err() != nil {
		killGroup(cmd)
		return nil, fmt.Errorf("running %s, %w", argv[0], context.Cause(ctx))
	}
	// The command has ended. A background process of it may hold its streams open.
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, fmt.Errorf("running %s, %w", argv[0], err)
	}
	state := cmd.ProcessState
	return &result{stdout: string(stdout), stderr: string(stderr), code: state.ExitCode(), status: state.String()}, nil
}

// runWithin is run with a limit to how long the command may take.
func (p place) runWithin(ctx context.Context, limit time.Duration, argv ...string) (*result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not ended within %s", limit))
	defer cancel()
	return p.run(ctx, argv...)
}

// reboot runs a command that reboots the host. The reboot may kill the command before it ends, which is no failure. The command has no
// time limit, because a host may go down slowly.
func (p place) reboot(ctx context.Context, argv ...string) error {
	r, err := p.run(ctx, argv...)
	// A shell returns 128 plus the signal if a signal ended its command.
	ended := []int{0, -1, 128 + int(syscall.SIGTERM), 128 + int(syscall.SIGHUP)}
	if err == nil && !slices.Contains(ended, r.code) {
		err = fmt.Errorf("%s, %w", strings.Join(argv, " "), r.failure())
	}
	return err
}

// exists reports whether a file with this name exists that is not a directory.
func (p place) exists(name string) (bool, error) {
	found := false
	err := p.do(func() error {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		found = err == nil && !info.IsDir()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("looking for %s, %w", name, err)
	}
	return found, nil
}

// lookUp finds a command, as a shell does.
func lookUp(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errors.New("no such command in " + searchPath)
}

// output keeps the end of what a command writes.
type output []byte

func (o *output) Write(p []byte) (int, error) {
	*o = append(*o, p...)
	*o = slices.Delete(*o, 0, max(0, len(*o)-maxOutput))
	return len(p), nil
}
