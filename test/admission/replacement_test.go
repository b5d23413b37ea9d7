// SPDX-License-Identifier: Apache-2.0

package admission

const (
	replaces = "nodeSelector: {}\nreplacement: "
	azure    = replaces + "{provider: {azure: {}}, "
	of       = replaces + "{provider: {"
	subID    = "00000000-1111-2222-3333-444444444444"
)

// replacements are specs of NodeRollouts with replacement.
var replacements = []admission{
	{replaces + "{provider: {azure: {}}}", ""},
	{`
nodeSelector: {matchLabels: {a: b}}
replacement:
  provider: {azure: {subscriptionID: ` + subID + `, resourceGroup: rg, credential: Workload, clientID: ` + subID + `}}
  scaleSets: [a, b]
  imageMatch: OSImage
  surge: 10%
  onFull: DeleteFirst
  replacementReady: {timeout: 30m, startupTaints: [example.com/agent-not-ready]}
  keepFailedFor: 1h
  controlPlane: {etcd: External}
  kubernetesVersionFromImage: true
  detectOnly: true
  rollback: true
  excludeFromLoadBalancers: {disabled: true, wait: 30s}
  checkPeriod: 30s
`, ""},
	{"hostUpdate: {}\n" + replaces + "{provider: {azure: {}}}", "exactly one of hostUpdate and replacement must be given"},
	{"nodeSelector: {}", "exactly one of hostUpdate and replacement must be given: hostUpdate: {} brings hosts to the newest version that they have to offer"},
	{replaces + "{}", "spec.replacement.provider: Required value"},
	{azure + "surges: 1}", `unknown field "spec.replacement.surges"`},
	{of + "}}", "exactly one of azure, aws and gcp must be given"},
	{of + "azure: {}, aws: {}}}", "exactly one of azure, aws and gcp must be given"},
	{of + "aws: {region: us-gov-east-1, roleARN: 'arn:aws-us-gov:iam::123456789012:role/path/moult'}}}", ""},
	{of + "gcp: {project: 'example.com:my-project', locations: [europe-west1, europe-west1-b, europe-west12, europe-west10-a, us-central1-ai1a], serviceAccount: moult@p.iam.gserviceaccount.com}}}", ""},
	{of + "azure: {subscriptionID: " + subID[:35] + "}}}", "spec.replacement.provider.azure.subscriptionID in body should match"},
	{of + "azure: {credential: Cli}}}", `spec.replacement.provider.azure.credential: Unsupported value: "Cli": supported values: "Auto", "Environment", "Workload", "Managed"`},
	{of + "aws: {region: Frankfurt}}}", "spec.replacement.provider.aws.region in body should match"},
	{of + "aws: {roleARN: 'arn:aws:iam::123456789012:user/u'}}}", "spec.replacement.provider.aws.roleARN in body should match"},
	{of + "gcp: {}}}", "spec.replacement.provider.gcp.project: Required value"},
	{of + "gcp: {project: P}}}", "spec.replacement.provider.gcp.project in body should match"},
	{of + "gcp: {project: project, locations: [europe]}}}", "spec.replacement.provider.gcp.locations[0] in body should match"},
	{azure + "scaleSets: [a, a]}", `spec.replacement.scaleSets[1]: Duplicate value: "a"`},
	{azure + "onFull: Fail}", `spec.replacement.onFull: Unsupported value: "Fail": supported values: "Wait", "DeleteFirst"`},
	{azure + "surge: 101}", "spec.replacement.surge: Invalid value: 101: must be a count from 0 to 100, or a percentage from 0% to 100%"},
	{azure + "surge: 101%}", `spec.replacement.surge: Invalid value: "101%": must be a count from 0 to 100, or a percentage from 0% to 100%`},
	{azure + "surge: '5'}", `spec.replacement.surge: Invalid value: "5": must be a count from 0 to 100, or a percentage from 0% to 100%`},
	{azure + "surge: '00010%'}", "spec.replacement.surge"},
	{azure + "replacementReady: {timeout: 999ms}}", `spec.replacement.replacementReady.timeout: Invalid value: "999ms": must be 1s or more`},
	{azure + "keepFailedFor: -1s}", `spec.replacement.keepFailedFor: Invalid value: "-1s": must not be negative`},
	{azure + "checkPeriod: 0s}", `spec.replacement.checkPeriod: Invalid value: "0s": must be 1s or more`},
	{azure + "controlPlane: {etcd: Managed}}", `spec.replacement.controlPlane.etcd: Unsupported value: "Managed": supported values: "Stacked", "External"`},
	{azure + "excludeFromLoadBalancers: {wait: -1s}}", `spec.replacement.excludeFromLoadBalancers.wait: Invalid value: "-1s": must not be negative`},
}
