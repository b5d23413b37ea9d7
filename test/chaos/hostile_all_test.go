// SPDX-License-Identifier: Apache-2.0

//go:build all

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/gcp"
	"moult.dev/moult/test/cluster"
)

const (
	// hostile is the pool of nodes that hostile objects select, a label of these objects, and in the name of machines of which the cloud says nonsense.
	hostile      = "hostile"
	hostileNodes = 10
	// mostMemory is how much the operator may ever have had, in MiB.
	mostMemory = 256
)

// Thousands of generated objects of each kind, most of them broken, hosts that report nonsense, and channels, a Prometheus and a cloud that answer it
// do not end the operator, fill its memory, or keep one rollout of each kind from its end.
func TestHostileObjects(t *testing.T) {
	count := 1000 // Of each kind.
	if n, err := strconv.Atoi(os.Getenv("MOULT_COUNT")); err == nil {
		count = n
	}
	ctx, h := newHarness(t, buildOperator(t))
	h.env = append(h.env, "GOMEMLIMIT=512MiB") // As in config/manager.
	var err error
	if h.journal.only, err = labels.Parse("!" + hostile); err != nil {
		t.Fatal(err)
	}
	g := newGenerator(t, seedOf(t))
	m := &machines{pool: newPool(h, flavours()[2], machinePool, 3, 1), late: map[string]bool{}}
	inner := m.pool.handler
	m.pool.handler = func(w *clouds.World) http.Handler { return g.cloud(inner(w)) }
	c := newChaos(ctx, h, 0, m, []budget{{"shared", 4, []string{planPool, hostPool}}},
		&plans{harness: h, plan: planName, nodes: 4, atOnce: 2},
		&daemons{harness: h, sets: []string{"everywhere"}, pools: []string{daemonPool}, nodes: 4},
		&hosts{harness: h, count: 3})
	c.last = true // They go on to the next version when this test asks for it.
	h.addNodes(ctx, hostile, hostileNodes, map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "2.0.0"}, osImage(releaseOf(0)))
	for i := range hostileNodes {
		id, name := gcp.Identify("", m.zones[0], fmt.Sprintf("%s-machine-%d", hostile, i))
		if err := h.cluster.AddNode(ctx, cluster.NodeOptions{Name: name, ProviderID: id, Labels: map[string]string{labelPool: hostile}}); err != nil {
			t.Fatal(err)
		}
	}
	c.begin(ctx)
	usual := c.timed(ctx)
	t.Logf("usually they take %v, with %d MiB", usual, h.memory())

	began := time.Now()
	admitted := h.createHostile(ctx, g, count)
	t.Logf("admitted after %s: %v of %d each", time.Since(began).Round(time.Second), admitted, count)
	for kind := range hostileKinds {
		if admitted[kind] < count/20 {
			t.Errorf("the API server has admitted %d of kind %s, of %d", admitted[kind], kind, count)
		}
	}
	h.background.Go(func() { h.annotate(ctx, g) })
	first := c.timed(ctx) // While the operator still gets to know these objects.
	then, memory := c.timed(ctx), h.memory()
	t.Logf("with hostile objects they take %v, and then %v, with %d MiB", first, then, memory)
	if memory > mostMemory {
		t.Errorf("the operator has had %d MiB, more than %d", memory, mostMemory)
	}
	h.stop()
	if log, err := os.ReadFile(h.logFile); err != nil || bytes.Contains(log, []byte("Observed a panic")) {
		t.Errorf("a reconcile panicked, or the log can't be read: %v", err)
	}
}

// timed brings each rollout to its next version. It returns how long that took.
func (c *chaos) timed(ctx context.Context) map[string]time.Duration {
	c.t.Helper()
	took := map[string]time.Duration{}
	for _, m := range c.all {
		complete := func() (bool, error) { return m.missing() == "", nil }
		c.until(ctx, m.name()+" is complete", complete)
		began := time.Now()
		if err := m.ask(ctx); err != nil {
			c.t.Fatal(err)
		}
		c.until(ctx, m.name()+" begins", func() (bool, error) { return m.missing() != "", nil })
		c.until(ctx, m.name()+" is complete", complete)
		took[m.name()] = time.Since(began).Round(time.Millisecond)
	}
	return took
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// memory is the most that the operator has had in memory, in MiB; 0 where the machine does not tell.
func (h *harness) memory() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.running().PID()))
	found := peak.FindSubmatch(text)
	if err != nil || found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		h.t.Fatal(err)
	}
	return n / 1024
}

// hostileKinds have a spec that is well, and the fields that keep them from the nodes of other rollouts.
var hostileKinds = map[string]struct {
	spec, selector string
}{
	"Plan":                 {`{"version":"v1","upgrade":{"image":"example.com/x"}}`, "nodeSelector.matchLabels"},
	"NodeRollout":          {`{"nodeSelector":{}}`, "nodeSelector.matchLabels"},
	"NodeDisruptionBudget": {`{}`, "selector.matchLabels"},
	"ExtendedDaemonSet": {
		`{"template":{"spec":{"containers":[{"name":"c","image":"x"}]}},"strategy":{"canary":{},"rollingUpdate":{}}}`, "template.spec.nodeSelector",
	},
	"ExtendedDaemonsetSetting": {`{"reference":{"kind":"ExtendedDaemonset","name":"everywhere"},"containers":[]}`, "nodeSelector.matchLabels"},
}

// hostileAnnotations are those that the operator reads.
var hostileAnnotations = []string{
	upgradev1.AnnotationDigest, edsv1.AnnotationOldDaemonset, v1alpha1.AnnotationRetry, v1alpha1.AnnotationClaims, v1alpha1.AnnotationEvicted,
	v1alpha1.AnnotationCordonedBy, v1alpha1.AnnotationExcludedBy, v1alpha1.AnnotationHostAttempts, v1alpha1.AnnotationHostTarget,
	v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostError, v1alpha1.AnnotationHostChecked, v1alpha1.AnnotationHostBoot,
	v1alpha1.AnnotationDucklettStatus, v1alpha1.AnnotationDucklettCount, v1alpha1.HostProtocols[0].Wanted, v1alpha1.HostProtocols[0].Active,
	v1alpha1.HostProtocols[0].State, v1alpha1.HostProtocols[0].Update,
}

// createHostile creates generated objects of each kind. It returns how many the API server has admitted.
func (h *harness) createHostile(ctx context.Context, g *generator, count int) map[string]int {
	h.t.Helper()
	objects := make(chan *unstructured.Unstructured)
	admitted, refused := map[string]int{}, map[string]string{}
	var mu sync.Mutex
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for o := range objects {
				err := h.client.Create(ctx, o)
				mu.Lock()
				switch {
				case err == nil:
					admitted[o.GetKind()]++
				case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsRequestEntityTooLargeError(err):
					refused[o.GetKind()] = err.Error()
				case ctx.Err() == nil && !cluster.Passing(err):
					h.t.Errorf("creating a %s, %v", o.GetKind(), err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range count {
		for _, d := range g.definitions {
			o := g.object(d, fmt.Sprintf("%s-%d", hostile, i))
			if d.Spec.Scope == apiextensionsv1.NamespaceScoped {
				o.SetNamespace(h.namespace)
			}
			objects <- o
		}
	}
	close(objects)
	running.Wait()
	for kind, why := range refused {
		h.t.Logf("a %s was refused: %.300s", kind, why)
	}
	return admitted
}

// annotate lets the hostile nodes report nonsense, again and again.
func (h *harness) annotate(ctx context.Context, g *generator) {
	for i := 0; ctx.Err() == nil; i++ {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", hostile, 1+i%hostileNodes)}}
		before := n.DeepCopy()
		n.Annotations = g.annotations(len(hostileAnnotations))
		if err := h.client.Patch(ctx, n, client.MergeFrom(before)); err != nil && ctx.Err() == nil && !cluster.Passing(err) {
			h.t.Errorf("annotating %s, %v", n.Name, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// generator draws objects and answers of which most are broken.
type generator struct {
	mu          sync.Mutex
	random      *rand.Rand
	definitions []*apiextensionsv1.CustomResourceDefinition
	// url answers nonsense.
	url string
}

func newGenerator(t *testing.T, seed uint64) *generator {
	t.Helper()
	g := &generator{random: rand.New(rand.NewPCG(seed, 2))}
	all, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if _, ok := hostileKinds[d.Spec.Names.Kind]; ok {
			g.definitions = append(g.definitions, d)
		}
	}
	if len(g.definitions) != len(hostileKinds) {
		t.Fatalf("%d of %d kinds have a definition", len(g.definitions), len(hostileKinds))
	}
	server := httptest.NewServer(http.HandlerFunc(g.answer))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	g.url = server.URL
	return g
}

func (g *generator) intN(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.random.IntN(n)
}

func pick[T any](g *generator, from []T) T { return from[g.intN(len(from))] }

// texts, numbers, amounts and others are what fields of hostile objects have.
var (
	texts = []string{
		"", " ", "x", "x", "a.b/c", "-1", "1e3999999", "1111111111111111111e3999999", "9223372036854775808", "../..", "{", "[[[", "(?i", "a)|(b", "(a+)+$",
		"*/0 * * * *",
		"@every 1ns", "* * 30 2 *", "@daily", "* * * * *", "5m", "5m", "1ns", "-9223372036854775808ns", "2562047h", "http://127.0.0.1:1/x", "http://[::1",
		"é\n\t\u2028", "reboot-9223372036854775807", "v1.2.3+b", "1.2.3", "12:00", "mon", "Etc/UTC", "Local", "1", "100m", "2026-01-01t00:00:00z",
		`[{"rollout":"Plan/a/b","turn":"x","since":"2026-01-01T00:00:00Z"}]`, `{"a":{"b":[]}}`,
		strings.Repeat("[", 10_000), strings.Repeat("y", 64), strings.Repeat("é{", 2000),
	}
	numbers = []any{int64(0), int64(-1), int64(1), int64(1), int64(3), int64(60), int64(1<<31 - 1), int64(1 << 31), int64(1 << 62)}
	amounts = []any{"0%", "100%", "10%", int64(0), int64(1), int64(3), int64(1<<31 - 1), "101%", "x", int64(-1)}
	others  = []any{nil, true, 1.5, "", int64(1), []any{}, []any{nil}, []any{"", int64(1)}, map[string]any{}, map[string]any{"": nil}}
)

// object draws an object: a spec that is well, of which some fields are others.
func (g *generator) object(d *apiextensionsv1.CustomResourceDefinition, name string) *unstructured.Unstructured {
	kind := hostileKinds[d.Spec.Names.Kind]
	spec := map[string]any{}
	if err := json.Unmarshal([]byte(kind.spec), &spec); err != nil {
		panic(err)
	}
	if _, ok := spec["nodeSelector"]; ok { // A NodeRollout.
		spec[pick(g, []string{"hostUpdate", "replacement"})] = map[string]any{}
		if _, ok := spec["replacement"]; ok {
			spec["replacement"] = map[string]any{"provider": map[string]any{"gcp": map[string]any{"project": gcp.Project}}}
		}
	}
	schema := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := slices.Sorted(maps.Keys(schema.Properties))
	for range 1 + g.intN(3) {
		field := pick(g, fields)
		of := schema.Properties[field]
		spec[field] = g.value(field, &of)
	}
	if spec["hostUpdate"] != nil && spec["replacement"] != nil && g.intN(10) > 0 {
		delete(spec, pick(g, []string{"hostUpdate", "replacement"}))
	}
	pool := hostile
	if d.Spec.Scope == apiextensionsv1.NamespaceScoped && g.intN(20) > 0 {
		pool = "nowhere" // Each of the others makes Jobs or pods.
	}
	if path := strings.Split(kind.selector, "."); unstructured.SetNestedStringMap(spec, map[string]string{labelPool: pool}, path...) != nil && spec[path[0]] == nil {
		// The API server drops null, and a budget without a selector governs all nodes: it would rightly stop the other rollouts.
		spec[path[0]] = map[string]any{path[1]: map[string]any{labelPool: pool}}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion(d.Spec.Group + "/" + d.Spec.Versions[0].Name)
	o.SetKind(d.Spec.Names.Kind)
	o.SetName(name)
	o.SetLabels(map[string]string{hostile: ""})
	o.SetAnnotations(g.annotations(g.intN(3)))
	return o
}

func (g *generator) annotations(n int) map[string]string {
	all := map[string]string{}
	for range n {
		all[pick(g, hostileAnnotations)] = pick(g, texts)
	}
	return all
}

// value draws a value of a schema, and now and then any other.
func (g *generator) value(name string, s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case g.intN(50) == 0:
		return pick(g, others)
	case len(s.Enum) > 0:
		var value any
		if err := json.Unmarshal(pick(g, s.Enum).Raw, &value); err != nil {
			panic(err)
		}
		return value
	case s.XIntOrString:
		return pick(g, amounts)
	case s.Type == "array":
		all := []any{}
		for range g.intN(3) {
			all = append(all, g.value(name, s.Items.Schema))
		}
		return all
	case len(s.Properties) > 0:
		object := map[string]any{}
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, field) || g.intN(len(s.Properties)) < 2 {
				of := s.Properties[field]
				object[field] = g.value(field, &of)
			}
		}
		return object
	case s.Type == "object":
		return map[string]any{pick(g, texts): pick(g, texts)}
	case s.Type == "boolean":
		return g.intN(2) == 0
	case s.Type == "integer", s.Type == "number":
		return pick(g, numbers)
	case name == "url", name == "channel":
		return g.url + "/" + pick(g, []string{"a", "b", "c"})
	}
	return pick(g, texts)
}

// answer answers as no channel, Prometheus or cloud does.
func (g *generator) answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch g.intN(8) {
	case 0:
		_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
	case 1:
		http.Redirect(w, r, pick(g, append(texts, r.URL.Path, "http://169.254.169.254/", "//elsewhere.invalid/x")), http.StatusFound)
	case 2:
		panic(http.ErrAbortHandler)
	case 3:
		select {
		case <-r.Context().Done():
		case <-time.After(2 * time.Second):
		}
	case 4:
		w.WriteHeader(400 + g.intN(200))
	default:
		_, _ = io.WriteString(w, pick(g, append(texts, "null",
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"alertname":null},"value":[]}]}}`,
			strings.Repeat(`{"data":`, 5000), `{"items":[{"name":1,"instances":[null]}],"currentActions":"x","status":"RUNNING"}`)))
	}
}

// cloud answers nonsense to what is about hostile machines.
func (g *generator) cloud(sane http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.Contains(r.URL.String(), hostile) || bytes.Contains(body, []byte(hostile)) {
			g.answer(w, r)
			return
		}
		defer func() {
			if recover() != nil { // The double of the cloud does not know such a request.
				panic(http.ErrAbortHandler)
			}
		}()
		sane.ServeHTTP(w, r)
	})
}
