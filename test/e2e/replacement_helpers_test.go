// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/aws"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/clouds/gcp"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/operator"
)

// cloudDouble is a cloud that the operator is connected to. All tests share it, each with scale sets of its own.
type cloudDouble struct {
	name  string
	world *clouds.World
	// hosts are where tests say what plays the machines of their sets.
	hosts *clouds.HostRegistry
	// env is what a program needs to speak to it.
	env []string
	// set is what a scale set is called.
	set      func(name string) string
	provider v1alpha1.CloudProvider
	zones    []string
}

// The clouds.
var azureDouble, awsDouble, gcpDouble *cloudDouble

// machineTime is how long a machine takes to be made, and to go.
const machineTime = 20 * time.Millisecond

// startClouds starts the doubles, and returns the environment in which a program speaks to them.
func startClouds() (env []string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stops := []func(){cancel}
	start := func(d *cloudDouble, o clouds.Options, handler func(*clouds.World) http.Handler, environment func(string) []string) *cloudDouble {
		d.hosts = &clouds.HostRegistry{}
		o.Hosts, o.CreateTime, o.DeleteTime = d.hosts, machineTime, machineTime
		d.world = clouds.New(ctx, o)
		server := httptest.NewServer(handler(d.world))
		stops = append(stops, server.Close, d.world.Wait)
		d.env = environment(server.URL)
		env = append(env, d.env...)
		return d
	}
	same := func(name string) string { return name }
	azureDouble = start(&cloudDouble{
		name: "azure", set: same, zones: []string{"westeurope-1", "westeurope-2", "westeurope-3"},
		provider: v1alpha1.CloudProvider{Azure: &v1alpha1.AzureProvider{SubscriptionID: azure.SubscriptionID, ResourceGroup: azure.ResourceGroup}},
	}, clouds.Options{Identify: azure.Identify}, azure.Handler, azure.Env)
	awsDouble = start(&cloudDouble{
		name: "aws", set: same, zones: []string{aws.Region + "a", aws.Region + "b", aws.Region + "c"},
		provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: aws.Region}},
	}, clouds.Options{Identify: aws.Identify, ID: aws.InstanceID}, aws.Handler, aws.Env)
	gcpDouble = start(&cloudDouble{
		name: "gcp", set: func(name string) string { return "regions/europe-west3/" + name },
		zones:    []string{"europe-west3-a", "europe-west3-b", "europe-west3-c"},
		provider: v1alpha1.CloudProvider{GCP: &v1alpha1.GCPProvider{Project: gcp.Project, Locations: []string{"europe-west3"}}},
	}, clouds.Options{Identify: gcp.Identify, ID: gcp.ID}, gcp.Handler, gcp.Env)
	return env, func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// What machines are made of.
const (
	oldImage = "flatcar-stable-1.31.4-v1-0badc0de"
	newImage = "flatcar-stable-1.31.4-v2-0badcafe"
	badImage = "flatcar-stable-1.31.4-v3-0baddead"
)

// pool is a scale set of a test's own, with the Nodes of its machines.
type pool struct {
	*cloudDouble
	// name is the scale set's for people, of the NodeRollout too; full is what the cloud calls it.
	name, full string
	// capacity is what it has at first, and original the ids of the machines that it then has.
	capacity int
	original []string
}

// poolOptions say what a pool is like.
type poolOptions struct {
	cloud    *cloudDouble
	capacity int
	max      int
	// hosts play the machines. Default: simulated nodes.
	hosts    clouds.Hosts
	settings map[string]string
}

// heldHosts stop no machine before letGo is closed.
type heldHosts struct {
	clouds.Hosts
	letGo chan struct{}
}

func (h *heldHosts) Stop(ctx context.Context, m clouds.Machine) error {
	select {
	case <-h.letGo:
	case <-ctx.Done():
	}
	return h.Hosts.Stop(ctx, m)
}

// newPool makes a scale set whose machines are made of the old image, until the test ends.
func newPool(t *testing.T, name string, o poolOptions) *pool {
	t.Helper()
	o.cloud = cmp.Or(o.cloud, azureDouble)
	if o.hosts == nil {
		o.hosts = clouds.SimulatedHosts(world.Cluster)
	}
	p := &pool{cloudDouble: o.cloud, name: name, full: o.cloud.set(name), capacity: cmp.Or(o.capacity, 1)}
	p.hosts.Use(p.full, o.hosts)
	t.Cleanup(func() { p.remove(t) })
	if err := p.world.Create(t.Context(), clouds.Set{
		Name: p.full, Image: oldImage, Capacity: p.capacity, Max: o.max, Zones: p.zones,
		Labels: map[string]string{target: labelOf(t), poolLabel: name}, Settings: o.settings,
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range p.world.Machines(p.full) {
		p.original = append(p.original, m.ID)
	}
	eventually(t, "all nodes of "+name+" can be used", func(ctx context.Context) (string, bool) {
		all := p.nodes(t)
		for i := range all {
			if len(all[i].Spec.Taints) > 0 {
				return all[i].Name + " can't", false
			}
		}
		return fmt.Sprint(len(all)), len(all) == p.capacity
	})
	return p
}

// poolLabel is on the Nodes of pools.
const poolLabel = "e2e.moult.dev/pool"

// nodes are the pool's.
func (p *pool) nodes(t *testing.T) []corev1.Node {
	t.Helper()
	var all corev1.NodeList
	if err := persistently(context.WithoutCancel(t.Context()), func(ctx context.Context) error {
		return world.List(ctx, &all, client.MatchingLabels{poolLabel: p.name})
	}); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// remove lets no machine and no Node be left.
func (p *pool) remove(t *testing.T) {
	t.Helper()
	if t.Failed() {
		p.explain(t)
	}
	p.world.ClearFaultsOf(p.full)
	if err := p.world.Edit(p.full, func(s *clouds.Set) error { s.Min = 0; return nil }); err != nil && !errors.Is(err, clouds.ErrNotFound) {
		t.Error(err)
	}
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(interval) {
		var staying []string
		machines := p.world.Machines(p.full)
		for _, m := range machines {
			if m.State != clouds.Deleting {
				staying = append(staying, m.ID)
			}
		}
		if len(machines) == 0 {
			break
		}
		if len(staying) > 0 {
			if _, err := p.world.Delete(p.full, staying, true); err != nil && !errors.Is(err, clouds.ErrNotFound) {
				t.Error(err)
				return
			}
		}
		if time.Now().After(deadline) {
			t.Errorf("machines of %s stay: %v", p.full, machines)
			return
		}
	}
	for _, n := range p.nodes(t) {
		if err := client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), &n)); err != nil {
			t.Error(err)
		}
	}
}

// explain prints what can be known.
func (p *pool) explain(t *testing.T) {
	for _, c := range p.world.Journal() {
		if strings.Contains(c.Detail, p.name) {
			t.Logf("%s %s %s %s", c.Time.Format("15:04:05.000"), c.Name, c.Detail, c.Outcome)
		}
	}
	for _, m := range p.world.Machines(p.full) {
		t.Logf("machine %+v", m)
	}
	for _, n := range p.nodes(t) {
		text, err := yaml.Marshal(map[string]any{"name": n.Name, "annotations": n.Annotations, "spec": n.Spec, "os": n.Status.NodeInfo.OSImage})
		t.Logf("node %s %v", text, err)
	}
	out, err := kubectl(context.WithoutCancel(t.Context()), "get", "events", "-A", "--field-selector", "involvedObject.name="+p.name)
	t.Logf("events: %v\n%s", err, out)
	t.Log(operator.Tail(operatorLog(), 40))
}

// rollout is a NodeRollout over the pool, one machine at a time.
func (p *pool) newRollout() *v1alpha1.NodeRollout {
	return &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{poolLabel: p.name}},
			Replacement: &v1alpha1.Replacement{
				Provider: p.provider, ScaleSets: []string{p.full}, CheckPeriod: &metav1.Duration{Duration: time.Second},
			},
		},
	}
}

// setImage lets new machines be made of an image.
func (p *pool) setImage(t *testing.T, name string) {
	t.Helper()
	p.edit(t, func(s *clouds.Set) { s.Image = name })
}

func (p *pool) edit(t *testing.T, change func(*clouds.Set)) {
	t.Helper()
	if err := p.world.Edit(p.full, func(s *clouds.Set) error { change(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

func (p *pool) fault(f clouds.Fault) {
	f.Set = p.full
	p.world.Fault(f)
}

// done waits until the rollout is done on that many machines, all of them made of an image, and nothing else is left.
func (p *pool) done(t *testing.T, image string, capacity int) *v1alpha1.NodeRollout {
	t.Helper()
	r := rolloutIs(t, p.name, fmt.Sprintf("done on %d machines", capacity), func(s *v1alpha1.NodeRolloutStatus) bool {
		return p.says(t, s, image, capacity) && len(s.ScaleSets) == 1
	})
	if len(r.Status.Turns) > 0 || len(r.Status.ScaleSets[0].Operations) > 0 || r.Status.ScaleSets[0].Reason != "" {
		t.Errorf("something is under way: %+v, %+v", r.Status.Turns, r.Status.ScaleSets)
	}
	p.settled(t, image, capacity)
	return r
}

// says reports whether a status says that all is done.
func (p *pool) says(t *testing.T, s *v1alpha1.NodeRolloutStatus, image string, capacity int) bool {
	t.Helper()
	return ready(s) && int(s.Counts.Total) == capacity && int(s.Counts.Updated) == capacity && len(s.ScaleSets) > 0 &&
		strings.HasPrefix(s.Revision, image) && s.ScaleSets[0].Image != "" && strings.Contains(p.osImages(t), image) &&
		// What must be done next is written down before it is done, with the counts and conditions of before.
		s.ScaleSets[0].Outdated == 0
}

// osImages are what the Nodes run, as text.
func (p *pool) osImages(t *testing.T) string {
	t.Helper()
	all := map[string]int{}
	for _, n := range p.nodes(t) {
		all[n.Status.NodeInfo.OSImage]++
	}
	return fmt.Sprint(all)
}

// settled checks that cloud, Nodes and what was wanted are the same: so many machines of that image, and nothing left on any Node.
func (p *pool) settled(t *testing.T, image string, capacity int) {
	t.Helper()
	eventually(t, p.name+" is settled", func(context.Context) (string, bool) {
		set, _ := p.world.Set(p.full)
		var want, got []string
		for _, m := range p.world.Machines(p.full) {
			if m.Image != image || m.State != clouds.Running {
				return fmt.Sprintf("machine %+v", m), false
			}
			want = append(want, m.NodeName)
		}
		for _, n := range p.nodes(t) {
			got = append(got, n.Name)
			if why := leftovers(&n); why != "" {
				return n.Name + " " + why, false
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		diff := gocmp.Diff(want, got)
		return fmt.Sprintf("capacity %d, %d machines (-machines +nodes) %s", set.Capacity, len(want), diff),
			diff == "" && set.Capacity == capacity && len(want) == capacity
	})
}

// leftovers say what a turn has left on a Node.
func leftovers(n *corev1.Node) string {
	switch {
	case n.Spec.Unschedulable:
		return "is cordoned"
	case n.Annotations[v1alpha1.AnnotationClaims] != "":
		return "is claimed: " + n.Annotations[v1alpha1.AnnotationClaims]
	case n.Annotations[v1alpha1.AnnotationCordonedBy] != "":
		return "is marked as cordoned"
	case n.Annotations[scaleDownDisabled] != "":
		return "is kept from the autoscaler"
	case n.Labels[corev1.LabelNodeExcludeBalancers] != "":
		return "is kept from load balancers"
	case len(n.Spec.Taints) > 0:
		return fmt.Sprintf("has taints: %v", n.Spec.Taints)
	}
	return ""
}

const scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// program runs the operator's program, connected to the pool's cloud.
func (p *pool) program(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), world.program, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, p.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// replacedOnce checks that exactly the machines that there were at first have gone, and each has one in its place.
func (p *pool) replacedOnce(t *testing.T) {
	t.Helper()
	var gone []string
	for _, m := range p.world.Gone(p.full) {
		gone = append(gone, m.ID)
	}
	want := slices.Clone(p.original)
	slices.Sort(gone)
	slices.Sort(want)
	if diff := gocmp.Diff(want, gone); diff != "" {
		t.Errorf("machines of %s that have gone (-want +got)\n%s", p.full, diff)
	}
}

// never checks that there were never more machines than so many, nor fewer, of those that are not going.
func (p *pool) never(t *testing.T, more, fewer int) {
	t.Helper()
	n := p.capacity
	for _, c := range p.world.Journal() {
		names := strings.Fields(c.Detail)
		if len(names) == 0 || names[0] != p.full || c.Outcome != "" {
			continue
		}
		switch c.Name {
		case "Add", "Heal":
			n += len(names) - 1
		case "Delete", "Kill":
			n -= len(names) - 1
		}
		if n > more || n < fewer {
			t.Errorf("after %s %s there were %d machines, want %d to %d", c.Name, c.Detail, n, fewer, more)
		}
	}
}

func ready(s *v1alpha1.NodeRolloutStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue
	})
}

// poolJournal sees every change of a pool's Nodes.
type poolJournal struct {
	pool *pool
	mu   sync.Mutex
	now  map[string]*corev1.Node
	// latest is the revision that it has come to.
	latest uint64
	// most are how many were claimed, and cordoned, at once; each is how often one was cordoned.
	mostClaimed, mostCordoned int
	cordoned                  map[string]int
	wrong                     []string
	err                       error
}

// newPoolJournal begins one, until the test ends.
func newPoolJournal(t *testing.T, p *pool) *poolJournal {
	t.Helper()
	j := &poolJournal{pool: p, now: map[string]*corev1.Node{}, cordoned: map[string]int{}}
	var all corev1.NodeList
	if err := world.List(t.Context(), &all, client.MatchingLabels{poolLabel: p.name}); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		j.now[all.Items[i].Name] = &all.Items[i]
		j.latest = max(j.latest, revisionOf(t, &all.Items[i]))
	}
	changes := make(chan follow.Change, 1000)
	go func() {
		defer close(changes)
		err := follow.Changes(t.Context(), func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = poolLabel + "=" + p.name
			return world.clientset.CoreV1().Nodes().Watch(ctx, o)
		}, all.ResourceVersion, changes)
		if t.Context().Err() == nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.err = err
		}
	}()
	go func() {
		for c := range changes {
			if n, ok := c.Object.(*corev1.Node); ok {
				j.see(c.Type, n)
			}
		}
	}()
	return j
}

func (j *poolJournal) see(what watch.EventType, n *corev1.Node) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if revision, err := strconv.ParseUint(n.ResourceVersion, 10, 64); err == nil {
		j.latest = max(j.latest, revision)
	}
	before := j.now[n.Name]
	if n.Spec.Unschedulable && (before == nil || !before.Spec.Unschedulable) {
		j.cordoned[n.Name]++
	}
	j.now[n.Name] = n
	if what == watch.Deleted {
		delete(j.now, n.Name)
		for _, m := range j.pool.world.Machines(j.pool.full) {
			if m.NodeName == n.Name && m.State != clouds.Deleting {
				j.wrong = append(j.wrong, n.Name+" was deleted before its machine")
			}
		}
	}
	claimed, cordoned := 0, 0
	for _, n := range j.now {
		if n.Annotations[v1alpha1.AnnotationClaims] != "" {
			claimed++
		}
		if n.Spec.Unschedulable {
			cordoned++
		}
	}
	j.mostClaimed, j.mostCordoned = max(j.mostClaimed, claimed), max(j.mostCordoned, cordoned)
}

// check checks that never more than so many nodes were disrupted at once, and that each of those that have gone was cordoned once, and no other.
func (j *poolJournal) check(t *testing.T, atOnce int) {
	t.Helper()
	var now corev1.NodeList
	if err := world.List(t.Context(), &now, client.MatchingLabels{poolLabel: j.pool.name}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the journal of "+j.pool.name+" is up to date", func(context.Context) (string, bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.err != nil {
			t.Fatal(j.err)
		}
		for i := range now.Items {
			if revisionOf(t, &now.Items[i]) > j.latest {
				return now.Items[i].Name + " is behind", false
			}
		}
		return "", true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, wrong := range j.wrong {
		t.Error(wrong)
	}
	if j.mostClaimed > atOnce || j.mostCordoned > atOnce {
		t.Errorf("at once %d were claimed and %d cordoned, want %d at most", j.mostClaimed, j.mostCordoned, atOnce)
	}
	want := map[string]int{}
	for _, m := range j.pool.world.Gone(j.pool.full) {
		want[m.NodeName] = 1
	}
	if diff := gocmp.Diff(want, j.cordoned); diff != "" {
		t.Errorf("how often nodes were cordoned (-want +got)\n%s", diff)
	}
}
