// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
)

func TestNodeRolloutAdmission(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 318)
	const (
		host     = "nodeSelector: {}\nhostUpdate: "
		drains   = host + "{}\ndrain: "
		health   = host + "{}\nhealth: "
		goes     = host + "{}\nstrategy: "
		selects  = "hostUpdate: {}\nnodeSelector: "
		notAKey  = "must be the key of an annotation, such as storage.example.com/replicas-moved"
		ownKey   = "keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: take one of another domain"
		tooLong  = "Too long: may not be more than 64"
		negative = "must not be negative"
	)
	for _, tc := range []struct{ name, spec, want string }{
		{"minimal", host + "{}", ""},
		{"all fields", `
nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}, {key: e, operator: NotIn, values: [f]}, {key: g, operator: Exists}, {key: h, operator: DoesNotExist}]}
strategy:
  maxConcurrent: 10%
  order: [{by: Zone}, {by: Label, key: k, values: [v]}]
  waves: [{name: canary, size: 1, soak: 1h, approval: Manual}, {size: 10%}, {nodeSelector: {matchLabels: {a: b}}}]
  soak: 5m
  maxFailures: 1
  retries: {limit: 3, backoff: 1m, maxBackoff: 1h}
  turnTimeout: 1h
  windows: [{schedule: '0 22 * * 1-5', duration: 6h, timeZone: Europe/Berlin}]
  paused: true
  taintOutdated: true
drain:
  timeout: 20m
  onTimeout: Force
  force: true
  deleteEmptyDirData: false
  gracePeriodSeconds: 0
  disableEviction: true
  skipWaitForDeleteSeconds: 60
  podSelector: {matchLabels: {a: b}}
  waitForVolumeDetach: true
health:
  conditions: [{type: NetworkUnavailable, status: "False"}]
  absentTaints: ['readiness.k8s.io/*']
  minReadySeconds: 60
  pods: [{namespace: kube-system, selector: {matchLabels: {k8s-app: cilium}}, seconds: 60}, {selector: {}}]
hostUpdate:
  version: v1.20.3
  rebootTimeout: 30m
  excludeFromLoadBalancers: {disabled: true, wait: 30s}
  hooks: {beforeReboot: [example.com/a, example.com/b], afterReboot: [example.com/c]}
`, ""},
		{"detect only", host + "{detectOnly: true, minimumAge: 72h}", ""},

		{"no spec", "", "spec: Required value"},
		{"nothing", "{}", "spec.nodeSelector: Required value"},
		{"no hostUpdate", "nodeSelector: {}", "spec: Invalid value: exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"},
		{"unknown field", host + "{versions: x}", `unknown field "spec.hostUpdate.versions"`},

		{"operator", selects + "{matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
		{"in without values", selects + "{matchExpressions: [{key: a, operator: In}]}", "spec.nodeSelector: Invalid value: values must be given for the operators In and NotIn"},
		{"in with no values", selects + "{matchExpressions: [{key: a, operator: NotIn, values: []}]}", "spec.nodeSelector: Invalid value: values must be given for the operators In and NotIn"},
		{"exists with values", selects + "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},

		{"version", host + "{version: 1.20.3}", ""},
		{"version of a build", host + "{version: 1.20.3-rc.1+build5}", ""},
		{"half a version", host + "{version: '1.20'}", `spec.hostUpdate.version: Invalid value: "1.20": spec.hostUpdate.version in body should match`},
		{"latest", host + "{version: latest}", "spec.hostUpdate.version in body should match"},
		{"no version", host + "{version: ''}", ""},
		{"no version, and age", host + "{version: '', minimumAge: 1h}", ""},
		{"long version", host + "{version: 1.20.3-" + long + "}", "spec.hostUpdate.version: " + tooLong},
		{"version and age", host + "{version: 1.20.3, minimumAge: 1h}", "spec.hostUpdate: Invalid value: minimumAge is for the newest version, and can't stand beside version"},
		{"age", host + "{minimumAge: 0s}", ""},
		{"negative age", host + "{minimumAge: -1s}", `spec.hostUpdate.minimumAge: Invalid value: "-1s": ` + negative},
		{"age in days", host + "{minimumAge: 3d}", "spec.hostUpdate.minimumAge"},
		{"long age", host + "{minimumAge: " + strings.Repeat("1s", 33) + "}", "spec.hostUpdate.minimumAge: " + tooLong},
		{"reboot timeout", host + "{rebootTimeout: 1s}", ""},
		{"short reboot timeout", host + "{rebootTimeout: 999ms}", `spec.hostUpdate.rebootTimeout: Invalid value: "999ms": must be 1s or more`},
		{"long reboot timeout", host + "{rebootTimeout: " + strings.Repeat("1s", 33) + "}", "spec.hostUpdate.rebootTimeout: " + tooLong},
		{"no reboot timeout", host + "{rebootTimeout: soon}", "spec.hostUpdate.rebootTimeout"},
		{"detectOnly by a word", host + "{detectOnly: 'yes'}", `spec.hostUpdate.detectOnly: Invalid value: "string"`},
		{"no hooks", host + "{hooks: {}}", ""},
		{"empty hook", host + "{hooks: {beforeReboot: ['']}}", `spec.hostUpdate.hooks.beforeReboot[0]: Invalid value: "": spec.hostUpdate.hooks.beforeReboot[0] in body should be at least 1 chars long`},
		{"empty hook after", host + "{hooks: {afterReboot: ['']}}", "spec.hostUpdate.hooks.afterReboot[0] in body should be at least 1 chars long"},
		{"hooks", host + "{hooks: {beforeReboot: [a, A_b.c, Example.com/A, not-moult.dev/a, moult.dev.example.com/a], afterReboot: [moult.dev, x.bottlerocket.aws/a, " +
			strings.Repeat("d", 253) + "/" + strings.Repeat("n", 63) + "]}}", ""},
		{"hook of a sentence", host + "{hooks: {beforeReboot: [a, 'all is well']}}", `spec.hostUpdate.hooks.beforeReboot[1]: Invalid value: "all is well": ` + notAKey},
		{"hook of a path", host + "{hooks: {afterReboot: [example.com/a/b]}}", `spec.hostUpdate.hooks.afterReboot[0]: Invalid value: "example.com/a/b": ` + notAKey},
		{"hook without a name", host + "{hooks: {beforeReboot: [example.com/]}}", notAKey},
		{"hook without a domain", host + "{hooks: {beforeReboot: [/a]}}", notAKey},
		{"hook of half a domain", host + "{hooks: {afterReboot: [example..com/a]}}", notAKey},
		{"hook with a long name", host + "{hooks: {afterReboot: [example.com/" + strings.Repeat("n", 64) + "]}}", notAKey},
		{"hook with a long domain", host + "{hooks: {afterReboot: [" + strings.Repeat("d", 254) + "/a]}}", notAKey},
		{"hook of claims", host + "{hooks: {beforeReboot: [" + v1alpha1.AnnotationClaims + "]}}", `spec.hostUpdate.hooks.beforeReboot[0]: Invalid value: "moult.dev/claims": ` + ownKey},
		{"hook of a cordon", host + "{hooks: {afterReboot: [a, " + v1alpha1.AnnotationCordonedBy + "]}}", `spec.hostUpdate.hooks.afterReboot[1]: Invalid value: "moult.dev/cordoned-by": ` + ownKey},
		{"hook below moult.dev", host + "{hooks: {beforeReboot: [" + v1alpha1.LabelNodeRollout("a") + "]}}", ownKey},
		{"hook of Bottlerocket's", host + "{hooks: {afterReboot: [" + v1alpha1.HostProtocols[0].Wanted + "]}}", ownKey},
		{"hook of Dogswatch's", host + "{hooks: {beforeReboot: [" + v1alpha1.HostProtocols[1].Update + "]}}", ownKey},
		{"long hook", host + "{hooks: {beforeReboot: [" + long + "]}}", "spec.hostUpdate.hooks.beforeReboot[0]: Too long: may not be more than 317"},
		{"long hook after", host + "{hooks: {afterReboot: [" + long + "]}}", "spec.hostUpdate.hooks.afterReboot[0]: Too long: may not be more than 317"},
		{"hook twice", host + "{hooks: {beforeReboot: [a, a]}}", `spec.hostUpdate.hooks.beforeReboot[1]: Duplicate value: "a"`},
		{"hook twice after", host + "{hooks: {afterReboot: [a, a]}}", `spec.hostUpdate.hooks.afterReboot[1]: Duplicate value: "a"`},
		{"many hooks", host + "{hooks: {beforeReboot: " + numbered(17) + "}}", "spec.hostUpdate.hooks.beforeReboot: Too many: 17: must have at most 16 items"},
		{"many hooks after", host + "{hooks: {afterReboot: " + numbered(17) + "}}", "spec.hostUpdate.hooks.afterReboot: Too many: 17: must have at most 16 items"},

		{"drain", drains + "{}", ""},
		{"only cordon", drains + "{disabled: true}", ""},
		{"onTimeout alone", drains + "{onTimeout: Skip}", "spec.drain: Invalid value: onTimeout needs timeout"},
		{"another onTimeout", drains + "{timeout: 1m, onTimeout: Wait}", `spec.drain.onTimeout: Unsupported value: "Wait": supported values: "Halt", "Skip", "Force"`},
		{"no time", drains + "{timeout: 0s}", `spec.drain.timeout: Invalid value: "0s": must be positive`},
		{"long drain timeout", drains + "{timeout: " + strings.Repeat("1s", 33) + "}", "spec.drain.timeout: " + tooLong},
		{"negative grace period", drains + "{gracePeriodSeconds: -1}", "spec.drain.gracePeriodSeconds in body should be greater than or equal to 0"},
		{"skip at once", drains + "{skipWaitForDeleteSeconds: 0}", "spec.drain.skipWaitForDeleteSeconds in body should be greater than or equal to 1"},
		{"far too long to skip", drains + "{skipWaitForDeleteSeconds: 99999999999}", "spec.drain.skipWaitForDeleteSeconds"},
		{"negative wait", host + "{excludeFromLoadBalancers: {wait: -1s}}", `spec.hostUpdate.excludeFromLoadBalancers.wait: Invalid value: "-1s": ` + negative},
		{"long wait", host + "{excludeFromLoadBalancers: {wait: " + strings.Repeat("1s", 33) + "}}", "spec.hostUpdate.excludeFromLoadBalancers.wait: " + tooLong},

		{"health", health + "{}", ""},
		{"ready for less than nothing", health + "{minReadySeconds: -1}", "spec.health.minReadySeconds in body should be greater than or equal to 0"},
		{"ready for more than a day", health + "{minReadySeconds: 86401}", "spec.health.minReadySeconds in body should be less than or equal to 86400"},
		{"pods without a selector", health + "{pods: [{namespace: a}]}", "spec.health.pods[0].selector: Required value"},
		{"calm for less than nothing", health + "{pods: [{selector: {}, seconds: -1}]}", "spec.health.pods[0].seconds in body should be greater than or equal to 0"},
		{"calm for more than a day", health + "{pods: [{selector: {}, seconds: 86401}]}", "spec.health.pods[0].seconds in body should be less than or equal to 86400"},
		{"long namespace", health + "{pods: [{selector: {}, namespace: " + long + "}]}", "spec.health.pods[0].namespace: Too long: may not be more than 63"},
		{"many pods", health + "{pods: " + listOf(17, "{selector: {}}") + "}", "spec.health.pods: Too many: 17: must have at most 16 items"},
		{"condition without a status", health + "{conditions: [{type: Ready}]}", "spec.health.conditions[0].status: Required value"},
		{"condition with another status", health + "{conditions: [{type: Ready, status: Maybe}]}", `spec.health.conditions[0].status: Unsupported value: "Maybe"`},
		{"many conditions", health + "{conditions: " + listOf(17, "{type: Ready, status: 'True'}") + "}", "spec.health.conditions: Too many: 17: must have at most 16 items"},
		{"empty taint", health + "{absentTaints: ['']}", `spec.health.absentTaints[0]: Invalid value: ""`},
		{"many taints", health + "{absentTaints: " + listOf(33, "a") + "}", "spec.health.absentTaints: Too many: 33: must have at most 32 items"},

		{"concurrency", goes + "{maxConcurrent: -1}", "spec.strategy.maxConcurrent: Invalid value: -1: must be a count of 0 or more, or a percentage from 0% to 100%"},
		{"failures", goes + "{maxFailures: 101%}", `spec.strategy.maxFailures: Invalid value: "101%": must be a count`},
		{"order without a key", goes + "{order: [{by: Label}]}", "spec.strategy.order[0]: Invalid value: key must be given for by: Label"},
		{"another order", goes + "{order: [{by: Age}]}", `spec.strategy.order[0].by: Unsupported value: "Age"`},
		{"wave of nothing", goes + "{waves: [{name: a}]}", "spec.strategy.waves[0]: Invalid value: size or nodeSelector must be given"},
		{"two waves of a name", goes + "{waves: [{name: a, size: 1}, {name: a, size: 1}]}", "spec.strategy.waves: Invalid value: the names of waves must differ"},
		{"no retries", goes + "{retries: {limit: 0}}", "spec.strategy.retries.limit in body should be greater than or equal to 1"},
		{"no turn", goes + "{turnTimeout: 0s}", `spec.strategy.turnTimeout: Invalid value: "0s": must be positive`},
		{"negative soak", goes + "{soak: -1s}", `spec.strategy.soak: Invalid value: "-1s": ` + negative},
		{"four fields", goes + "{windows: [{schedule: '0 22 * *', duration: 2h}]}", "spec.strategy.windows[0].schedule"},
		// What only a parser can tell is for the conditions to say.
		{"another zone", goes + "{windows: [{schedule: '@daily', duration: 2h, timeZone: Nowhere}]}", ""},
		{"half a pod selector", drains + "{podSelector: {matchExpressions: [{key: a, operator: Equals}]}}", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fields := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.spec), &fields); err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "moult.dev/v1alpha1", "kind": "NodeRollout", "metadata": map[string]any{"name": "admission"}, "spec": fields,
			}}
			if tc.spec == "" {
				delete(o.Object, "spec")
			}
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

// numbered is a list of items that differ.
func numbered(n int) string {
	var items []string
	for i := range n {
		items = append(items, strings.Repeat("a", i+1))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// TestNodeRolloutName: a name is part of labels and taints, which are shorter than names may be.
func TestNodeRolloutName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		length int
		want   string
	}{{63, ""}, {64, "metadata.name must have at most 63 characters"}} {
		err := world.Create(t.Context(), &v1alpha1.NodeRollout{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", tc.length)}, Spec: v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}},
		}, client.DryRunAll)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("a name of %d characters: error is %v, want %q", tc.length, err, tc.want)
		}
	}
}

// TestNodeRolloutDefaults: the API server fills in one field, where there is a drain; all other defaults are for the operator.
func TestNodeRolloutDefaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		spec string
		want any
	}{
		{"nodeSelector: {}\nhostUpdate: {}", nil},
		{"nodeSelector: {}\nhostUpdate: {}\ndrain: {}", true},
		{"nodeSelector: {}\nhostUpdate: {}\ndrain: {deleteEmptyDirData: false}", false},
	} {
		fields := map[string]any{}
		if err := yaml.Unmarshal([]byte(tc.spec), &fields); err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "moult.dev/v1alpha1", "kind": "NodeRollout", "metadata": map[string]any{"name": "defaults"}, "spec": fields,
		}}
		if err := world.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "drain", "deleteEmptyDirData"); got != tc.want {
			t.Errorf("%q: deleteEmptyDirData is %v, want %v", tc.spec, got, tc.want)
		}
	}
}

// What the documentation shows is admitted.
func TestNodeRolloutDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/noderollout.md")
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
			if o.GetKind() == "" { // Only a part of the spec is shown.
				o.SetAPIVersion(v1alpha1.GroupVersion.String())
				o.SetKind("NodeRollout")
				o.SetName("docs")
				for _, field := range []string{"nodeSelector", "hostUpdate"} {
					if _, is, _ := unstructured.NestedMap(o.Object, "spec", field); !is {
						if err := unstructured.SetNestedMap(o.Object, map[string]any{}, "spec", field); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := world.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%v\n%s", err, manifest)
			}
		}
	}
}
