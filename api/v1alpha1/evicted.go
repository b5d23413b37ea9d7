// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// MaxEvicted limits how many workloads the record of evictions on one Node names.
const MaxEvicted = 500

// Workload is the controller of pods that were evicted: a ReplicaSet, a StatefulSet or a ReplicationController.
// +kubebuilder:object:generate=false
type Workload struct {
	Kind, Namespace, Name string
}

// String returns "Kind/namespace/name", as in the annotation.
func (w Workload) String() string { return w.Kind + "/" + w.Namespace + "/" + w.Name }

// ParseEvicted reads the record of evictions from a Node's annotations. No annotation means that nothing was evicted. An
// unreadable value is an error.
func ParseEvicted(annotations map[string]string) ([]Workload, error) {
	value, ok := annotations[AnnotationEvicted]
	if !ok || value == "" {
		return nil, nil
	}
	var lines []string
	if err := json.Unmarshal([]byte(value), &lines); err != nil {
		return nil, fmt.Errorf("reading annotation %s, %w", AnnotationEvicted, err)
	}
	if len(lines) > MaxEvicted {
		return nil, fmt.Errorf("reading annotation %s, it names more than %d workloads", AnnotationEvicted, MaxEvicted)
	}
	workloads := make([]Workload, len(lines))
	for i, line := range lines {
		parts := strings.Split(line, "/")
		if len(parts) != 3 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("reading annotation %s, %q is not Kind/namespace/name", AnnotationEvicted, line)
		}
		workloads[i] = Workload{parts[0], parts[1], parts[2]}
	}
	return workloads, nil
}
