// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

const (
	host     = "nodeSelector: {}\nhostUpdate: "
	drains   = host + "{}\ndrain: "
	health   = host + "{}\nhealth: "
	goes     = host + "{}\nstrategy: "
	selects  = "hostUpdate: {}\nnodeSelector: "
	labels   = "hostUpdate: {labelNodes: true}\nnodeSelector: "
	labelled = "hostUpdate.labelNodes labels nodes without an interface label, and this nodeSelector requires one: select the nodes by other labels"
	notAKey  = "must be the key of an annotation, such as storage.example.com/replicas-moved"
	ownKey   = "keys of moult.dev, bottlerocket.aws and thar.amazonaws.com are the operator's and its agents' own: use a key of another domain"
	negative = "must not be negative"
)

// hostUpdates are specs of NodeRollouts with hostUpdate.
var hostUpdates = []admission{
	{host + "{}", ""},
	{`
nodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}, {key: e, operator: NotIn, values: [f]}, {key: g, operator: Exists}, {key: h, operator: DoesNotExist}]}
strategy:
  maxConcurrent: 10%
  order: [{by: Zone}, {by: Label, key: k, values: [v]}]
  waves: [{name: canary, size: 1, soak: 1h, approval: Manual}, {size: 10%}, {nodeSelector: {matchLabels: {a: b}}}]
  soak: 5m
  maxFailures: 1
  rollback: true
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
	{host + "{detectOnly: true, minimumAge: 72h}", ""},
	{"{}", "spec.nodeSelector: Required value"},
	{"nodeSelector: {}", "spec: Invalid value: exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"},
	{host + "{labelNodes: true}", ""},
	{labels + "{matchLabels: {a: b}, matchExpressions: [{key: moult.dev/updater-interface-version, operator: NotIn, values: [sentinel]}]}", ""},
	{labels + "{matchLabels: {bottlerocket.aws/updater-interface-version: 2.0.0}}", "spec: Invalid value: " + labelled},
	{labels + "{matchExpressions: [{key: thar.amazonaws.com/platform-version, operator: Exists}]}", "spec: Invalid value: " + labelled},
	{host + "{versions: x}", `unknown field "spec.hostUpdate.versions"`},
	{selects + "{matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "spec.nodeSelector: Invalid value: operator must be In, NotIn, Exists or DoesNotExist"},
	{selects + "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},
	{host + "{version: 1.20.3-rc.1+build5}", ""},
	{host + "{version: '1.20'}", `spec.hostUpdate.version: Invalid value: "1.20": spec.hostUpdate.version in body should match`},
	{host + "{version: ''}", ""},
	{host + "{version: 1.20.3, minimumAge: 1h}", "spec.hostUpdate: Invalid value: minimumAge is for the newest version, and can't be set together with version"},
	{host + "{minimumAge: -1s}", `spec.hostUpdate.minimumAge: Invalid value: "-1s": ` + negative},
	{host + "{rebootTimeout: 999ms}", `spec.hostUpdate.rebootTimeout: Invalid value: "999ms": must be 1s or more`},
	{host + "{hooks: {beforeReboot: [a, A_b.c, Example.com/A, not-moult.dev/a, moult.dev.example.com/a], afterReboot: [moult.dev, x.bottlerocket.aws/a, " +
		strings.Repeat("d", 253) + "/" + strings.Repeat("n", 63) + "]}}", ""},
	{host + "{hooks: {beforeReboot: [a, 'all is well']}}", `spec.hostUpdate.hooks.beforeReboot[1]: Invalid value: "all is well": ` + notAKey},
	{host + "{hooks: {afterReboot: [example.com/a/b]}}", `spec.hostUpdate.hooks.afterReboot[0]: Invalid value: "example.com/a/b": ` + notAKey},
	{host + "{hooks: {beforeReboot: [example.com/]}}", notAKey},
	{host + "{hooks: {beforeReboot: [" + v1alpha1.AnnotationClaims + "]}}", `spec.hostUpdate.hooks.beforeReboot[0]: Invalid value: "moult.dev/claims": ` + ownKey},
	{host + "{hooks: {beforeReboot: [" + v1alpha1.LabelNodeRollout("a") + "]}}", ownKey},
	{host + "{hooks: {afterReboot: [" + v1alpha1.HostProtocols[0].Wanted + "]}}", ownKey},
	{host + "{hooks: {beforeReboot: [a, a]}}", `spec.hostUpdate.hooks.beforeReboot[1]: Duplicate value: "a"`},
	{drains + "{disabled: true}", ""},
	{drains + "{onTimeout: Skip}", "spec.drain: Invalid value: onTimeout needs timeout"},
	{drains + "{timeout: 1m, onTimeout: Wait}", `spec.drain.onTimeout: Unsupported value: "Wait": supported values: "Halt", "Skip", "Force"`},
	{drains + "{timeout: 0s}", `spec.drain.timeout: Invalid value: "0s": must be positive`},
	{host + "{excludeFromLoadBalancers: {wait: -1s}}", `spec.hostUpdate.excludeFromLoadBalancers.wait: Invalid value: "-1s": ` + negative},
	{health + "{pods: [{namespace: a}]}", "spec.health.pods[0].selector: Required value"},
	{health + "{conditions: [{type: Ready, status: Maybe}]}", `spec.health.conditions[0].status: Unsupported value: "Maybe"`},
	{goes + "{maxConcurrent: -1}", "spec.strategy.maxConcurrent: Invalid value: -1: must be a count of 0 or more, or a percentage from 0% to 100%"},
	{goes + "{order: [{by: Label}]}", "spec.strategy.order[0]: Invalid value: key must be given for by: Label"},
	{goes + "{order: [{by: Age}]}", `spec.strategy.order[0].by: Unsupported value: "Age"`},
	{goes + "{waves: [{name: a}]}", "spec.strategy.waves[0]: Invalid value: size or nodeSelector must be given"},
	{goes + "{waves: [{name: a, size: 1}, {name: a, size: 1}]}", "spec.strategy.waves: Invalid value: the names of waves must differ"},
	{goes + "{rollback: true}", "spec.strategy.rollback: Invalid value: rollback needs maxFailures or waves, which say when"},
	{goes + "{rollback: true, waves: [{size: 1}]}", ""},
	{goes + "{rollback: false}", ""},
	{goes + "{turnTimeout: 0s}", `spec.strategy.turnTimeout: Invalid value: "0s": must be positive`},
	{goes + "{soak: -1s}", `spec.strategy.soak: Invalid value: "-1s": ` + negative},
	{goes + "{windows: [{schedule: '0 22 * *', duration: 2h}]}", "spec.strategy.windows[0].schedule"},
	// CEL cannot parse these. The condition reports them.
	{goes + "{windows: [{schedule: '@daily', duration: 2h, timeZone: Nowhere}]}", ""},
	{drains + "{podSelector: {matchExpressions: [{key: a, operator: Equals}]}}", ""},
}
