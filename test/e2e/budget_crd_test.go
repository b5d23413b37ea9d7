// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// listOf repeats an item.
func listOf(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+", ", n), ", ") + "]"
}

func TestBudgetAdmission(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 318)
	const window = "windows: [{schedule: '0 22 * * 1-5', duration: 2h"
	const alerts = "gates: {alerts: {url: 'http://prometheus.monitoring:9090'"
	for _, tc := range []struct{ name, spec, want string }{
		{"empty", "{}", ""},
		{"all fields", `
selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}, {key: e, operator: DoesNotExist}]}
maxUnavailable: 10%
topologyKey: topology.kubernetes.io/zone
maxDomains: 2
windows: [{schedule: '0 22 * * 1-5', duration: 2h, timeZone: Europe/Berlin}, {schedule: '@daily', duration: 1m}]
paused: true
minReadySeconds: 60
gates:
  workloads: {selector: {matchLabels: {a: b}}, namespaceSelector: {}}
  pods: [{selector: {}, namespaceSelector: {matchLabels: {a: b}}, scope: Cluster}, {selector: {}, scope: Node}]
  alerts: {url: 'https://user@prometheus.monitoring:9090/base?x=y', allow: 'Watchdog|.*', firingOnly: true, whenUnreachable: Open, intervalSeconds: 60}
  nodes: {conditions: [{type: NetworkUnavailable, status: "False"}, {type: Ready, status: "True"}, {type: X, status: Unknown}], absentTaints: ['readiness.k8s.io/*']}
`, ""},
		{"unknown field", "maxUnavailabel: 1", `unknown field "spec.maxUnavailabel"`},

		{"count", "maxUnavailable: 0", ""},
		{"many", "maxUnavailable: 100000", ""},
		{"most", "maxUnavailable: 2147483647", ""},
		{"more than fits", "maxUnavailable: 2147483648", "spec.maxUnavailable: Invalid value: 2147483648: must be a count of 0 or more"},
		{"far more than fits", "minReadySeconds: 99999999999", "spec.minReadySeconds: Invalid value: 99999999999"},
		{"percent 0", "maxUnavailable: 0%", ""},
		{"percent 100", "maxUnavailable: 100%", ""},
		{"negative", "maxUnavailable: -1", "spec.maxUnavailable: Invalid value: -1: must be a count of 0 or more, or a percentage from 0% to 100%"},
		{"percent 101", "maxUnavailable: 101%", `spec.maxUnavailable: Invalid value: "101%": must be a count`},
		{"percent with zero", "maxUnavailable: 010%", `spec.maxUnavailable: Invalid value: "010%": must be a count`},
		{"number as text", "maxUnavailable: '3'", `spec.maxUnavailable: Invalid value: "3": must be a count`},
		{"word", "maxUnavailable: all", `spec.maxUnavailable: Invalid value: "all": must be a count`},
		{"fraction", "maxUnavailable: 1.5", "spec.maxUnavailable"},

		{"operator", "selector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.selector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
		{"in without values", "selector: {matchExpressions: [{key: a, operator: In}]}", "spec.selector: Invalid value: values must be given for the operators In and NotIn"},
		{"exists with values", "selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},

		{"domains without a key", "maxDomains: 1", "spec: Invalid value: maxDomains needs topologyKey, the label that names a node's domain"},
		{"no domains", "{topologyKey: zone, maxDomains: 0}", "spec.maxDomains: Invalid value: 0: spec.maxDomains in body should be greater than or equal to 1"},
		{"key", "topologyKey: zone", ""},
		{"empty key", "topologyKey: ''", "spec.topologyKey: Invalid value: \"\": spec.topologyKey in body should be at least 1 chars long"},
		{"long key", "topologyKey: " + long, "spec.topologyKey: Too long: may not be more than 317"},

		{"schedule missing", "windows: [{duration: 2h}]", "spec.windows[0].schedule: Required value"},
		{"duration missing", "windows: [{schedule: '@daily'}]", "spec.windows[0].duration: Required value"},
		{"four fields", "windows: [{schedule: '0 22 * *', duration: 2h}]", "spec.windows[0].schedule: Invalid value: \"0 22 * *\": must be five fields of cron"},
		{"zone in the schedule", "windows: [{schedule: 'TZ=UTC 0 22 * * *', duration: 2h}]", "the time zone goes in timeZone"},
		{"@every", "windows: [{schedule: '@every 1h', duration: 2h}]", "spec.windows[0].schedule"},
		{"short window", "windows: [{schedule: '@daily', duration: 59s}]", "spec.windows[0].duration: Invalid value: \"59s\": must be 1m or more"},
		{"no duration", "windows: [{schedule: '@daily', duration: soon}]", "spec.windows[0].duration"},
		{"long zone", window + ", timeZone: " + long + "}]", "spec.windows[0].timeZone: Too long: may not be more than 64"},
		{"many windows", "windows: " + listOf(17, "{schedule: '@daily', duration: 2h}"), "spec.windows: Too many: 17: must have at most 16 items"},

		{"ready for less than nothing", "minReadySeconds: -1", "spec.minReadySeconds: Invalid value: -1: spec.minReadySeconds in body should be greater than or equal to 0"},
		{"paused by a word", "paused: 'yes'", "spec.paused: Invalid value: \"string\""},

		{"pods without a selector", "gates: {pods: [{scope: Node}]}", "spec.gates.pods[0].selector: Required value"},
		{"scope", "gates: {pods: [{selector: {}, scope: Zone}]}", `spec.gates.pods[0].scope: Unsupported value: "Zone": supported values: "Node", "Cluster"`},
		{"many pods gates", "gates: {pods: " + listOf(17, "{selector: {}}") + "}", "spec.gates.pods: Too many: 17: must have at most 16 items"},

		{"alerts", alerts + "}}", ""},
		{"no URL", "gates: {alerts: {}}", "spec.gates.alerts.url: Required value"},
		{"half a URL", "gates: {alerts: {url: prometheus}}", `spec.gates.alerts.url: Invalid value: "prometheus": must be an http or https URL`},
		{"host and port", "gates: {alerts: {url: 'prometheus:9090'}}", "spec.gates.alerts.url: Invalid value: \"prometheus:9090\": must be an http or https URL"},
		{"another scheme", "gates: {alerts: {url: 'ftp://prometheus'}}", "must be an http or https URL"},
		{"no host", "gates: {alerts: {url: 'http:///x'}}", "must be an http or https URL"},
		{"long URL", "gates: {alerts: {url: 'http://" + strings.Repeat("x", 2048) + "'}}", "spec.gates.alerts.url: Too long: may not be more than 2048"},
		{"allow", alerts + ", allow: 'A|B'}}", ""},
		{"deny", alerts + ", deny: 'A|B'}}", ""},
		{"allow and deny", alerts + ", allow: A, deny: B}}", "spec.gates.alerts: Invalid value: allow and deny exclude each other"},
		{"empty allow", alerts + ", allow: ''}}", "spec.gates.alerts.allow: Invalid value: \"\": spec.gates.alerts.allow in body should be at least 1 chars long"},
		{"empty deny", alerts + ", deny: ''}}", "spec.gates.alerts.deny: Invalid value: \"\": spec.gates.alerts.deny in body should be at least 1 chars long"},
		// That an expression can be read is for the conditions to say: CEL has no way to ask.
		{"half an expression", alerts + ", deny: '['}}", ""},
		{"unreachable", alerts + ", whenUnreachable: Maybe}}", `spec.gates.alerts.whenUnreachable: Unsupported value: "Maybe": supported values: "Closed", "Open"`},
		{"no interval", alerts + ", intervalSeconds: 0}}", "spec.gates.alerts.intervalSeconds: Invalid value: 0: spec.gates.alerts.intervalSeconds in body should be greater than or equal to 1"},
		{"long interval", alerts + ", intervalSeconds: 3601}}", "spec.gates.alerts.intervalSeconds: Invalid value: 3601: spec.gates.alerts.intervalSeconds in body should be less than or equal to 3600"},

		{"condition without a type", "gates: {nodes: {conditions: [{status: 'True'}]}}", "spec.gates.nodes.conditions[0].type: Required value"},
		{"condition with an empty type", "gates: {nodes: {conditions: [{type: '', status: 'True'}]}}", "spec.gates.nodes.conditions[0].type: Invalid value: \"\""},
		{"condition without a status", "gates: {nodes: {conditions: [{type: Ready}]}}", "spec.gates.nodes.conditions[0].status: Required value"},
		{"condition with another status", "gates: {nodes: {conditions: [{type: Ready, status: Maybe}]}}", `spec.gates.nodes.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"`},
		{"long condition", fmt.Sprintf("gates: {nodes: {conditions: [{type: %s, status: 'True'}]}}", long), "spec.gates.nodes.conditions[0].type: Too long: may not be more than 317"},
		{"many conditions", "gates: {nodes: {conditions: " + listOf(17, "{type: Ready, status: 'True'}") + "}}", "spec.gates.nodes.conditions: Too many: 17: must have at most 16 items"},
		{"empty taint", "gates: {nodes: {absentTaints: ['']}}", "spec.gates.nodes.absentTaints[0]: Invalid value: \"\""},
		{"long taint", "gates: {nodes: {absentTaints: [" + long + "]}}", "spec.gates.nodes.absentTaints[0]: Too long: may not be more than 317"},
		{"many taints", "gates: {nodes: {absentTaints: " + listOf(33, "a") + "}}", "spec.gates.nodes.absentTaints: Too many: 33: must have at most 32 items"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fields := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.spec), &fields); err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "moult.dev/v1alpha1", "kind": "NodeDisruptionBudget",
				"metadata": map[string]any{"name": "admission"}, "spec": fields,
			}}
			err := world.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// What the documentation shows is admitted.
func TestBudgetDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/node-disruption-budget.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("the page has %d manifests", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		for manifest := range strings.SplitSeq(block, "---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
				t.Errorf("%v\n%s", err, manifest)
				continue
			}
			if o.GetKind() == "" { // Only the spec is shown.
				o.SetAPIVersion("moult.dev/v1alpha1")
				o.SetKind("NodeDisruptionBudget")
				o.SetName("docs")
			}
			if err := world.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%v\n%s", err, manifest)
			}
		}
	}
}
