// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"math"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is the JSON schema of a field, as it is parsed.
type schema = map[string]any

// Finish returns the YAML of a definition with the schemas of its versions finished.
func Finish(definition []byte) ([]byte, error) {
	var d schema
	if err := yaml.Unmarshal(definition, &d); err != nil {
		return nil, err
	}
	versions, _ := below(d, "spec")["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(schema)
		fields := below(version, "schema", "openAPIV3Schema", "properties")
		for _, name := range []string{"spec", "status"} {
			walk(below(fields, name), "", func(s schema, _ string) { decodable(s) })
		}
		template := below(fields, "spec", "properties", "template", "properties")
		if template == nil {
			continue
		}
		for _, field := range template {
			walk(field.(schema), "", trim)
		}
		var meta schema
		if err := yaml.Unmarshal([]byte(metadata), &meta); err != nil {
			return nil, err
		}
		walk(meta, "", func(s schema, _ string) { decodable(s) })
		template["metadata"] = meta
	}
	raw, err := yaml.Marshal(d)
	return slices.Concat([]byte("---\n"), raw), err
}

// below follows keys; it is nil where one is missing.
func below(s schema, keys ...string) schema {
	for _, key := range keys {
		s, _ = s[key].(schema)
	}
	return s
}

// walk visits the schema of a field and of all fields below it, with their paths, such as .containers[].ports[].protocol.
func walk(s schema, path string, visit func(s schema, path string)) {
	visit(s, path)
	for name, field := range below(s, "properties") {
		walk(field.(schema), path+"."+name, visit)
	}
	if items := below(s, "items"); items != nil {
		walk(items, path+"[]", visit)
	}
	if values := below(s, "additionalProperties"); values != nil {
		walk(values, path+"{}", visit)
	}
}

// decodable narrows a schema to the values that its Go type can hold. Kubernetes checks that of a pod when it reads it; of a
// custom resource no one does.
func decodable(s schema) {
	switch {
	case s["format"] == "date-time":
		delete(s, "format") // The API server admits lists in a string field with a format.
		s["maxLength"], s["pattern"] = 64, timePattern
		s["x-kubernetes-validations"] = []schema{{"rule": "timestamp(self).getFullYear() >= 0", "message": "must be a time"}}
	case s["x-kubernetes-int-or-string"] != true:
	case s["pattern"] != nil:
		s["pattern"], s["maxLength"] = quantity, 64
	case s["x-kubernetes-validations"] == nil:
		s["minimum"], s["maximum"] = math.MinInt32, math.MaxInt32
	}
}

// quantity is what resource.ParseQuantity reads. The pattern that controller-gen writes also takes fractions in an exponent, and
// exponents of any length.
const quantity = `^[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,3})?$`

// timePattern is the form of the times that metav1.Time reads.
const timePattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`

// trim removes what a template's schema can do without.
func trim(s schema, path string) {
	delete(s, "description")
	value, ok := s["default"]
	if ok && !slices.ContainsFunc(defaults, func(d known) bool { return value == d.value && strings.HasSuffix(path, d.path) }) {
		delete(s, "default")
	}
}

// known is a default that ExtendedDaemonSet's definitions have, wherever a path ends so.
type known struct {
	path  string
	value any
}

var defaults = []known{
	{".ports[].protocol", "TCP"},
	{".grpc.service", ""},
	// References to Secrets and ConfigMaps.
	{".configMap.name", ""},
	{".configMapKeyRef.name", ""},
	{".configMapRef.name", ""},
	{".imagePullSecrets[].name", ""},
	{".nodePublishSecretRef.name", ""},
	{".secret.name", ""},
	{".secretKeyRef.name", ""},
	{".secretRef.name", ""},
	// Volumes.
	{".azureDisk.fsType", "ext4"},
	{".azureDisk.readOnly", false},
	{".iscsi.iscsiInterface", "default"},
	{".rbd.keyring", "/etc/ceph/keyring"},
	{".rbd.pool", "rbd"},
	{".rbd.user", "admin"},
	{".scaleIO.fsType", "xfs"},
	{".scaleIO.storageMode", "ThinProvisioned"},
}

// metadata is the schema of a template's metadata in ExtendedDaemonSet's definitions, but for times, which decodable narrows.
const metadata = `
type: object
properties:
  annotations: {type: object, additionalProperties: {type: string}}
  clusterName: {type: string}
  creationTimestamp: {type: string, format: date-time, nullable: true}
  deletionGracePeriodSeconds: {type: integer, format: int64}
  deletionTimestamp: {type: string, format: date-time}
  finalizers: {type: array, items: {type: string}}
  generateName: {type: string}
  generation: {type: integer, format: int64}
  labels: {type: object, additionalProperties: {type: string}}
  managedFields: {type: array, items: {type: object}}
  name: {type: string}
  namespace: {type: string}
  ownerReferences: {type: array, items: {type: object}}
  resourceVersion: {type: string}
  selfLink: {type: string}
  uid: {type: string}
`
