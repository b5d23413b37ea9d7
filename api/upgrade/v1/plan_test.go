// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// examples are what system-upgrade-controller publishes; a checkout alone does not have them.
const examples = "../../../../shared/peers/system-upgrade-controller/examples"

// Every field of the published Plans has its place, and none is lost on the way through the type.
func TestPublishedPlans(t *testing.T) {
	if _, err := os.Stat(examples); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("there is no %s", examples)
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	plans := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(raw, []byte("\n---")) {
			var want map[string]any
			if err := yaml.Unmarshal(document, &want); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if want["kind"] != "Plan" {
				continue
			}
			plans++
			var p Plan
			if err := yaml.UnmarshalStrict(document, &p); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "status")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-published +read):\n%s", file, p.Name, diff)
			}
		}
	}
	if plans == 0 {
		t.Errorf("no Plan in %s", examples)
	}
}
