// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// label is a name and its value.
type label struct{ name, value string }

// text is metrics in the text format of Prometheus. All are gauges with whole numbers.
type text struct{ bytes.Buffer }

// family begins a metric.
func (t *text) family(name, help string) {
	fmt.Fprintf(t, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

var escaped = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// sample adds a value.
func (t *text) sample(name string, value int64, labels ...label) {
	t.WriteString(name)
	between := "{"
	for _, l := range labels {
		t.WriteString(between + l.name + `="`)
		_, _ = escaped.WriteString(t, l.value) // A buffer takes everything.
		t.WriteString(`"`)
		between = ","
	}
	t.WriteString("} " + strconv.FormatInt(value, 10) + "\n")
}

// identity says which object it is about.
func identity(o *metav1.ObjectMeta) []label {
	return []label{{"namespace", o.Namespace}, {"name", o.Name}}
}

// labelsOf are the object's identity and its labels, by names that Prometheus allows: every other character becomes an
// underscore, as in ExtendedDaemonSet. Of keys that become the same the first keeps the name, and the others get a number;
// to give two labels one name would make Prometheus refuse the whole page.
func labelsOf(o *metav1.ObjectMeta) []label {
	all := identity(o)
	taken := map[string]bool{"namespace": true, "name": true}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		name := sanitised(key)
		for n := 1; taken[name]; n++ {
			name = sanitised(key) + "_conflict" + strconv.Itoa(n)
		}
		taken[name] = true
		all = append(all, label{name, o.Labels[key]})
	}
	return all
}

// sanitised is a key as the name of a label. None begins with a digit there.
func sanitised(key string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
