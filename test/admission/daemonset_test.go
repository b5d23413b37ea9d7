// SPDX-License-Identifier: Apache-2.0

package admission

const (
	canary   = "spec.strategy.canary."
	rolling  = "spec.strategy.rollingUpdate."
	count0   = "must be a count of 0 or more, or a percentage from 0% to 100%"
	count1   = "must be a count of 1 or more, or a percentage from 1% to 100%"
	duration = "must be a duration of 0s or more, such as 30s, 10m or 1h30m"
	never    = ": Invalid value: must not be 0 unless maxSurge is more"
)

func inCanary(fields string) string { return "strategy: {canary: {" + fields + "}}" }

func inRolling(fields string) string { return "strategy: {rollingUpdate: {" + fields + "}}" }

func inPod(fields string) string {
	return "template: {spec: {containers: [{name: daemon, image: x}], " + fields + "}}"
}

func inContainer(fields string) string {
	return "template: {spec: {containers: [{name: daemon, image: x, " + fields + "}]}}"
}

// daemonSets are specs of ExtendedDaemonSets, with a template and an empty strategy where they have none.
var daemonSets = []admission{
	{"", ""},
	{`
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
	{"template:", "spec.template: Required value"},
	{"strategy:", "spec.strategy: Required value"},
	{inCanary("replica: 1"), `unknown field "` + canary + `replica"`},
	{"selector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.selector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
	{"selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "spec.selector: Invalid value: values must be given"},
	{"minReadySeconds: -1", "spec.minReadySeconds: Invalid value: -1"},
	{"revisionHistoryLimit: -1", "spec.revisionHistoryLimit: Invalid value: -1"},
	{"strategy: {type: Recreate}", `spec.strategy.type: Unsupported value: "Recreate": supported values: "RollingUpdate", "OnDelete"`},
	{"strategy: {reconcileFrequency: '10'}", `spec.strategy.reconcileFrequency: Invalid value: "10": ` + duration},
	{"strategy: {maxFailures: -1}", "spec.strategy.maxFailures: Invalid value: -1: " + count0},
	{"strategy: {waves: [{name: a, size: 1}, {name: a, size: 2}]}", "spec.strategy.waves: Invalid value: the names of waves must differ"},
	{"strategy: {canary: {}, waves: [{name: a, size: 1}, {name: canary, size: 1}]}", "spec.strategy.waves: Invalid value: no wave may be called canary beside strategy.canary"},
	{"strategy: {waves: [{name: canary, size: 1}]}", ""},
	{"strategy: {waves: [{name: a}]}", "spec.strategy.waves[0]: Invalid value: size or nodeSelector must be given"},
	{"strategy: {order: [{by: Label}]}", "spec.strategy.order[0]: Invalid value: key must be given for by: Label"},
	{"strategy: {windows: [{schedule: daily, duration: 2h}]}", "spec.strategy.windows[0].schedule: Invalid value: \"daily\": must be five fields of cron"},
	{inRolling("maxUnavailable: 0"), rolling + "maxUnavailable" + never},
	{inRolling("maxUnavailable: 0, maxSurge: 0%"), rolling + "maxUnavailable" + never},
	{inRolling("maxUnavailable: 0, maxSurge: 1"), ""},
	{inRolling("maxUnavailable: 1, maxSurge: 1"), rolling + "maxUnavailable: Invalid value: must be 0 or left out with maxSurge"},
	{inRolling("maxUnavailable: -1"), rolling + "maxUnavailable: Invalid value: -1: " + count0},
	{inRolling("maxUnavailable: 101%"), rolling + `maxUnavailable: Invalid value: "101%": ` + count0},
	{inRolling("maxSurge: 101%"), rolling + `maxSurge: Invalid value: "101%": ` + count0},
	{inRolling("maxPodSchedulerFailure: -1%"), rolling + `maxPodSchedulerFailure: Invalid value: "-1%": ` + count0},
	{inRolling("maxParallelPodCreation: 0"), rolling + "maxParallelPodCreation: Invalid value: 0: must be 1 or more"},
	{inRolling("slowStartIntervalDuration: 0s"), rolling + `slowStartIntervalDuration: Invalid value: "0s": must be a duration of more than 0s`},
	{inRolling("slowStartAdditiveIncrease: 0"), rolling + "slowStartAdditiveIncrease: Invalid value: 0: " + count1},
	{inCanary("replicas: 0"), canary + "replicas: Invalid value: 0: " + count1},
	{inCanary("duration: 1h2m3.004005006s, noRestartsDuration: 100µs"), ""},
	{inCanary("duration: -5m"), canary + `duration: Invalid value: "-5m": ` + duration},
	{inCanary("duration: five minutes"), canary + `duration: Invalid value: "five minutes": ` + duration},
	{inCanary("validationMode: none"), canary + `validationMode: Unsupported value: "none": supported values: "auto", "manual"`},
	{inCanary("validationMode: manual, duration: 10m"), canary + `duration: Invalid value: must be left out with validationMode manual`},
	{inCanary("nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}"), canary + "nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
	{inCanary("nodeAntiAffinityKeys: [zone, 'a b']"), canary + `nodeAntiAffinityKeys[1]: Invalid value: "a b": must be the key of a label`},
	{inCanary("autoPause: {maxRestarts: 6}"), canary + "autoFail.maxRestarts: Invalid value: must not be less than autoPause.maxRestarts: 5 and 2 where nothing is given"},
	{inCanary("autoPause: {maxRestarts: 4}, autoFail: {maxRestarts: 3}"), canary + "autoFail.maxRestarts: Invalid value: must not be less"},
	{inCanary("autoPause: {enabled: false}, autoFail: {maxRestarts: 0}"), ""},
	{inCanary("duration: 5m, autoFail: {canaryTimeout: 5m1s}"), ""},
	{inCanary("duration: 5m, autoFail: {canaryTimeout: 300s}"), canary + `autoFail.canaryTimeout: Invalid value: must be more than the canary's duration`},
	{inCanary("autoFail: {canaryTimeout: 10m}"), canary + `autoFail.canaryTimeout: Invalid value: must be more than the canary's duration: 10m where none is given`},
	{inCanary("autoFail: {enabled: false, canaryTimeout: 1m}"), ""},
	{inCanary("validationMode: manual, autoFail: {canaryTimeout: 1m}"), ""},
	{inPod("restartPolicy: OnFailure"), `spec.template.spec.restartPolicy: Invalid value: must be Always or left out`},
	{inPod("activeDeadlineSeconds: 60"), "spec.template.spec.activeDeadlineSeconds: Invalid value: must be left out"},
	{"template: {spec: {}}", "spec.template.spec.containers: Required value"},
	{"template: {spec: {containers: [{name: a}, {name: a}]}}", "spec.template.spec.containers[1]: Duplicate value"},
	{inContainer("ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53}]"), ""},

	// The operator could not list ExtendedDaemonSets if one had a value that Go cannot read.
	{inContainer("livenessProbe: {httpGet: {port: 2147483648}}"), "spec.template.spec.containers[0].livenessProbe.httpGet.port: Invalid value"},
	{inContainer("resources: {limits: {cpu: 1, memory: 1.5Gi}, requests: {cpu: 100m, memory: '1e9'}}"), ""},
	{inPod("terminationGracePeriodSeconds: 1e30"), "spec.template.spec.terminationGracePeriodSeconds"},
	{"template: {metadata: {creationTimestamp: '2026-11-21t17:09:42z'}, spec: {containers: [{name: a}]}}", "spec.template.metadata.creationTimestamp"},
	{"template: {metadata: {deletionTimestamp: now}, spec: {containers: [{name: a}]}}", "spec.template.metadata.deletionTimestamp"},
	{"template: {metadata: {creationTimestamp: [null]}, spec: {containers: [{name: a}]}}", "spec.template.metadata.creationTimestamp"},
	{"template: {metadata: {creationTimestamp: '2026-02-30T00:00:00Z'}, spec: {containers: [{name: a}]}}", "spec.template.metadata.creationTimestamp"},
}

// settings are specs of ExtendedDaemonsetSettings, with a reference and an empty selector where they have none.
var settings = []admission{
	{"", ""},
	{"reference:", "spec.reference: Required value"},
	{"reference: {kind: ExtendedDaemonSet, name: ''}", `spec.reference.name: Invalid value: must name an ExtendedDaemonSet of this namespace`},
	{"reference: {name: x}", "spec.reference.kind: Required value"},
	{"nodeSelector:", "spec.nodeSelector: Required value"},
	{"nodeSelector: {matchExpressions: [{key: a, operator: Is}]}", "spec.nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
	{"containers: [{name: a, resources: {}}, {name: a, resources: {}}]", "spec.containers[1]: Duplicate value"},
	{"containers: [{name: a, resources: {limits: {cpu: much}}}]", "spec.containers[0].resources.limits.cpu"},
}
