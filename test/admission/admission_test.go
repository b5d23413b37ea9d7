// SPDX-License-Identifier: Apache-2.0

// Package admission tries the definitions of all kinds on a real API server: which objects it admits, and which fields it
// sets and keeps.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/test/cluster"
)

// admission is a spec, and the API server's error. Without one the spec is admitted.
type admission struct{ spec, want string }

// server is an API server that has the definitions.
type server struct {
	client.Client
	cluster *cluster.Cluster
	// copied is a copy of the definition of ExtendedDaemonSets, in another group. It is installed without rules at first.
	copied *apiextensionsv1.CustomResourceDefinition
}

func TestAPI(t *testing.T) {
	s := newServer(t)
	for _, tc := range []struct {
		name, kind, base string
		version          schema.GroupVersion
		cases            []admission
	}{
		{"Plan", "Plan", "{}", upgradev1.GroupVersion, plans},
		{"NodeDisruptionBudget", "NodeDisruptionBudget", "{}", v1alpha1.GroupVersion, budgets},
		{"NodeRollout with hostUpdate", "NodeRollout", "{}", v1alpha1.GroupVersion, hostUpdates},
		{"NodeRollout with replacement", "NodeRollout", "{}", v1alpha1.GroupVersion, replacements},
		{"ExtendedDaemonSet", "ExtendedDaemonSet", "{strategy: {}, template: {spec: {containers: [{name: daemon, image: x}]}}}", edsv1.GroupVersion, daemonSets},
		{"ExtendedDaemonsetSetting", "ExtendedDaemonsetSetting", "{reference: {kind: ExtendedDaemonSet, name: x}, nodeSelector: {}}", edsv1.GroupVersion, settings},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range tc.cases {
				expect(t, c, s.admit(t, object(t, tc.version, tc.kind, tc.base, c.spec)))
			}
		})
	}
	t.Run("names", s.names)
	t.Run("times of a status", s.times)
	t.Run("defaults", s.defaults)
	t.Run("changes", s.changes)
	t.Run("docs", s.docs)
	t.Run("peers' objects", s.peers)
	t.Run("objects stored before", s.stored)
}

func newServer(t *testing.T) *server {
	t.Helper()
	c := cluster.Shared(t, 0)
	config := c.Config()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Client: api, cluster: c}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
		return d.Name == "extendeddaemonsets.datadoghq.com"
	})
	s.copied = definitions[i].DeepCopy()
	s.copied.Spec.Group = "stored.example.com"
	s.copied.Name = s.copied.Spec.Names.Plural + "." + s.copied.Spec.Group
	s.copied.Spec.Names.ShortNames, s.copied.Spec.Names.Categories = nil, nil
	loose := s.copied.DeepCopy()
	loosen(loose.Spec.Versions[0].Schema.OpenAPIV3Schema)
	t.Cleanup(func() {
		if err := s.Delete(context.WithoutCancel(t.Context()), loose); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	definitions = append(definitions, loose)
	for _, d := range definitions {
		if err := s.Create(t.Context(), d); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, d := range definitions {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: d.Spec.Group, Version: d.Spec.Versions[0].Name, Kind: d.Spec.Names.ListKind})
		eventually(t, func(ctx context.Context) error { return s.List(ctx, list) })
	}
	return s
}

func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	}); err != nil {
		t.Fatal(errors.Join(err, last))
	}
}

// admit asks the API server whether it would store an object.
func (s *server) admit(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	return s.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
}

func expect(t *testing.T, c admission, err error) {
	t.Helper()
	switch {
	case c.want == "" && err != nil:
		t.Errorf("%s\nis refused: %v", c.spec, err)
	case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
		t.Errorf("%s\nerror is %v\nwant %s", c.spec, err, c.want)
	}
}

// object is an object with the fields of all specs.
func object(t *testing.T, version schema.GroupVersion, kind string, specs ...string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	for _, text := range specs {
		if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	o.SetGroupVersionKind(version.WithKind(kind))
	o.SetName("admission")
	if version != v1alpha1.GroupVersion {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

// A time that the operator can't read, in the status of one object, would keep it from reading all objects of the kind.
func (s *server) times(t *testing.T) {
	eds := object(t, edsv1.GroupVersion, "ExtendedDaemonSet", "{strategy: {}, template: {spec: {containers: [{name: daemon, image: x}]}}}")
	s.create(t, eds)
	for text, want := range map[string]string{
		`"2026-01-01T00:00:00Z"`: "", `"2026-01-01t00:00:00z"`: "should match", `"2026-02-30T00:00:00Z"`: "must be a time", `["2026-01-01T00:00:00Z"]`: "must be of type string",
	} {
		patch := fmt.Sprintf(`{"status": {"desired": 1, "current": 1, "ready": 1, "available": 1, "upToDate": 1, "ignoredUnresponsiveNodes": 0,
			"activeReplicaSet": "x", "conditions": [{"type": "Active", "status": "True", "lastTransitionTime": %s}]}}`, text)
		expect(t, admission{text, want}, s.Status().Patch(t.Context(), eds.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
}

// Names are values of labels.
func (s *server) names(t *testing.T) {
	for length, want := range map[int]string{63: "", 64: "metadata.name must have at most 63 characters"} {
		for _, o := range []*unstructured.Unstructured{
			object(t, v1alpha1.GroupVersion, "NodeRollout", host+"{}"),
			object(t, edsv1.GroupVersion, "ExtendedDaemonSet", "{strategy: {}, template: {spec: {containers: [{name: a}]}}}"),
		} {
			o.SetName(strings.Repeat("n", length))
			expect(t, admission{o.GetName(), want}, s.admit(t, o))
		}
	}
}

// The API server sets these fields. The operator sets all others.
func (s *server) defaults(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{host + "{}", host + "{}"},
		{host + "{}\ndrain: {}", host + "{}\ndrain: {deleteEmptyDirData: true}"},
		{host + "{}\ndrain: {deleteEmptyDirData: false}", host + "{}\ndrain: {deleteEmptyDirData: false}"},
		{
			azure + "controlPlane: {}}",
			replaces + "{provider: {azure: {credential: Auto}}, imageMatch: ScaleSetModel, surge: 1, onFull: Wait, checkPeriod: 5m, controlPlane: {etcd: Stacked}}",
		},
		{
			"gates: {pods: [{selector: {}}], alerts: {url: 'http://p'}, workloads: {kinds: [{apiVersion: v1, kind: C}]}}",
			"counts: [Nodes]\ngates: {pods: [{selector: {}, scope: Node}], alerts: {url: 'http://p', whenUnreachable: Closed, intervalSeconds: 15}, " +
				"workloads: {kinds: [{apiVersion: v1, kind: C, desired: spec.replicas, ready: status.readyReplicas}]}}",
		},
	} {
		kind := "NodeRollout"
		if strings.HasPrefix(tc.spec, "gates") {
			kind = "NodeDisruptionBudget"
		}
		got, want := object(t, v1alpha1.GroupVersion, kind, tc.spec), object(t, v1alpha1.GroupVersion, kind, tc.want)
		if err := s.admit(t, got); err != nil {
			t.Fatal(err)
		}
		equal(t, tc.spec, want.Object["spec"], got.Object["spec"])
	}
}

// equal compares two objects as JSON, in which all numbers are of one type.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	var plain [2]any
	for i, v := range []any{want, got} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &plain[i]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(plain[0], plain[1]); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The mechanism and the place of the scale sets cannot change: status has the names of machines there. Credentials can.
func (s *server) changes(t *testing.T) {
	in := func(provider string) string { return `{"replacement":{"provider":` + provider + `}}` }
	for _, tc := range []struct{ spec, change, want string }{
		{host + "{}", `{"hostUpdate":null,"replacement":{"provider":{"azure":{}}}}`, "hostUpdate and replacement can't take each other's place: make another NodeRollout"},
		{of + "azure: {}}}", in(`{"azure":{"credential":"Managed","clientID":"c"}}`), ""},
		{of + "azure: {}}}", in(`{"azure":null,"aws":{}}`), "the cloud can't be changed"},
		{of + "azure: {}}}", in(`{"azure":{"resourceGroup":"rg"}}`), "resourceGroup can't be changed"},
		{of + "azure: {resourceGroup: rg}}}", in(`{"azure":{"resourceGroup":null}}`), "resourceGroup can't be changed"},
		{of + "azure: {}}}", in(`{"azure":{"subscriptionID":"` + subID + `"}}`), "subscriptionID can't be changed"},
		{of + "aws: {}}}", in(`{"aws":{"roleARN":"arn:aws:iam::123456789012:role/moult"}}`), ""},
		{of + "aws: {region: eu-west-1}}}", in(`{"aws":{"region":"eu-west-2"}}`), "region can't be changed"},
		{of + "gcp: {project: project}}}", in(`{"gcp":{"project":"another"}}`), "project can't be changed"},
		{of + "gcp: {project: project, locations: [europe-west1, europe-west2]}}}", in(`{"gcp":{"locations":["europe-west2","europe-west1"]}}`), ""},
		{of + "gcp: {project: project, locations: [europe-west1]}}}", in(`{"gcp":{"locations":["europe-west2"]}}`), "locations can't be changed"},
	} {
		o := object(t, v1alpha1.GroupVersion, "NodeRollout", tc.spec)
		s.create(t, o)
		err := s.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.change+`}`)), client.DryRunAll)
		expect(t, admission{tc.spec + " to " + tc.change, tc.want}, err)
		if err := s.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// create stores an object with its status until the test ends.
func (s *server) create(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	status := o.Object["status"]
	if err := s.Create(t.Context(), o, client.FieldValidation("Strict")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Delete(context.WithoutCancel(t.Context()), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	if status != nil {
		o.Object["status"] = status
		if err := s.Status().Update(t.Context(), o, client.FieldValidation("Strict")); err != nil {
			t.Fatal(err)
		}
	}
}

// manifest is a block of YAML in a page, with the indentation of its fences.
var manifest = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")

// The API server admits every manifest of the documentation. Some pages show only a part of a spec.
func (s *server) docs(t *testing.T) {
	rollout := object(t, v1alpha1.GroupVersion, "NodeRollout", host+"{}")
	replacement := object(t, v1alpha1.GroupVersion, "NodeRollout", replaces+"{provider: {azure: {}}}")
	parts := map[string]*unstructured.Unstructured{
		"guides/budgets.md":       object(t, v1alpha1.GroupVersion, "NodeDisruptionBudget"),
		"guides/os-patches.md":    rollout,
		"guides/strategy.md":      rollout,
		"moving-from/ducklett.md": replacement,
	}
	var pages []string
	err := filepath.WalkDir("../../docs", func(page string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(page, ".md") {
			pages = append(pages, page)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]int{}
	for _, page := range append(pages, "../../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(filepath.ToSlash(page), "../../docs/")
		for _, block := range manifest.FindAllStringSubmatch(string(raw), -1) {
			block := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
			for text := range strings.SplitSeq(block, "---\n") {
				o := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
					t.Errorf("%s: %v\n%s", page, err, text)
					continue
				}
				part := parts[name]
				if part != nil && o.Object["spec"] != nil && o.GetKind() == "" {
					complete(o.Object, part.Object)
				}
				switch o.GroupVersionKind().GroupVersion() {
				case v1alpha1.GroupVersion:
				case upgradev1.GroupVersion, edsv1.GroupVersion:
					o.SetNamespace(metav1.NamespaceDefault)
				default:
					continue
				}
				shown[name]++
				expect(t, admission{page + "\n" + text, ""}, s.admit(t, o))
			}
		}
	}
	for page := range parts {
		if shown[page] == 0 {
			t.Errorf("%s has no manifest", page)
		}
	}
}

// complete sets the fields that an object lacks.
func complete(o, from map[string]any) {
	for key, value := range from {
		fields, isMap := o[key].(map[string]any)
		if o[key] == nil {
			o[key] = runtime.DeepCopyJSONValue(value)
		} else if more, ok := value.(map[string]any); ok && isMap {
			complete(fields, more)
		}
	}
}

// peers stores an object with every field of each kind that Moult takes over, and shows it as kubectl does.
func (s *server) peers(t *testing.T) {
	for name, columns := range map[string][]any{
		"plans":              {"full", "registry.example.com/upgrade:v2.7.1", "https://releases.example.com/channels/stable", "v2.7.1", "False", "worker-7 is under way", `["worker-7"]`},
		"extendeddaemonsets": {"collector", int64(9), int64(9), int64(8), int64(2), int64(7), int64(1), "Canary", "ImagePullBackOff", "collector-x7k2p", "collector-m4q9z"},
		"extendeddaemonsetreplicasets": {
			"collector-x7k2p", "active", int64(9), int64(9), int64(8), int64(7), int64(1),
			`{"matchExpressions":[{"key":"tier","operator":"In","values":["node"]}],"matchLabels":{"app":"collector"}}`,
		},
		"extendeddaemonsetsettings": {
			"large-nodes", "error", `{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}],"matchLabels":{"size":"large"}}`,
			"another setting selects the same nodes",
		},
	} {
		raw, err := os.ReadFile("../../config/crd/testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		want := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(raw, &want.Object); err != nil {
			t.Fatal(err)
		}
		got := want.DeepCopy()
		got.SetNamespace(metav1.NamespaceDefault)
		s.create(t, got)
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			t.Fatal(err)
		}
		equal(t, name+": spec", want.Object["spec"], got.Object["spec"])
		equal(t, name+": status", want.Object["status"], got.Object["status"])

		if cells := s.table(t, want.GroupVersionKind().GroupVersion(), name, want.GetName()); len(cells) > 0 {
			equal(t, name+": columns", columns, cells[:len(cells)-1]) // The last one is the age.
		}
	}
}

// table returns the cells of an object's row in kubectl get.
func (s *server) table(t *testing.T, version schema.GroupVersion, plural, name string) []any {
	t.Helper()
	config := s.cluster.Config()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("%s/apis/%s/namespaces/default/%s/%s", config.Host, version, plural, name)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(response.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%s has %d rows", url, len(table.Rows))
	}
	return table.Rows[0].Cells
}

// An object that was stored under ExtendedDaemonSet's definition can still be changed, although ours refuses some of its
// fields. A change of such a field must make it valid. A copy of our definition without rules replaces theirs here.
func (s *server) stored(t *testing.T) {
	invalid := object(t, schema.GroupVersion{Group: s.copied.Spec.Group, Version: "v1alpha1"}, "ExtendedDaemonSet", `
selector: {matchExpressions: [{key: a, operator: Equals}]}
strategy:
  canary: {replicas: 0, validationMode: manual, duration: 10m0s, autoPause: {maxRestarts: 9}}
  rollingUpdate: {maxUnavailable: 0, slowStartIntervalDuration: 0s}
template: {spec: {restartPolicy: Never, containers: [{name: daemon, image: x}]}}
`)
	invalid.SetNamespace(metav1.NamespaceDefault)
	s.create(t, invalid.DeepCopy())

	now := &apiextensionsv1.CustomResourceDefinition{}
	eventually(t, func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKeyFromObject(s.copied), now); err != nil {
			return err
		}
		now.Spec = s.copied.Spec
		return s.Update(ctx, now)
	})
	eventually(t, func(ctx context.Context) error {
		if err := s.Create(ctx, invalid.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("our definition is not served: %w", err)
		}
		return nil
	})
	for _, change := range []admission{
		{`{"metadata":{"labels":{"a":"b"}}}`, ""},
		{`{"spec":{"minReadySeconds":1}}`, ""},
		{`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":"0%"}}}}`, "maxUnavailable"},
		{`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":1}}}}`, ""},
	} {
		expect(t, change, s.Patch(t.Context(), invalid.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change.spec))))
	}
	expect(t, admission{"status", ""}, s.Status().Patch(t.Context(), invalid.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(
		`{"status":{"activeReplicaSet":"a","available":1,"current":1,"desired":1,"ignoredUnresponsiveNodes":0,"ready":1,"upToDate":1}}`))))
}

// loosen removes all rules from a schema.
func loosen(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Enum, s.Pattern = nil, nil, ""
	s.Minimum, s.Maximum, s.MinLength, s.MaxLength, s.MinItems, s.MaxItems = nil, nil, nil, nil, nil, nil
	for name, field := range s.Properties {
		loosen(&field)
		s.Properties[name] = field
	}
	if s.Items != nil {
		loosen(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		loosen(s.AdditionalProperties.Schema)
	}
}
