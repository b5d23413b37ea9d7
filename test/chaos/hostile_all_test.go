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
	ofEachKind = 1000
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
		if n < ofEachKind/4 {
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

// texts, numbers and others are what fields of hostile objects have.
var (
	texts = []any{
		"", " ", "x", "-1", "1e3999999", "9223372036854775808", "../..", "{", "[[[", "(?i", "a)|(b", "*/0 * * * *", "@every 1ns", "* * 30 2 *", "100%", "101%", "-5%", "5m", "1ns",
		"-9223372036854775808ns", "2562047h", "http://127.0.0.1:1/x", "http://[::1", "é\n\t\u2028", "reboot-9223372036854775807", "v1.2.3+b", "1.2.3", "12:00", "mon", "Etc/UTC",
		"5", "10%", "* * * * *", strings.Repeat("y", 64), strings.Repeat("é{", 4000),
	}
	numbers = []any{int64(0), int64(-1), int64(1), int64(3), int64(1 << 31), int64(1<<31 - 1), int64(1 << 62)}
	others  = []any{nil, true, false, 1.5, []any{}, []any{nil}, []any{"", int64(1)}, map[string]any{}, map[string]any{"": nil}, map[string]any{"a": []any{map[string]any{}}}}
)

// valueOf returns a value of a kind: a text, a number, a duration, a list or windows; or, now and then, any other.
func valueOf(random *rand.Rand, kind string) any {
	pick := func(from []any) any { return from[random.IntN(len(from))] }
	if random.IntN(10) == 0 {
		kind = ""
	}
	switch kind {
	case "text":
		return pick(texts)
	case "number":
		return pick(numbers)
	case "duration":
		return pick([]any{"0s", "1ns", "-1s", "5m", "2562047h", "-2562047h"})
	case "list":
		return []any{pick(texts), pick(texts)}
	case "windows":
		return []any{map[string]any{"schedule": pick(texts), "duration": pick([]any{"1h", "-1h", "1ns", "2562047h"}), "timeZone": pick(texts)}}
	case "amount":
		return pick([]any{"0%", "100%", "10%", int64(0), int64(1), int64(1<<31 - 1), "101%", "x", int64(-1)})
	default:
		return pick(slices.Concat(texts, numbers, others))
	}
}

// hostileKinds have fields that become nonsense, each with the kind of its values, and a part that is well.
var hostileKinds = map[string]struct {
	apiVersion string
	spec       func() map[string]any
	fields     map[string]string
}{
	"Plan": {upgradev1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{"version": "v1", "nodeSelector": selects("nowhere"), "upgrade": map[string]any{"image": "example.com/x"}, "drain": map[string]any{}}
	}, map[string]string{
		"concurrency": "number", "version": "text", "channel": "text", "jobActiveDeadlineSecs": "number", "serviceAccountName": "text", "secrets": "", "tolerations": "",
		"window.days": "list", "window.startTime": "text", "window.timeZone": "text", "drain.timeout": "text", "drain.gracePeriod": "number", "drain.podSelector": "",
		"drain.skipWaitForDeleteTimeout": "number", "upgrade.image": "text", "upgrade.args": "list", "upgrade.envs": "", "upgrade.resources.limits.cpu": "text",
		"upgrade.volumes": "", "prepare.image": "text", "strategy.maxFailures": "amount", "strategy.windows": "windows", "postCompleteDelay": "duration", "priorityClassName": "text",
	}},
	"NodeRollout": {v1alpha1.GroupVersion.String(), func() map[string]any {
		return map[string]any{"nodeSelector": selects(hostilePool), "hostUpdate": map[string]any{}, "drain": map[string]any{}, "strategy": map[string]any{}}
	}, map[string]string{
		"strategy.maxConcurrent": "amount", "strategy.maxFailures": "amount", "strategy.windows": "windows", "strategy.soak": "duration", "drain.timeout": "duration",
		"drain.podSelector": "", "hostUpdate.version": "text", "hostUpdate.rebootTimeout": "duration", "nodeSelector.matchLabels.x": "text", "strategy.order": "text", "paused": "",
		"excludeFromLoadBalancers": "", "replacement": "",
	}},
	"NodeDisruptionBudget": {v1alpha1.GroupVersion.String(), func() map[string]any {
		return map[string]any{"selector": selects(hostilePool), "gates": map[string]any{}}
	}, map[string]string{
		"maxUnavailable": "amount", "topologyKey": "text", "maxDomains": "number", "windows": "windows", "gates.alerts.url": "text", "gates.alerts.allow": "text",
		"gates.workloads.selector.matchLabels.x": "text", "minReadySeconds": "number", "selector.matchLabels.x": "text", "paused": "", "gates.pods": "",
	}},
	"ExtendedDaemonSet": {edsv1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{
			"template": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{labelPool: "nowhere"}, "containers": []any{map[string]any{"name": "c", "image": "x"}}}},
			"strategy": map[string]any{"rollingUpdate": map[string]any{}},
		}
	}, map[string]string{
		"strategy.rollingUpdate.maxUnavailable": "amount", "strategy.rollingUpdate.maxSurge": "amount", "strategy.rollingUpdate.slowStartIntervalDuration": "duration",
		"strategy.rollingUpdate.slowStartAdditiveIncrease": "amount", "strategy.rollingUpdate.maxPodSchedulerFailure": "amount", "strategy.canary.replicas": "amount",
		"strategy.canary.duration": "duration", "strategy.reconcileFrequency": "duration", "template.metadata.labels.x": "text", "template.metadata.annotations.x": "text",
		"template.spec.volumes": "", "template.spec.serviceAccountName": "text", "template.spec.nodeSelector.x": "text", "template.spec.priorityClassName": "text",
	}},
	"ExtendedDaemonsetSetting": {edsv1.SchemeGroupVersion.String(), func() map[string]any {
		return map[string]any{
			"reference": map[string]any{"kind": "ExtendedDaemonset", "name": surging}, "nodeSelector": selects("nowhere"),
			"containers": []any{map[string]any{"name": "daemon", "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}}},
		}
	}, map[string]string{"reference.name": "text", "reference.kind": "text", "nodeSelector.matchLabels.x": "text", "containers": ""}},
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
			n.Annotations[key] = fmt.Sprint(valueOf(random, ""))
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
	fields := slices.Sorted(maps.Keys(of.fields))
	for range 1 + random.IntN(2) {
		field := fields[random.IntN(len(fields))]
		_ = unstructured.SetNestedField(spec, valueOf(random, of.fields[field]), strings.Split(field, ".")...) // A part of the path may be nonsense already.
	}
	for range random.IntN(3) {
		annotations[hostileAnnotations[random.IntN(len(hostileAnnotations))]] = fmt.Sprint(valueOf(random, ""))
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": of.apiVersion, "kind": kind, "spec": spec, "metadata": map[string]any{"annotations": annotations}}}
	o.SetName(fmt.Sprintf("hostile-%d", i))
	o.SetNamespace(h.namespace)
	if kind == "NodeRollout" || kind == "NodeDisruptionBudget" {
		o.SetNamespace("")
	}
	return o
}
