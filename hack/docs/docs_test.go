// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// expect checks that a page has these lines.
func expect(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("%q is no line of\n%s", line, page)
		}
	}
}

func TestAPI(t *testing.T) {
	kind, page, err := API([]byte(`
spec:
  group: x.dev
  scope: Cluster
  names: {kind: Thing, shortNames: [th], categories: [all]}
  versions:
  - name: v1
    additionalPrinterColumns: [{name: A}, {name: B, priority: 1}]
    schema:
      openAPIV3Schema:
        description: Thing is a thing.
        properties:
          spec:
            required: [name]
            x-kubernetes-validations: [{message: a needs b}]
            properties:
              name: {type: string, maxLength: 5, enum: [a, b], description: "Name | it."}
              size: {x-kubernetes-int-or-string: true, default: 1}
              parts: {type: array, items: {type: object, properties: {count: {type: integer, minimum: 1}}}}
              select: {type: object, properties: {matchLabels: {type: object}}}
              tolerations: {type: array, items: {type: object, properties: {key: {type: string}}}}
`))
	if err != nil || kind != "Thing" {
		t.Fatal(kind, err)
	}
	expect(
		t, page, "# Thing", "Thing is a thing.", "| scope | Cluster |", "| short names | `th` |", "| categories | `all` |", "| columns | `A`, `B` (with `-o wide`) |",
		"- a needs b.", "| `name` | string | Required. Name \\| it. One of `a`, `b`. At most 5 characters. |", "| `size` | integer or string | Default: `1`. |",
		"| `parts` | [list of object](#specparts) |  |", "| `select` | label selector |  |", "| `tolerations` | list of Kubernetes' Toleration |  |",
		"## spec.parts[]", "| `count` | integer | At least 1. |",
	)
}

func TestCommand(t *testing.T) {
	root := &cobra.Command{Use: "kubectl-x"}
	run := func(*cobra.Command, []string) {}
	verb := &cobra.Command{Use: "verb NAME [flags]", Short: "Does it", Example: "  kubectl x verb a", Run: run}
	verb.Flags().Bool("all", false, "All of them.")
	root.AddCommand(verb, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	root.PersistentFlags().String("context", "", "Which cluster.")
	page := Command("kubectl x", "A plugin.", root)
	expect(t, page, "# kubectl x", "A plugin.", "## kubectl x verb", "Does it", "kubectl x verb NAME", "kubectl x verb a", "      --all   All of them.", "## Flags of every command")
	if strings.Contains(page, "secret") {
		t.Error("it shows a hidden command")
	}
}

func TestReasons(t *testing.T) {
	const head = "package a\n\n// Why it waits.\nconst (\n\t// ReasonPaused: it is\n\t// paused."
	page, err := Reasons([]byte(head + " Ends: kubectl moult resume.\n\tReasonPaused Reason = \"Paused\"\n)\n"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, page, "## Why it waits", "| `Paused` | It is paused. | kubectl moult resume. |")
	if _, err := Reasons([]byte(head + "\n\tReasonPaused Reason = \"Paused\"\n)\n")); err == nil {
		t.Error("a reason without an end is taken")
	}
}

func TestValues(t *testing.T) {
	page, err := Values([]byte("# A license.\n\n# How many.\nreplicas: 1\n# What runs.\nimage:\n  # Its tag.\n  tag: \"\"\n  args: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, page, "| `replicas` | `1` | How many. |", "| **`image`** | | What runs. |", "| `image.tag` | `\"\"` | Its tag. |", "| `image.args` | `[]` |  |")
}

func TestScreen(t *testing.T) {
	svg := Screen("kubectl a", "Plan a\n  █▓ 1 < 2\n")
	expect(t, svg, "</svg>")
	for _, text := range []string{`aria-label="kubectl a"`, ">Plan a<", ">1 &lt; 2<", ">█<"} {
		if !strings.Contains(svg, text) {
			t.Errorf("%s is not in\n%s", text, svg)
		}
	}
}

func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.go")
	source := "package a\n\nconst prefix = \"x.dev/\"\n\n// LabelA is on Nodes.\nconst LabelA = prefix + \"a\"\n\nconst LabelValue = \"no key\"\n\n" +
		"// LabelOf names a thing.\nfunc LabelOf(thing string) string { return \"of.x.dev/\" + thing }\n"
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := Keys([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, page, "| `of.x.dev/THING` | Names a thing. |", "| `x.dev/a` | On Nodes. |")
	if strings.Contains(page, "no key") {
		t.Error("a value is taken for a key")
	}
}
