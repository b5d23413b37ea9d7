// SPDX-License-Identifier: Apache-2.0

package admission

const alerts = "gates: {alerts: {url: 'http://prometheus.monitoring:9090'"

// budgets are specs of NodeDisruptionBudgets.
var budgets = []admission{
	{"{}", ""},
	{`
selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}, {key: e, operator: DoesNotExist}]}
maxUnavailable: 10%
topologyKey: topology.kubernetes.io/zone
maxDomains: 2
windows: [{schedule: '0 22 * * 1-5', duration: 2h, timeZone: Europe/Berlin}, {schedule: '@daily', duration: 1m}]
paused: true
minReadySeconds: 60
counts: [DaemonPods, Nodes]
gates:
  workloads:
    selector: {matchLabels: {a: b}}
    namespaceSelector: {}
    kinds: [{apiVersion: a.b/v1, kind: Cluster}, {apiVersion: v1, kind: C, desired: spec.instances, ready: status.pods.up-now}]
  pods: [{selector: {}, namespaceSelector: {matchLabels: {a: b}}, scope: Cluster}, {selector: {}, scope: Node}]
  alerts: {url: 'https://user@prometheus.monitoring:9090/base?x=y', allow: 'Watchdog|.*', firingOnly: true, whenUnreachable: Open, intervalSeconds: 60}
  nodes: {conditions: [{type: NetworkUnavailable, status: "False"}, {type: Ready, status: "True"}, {type: X, status: Unknown}], absentTaints: ['readiness.k8s.io/*']}
`, ""},
	{"maxUnavailabel: 1", `unknown field "spec.maxUnavailabel"`},
	{"maxUnavailable: 2147483648", "spec.maxUnavailable: Invalid value: 2147483648: must be a count of 0 or more"},
	{"maxUnavailable: -1", "spec.maxUnavailable: Invalid value: -1: must be a count of 0 or more, or a percentage from 0% to 100%"},
	{"maxUnavailable: 101%", `spec.maxUnavailable: Invalid value: "101%": must be a count`},
	{"maxUnavailable: '3'", `spec.maxUnavailable: Invalid value: "3": must be a count`},
	{"selector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.selector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
	{"selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},
	{"maxDomains: 1", "spec: Invalid value: maxDomains needs topologyKey, the label that names a node's domain"},
	{"windows: [{schedule: '0 22 * *', duration: 2h}]", "spec.windows[0].schedule: Invalid value: \"0 22 * *\": must be five fields of cron"},
	{"windows: [{schedule: 'TZ=UTC 0 22 * * *', duration: 2h}]", "the time zone goes in timeZone"},
	{"windows: [{schedule: '@daily', duration: 59s}]", "spec.windows[0].duration: Invalid value: \"59s\": must be 1m or more"},
	{"counts: []", "spec.counts: Invalid value: 0: spec.counts in body should have at least 1 items"},
	{"counts: [Pods]", `spec.counts[0]: Unsupported value: "Pods": supported values: "Nodes", "DaemonPods"`},
	{"counts: [Nodes, Nodes]", `spec.counts[1]: Duplicate value: "Nodes"`},

	{"gates: {workloads: {kinds: [{apiVersion: a.b/v1}]}}", "spec.gates.workloads.kinds[0].kind: Required value"},
	{"gates: {workloads: {kinds: [{apiVersion: v1, kind: C, desired: metadata.generation}]}}", "spec.gates.workloads.kinds[0].desired: Invalid value"},
	{"gates: {pods: [{scope: Node}]}", "spec.gates.pods[0].selector: Required value"},
	{"gates: {pods: [{selector: {}, scope: Zone}]}", `spec.gates.pods[0].scope: Unsupported value: "Zone": supported values: "Node", "Cluster"`},
	{"gates: {alerts: {}}", "spec.gates.alerts.url: Required value"},
	{"gates: {alerts: {url: prometheus}}", `spec.gates.alerts.url: Invalid value: "prometheus": must be an http or https URL`},
	{"gates: {alerts: {url: 'http:///x'}}", "must be an http or https URL"},
	{"gates: {alerts: {url: 'HTTP://user:password@prometheus'}}", "must be an https URL to have credentials, which are better kept in a Secret: see secretName"},
	{"gates: {alerts: {url: 'http://prometheus/?at=a@b'}}", ""},
	{"gates: {alerts: {url: 'https://prometheus', secretName: moult-prometheus}}", ""},
	{"gates: {alerts: {url: 'https://prometheus', secretName: ../x}}", "spec.gates.alerts.secretName: Invalid value"},
	{alerts + ", secretName: moult-prometheus}}", "spec.gates.alerts: Invalid value: secretName needs an https URL: over http the credentials could be read on the way"},
	{alerts + ", allow: A, deny: B}}", "spec.gates.alerts: Invalid value: allow and deny exclude each other"},
	// CEL cannot parse a regular expression. The condition reports an invalid one.
	{alerts + ", deny: '['}}", ""},
	{alerts + ", whenUnreachable: Maybe}}", `spec.gates.alerts.whenUnreachable: Unsupported value: "Maybe": supported values: "Closed", "Open"`},
	{"gates: {nodes: {absentTaints: [node.kubernetes.io/unschedulable]}}", "must not be the taint of a cordon: rollouts cordon nodes"},
	{"gates: {nodes: {conditions: [{type: Ready, status: Maybe}]}}", `spec.gates.nodes.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"`},
}
