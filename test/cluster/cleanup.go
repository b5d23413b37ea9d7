// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// remove ends every process of a cluster and removes everything else it has left, then its record. It is what ends a cluster in order, and
// what clears up after one whose supervisor was killed; each step may find its work done already.
func (r registry) remove(ctx context.Context, rec *record) error {
	var errs []error
	for _, process := range rec.Processes {
		errs = append(errs, process.kill(ctx))
	}
	if rec.Bridge != "" {
		errs = append(errs, removeLinks(ctx, rec.Bridge))
	}
	for _, cgroup := range rec.Cgroups {
		errs = append(errs, removeCgroup(ctx, cgroup))
	}
	errs = append(errs, unmountBelow(rec.Dir))
	if rec.Temporary {
		errs = append(errs, os.RemoveAll(rec.Dir))
	} else {
		errs = append(errs, removeState(rec.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing cluster %s, %w", rec.ID, err)
	}
	return r.forget(rec.ID)
}

// sweep removes every cluster whose supervisor is dead.
func (r registry) sweep(ctx context.Context) error {
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	records, err := r.all()
	if err != nil {
		return err
	}
	var errs []error
	for _, rec := range records {
		if !rec.Supervisor.alive() {
			errs = append(errs, r.remove(ctx, rec))
		}
	}
	return errors.Join(errs...)
}

// removeState clears a state directory that stays, but for the logs.
func removeState(dir string) error {
	var errs []error
	for _, name := range stateFiles {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// stateFiles is what a cluster keeps in its state directory, beside "log".
var stateFiles = []string{
	"cluster.json", "kubeconfig", "pki", "etcd", "kwok.yaml", "audit-policy.yaml", "machines", "images",
}

// unmountBelow unmounts whatever is mounted below dir. The machines mount in namespaces of their own, so there should be nothing, and what
// is below may be removed only once that is certain.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for _, line := range slices.Backward(lines) { // the last mounted first
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			errs = append(errs, unix.Unmount(fields[4], unix.MNT_DETACH))
		}
	}
	return errors.Join(errs...)
}
