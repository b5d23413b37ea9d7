// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

const (
	machinePool  = "machines"
	machineCount = 5
	machineSurge = 2
	// machinesAtOnce is how many machines may be in a turn, and machineBudget how many of their nodes may be disrupted.
	machinesAtOnce, machineBudget = 3, 2
	// hurry is after how many kills the image changes whether or not all machines are of the last one.
	hurry = 7
)

// machines are replaced for image after image.
type machines struct {
	*pool
	cloudGate *gate
	kills     int

	mu sync.Mutex
	// late are machines whose Node joined when they were to go already.
	late map[string]bool
	// discards is true once machines that are up to date may be deleted: the rollout is gone.
	discards bool
}

const (
	machineAdds    = "recording that machines will be added"
	machineDeletes = "recording that machines will be deleted"
	machineReports = "writing the status of machines"
	machineClaims  = "claiming the node of a machine"
	machineCordons = "cordoning the node of a machine"
	machineEvicts  = "evicting a pod from a machine"
	nodeDeletes    = "deleting a Node"
	cloudAsks      = "asking the cloud"
	cloudChanges   = "changing something in the cloud"
)

func newMachines(h *harness, seed uint64, count, surge int) *machines {
	all := allFlavours()
	m := &machines{pool: newPool(h, all[rand.New(rand.NewPCG(seed, 1)).IntN(len(all))], machinePool, count, surge), late: map[string]bool{}}
	h.t.Logf("the cloud is %s", m.flavour.name)
	return m
}

func (m *machines) name() string { return "replacement" }

func (m *machines) targets() []target {
	return []target{
		{name: machineAdds, late: true}, {name: machineAdds, late: true}, {name: machineDeletes, late: true}, {name: machineDeletes, late: true},
		{name: machineReports, most: 2, late: true}, {name: machineClaims}, {name: machineClaims},
		// A late cordon may come when the image, and with it the replacement, has changed.
		{name: machineCordons},
		{name: machineEvicts, late: true}, {name: nodeDeletes, late: true}, {name: nodeDeletes, late: true},
		{name: cloudAsks, most: 2}, {name: cloudChanges, most: 2, late: true}, {name: cloudChanges, late: true}, {name: cloudChanges, late: true},
	}
}

func (m *machines) writeOf(r *http.Request, body []byte) string {
	says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	path := r.URL.Path
	ofNode := strings.HasPrefix(path, "/api/v1/nodes/")
	switch {
	case r.Method == http.MethodDelete && ofNode:
		return nodeDeletes
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/eviction") && strings.Contains(path, "/"+serving+machinePool):
		return machineEvicts
	case r.Method != http.MethodGet && strings.HasSuffix(path, "/noderollouts/"+machinePool+"/status"):
		// The whole list is written with each of its entries.
		switch {
		case says(`"kind":"Delete"`) && !says(`"sent":true`):
			return machineDeletes
		case says(`"kind":"Add"`) && !says(`"sent":true`):
			return machineAdds
		}
		return machineReports
	case m.nodeWrite(r, body) != "NodeRollout/"+machinePool:
	case says(`"unschedulable":true`):
		return machineCordons
	case !says(releasing):
		return machineClaims
	}
	return ""
}

// callOf is which call of the cloud a request is.
func (m *machines) callOf(r *http.Request, body []byte) write {
	// One of the clouds gets all calls as forms, which name what they ask for.
	if r.Method == http.MethodGet || bytes.Contains(body, []byte("Action=Describe")) {
		return write{m.name(), cloudAsks}
	}
	return write{m.name(), cloudChanges}
}

func (m *machines) prepare(ctx context.Context) {
	m.t.Helper()
	m.pool.begin(ctx, m)
	server := httptest.NewServer(m.handler(m.world))
	m.t.Cleanup(server.Close)
	m.cloudGate = newGate(m.t, &rest.Config{Host: server.URL}, m.trap, m.harness)
	m.cloudGate.of = m.callOf
	m.harness.env = append(m.harness.env, m.flavour.env(m.cloudGate.url)...)
	m.serve(ctx, machinePool, int32(m.pool.machines-1), int32(m.pool.machines/2))
}

func (m *machines) begin(ctx context.Context) {
	m.t.Helper()
	m.create(ctx, m.newRollout(machinesAtOnce))
}

func (m *machines) ask(context.Context) error { return m.publish() }

func (m *machines) busy(ctx context.Context) (bool, error) {
	// A change of the image in the middle of a rollout makes its turns begin anew.
	if m.kills++; m.kills%hurry == 0 {
		if err := m.publish(); err != nil {
			return false, err
		}
	}
	var r v1alpha1.NodeRollout
	err := m.client.Get(ctx, client.ObjectKey{Name: machinePool}, &r)
	return len(r.Status.Turns) > 0, err
}

// Start lets the Node of a machine join.
func (m *machines) Start(ctx context.Context, c clouds.Machine) error {
	err := clouds.SimulatedHosts(m.cluster).Start(context.WithoutCancel(ctx), c)
	if ctx.Err() != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.late[c.ID] = true
	}
	return err
}

// Stop switches a machine off.
func (m *machines) Stop(ctx context.Context, c clouds.Machine) error {
	m.mu.Lock()
	late, discards := m.late[c.ID], m.discards
	m.mu.Unlock()
	if set, _ := m.world.Set(m.id); set.Model == c.Model && !discards {
		m.t.Errorf("machine %s was deleted, though it is up to date", c.ID)
	}
	if err := clouds.SimulatedHosts(m.cluster).Stop(ctx, c); err != nil {
		return err
	}
	if !late {
		return nil
	}
	// The Node came when the rollout knew nothing of it. The cloud controller removes it.
	return client.IgnoreNotFound(m.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.NodeName}}))
}

func (m *machines) invariants() []invariant {
	return []invariant{
		ofNodes("a node is cordoned only when its replacement is ready", func(r *replay, old, n *corev1.Node) string {
			if old == nil || old.Spec.Unschedulable || !n.Spec.Unschedulable || n.Labels[labelPool] != machinePool {
				return ""
			}
			usable := 0
			for _, n := range r.nodes {
				if n.Labels[labelPool] == machinePool && nodeReady(n) && !n.Spec.Unschedulable {
					usable++
				}
			}
			if usable < m.pool.machines {
				return fmt.Sprintf("%d nodes can be used, want %d", usable, m.pool.machines)
			}
			return ""
		}),
		ofNodes("a machine is deleted only when it is drained", func(r *replay, old, n *corev1.Node) string {
			if old == nil || old.Annotations[cluster.NodeNotReady] != "" || n.Annotations[cluster.NodeNotReady] == "" {
				return ""
			}
			if pods := r.remaining(n.Name); len(pods) > 0 {
				return fmt.Sprintf("it has the pods %v", pods)
			}
			return ""
		}),
		of("no turn fails", func(_ *replay, _, o *v1alpha1.NodeRollout, _ bool) string {
			if o.Status.Counts != nil && o.Status.Counts.Failed > 0 {
				return fmt.Sprintf("%+v", o.Status.Failed)
			}
			return ""
		}),
	}
}

func (m *machines) checkEnd(*replay) {
	m.t.Helper()
	m.checkMade()
	m.t.Logf("machines had %d images", m.images)
}

// deletesInTurn deletes the rollout in the middle of a turn, and kills the operator meanwhile. What was begun must be ended, and
// nothing may be left behind.
func (m *machines) deletesInTurn(ctx context.Context, random *rand.Rand) {
	m.t.Helper()
	m.mu.Lock()
	m.discards = true // What was added for nothing is deleted.
	m.mu.Unlock()
	if err := m.publish(); err != nil {
		m.t.Fatal(err)
	}
	for busy := false; !busy; {
		m.killAt(ctx, draw(random, m.name(), m.targets()))
		var err error
		if busy, err = m.busy(ctx); err != nil {
			m.t.Fatal(err)
		}
	}
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: machinePool}}
	if err := m.client.Delete(ctx, r); err != nil {
		m.t.Fatal(err)
	}
	m.start()
	gone := func() (bool, error) {
		err := m.client.Get(ctx, client.ObjectKeyFromObject(r), r)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	m.until(ctx, "the rollout is gone", gone)
	m.trap.onTheWay.Wait()
	m.until(ctx, "nothing is left of the rollout", func() (bool, error) { return m.leaked() == "", nil })
}
