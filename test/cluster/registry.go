// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// record is what the registry knows of one cluster: enough to remove every trace of it after all its processes were killed. It is written
// before the thing it names is made.
type record struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
	// Temporary says that Dir goes away with the cluster.
	Temporary bool `json:"temporary,omitempty"`
	// Supervisor is the process that the cluster lives and dies with. Before it runs, that is the process that is about to start it.
	Supervisor identity   `json:"supervisor"`
	Processes  []identity `json:"processes,omitempty"`
	Ports      []int      `json:"ports,omitempty"`
	// Subnet is the machines' network, the first address being the bridge's.
	Subnet  netip.Prefix `json:"subnet,omitzero"`
	Bridge  string       `json:"bridge,omitempty"`
	Cgroups []string     `json:"cgroups,omitempty"`
}

// registry is the directory of one record and one control socket a cluster, shared by all clusters of this user on this machine.
type registry struct{ dir string }

func openRegistry() (registry, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("moult-clusters-%d", os.Getuid()))
	if os.Geteuid() == 0 {
		dir = "/run/moult-clusters"
	} else if runtime := os.Getenv("XDG_RUNTIME_DIR"); runtime != "" {
		dir = filepath.Join(runtime, "moult-clusters")
	}
	return registry{dir}, os.MkdirAll(dir, 0o700)
}

func (r registry) lock(ctx context.Context) (unlock func(), err error) {
	return lockFile(ctx, filepath.Join(r.dir, "lock"))
}

func (r registry) path(id string) string   { return filepath.Join(r.dir, id+".json") }
func (r registry) socket(id string) string { return filepath.Join(r.dir, id+".sock") }

func (r registry) save(rec *record) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	partial := r.path(rec.ID) + ".partial"
	if err := os.WriteFile(partial, data, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, r.path(rec.ID))
}

func (r registry) load(id string) (*record, error) {
	data, err := os.ReadFile(r.path(id))
	if err != nil {
		return nil, err
	}
	rec := &record{}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("reading %s, %w", r.path(id), err)
	}
	return rec, nil
}

func (r registry) forget(id string) error {
	return errors.Join(removeFile(r.socket(id)), removeFile(r.path(id)))
}

func (r registry) all() ([]*record, error) {
	paths, err := filepath.Glob(r.path("*"))
	if err != nil {
		return nil, err
	}
	var records []*record
	for _, path := range paths {
		base := filepath.Base(path)
		rec, err := r.load(base[:len(base)-len(".json")])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// find returns the record of the cluster in a state directory.
func (r registry) find(dir string) (*record, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	records, err := r.all()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		if rec.Dir == dir {
			return rec, nil
		}
	}
	return nil, fmt.Errorf("no cluster runs in %s, %w", dir, fs.ErrNotExist)
}

// claim registers a new cluster in dir, with free ports and, where machines is
// set, a free subnet. The claim is this process's until a supervisor takes it.
func (r registry) claim(ctx context.Context, dir string, temporary, machines bool, ports int) (*record, error) {
	unlock, err := r.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	others, err := r.all()
	if err != nil {
		return nil, err
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	rec := &record{ID: newID(), Dir: dir, Temporary: temporary, Supervisor: self}
	for _, other := range others {
		if other.Dir == dir {
			return nil, fmt.Errorf("a cluster runs in %s already", dir)
		}
	}
	if rec.Ports, err = freePorts(ports, others); err != nil {
		return nil, err
	}
	if machines {
		if rec.Subnet, err = freeSubnet(others); err != nil {
			return nil, err
		}
	}
	return rec, r.save(rec)
}

// newID returns a name short enough to prefix those of network interfaces.
func newID() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// freePorts picks ports that nothing listens on and no other cluster was given. They lie below the range that the kernel takes ports of
// outgoing connections from, which might otherwise be in use by the time the server starts.
func freePorts(n int, others []*record) ([]int, error) {
	taken := make(map[int]bool)
	for _, other := range others {
		for _, port := range other.Ports {
			taken[port] = true
		}
	}
	const first, last = 20000, 32000
	var ports []int
	for port := first; port < last && len(ports) < n; port++ {
		if taken[port] {
			continue
		}
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		listener.Close()
		ports = append(ports, port)
	}
	if len(ports) < n {
		return nil, fmt.Errorf("no %d free ports between %d and %d", n, first, last)
	}
	return ports, nil
}

// freeSubnet picks a network that overlaps no other cluster's and none that this machine has an address in.
func freeSubnet(others []*record) (netip.Prefix, error) {
	var taken []netip.Prefix
	for _, other := range others {
		if other.Subnet.IsValid() {
			taken = append(taken, other.Subnet)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			taken = append(taken, prefix.Masked())
		}
	}
	for i := range 256 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, byte(i), 0}), 24)
		if !slices.ContainsFunc(taken, subnet.Overlaps) {
			return subnet, nil
		}
	}
	return netip.Prefix{}, errors.New("no free subnet in 10.213.0.0/16")
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
