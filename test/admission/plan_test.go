// SPDX-License-Identifier: Apache-2.0

package admission

const ok = "upgrade: {image: x}\nversion: v1\n"

// An error with one cause names the field after "is invalid: ", and one with several has a list there.
const (
	noDay   = "is invalid: spec.window.days: Invalid value: "
	strange = "is invalid: spec.nodeSelector: Invalid value: "
)

// plans are specs of Plans.
var plans = []admission{
	{"upgrade: {image: x}", ""},
	{"version: v1", "spec.upgrade: Required value"},
	{"upgrade: {}", "spec.upgrade.image: Required value"},
	{"upgrade: {image: ''}", ""},
	{ok + "concurrency: -1", "spec.concurrency: Invalid value: -1: must be 0 or more"},
	{ok + "nodeSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}", strange},
	{ok + "nodeSelector: {matchExpressions: [{key: a, operator: Lt, values: ['1']}]}", strange},
	{ok + "nodeSelector: {matchExpressions: [{key: a, operator: Equals}]}", strange},
	{ok + "nodeSelector: {matchExpressions: [{key: a, operator: In}]}", "values must be given for the operators In and NotIn"},
	{ok + "nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},
	{ok + "window: {startTime: '1:00', endTime: '2:00'}", noDay},
	{ok + "window: {days: [], startTime: '1:00', endTime: '2:00'}", noDay},
	{ok + "window: {days: [never], startTime: '1:00', endTime: '2:00'}", noDay},
	{ok + "window: {days: [mo, Monday, someday], startTime: '1:00', endTime: '2:00'}", noDay},

	// What system-upgrade-controller reports in a condition is admitted, so that a stored Plan stays editable.
	{ok + "drain: {deleteLocalData: true, deleteEmptydirData: true}", ""},
	{ok + "drain: {podSelector: {matchExpressions: [{key: a, operator: Equals}]}}", ""},
	{ok + "window: {days: [mo], startTime: noon, endTime: '2:00'}", ""},
	{ok + "postCompleteDelay: -1s", ""},
	{ok + "drain: {timeout: 60}", ""},
	{ok + "drain: {timeout: 60s}", ""},
	{ok + "window: {days: ['0', su, sun, sunday, sat, '6'], startTime: 9pm, endTime: '04:00:30', timeZone: Europe/Berlin}", ""},
}
