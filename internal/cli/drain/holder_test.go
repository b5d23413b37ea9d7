// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"testing"
)

func TestHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		file string
		want string
		err  bool
	}{
		"a person":                   {nil, "", "", false},
		"a person in a pod":          {map[string]string{"POD_NAMESPACE": "ns"}, "ns", "", false},
		"a Plan":                     {map[string]string{"SYSTEM_UPGRADE_PLAN_NAME": "k3s"}, "system-upgrade\n", "Plan/system-upgrade/k3s", false},
		"a Plan, told its namespace": {map[string]string{"SYSTEM_UPGRADE_PLAN_NAME": "k3s", "POD_NAMESPACE": "up"}, "", "Plan/up/k3s", false},
		"a Plan without a namespace": {map[string]string{"SYSTEM_UPGRADE_PLAN_NAME": "k3s"}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inside(tc.env, tc.file).holder()
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// inside is the environment of a process with these variables and this namespace file.
func inside(env map[string]string, namespace string) environment {
	return environment{
		getenv: func(name string) string { return env[name] },
		readFile: func(string) ([]byte, error) {
			if namespace == "" {
				return nil, errors.New("no such file")
			}
			return []byte(namespace), nil
		},
	}
}
