// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
)

// replacementCases are specs of NodeRollouts with replacement, and what the API server says against them; nothing where they are admitted.
func replacementCases() []admission {
	const (
		replaces = "nodeSelector: {}\nreplacement: "
		azure    = replaces + "{provider: {azure: {}}, "
		of       = replaces + "{provider: {"
		tooLong  = "Too long: may not be more than 64"
		subID    = "00000000-1111-2222-3333-444444444444"
	)
	ages := func(field string) []admission {
		long := strings.Repeat("1s", 33)
		return []admission{
			{"long " + field, azure + field + ": " + long + "}", "spec.replacement." + field + ": " + tooLong},
			{field + " in days", azure + field + ": 3d}", "spec.replacement." + field},
			{field + " of nothing", azure + field + ": ''}", "spec.replacement." + field},
		}
	}
	all := []admission{
		{"minimal", replaces + "{provider: {azure: {}}}", ""},
		{"all fields", `
nodeSelector: {matchLabels: {a: b}}
replacement:
  provider: {azure: {subscriptionID: ` + subID + `, resourceGroup: rg, credential: Workload, clientID: ` + subID + `}}
  scaleSets: [a, b]
  imageMatch: OSImage
  surge: 10%
  onFull: DeleteFirst
  replacementReady: {timeout: 30m, startupTaints: [example.com/agent-not-ready]}
  keepFailedFor: 1h
  controlPlane: {etcd: External, leaveKubeadmConfig: true}
  kubernetesVersionFromImage: true
  detectOnly: true
  rollback: true
  excludeFromLoadBalancers: {disabled: true, wait: 30s}
  checkPeriod: 30s
`, ""},
		{"with hostUpdate", "hostUpdate: {}\n" + replaces + "{provider: {azure: {}}}", "exactly one of hostUpdate and replacement must be given"},
		{"with neither", "nodeSelector: {}", "exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"},
		{"no provider", replaces + "{}", "spec.replacement.provider: Required value"},
		{"unknown field", azure + "surges: 1}", `unknown field "spec.replacement.surges"`},

		{"a provider of nothing", of + "}}", "exactly one of azure, aws and gcp must be given"},
		{"two clouds", of + "azure: {}, aws: {}}}", "exactly one of azure, aws and gcp must be given"},
		{"three clouds", of + "azure: {}, aws: {}, gcp: {project: project}}}", "exactly one of azure, aws and gcp must be given"},
		{"aws", of + "aws: {}}}", ""},
		{"aws with all fields", of + "aws: {region: us-gov-east-1, roleARN: 'arn:aws-us-gov:iam::123456789012:role/path/moult'}}}", ""},
		{"gcp", of + "gcp: {project: project}}}", ""},
		{"gcp with all fields", of + "gcp: {project: 'example.com:my-project', locations: [europe-west1, europe-west1-b, europe-west12, europe-west10-a, us-central1-ai1a], serviceAccount: moult@p.iam.gserviceaccount.com}}}", ""},

		{"half a subscription", of + "azure: {subscriptionID: " + subID[:35] + "}}}", "spec.replacement.provider.azure.subscriptionID in body should match"},
		{"a subscription by name", of + "azure: {subscriptionID: production}}}", "spec.replacement.provider.azure.subscriptionID in body should match"},
		{"long resource group", of + "azure: {resourceGroup: " + strings.Repeat("g", 91) + "}}}", "spec.replacement.provider.azure.resourceGroup: Too long: may not be more than 90"},
		{"another credential", of + "azure: {credential: Cli}}}", `spec.replacement.provider.azure.credential: Unsupported value: "Cli": supported values: "Auto", "Environment", "Workload", "Managed"`},
		{"long client", of + "azure: {clientID: " + strings.Repeat("c", 65) + "}}}", "spec.replacement.provider.azure.clientID: " + tooLong},
		{"region", of + "aws: {region: Frankfurt}}}", "spec.replacement.provider.aws.region in body should match"},
		{"long region", of + "aws: {region: eu-" + strings.Repeat("x", 33) + "}}}", "spec.replacement.provider.aws.region: Too long: may not be more than 32"},
		{"a user for a role", of + "aws: {roleARN: 'arn:aws:iam::123456789012:user/u'}}}", "spec.replacement.provider.aws.roleARN in body should match"},
		{"no project", of + "gcp: {}}}", "spec.replacement.provider.gcp.project: Required value"},
		{"project", of + "gcp: {project: P}}}", "spec.replacement.provider.gcp.project in body should match"},
		{"location", of + "gcp: {project: project, locations: [europe]}}}", "spec.replacement.provider.gcp.locations[0] in body should match"},
		{"location twice", of + "gcp: {project: project, locations: [europe-west1, europe-west1]}}}", `spec.replacement.provider.gcp.locations[1]: Duplicate value: "europe-west1"`},
		{"many locations", of + "gcp: {project: project, locations: " + listOf(33, "europe-west1") + "}}}", "spec.replacement.provider.gcp.locations: Too many: 33: must have at most 32 items"},
		{"long account", of + "gcp: {project: project, serviceAccount: " + strings.Repeat("a", 254) + "}}}", "spec.replacement.provider.gcp.serviceAccount: Too long: may not be more than 253"},

		{"no scale sets", azure + "scaleSets: []}", ""},
		{"empty scale set", azure + "scaleSets: ['']}", "spec.replacement.scaleSets[0] in body should be at least 1 chars long"},
		{"long scale set", azure + "scaleSets: [" + strings.Repeat("s", 256) + "]}", "spec.replacement.scaleSets[0]: Too long: may not be more than 255"},
		{"scale set twice", azure + "scaleSets: [a, a]}", `spec.replacement.scaleSets[1]: Duplicate value: "a"`},
		{"many scale sets", azure + "scaleSets: " + numbered(65) + "}", "spec.replacement.scaleSets: Too many: 65: must have at most 64 items"},
		{"another match", azure + "imageMatch: Tag}", `spec.replacement.imageMatch: Unsupported value: "Tag": supported values: "ScaleSetModel", "OSImage"`},
		{"another onFull", azure + "onFull: Fail}", `spec.replacement.onFull: Unsupported value: "Fail": supported values: "Wait", "DeleteFirst"`},

		{"no surge", azure + "surge: 0}", ""},
		{"surge of none", azure + "surge: 0%}", ""},
		{"most surge", azure + "surge: 100}", ""},
		{"surge of all", azure + "surge: 100%}", ""},
		{"more surge", azure + "surge: 101}", "spec.replacement.surge: Invalid value: 101: must be a count from 0 to 100, or a percentage from 0% to 100%"},
		{"less surge", azure + "surge: -1}", "spec.replacement.surge: Invalid value: -1: must be a count from 0 to 100, or a percentage from 0% to 100%"},
		{"more than all", azure + "surge: 101%}", `spec.replacement.surge: Invalid value: "101%": must be a count from 0 to 100, or a percentage from 0% to 100%`},
		{"surge in words", azure + "surge: one}", `spec.replacement.surge: Invalid value: "one": must be a count from 0 to 100, or a percentage from 0% to 100%`},
		{"a count as text", azure + "surge: '5'}", `spec.replacement.surge: Invalid value: "5": must be a count from 0 to 100, or a percentage from 0% to 100%`},
		{"long surge", azure + "surge: '00010%'}", "spec.replacement.surge"},

		{"ready at any time", azure + "replacementReady: {}}", ""},
		{"ready at once", azure + "replacementReady: {timeout: 999ms}}", `spec.replacement.replacementReady.timeout: Invalid value: "999ms": must be 1s or more`},
		{"long timeout", azure + "replacementReady: {timeout: " + strings.Repeat("1s", 33) + "}}", "spec.replacement.replacementReady.timeout: " + tooLong},
		{"empty taint", azure + "replacementReady: {startupTaints: ['']}}", "spec.replacement.replacementReady.startupTaints[0] in body should be at least 1 chars long"},
		{"long taint", azure + "replacementReady: {startupTaints: [" + strings.Repeat("t", 318) + "]}}", "spec.replacement.replacementReady.startupTaints[0]: Too long: may not be more than 317"},
		{"taint twice", azure + "replacementReady: {startupTaints: [a, a]}}", `spec.replacement.replacementReady.startupTaints[1]: Duplicate value: "a"`},
		{"many taints", azure + "replacementReady: {startupTaints: " + numbered(17) + "}}", "spec.replacement.replacementReady.startupTaints: Too many: 17: must have at most 16 items"},

		{"kept for no time", azure + "keepFailedFor: 0s}", ""},
		{"kept for less", azure + "keepFailedFor: -1s}", `spec.replacement.keepFailedFor: Invalid value: "-1s": must not be negative`},
		{"looked at each second", azure + "checkPeriod: 1s}", ""},
		{"looked at all the time", azure + "checkPeriod: 0s}", `spec.replacement.checkPeriod: Invalid value: "0s": must be 1s or more`},
		{"control plane", azure + "controlPlane: {}}", ""},
		{"another etcd", azure + "controlPlane: {etcd: Managed}}", `spec.replacement.controlPlane.etcd: Unsupported value: "Managed": supported values: "Stacked", "External"`},
		{"wait for less than nothing", azure + "excludeFromLoadBalancers: {wait: -1s}}", `spec.replacement.excludeFromLoadBalancers.wait: Invalid value: "-1s": must not be negative`},
		{"detectOnly by a word", azure + "detectOnly: 'yes'}", `spec.replacement.detectOnly: Invalid value: "string"`},
	}
	return append(append(all, ages("keepFailedFor")...), ages("checkPeriod")...)
}

// admission is a spec, and what is said against it.
type admission struct{ name, spec, want string }

func TestReplacementAdmission(t *testing.T) {
	t.Parallel()
	for _, tc := range replacementCases() {
		t.Run(tc.name, func(t *testing.T) {
			err := world.Create(t.Context(), rolloutOf(t, "admission", tc.spec), client.DryRunAll, client.FieldValidation("Strict"))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// rolloutOf is a NodeRollout with this spec.
func rolloutOf(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeRollout", "metadata": map[string]any{"name": name}, "spec": fields,
	}}
}

// TestReplacementDefaults: what the API server fills in.
func TestReplacementDefaults(t *testing.T) {
	t.Parallel()
	o := rolloutOf(t, "defaults", "nodeSelector: {}\nreplacement: {provider: {azure: {}}, controlPlane: {}}")
	if err := world.Create(t.Context(), o, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"provider": map[string]any{"azure": map[string]any{"credential": "Auto"}}, "imageMatch": "ScaleSetModel", "surge": int64(1), "onFull": "Wait",
		"controlPlane": map[string]any{"etcd": "Stacked"},
	}
	got, _, _ := unstructured.NestedMap(o.Object, "spec", "replacement")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec.replacement (-want +got):\n%s", diff)
	}
}

// TestReplacementIsNoHostUpdate: one that is the one kind does not become the other, in whose middle its turns might be.
func TestReplacementIsNoHostUpdate(t *testing.T) {
	t.Parallel()
	o := rolloutOf(t, "was-host-update", "nodeSelector: {matchLabels: {a: none}}\nhostUpdate: {}")
	if err := world.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := world.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	}()
	err := world.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hostUpdate":null,"replacement":{"provider":{"azure":{}}}}}`)), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "hostUpdate and replacement can't take each other's place: make another NodeRollout") {
		t.Errorf("error is %v", err)
	}
}

// TestReplacementStaysInItsCloud: where scale sets are can't be changed, since turns are remembered by the names of sets and machines there. By whose rights
// they are changed can.
func TestReplacementStaysInItsCloud(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct{ provider, change, want string }{
		{"{azure: {}}", `{"azure":{"credential":"Managed","clientID":"c"}}`, ""},
		{"{azure: {clientID: c}}", `{"azure":{"clientID":null}}`, ""},
		{"{azure: {}}", `{"azure":null,"aws":{}}`, "the cloud can't be changed"},
		{"{azure: {}}", `{"azure":{"resourceGroup":"rg"}}`, "resourceGroup can't be changed"},
		{"{azure: {resourceGroup: rg}}", `{"azure":{"resourceGroup":"other"}}`, "resourceGroup can't be changed"},
		{"{azure: {resourceGroup: rg}}", `{"azure":{"resourceGroup":null}}`, "resourceGroup can't be changed"},
		{"{azure: {}}", `{"azure":{"subscriptionID":"00000000-1111-2222-3333-444444444444"}}`, "subscriptionID can't be changed"},
		{"{aws: {}}", `{"aws":{"roleARN":"arn:aws:iam::123456789012:role/moult"}}`, ""},
		{"{aws: {region: eu-west-1}}", `{"aws":{"region":"eu-west-2"}}`, "region can't be changed"},
		{"{gcp: {project: project}}", `{"gcp":{"serviceAccount":"moult@p.iam.gserviceaccount.com"}}`, ""},
		{"{gcp: {project: project}}", `{"gcp":{"project":"another"}}`, "project can't be changed"},
		{"{gcp: {project: project, locations: [europe-west1, europe-west2]}}", `{"gcp":{"locations":["europe-west2","europe-west1"]}}`, ""},
		{"{gcp: {project: project, locations: [europe-west1]}}", `{"gcp":{"locations":["europe-west2"]}}`, "locations can't be changed"},
	} {
		name := fmt.Sprintf("stays-%d", i)
		t.Run(name, func(t *testing.T) {
			o := rolloutOf(t, name, "nodeSelector: {matchLabels: {a: none}}\nreplacement: {detectOnly: true, provider: "+tc.provider+"}")
			if err := world.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := world.Delete(context.WithoutCancel(t.Context()), o); err != nil {
					t.Error(err)
				}
			}()
			body := []byte(`{"spec":{"replacement":{"provider":` + tc.change + `}}}`)
			err := world.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", body), client.DryRunAll)
			if got := fmt.Sprint(err); tc.want == "" && err != nil || tc.want != "" && !strings.Contains(got, tc.want) {
				t.Errorf("%s to %s: error is %v, want %q", tc.provider, tc.change, err, tc.want)
			}
		})
	}
}

// What the documentation shows is admitted.
func TestReplacementDocs(t *testing.T) {
	t.Parallel()
	for file, least := range map[string]int{"replacement.md": 2, "migrating-from-ducklett.md": 3} {
		page, err := os.ReadFile("../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(page), "```yaml\n")[1:]
		if len(blocks) < least {
			t.Fatalf("%s has %d manifests", file, len(blocks))
		}
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "```")
			for manifest := range strings.SplitSeq(block, "---\n") {
				o := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
					t.Errorf("%s: %v\n%s", file, err, manifest)
					continue
				}
				switch o.GetKind() {
				case "": // Only a part of the spec is shown.
					o.SetAPIVersion(v1alpha1.GroupVersion.String())
					o.SetKind("NodeRollout")
					o.SetName("docs")
					fill(t, o, map[string]any{}, "spec", "nodeSelector")
					fill(t, o, map[string]any{"azure": map[string]any{}}, "spec", "replacement", "provider")
				case "NodeRollout", "NodeDisruptionBudget":
					o.SetName("docs-" + o.GetName()) // Another test may have one of that name.
				default:
					continue // It is for kustomize, or of another program.
				}
				if err := world.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
					t.Errorf("%s: %v\n%s", file, err, manifest)
				}
			}
		}
	}
}

// fill sets a field that is absent.
func fill(t *testing.T, o *unstructured.Unstructured, value map[string]any, path ...string) {
	t.Helper()
	if _, is, _ := unstructured.NestedMap(o.Object, path...); is {
		return
	}
	if err := unstructured.SetNestedMap(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}
