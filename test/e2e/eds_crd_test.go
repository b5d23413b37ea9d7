// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

const edsPeer = "../../../shared/peers/extendeddaemonset"

// admit asks the API server whether it would take an object with these fields, with those of base where they say nothing.
func admit(t *testing.T, kind, base, spec, want string) {
	t.Helper()
	fields := map[string]any{}
	for _, text := range []string{base, spec} {
		if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "datadoghq.com/v1alpha1", "kind": kind,
		"metadata": map[string]any{"name": "admission", "namespace": "default"}, "spec": fields,
	}}
	err := world.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error is %v, want one with %q", err, want)
	}
}

func TestExtendedDaemonSetAdmission(t *testing.T) {
	t.Parallel()
	const (
		canary   = "spec.strategy.canary."
		rolling  = "spec.strategy.rollingUpdate."
		count0   = "must be a count of 0 or more, or a percentage from 0% to 100%"
		count1   = "must be a count of 1 or more, or a percentage from 1% to 100%"
		duration = "must be a duration of 0s or more, such as 30s, 10m or 1h30m"
		never    = ": Invalid value: must not be 0 unless maxSurge is more"
	)
	inCanary := func(fields string) string { return "strategy: {canary: {" + fields + "}}" }
	inRolling := func(fields string) string { return "strategy: {rollingUpdate: {" + fields + "}}" }
	inPod := func(fields string) string {
		return "template: {spec: {containers: [{name: daemon, image: x}], " + fields + "}}"
	}
	inContainer := func(fields string) string {
		return "template: {spec: {containers: [{name: daemon, image: x, " + fields + "}]}}"
	}
	long := strings.Repeat("x", 318)
	for _, tc := range []struct{ name, spec, want string }{
		{"least", "", ""},
		{"all fields", `
selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}, {key: e, operator: DoesNotExist}]}
minReadySeconds: 5
revisionHistoryLimit: 0
strategy:
  type: OnDelete
  reconcileFrequency: 10s
  rollingUpdate: {maxUnavailable: 1, maxSurge: 0, maxPodSchedulerFailure: 10%, maxParallelPodCreation: 250,
    slowStartIntervalDuration: 1m0s, slowStartAdditiveIncrease: 1%}
  canary: {replicas: 1, duration: 10m0s, noRestartsDuration: 5m0s, validationMode: auto, nodeSelector: {matchLabels: {}},
    nodeAntiAffinityKeys: [a, topology.kubernetes.io/zone], autoPause: {enabled: true, maxRestarts: 2, maxSlowStartDuration: 1m},
    autoFail: {enabled: true, maxRestarts: 5, maxRestartsDuration: 10m, canaryTimeout: 20m}}
  order: [{by: Zone}]
  waves: [{name: a, size: 1, soak: 1h, approval: Manual}, {nodeSelector: {matchLabels: {a: b}}}]
  soak: 1m
  maxFailures: 0
  windows: [{schedule: '@daily', duration: 2h}]
  paused: true
`, ""},
		{"no template", "template:", "spec.template: Required value"},
		{"no strategy", "strategy:", "spec.strategy: Required value"},
		{"unknown field", inCanary("replica: 1"), `unknown field "` + canary + `replica"`},

		{"operator", "selector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.selector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
		{"in without values", "selector: {matchExpressions: [{key: a, operator: In}]}", "spec.selector: Invalid value: values must be given"},
		{"exists with values", "selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "spec.selector: Invalid value: values must be given"},
		{"ready for less than nothing", "minReadySeconds: -1", "spec.minReadySeconds: Invalid value: -1"},
		{"ready for longer than fits", "minReadySeconds: 2147483648", "spec.minReadySeconds: Invalid value: 2147483648"},
		{"less than no history", "revisionHistoryLimit: -1", "spec.revisionHistoryLimit: Invalid value: -1"},

		{"type", "strategy: {type: Recreate}", `spec.strategy.type: Unsupported value: "Recreate": supported values: "RollingUpdate", "OnDelete"`},
		{"frequency 0", "strategy: {reconcileFrequency: 0s}", ""},
		{"frequency without a unit", "strategy: {reconcileFrequency: '10'}", `spec.strategy.reconcileFrequency: Invalid value: "10": ` + duration},
		{"frequency as a number", "strategy: {reconcileFrequency: 10}", `spec.strategy.reconcileFrequency: Invalid value: "integer"`},
		{"negative soak", "strategy: {soak: -1s}", `spec.strategy.soak: Invalid value: "-1s": ` + duration},
		{"soak in days", "strategy: {soak: 1d}", `spec.strategy.soak: Invalid value: "1d": ` + duration},
		{"percentage of failures", "strategy: {maxFailures: 5%}", ""},
		{"less than no failure", "strategy: {maxFailures: -1}", "spec.strategy.maxFailures: Invalid value: -1: " + count0},
		{"waves of one name", "strategy: {waves: [{name: a, size: 1}, {name: a, size: 2}]}", "spec.strategy.waves: Invalid value: the names of waves must differ"},
		{"a wave with the canary's name", "strategy: {canary: {}, waves: [{name: a, size: 1}, {name: canary, size: 1}]}", "spec.strategy.waves: Invalid value: no wave may be called canary beside strategy.canary"},
		{"a wave called canary, without one", "strategy: {waves: [{name: canary, size: 1}]}", ""},
		{"empty wave", "strategy: {waves: [{name: a}]}", "spec.strategy.waves[0]: Invalid value: size or nodeSelector must be given"},
		{"many waves", "strategy: {waves: " + listOf(17, "{size: 1}") + "}", "spec.strategy.waves: Too many: 17: must have at most 16 items"},
		{"order by a label", "strategy: {order: [{by: Label}]}", "spec.strategy.order[0]: Invalid value: key must be given for by: Label"},
		{"window", "strategy: {windows: [{schedule: daily, duration: 2h}]}", "spec.strategy.windows[0].schedule: Invalid value: \"daily\": must be five fields of cron"},

		{"maxUnavailable", inRolling("maxUnavailable: 100%"), ""},
		{"maxUnavailable 0", inRolling("maxUnavailable: 0"), rolling + "maxUnavailable" + never},
		{"maxUnavailable 0%", inRolling("maxUnavailable: 0%"), rolling + "maxUnavailable" + never},
		{"maxUnavailable and maxSurge 0", inRolling("maxUnavailable: 0, maxSurge: 0"), rolling + "maxUnavailable" + never},
		{"maxUnavailable 0 and maxSurge 0%", inRolling("maxUnavailable: 0, maxSurge: 0%"), rolling + "maxUnavailable" + never},
		{"maxUnavailable 0 with maxSurge", inRolling("maxUnavailable: 0, maxSurge: 1"), ""},
		{"maxUnavailable 0% with maxSurge", inRolling("maxUnavailable: 0%, maxSurge: 10%"), ""},
		{"maxSurge", inRolling("maxSurge: 1"), ""},
		{"maxSurge 0", inRolling("maxSurge: 0"), ""},
		{"maxUnavailable with maxSurge 0%", inRolling("maxUnavailable: 1, maxSurge: 0%"), ""},
		{"maxUnavailable with maxSurge", inRolling("maxUnavailable: 1, maxSurge: 1"), rolling + "maxUnavailable: Invalid value: must be 0 or left out with maxSurge"},
		{"percentages of both", inRolling("maxUnavailable: 1%, maxSurge: 1%"), rolling + `maxUnavailable: Invalid value: must be 0 or left out with maxSurge`},
		{"negative maxUnavailable", inRolling("maxUnavailable: -1"), rolling + "maxUnavailable: Invalid value: -1: " + count0},
		{"too great maxUnavailable", inRolling("maxUnavailable: 2147483648"), rolling + "maxUnavailable: Invalid value: 2147483648: " + count0},
		{"maxUnavailable 101%", inRolling("maxUnavailable: 101%"), rolling + `maxUnavailable: Invalid value: "101%": ` + count0},
		{"maxUnavailable as text", inRolling("maxUnavailable: '1'"), rolling + `maxUnavailable: Invalid value: "1": ` + count0},
		{"maxSurge 101%", inRolling("maxSurge: 101%"), rolling + `maxSurge: Invalid value: "101%": ` + count0},
		{"maxPodSchedulerFailure 0", inRolling("maxPodSchedulerFailure: 0"), ""},
		{"negative maxPodSchedulerFailure", inRolling("maxPodSchedulerFailure: -1%"), rolling + `maxPodSchedulerFailure: Invalid value: "-1%": ` + count0},
		{"maxParallelPodCreation 0", inRolling("maxParallelPodCreation: 0"), rolling + "maxParallelPodCreation: Invalid value: 0: must be 1 or more"},
		{"interval 0", inRolling("slowStartIntervalDuration: 0s"), rolling + `slowStartIntervalDuration: Invalid value: "0s": must be a duration of more than 0s`},
		{"least interval", inRolling("slowStartIntervalDuration: 1ms"), ""},
		{"interval in words", inRolling("slowStartIntervalDuration: soon"), rolling + `slowStartIntervalDuration: Invalid value: "soon": must be a duration of more than 0s`},
		{"increase 0", inRolling("slowStartAdditiveIncrease: 0"), rolling + "slowStartAdditiveIncrease: Invalid value: 0: " + count1},
		{"increase 0%", inRolling("slowStartAdditiveIncrease: 0%"), rolling + `slowStartAdditiveIncrease: Invalid value: "0%": ` + count1},
		{"increase 1%", inRolling("slowStartAdditiveIncrease: 1%"), ""},

		{"canary", "strategy: {canary: {}}", ""},
		{"replicas 0", inCanary("replicas: 0"), canary + "replicas: Invalid value: 0: " + count1},
		{"replicas 0%", inCanary("replicas: 0%"), canary + `replicas: Invalid value: "0%": ` + count1},
		{"replicas 100%", inCanary("replicas: 100%"), ""},
		{"replicas 1.5", inCanary("replicas: 1.5"), canary + "replicas"},
		{"duration 0", inCanary("duration: 0s"), ""},
		{"durations as Go writes them", inCanary("duration: 1h2m3.004005006s, noRestartsDuration: 100µs"), ""},
		{"negative duration", inCanary("duration: -5m"), canary + `duration: Invalid value: "-5m": ` + duration},
		{"duration in words", inCanary("duration: five minutes"), canary + `duration: Invalid value: "five minutes": ` + duration},
		{"empty duration", inCanary("duration: ''"), canary + `duration: Invalid value: "": ` + duration},
		{"duration that does not fit", inCanary("duration: 9999999h"), canary + "duration: Invalid value"},
		{"long duration", inCanary("duration: " + strings.Repeat("1", 64) + "s"), canary + "duration: Too long: may not be more than 64"},
		{"noRestartsDuration", inCanary("noRestartsDuration: 5"), canary + "noRestartsDuration"},
		{"mode", inCanary("validationMode: none"), canary + `validationMode: Unsupported value: "none": supported values: "auto", "manual"`},
		{"manual", inCanary("validationMode: manual, replicas: 2"), ""},
		{"manual with a duration", inCanary("validationMode: manual, duration: 10m"), canary + `duration: Invalid value: must be left out with validationMode manual`},
		{"manual without restarts", inCanary("validationMode: manual, noRestartsDuration: 10m"), canary + `noRestartsDuration: Invalid value: must be left out with validationMode manual`},
		{"canary's operator", inCanary("nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}"), canary + "nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
		{"canary's values", inCanary("nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}"), canary + "nodeSelector: Invalid value: values must be given"},
		{"key", inCanary("nodeAntiAffinityKeys: [zone, 'a b']"), canary + `nodeAntiAffinityKeys[1]: Invalid value: "a b": must be the key of a label`},
		{"empty key", inCanary("nodeAntiAffinityKeys: ['']"), canary + `nodeAntiAffinityKeys[0]: Invalid value: "": must be the key of a label`},
		{"key twice", inCanary("nodeAntiAffinityKeys: [a, a]"), canary + `nodeAntiAffinityKeys[1]: Duplicate value: "a"`},
		{"long key", inCanary("nodeAntiAffinityKeys: [" + long + "]"), canary + "nodeAntiAffinityKeys[0]: Too long: may not be more than 317"},

		{"restarts equal", inCanary("autoPause: {maxRestarts: 5}"), ""},
		{"restarts of the pause alone", inCanary("autoPause: {maxRestarts: 6}"), canary + "autoFail.maxRestarts: Invalid value: must not be less than autoPause.maxRestarts: 5 and 2 where nothing is given"},
		{"restarts of the failure alone", inCanary("autoFail: {maxRestarts: 1}"), canary + "autoFail.maxRestarts: Invalid value: must not be less than autoPause.maxRestarts"},
		{"restarts of both", inCanary("autoPause: {maxRestarts: 4}, autoFail: {maxRestarts: 3}"), canary + "autoFail.maxRestarts: Invalid value: must not be less"},
		{"restarts, enabled", inCanary("autoPause: {enabled: true, maxRestarts: 4}, autoFail: {enabled: true, maxRestarts: 3}"), canary + "autoFail.maxRestarts: Invalid value: must not be less"},
		{"restarts without the pause", inCanary("autoPause: {enabled: false}, autoFail: {maxRestarts: 0}"), ""},
		{"restarts without the failure", inCanary("autoPause: {maxRestarts: 100}, autoFail: {enabled: false}"), ""},
		{"negative restarts of the pause", inCanary("autoPause: {maxRestarts: -1}"), canary + "autoPause.maxRestarts: Invalid value: -1: must be 0 or more"},
		{"negative restarts of the failure", inCanary("autoFail: {enabled: false, maxRestarts: -1}"), canary + "autoFail.maxRestarts: Invalid value: -1: must be 0 or more"},
		{"negative slow start", inCanary("autoPause: {maxSlowStartDuration: -1m}"), canary + `autoPause.maxSlowStartDuration: Invalid value: "-1m": ` + duration},
		{"negative restarting", inCanary("autoFail: {maxRestartsDuration: -1m}"), canary + `autoFail.maxRestartsDuration: Invalid value: "-1m": ` + duration},
		{"timeout", inCanary("duration: 5m, autoFail: {canaryTimeout: 5m1s}"), ""},
		{"timeout of the duration", inCanary("duration: 5m, autoFail: {canaryTimeout: 300s}"), canary + `autoFail.canaryTimeout: Invalid value: must be more than the canary's duration`},
		{"timeout, enabled", inCanary("duration: 5m, validationMode: auto, autoFail: {enabled: true, canaryTimeout: 4m}"), canary + `autoFail.canaryTimeout: Invalid value: must be more`},
		{"timeout of the default", inCanary("autoFail: {canaryTimeout: 10m}"), canary + `autoFail.canaryTimeout: Invalid value: must be more than the canary's duration: 10m where none is given`},
		{"timeout over the default", inCanary("autoFail: {canaryTimeout: 10m1s}"), ""},
		{"timeout, disabled", inCanary("autoFail: {enabled: false, canaryTimeout: 1m}"), ""},
		{"timeout, manual", inCanary("validationMode: manual, autoFail: {canaryTimeout: 1m}"), ""},
		{"two in words", inCanary("duration: soon, autoFail: {canaryTimeout: never}"), canary + `duration: Invalid value: "soon": ` + duration},
		{"two in words, the other", inCanary("duration: soon, autoFail: {canaryTimeout: never}"), canary + `autoFail.canaryTimeout: Invalid value: "never": ` + duration},
		{"timeout in words", inCanary("autoFail: {canaryTimeout: never}"), canary + `autoFail.canaryTimeout: Invalid value: "never": ` + duration},

		{"restartPolicy Always", inPod("restartPolicy: Always"), ""},
		{"restartPolicy OnFailure", inPod("restartPolicy: OnFailure"), `spec.template.spec.restartPolicy: Invalid value: must be Always or left out`},
		{"deadline", inPod("activeDeadlineSeconds: 60"), "spec.template.spec.activeDeadlineSeconds: Invalid value: must be left out"},
		{"no containers", "template: {spec: {}}", "spec.template.spec.containers: Required value"},
		{"two containers of one name", "template: {spec: {containers: [{name: a}, {name: a}]}}", "spec.template.spec.containers[1]: Duplicate value"},
		{"metadata", "template: {metadata: {name: x, creationTimestamp: null, labels: {a: b}, annotations: {c: d}}, spec: {containers: [{name: a}]}}", ""},
		{"port without a protocol", inContainer("ports: [{containerPort: 53}]"), ""},
		{"port of two protocols", inContainer("ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53}]"), ""},

		// What could not be read back would keep the operator from seeing any ExtendedDaemonSet.
		{"port that does not fit", inContainer("livenessProbe: {httpGet: {port: 2147483648}}"), "spec.template.spec.containers[0].livenessProbe.httpGet.port: Invalid value"},
		{"named port", inContainer("livenessProbe: {httpGet: {port: http}}"), ""},
		{"exponent", inContainer("resources: {limits: {cpu: 1e1.5}}"), "spec.template.spec.containers[0].resources.limits.cpu"},
		{"quantities", inContainer("resources: {limits: {cpu: 1, memory: 1.5Gi}, requests: {cpu: 100m, memory: '1e9'}}"), ""},
		{"grace that does not fit", inPod("terminationGracePeriodSeconds: 1e30"), "spec.template.spec.terminationGracePeriodSeconds"},
		{"user that does not fit", inPod("securityContext: {runAsUser: 9223372036854775808}"), "spec.template.spec.securityContext.runAsUser"},
		{"time", "template: {metadata: {creationTimestamp: '2026-11-21t17:09:42z'}, spec: {containers: [{name: a}]}}", "spec.template.metadata.creationTimestamp"},
		{"zone", "template: {metadata: {creationTimestamp: '2026-11-21T17:09:42+99:00'}, spec: {containers: [{name: a}]}}", "spec.template.metadata.creationTimestamp"},
		{"deletion", "template: {metadata: {deletionTimestamp: now}, spec: {containers: [{name: a}]}}", "spec.template.metadata.deletionTimestamp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			admit(t, "ExtendedDaemonSet", "{strategy: {}, template: {spec: {containers: [{name: daemon, image: x}]}}}", tc.spec, tc.want)
		})
	}
}

func TestExtendedDaemonsetSettingAdmission(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, spec, want string }{
		{"least", "", ""},
		{"containers", "containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {}}]", ""},
		{"no reference", "reference:", "spec.reference: Required value"},
		{"empty name", "reference: {kind: ExtendedDaemonSet, name: ''}", `spec.reference.name: Invalid value: must name an ExtendedDaemonSet of this namespace`},
		{"no kind", "reference: {name: x}", "spec.reference.kind: Required value"},
		{"no selector", "nodeSelector:", "spec.nodeSelector: Required value"},
		{"operator", "nodeSelector: {matchExpressions: [{key: a, operator: Is}]}", "spec.nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
		{"values", "nodeSelector: {matchExpressions: [{key: a, operator: In}]}", "spec.nodeSelector: Invalid value: values must be given"},
		{"container twice", "containers: [{name: a, resources: {}}, {name: a, resources: {}}]", "spec.containers[1]: Duplicate value"},
		{"quantity", "containers: [{name: a, resources: {limits: {cpu: much}}}]", "spec.containers[0].resources.limits.cpu"},
		{"exponent", "containers: [{name: a, resources: {limits: {cpu: 1e1.5}}}]", "spec.containers[0].resources.limits.cpu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			admit(t, "ExtendedDaemonsetSetting", "{reference: {kind: ExtendedDaemonSet, name: x}, nodeSelector: {}}", tc.spec, tc.want)
		})
	}
}

// A name that is no label can't be on pods.
func TestExtendedDaemonSetNames(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]string{63: "", 64: "metadata.name must have at most 63 characters"} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{apiVersion: datadoghq.com/v1alpha1, kind: ExtendedDaemonSet, spec: {strategy: {}, template: {spec: {containers: [{name: a}]}}}}"), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace("default")
		o.SetName(strings.Repeat("x", length))
		err := world.Create(t.Context(), o, client.DryRunAll)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d characters: %v, want %q", length, err, want)
		}
	}
}

// What ExtendedDaemonSet publishes is accepted as it is, and nothing is put into it.
func TestExtendedDaemonSetPeerExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(edsPeer + "/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the published examples are not here")
	}
	for _, file := range files {
		if out, err := kubectl(t.Context(), "apply", "-n", "default", "--dry-run=server", "--validate=strict", "-f", file); err != nil {
			t.Errorf("%s is refused: %v\n%s", file, err, out)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = yaml.YAMLToJSON(raw); err != nil {
			t.Fatal(err)
		}
		want := &unstructured.Unstructured{}
		if err := want.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		got := want.DeepCopy()
		got.SetNamespace("default")
		if err := world.Create(t.Context(), got, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s is refused: %v", file, err)
		}
		if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s (-written +stored)\n%s", file, diff)
		}
	}
}

// leftBehind is what ExtendedDaemonSet has stored: its defaults are written into the spec, and a canary goes on.
const leftBehind = `
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata: {name: foo, namespace: default, annotations: {extendeddaemonset.datadoghq.com/canary-paused: "true"}}
spec:
  strategy:
    canary:
      autoFail: {canaryTimeout: 10m0s, enabled: true, maxRestarts: 5}
      autoPause: {enabled: true, maxRestarts: 5}
      duration: 5m0s
      noRestartsDuration: 5m0s
      nodeSelector: {matchLabels: {}}
      replicas: 1
      validationMode: auto
    reconcileFrequency: 10s
    rollingUpdate: {maxParallelPodCreation: 1, maxPodSchedulerFailure: 0, maxUnavailable: 2, slowStartAdditiveIncrease: 1, slowStartIntervalDuration: 1m0s}
  template:
    metadata: {creationTimestamp: null}
    spec:
      containers:
      - {name: daemon, image: registry.k8s.io/pause:3.1, resources: {}, ports: [{containerPort: 53, protocol: TCP}, {containerPort: 54}]}
      tolerations: [{operator: Exists}]
      volumes: [{name: a, azureDisk: {diskName: a, diskURI: b}}, {name: b, configMap: {}}]
status:
  {activeReplicaSet: foo-abcde, available: 3, current: 3, desired: 3, ignoredUnresponsiveNodes: 7, ready: 3, upToDate: 1, state: Canary Paused,
   reason: CrashLoopBackOff, canary: {nodes: [a], replicaSet: foo-fghij}, conditions: [{type: Canary-Paused, status: "True", reason: CrashLoopBackOff,
   lastTransitionTime: "2026-11-21T17:09:42Z", lastUpdateTime: "2026-11-21T17:09:42Z", message: "canary paused with ers: foo-fghij"}]}
---
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSetReplicaSet
metadata:
  name: foo-abcde
  namespace: default
  annotations: {extendeddaemonset.datadoghq.com/templatehash: 4c39499a2fcd7faf13ffb5de242a44d9}
  labels: {extendeddaemonset.datadoghq.com/name: foo}
spec:
  selector: {matchLabels: {a: b}}
  templateGeneration: 4c39499a2fcd7faf13ffb5de242a44d9
  template:
    metadata: {creationTimestamp: null}
    spec: {containers: [{name: daemon, image: registry.k8s.io/pause:3.0, resources: {}}]}
status: {status: active, desired: 3, current: 3, ready: 3, available: 3, ignoredUnresponsiveNodes: 7, conditions: [{type: Active, status: "True",
  lastTransitionTime: "2026-11-21T17:09:42Z", lastUpdateTime: "2026-11-21T17:09:42Z"}]}
---
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonsetSetting
metadata: {name: foo, namespace: default}
spec: {reference: {kind: ExtendedDaemonSet, name: foo}, nodeSelector: {matchLabels: {a: b}}, containers: [{name: daemon, resources: {limits: {cpu: 1}}}]}
status: {status: error, error: "conflict with another ExtendedDaemonsetSetting: bar"}
---
# What ExtendedDaemonSet takes and can't work with.
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata: {name: wrong, namespace: default}
spec:
  selector: {matchExpressions: [{key: a, operator: Equals}]}
  strategy:
    canary: {replicas: 0, validationMode: manual, duration: 10m0s, autoPause: {maxRestarts: 9}}
    rollingUpdate: {maxUnavailable: 0, slowStartIntervalDuration: 0s}
  template:
    spec: {restartPolicy: Never, containers: [{name: daemon, image: registry.k8s.io/pause:3.0}]}
status: {activeReplicaSet: "", available: 0, current: 0, desired: 0, ignoredUnresponsiveNodes: 0, ready: 0, upToDate: 0}
`

// warnings are what the API server said beside its answers.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// What ExtendedDaemonSet stored under its own definitions stays as it is under ours, also what ours would not take, and can be
// written to. The definitions come in by `kubectl apply`.
func TestExtendedDaemonSetDefinitionsTakeOver(t *testing.T) {
	t.Parallel()
	theirs, err := filepath.Glob(edsPeer + "/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(theirs) == 0 {
		t.Skip("ExtendedDaemonSet's definitions are not here")
	}
	own := cluster.New(t, cluster.Options{})
	programs, err := cluster.Binaries(t.Context(), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), programs["kubectl"], append([]string{"--kubeconfig", own.Kubeconfig()}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	scheme := runtime.NewScheme()
	if err := edsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var warned warnings
	config := own.Config()
	config.WarningHandler = &warned
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	established := func() {
		t.Helper()
		run("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	}
	for _, file := range theirs {
		run("create", "-f", file)
	}
	established()
	var stored []*unstructured.Unstructured
	for text := range strings.SplitSeq(leftBehind, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		status := o.Object["status"]
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if status != nil {
			o.Object["status"] = status
			if err := c.Status().Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		stored = append(stored, o)
	}

	for range 2 {
		run("apply", "-f", "../../config/crd/datadoghq.com_extendeddaemonsets.yaml", "-f", "../../config/crd/datadoghq.com_extendeddaemonsetreplicasets.yaml",
			"-f", "../../config/crd/datadoghq.com_extendeddaemonsetsettings.yaml")
	}
	established()
	eventually(t, "our definitions are served", func(context.Context) (string, bool) {
		out, err := exec.CommandContext(t.Context(), programs["kubectl"], "--kubeconfig", own.Kubeconfig(), "explain", "eds.spec.minReadySeconds").CombinedOutput()
		return string(out), err == nil
	})
	for _, want := range stored {
		got := want.DeepCopy()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Object, got.Object); diff != "" {
			t.Errorf("%s %s (-before +after)\n%s", want.GetKind(), want.GetName(), diff)
		}
		if err := c.Patch(t.Context(), got, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
			t.Errorf("writing a label to %s %s: %v", want.GetKind(), want.GetName(), err)
		}
		if want.GetKind() != "ExtendedDaemonSet" {
			continue
		}
		if err := c.Status().Patch(t.Context(), got, client.RawPatch(types.MergePatchType, []byte(`{"status":{"available":1}}`))); err != nil {
			t.Errorf("writing the status of %s: %v", want.GetName(), err)
		}
		if err := c.Patch(t.Context(), got, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minReadySeconds":1}}`))); err != nil {
			t.Errorf("writing another field of %s: %v", want.GetName(), err)
		}
	}
	var sets edsv1.ExtendedDaemonSetList
	var revisions edsv1.ExtendedDaemonSetReplicaSetList
	var settings edsv1.ExtendedDaemonsetSettingList
	for _, list := range []client.ObjectList{&sets, &revisions, &settings} {
		if err := c.List(t.Context(), list); err != nil {
			t.Errorf("reading them back: %v", err)
		}
	}

	// Whoever writes to the wrong one is told what is wrong, and nobody else.
	slices.Sort(warned)
	if diff := cmp.Diff(warnings{
		"spec.selector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist",
		"spec.strategy.canary.autoFail.maxRestarts: Invalid value: must not be less than autoPause.maxRestarts: 5 and 2 where nothing is given",
		"spec.strategy.canary.duration: Invalid value: must be left out with validationMode manual: the canary goes on until somebody validates it",
		"spec.strategy.canary.replicas: Invalid value: 0: must be a count of 1 or more, or a percentage from 1% to 100%",
		"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: must not be 0 unless maxSurge is more: no pod could ever be replaced",
		`spec.strategy.rollingUpdate.slowStartIntervalDuration: Invalid value: "0s": must be a duration of more than 0s, such as 30s, 10m or 1h30m`,
		"spec.template.spec.restartPolicy: Invalid value: must be Always or left out",
	}, slices.Compact(warned)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}

	// What is touched must be right, and can be put right by itself.
	wrong := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "datadoghq.com/v1alpha1", "kind": "ExtendedDaemonSet",
		"metadata": map[string]any{"name": "wrong", "namespace": "default"}}}
	err = c.Patch(t.Context(), wrong, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":"0%"}}}}`)))
	if err == nil || !strings.Contains(err.Error(), "maxUnavailable") {
		t.Errorf("maxUnavailable 0%%: %v", err)
	}
	if err := c.Patch(t.Context(), wrong, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":1}}}}`))); err != nil {
		t.Errorf("maxUnavailable 1: %v", err)
	}

	// People see what they saw, and the column that was always blank.
	for _, show := range []struct {
		args string
		want []string
	}{
		{"eds foo", []string{
			"NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "IGNORED UNRESPONSIVE NODES", "STATUS", "REASON", "ACTIVE RS", "CANARY RS", "AGE",
			"foo", "3", "3", "3", "1", "1", "7", "Canary Paused", "CrashLoopBackOff", "foo-abcde", "foo-fghij",
		}},
		{"ers foo-abcde", []string{
			"NAME", "STATUS", "DESIRED", "CURRENT", "READY", "AVAILABLE", "IGNORED UNRESPONSIVE NODES", "NODE SELECTOR", "AGE",
			"foo-abcde", "active", "3", "3", "3", "3", "7", `{"matchLabels":{"a":"b"}}`,
		}},
		{"extendeddaemonsetsettings foo", []string{
			"NAME", "STATUS", "NODE SELECTOR", "ERROR", "AGE",
			"foo", "error", `{"matchLabels":{"a":"b"}}`, "conflict with another ExtendedDaemonsetSetting: bar",
		}},
	} {
		var got []string
		for line := range strings.Lines(run(append([]string{"get"}, strings.Fields(show.args)...)...)) {
			for cell := range strings.SplitSeq(strings.TrimSpace(line), "   ") {
				if cell = strings.TrimSpace(cell); cell != "" {
					got = append(got, cell)
				}
			}
		}
		if len(got) > 0 { // The age.
			got = got[:len(got)-1]
		}
		if diff := cmp.Diff(show.want, got); diff != "" {
			t.Errorf("kubectl get %s (-want +got)\n%s", show.args, diff)
		}
	}

	// And all that ExtendedDaemonSet publishes goes through `kubectl apply`, twice.
	examples, err := filepath.Glob(edsPeer + "/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(examples, []string{"../../examples/extendeddaemonset.yaml"}) {
		run("apply", "-f", file)
		if out := run("apply", "-f", file); !strings.Contains(out, "unchanged") {
			t.Errorf("%s again: %s", file, out)
		}
	}
}
