// SPDX-License-Identifier: Apache-2.0

//go:build all

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const (
	// hostilePool are nodes whose annotations are nonsense. No hostile object selects other nodes: what selects them may hold them up.
	hostilePool, hostileNodes = "hostile", 20
	// ofEachKind is how many hostile objects there are of each kind.
	ofEachKind = 2000
	// mostMemory is how much the operator may ever have had, in MiB.
	mostMemory = 256
	rounds     = 2
)

// Thousands of objects of each kind that are broken in many ways do not end the operator, fill its memory, or hold up rollouts that are well.
func TestHostileObjects(t *testing.T) {
	seed := seedOf(t)
	ctx, h := newHarness(t)
	c := &chaos{harness: h, plans: &plans{harness: h}, last: true}
	c.all = []mechanism{c.plans, &daemons{harness: h}, &hosts{harness: h}}
	h.standing = func() (text string) {
		for _, m := range c.all {
			text += m.name() + ": " + m.missing() + "\n"
		}
		return text
	}
	h.gate.of = func(*http.Request, []byte) write { return write{} }
	h.gate.forbidden = func(*http.Request) bool { return false }
	for _, m := range c.all {
		m.prepare(ctx)
	}
	h.addNodes(ctx, hostilePool, hostileNodes, map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "2.0.0"}, "Bottlerocket OS x")
	c.begin(ctx)
	usual := c.timed(ctx, slices.MaxFunc)
	t.Logf("usually they take %v, with %d MiB", usual, h.memory())
	made := h.hostile(ctx, rand.New(rand.NewPCG(seed, 1)))
	for kind, n := range made {
		if n < ofEachKind/10 {
			t.Errorf("the API server has admitted %d of kind %s, of %d", n, kind, ofEachKind)
		}
	}
	t.Logf("admitted: %v", made)
	meanwhile := c.timed(ctx, slices.MinFunc)
	memory := h.memory()
	t.Logf("with hostile objects they take %v, with %d MiB", meanwhile, memory)
	for kind, took := range meanwhile {
		if took > 2*usual[kind] {
			t.Errorf("a %s takes %s, and usually %s", kind, took, usual[kind])
		}
	}
	if memory > mostMemory {
		t.Errorf("the operator has had %d MiB, more than %d", memory, mostMemory)
	}
	h.stop()
}

// timed brings each rollout to its next version, some times. It returns how long that took: the longest or the shortest time.
func (c *chaos) timed(ctx context.Context, choose func([]time.Duration, func(a, b time.Duration) int) time.Duration) map[string]time.Duration {
	c.t.Helper()
	all := map[string]time.Duration{}
	for _, m := range c.all {
		var took []time.Duration
		for range rounds {
			c.until(ctx, m.name()+" is complete", func() (bool, error) { return m.missing() == "", nil })
			began := time.Now()
			if err := m.ask(ctx); err != nil {
				c.t.Fatal(err)
			}
			c.until(ctx, m.name()+" begins", func() (bool, error) { return m.missing() != "", nil })
			c.until(ctx, m.name()+" is complete", func() (bool, error) { return m.missing() == "", nil })
			took = append(took, time.Since(began).Round(time.Millisecond))
		}
		all[m.name()] = choose(took, func(a, b time.Duration) int { return int(a - b) })
	}
	return all
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// memory is the most that the operator has had in memory, in MiB.
func (h *harness) memory() int {
	h.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.running().PID()))
	if err != nil {
		h.t.Fatal(err)
	}
	found := peak.FindSubmatch(text)
	if found == nil {
		h.t.Fatalf("no peak in %s", text)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		h.t.Fatal(err)
	}
	return n / 1024
}

// values are what fields of hostile objects have.
func values(random *rand.Rand) any {
	all := []any{
		nil, "", " ", "x", "-1", "1e3999999", "9223372036854775808", "../..", "{", "[[[", "(?i", "a)|(b", "*/0 * * * *", "@every 1ns", "* * 30 2 *", "100%", "101%", "-5%", "5m",
		"-9223372036854775808ns", "http://127.0.0.1:1/x", "http://[::1", "é\n\t\u2028", "reboot-9223372036854775807", "v1.2.3+b", strings.Repeat("y", 64), int64(0), int64(-1),
		int64(1), int64(1 << 31), int64(1<<31 - 1), int64(1 << 62), true, 1.5, []any{}, []any{nil}, []any{"", int64(1)}, map[string]any{}, map[string]any{"": nil},
	}
	if i := random.IntN(len(all) + 2); i < len(all) {
		return all[i]
	} else if i == len(all) {
		return strings.Repeat("é{", 1+random.IntN(2000))
	}
	deep := any("x")
	for range 20 {
		deep = map[string]any{"matchLabels": deep, "limits": deep}
		if random.IntN(2) == 0 {
			deep = []any{deep}
			break
		}
	}
	return deep
}

// fields of each kind that become nonsense, with a part that is well.
var hostileKinds = map[string]struct {
	apiVersion string
	spec       func() map[string]any
	fields     []string
}{
	"Plan": {upgradev1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{"version": "v1", "nodeSelector": selects("nowhere"), "upgrade": map[string]any{"image": "example.com/x"}, "drain": map[string]any{}}
	}, []string{
		"concurrency", "version", "channel", "cordon", "exclusive", "jobActiveDeadlineSecs", "serviceAccountName", "imagePullSecrets", "secrets", "tolerations", "window",
		"window.days", "window.startTime", "window.timeZone", "drain.timeout", "drain.onTimeout", "drain.gracePeriod", "drain.podSelector", "drain.skipWaitForDeleteTimeout",
		"upgrade.image", "upgrade.args", "upgrade.envs", "upgrade.resources", "upgrade.resources.limits", "upgrade.volumes", "prepare", "prepare.image", "strategy", "strategy.order",
		"strategy.maxFailures", "postCompleteDelay", "priorityClassName",
	}},
	"NodeRollout": {v1alpha1.GroupVersion.String(), func() map[string]any {
		return map[string]any{"nodeSelector": selects(hostilePool), "hostUpdate": map[string]any{}, "drain": map[string]any{}, "strategy": map[string]any{}}
	}, []string{
		"strategy.maxConcurrent", "strategy.maxFailures", "strategy.order", "strategy.waves", "strategy.windows", "strategy.spread", "strategy.soak", "drain.timeout", "drain.podSelector",
		"drain.onTimeout", "hostUpdate.version", "hostUpdate.rebootTimeout", "hostUpdate", "replacement", "replacement.image", "replacement.scaleSets", "replacement.cloud",
		"excludeFromLoadBalancers", "nodeSelector.matchExpressions", "paused",
	}},
	"NodeDisruptionBudget": {v1alpha1.GroupVersion.String(), func() map[string]any {
		return map[string]any{"selector": selects(hostilePool), "gates": map[string]any{}}
	}, []string{
		"maxUnavailable", "topologyKey", "maxDomains", "windows", "gates.alerts", "gates.alerts.url", "gates.alerts.allow", "gates.pods", "gates.workloads", "gates.nodes", "paused",
		"minReadySeconds", "selector.matchExpressions",
	}},
	"ExtendedDaemonSet": {edsv1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{
			"template": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{labelPool: "nowhere"}, "containers": []any{map[string]any{"name": "c", "image": "x"}}}},
			"strategy": map[string]any{"rollingUpdate": map[string]any{}},
		}
	}, []string{
		"selector", "strategy.rollingUpdate.maxUnavailable", "strategy.rollingUpdate.maxSurge", "strategy.rollingUpdate.slowStartIntervalDuration", "strategy.canary",
		"strategy.rollingUpdate.slowStartAdditiveIncrease", "strategy.rollingUpdate.maxPodSchedulerFailure", "strategy.canary.replicas", "strategy.canary.duration",
		"strategy.canary.nodeSelector", "strategy.reconcileFrequency", "template.metadata", "template.spec.tolerations", "template.spec.volumes", "template.spec.affinity",
	}},
	"ExtendedDaemonsetSetting": {edsv1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{
			"reference": map[string]any{"kind": "ExtendedDaemonset", "name": surging}, "nodeSelector": selects("nowhere"),
			"containers": []any{map[string]any{"name": "daemon", "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}}},
		}
	}, []string{"reference.name", "reference.kind", "nodeSelector.matchExpressions", "containers"}},
}

func selects(pool string) map[string]any {
	return map[string]any{"matchLabels": map[string]any{labelPool: pool}}
}

// annotations of hostile objects.
var hostileAnnotations = []string{
	upgradev1.AnnotationDigest, edsv1.AnnotationOldDaemonset, v1alpha1.AnnotationRetry, v1alpha1.AnnotationClaims, v1alpha1.AnnotationEvicted, v1alpha1.AnnotationCordonedBy,
	v1alpha1.AnnotationExcludedBy, v1alpha1.AnnotationHostAttempts, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostError,
	v1alpha1.AnnotationHostChecked, v1alpha1.AnnotationHostBoot, v1alpha1.AnnotationDucklettStatus, v1alpha1.AnnotationDucklettCount,
}

// hostile makes the objects. It returns how many the API server has admitted, by kind.
func (h *harness) hostile(ctx context.Context, random *rand.Rand) map[string]int {
	h.t.Helper()
	protocol := v1alpha1.HostProtocols[0]
	onNodes := append(slices.Clone(hostileAnnotations), protocol.Wanted, protocol.Active, protocol.State, protocol.Update,
		edsv1.AnnotationResourcesPrefix+h.namespace+"."+surging+".daemon")
	for i := range hostileNodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", hostilePool, i+1)}}
		before := n.DeepCopy()
		n.Annotations = map[string]string{}
		for _, key := range onNodes {
			n.Annotations[key] = fmt.Sprint(values(random))
		}
		if i == 0 {
			n.Annotations[v1alpha1.AnnotationClaims] = strings.Repeat("[", 100_000)
		}
		if err := h.client.Patch(ctx, n, client.MergeFrom(before)); err != nil {
			h.t.Fatal(err)
		}
	}
	objects := make(chan *unstructured.Unstructured)
	counts := map[string]*atomic.Int64{}
	var running sync.WaitGroup
	for kind := range hostileKinds {
		counts[kind] = &atomic.Int64{}
	}
	for range 8 {
		running.Go(func() {
			for o := range objects {
				switch err := h.client.Create(ctx, o); {
				case err == nil:
					counts[o.GetKind()].Add(1)
				case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsRequestEntityTooLargeError(err):
				case ctx.Err() == nil && !cluster.Passing(err):
					h.t.Errorf("creating a %s, %v", o.GetKind(), err)
				}
			}
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(hostileKinds)) {
		for i := range ofEachKind {
			objects <- h.hostileObject(random, kind, i)
		}
	}
	close(objects)
	running.Wait()
	made := map[string]int{}
	for kind, n := range counts {
		made[kind] = int(n.Load())
	}
	return made
}

func (h *harness) hostileObject(random *rand.Rand, kind string, i int) *unstructured.Unstructured {
	of := hostileKinds[kind]
	spec, annotations := of.spec(), map[string]any{}
	for range 1 + random.IntN(2) {
		path := strings.Split(of.fields[random.IntN(len(of.fields))], ".")
		_ = unstructured.SetNestedField(spec, values(random), path...) // A part of the path may be nonsense already.
	}
	for range random.IntN(3) {
		annotations[hostileAnnotations[random.IntN(len(hostileAnnotations))]] = fmt.Sprint(values(random))
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": of.apiVersion, "kind": kind, "spec": spec, "metadata": map[string]any{"annotations": annotations}}}
	o.SetName(fmt.Sprintf("hostile-%d", i))
	o.SetNamespace(h.namespace)
	if kind == "NodeRollout" || kind == "NodeDisruptionBudget" {
		o.SetNamespace("")
	}
	return o
}
