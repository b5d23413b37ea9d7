// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// Reasons returns the page of the reasons. A comment says why a unit waits, and after "Ends:" what ends that.
func Reasons(source []byte) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", source, parser.ParseComments)
	if err != nil {
		return "", fmt.Errorf("reading the reasons, %w", err)
	}
	var b strings.Builder
	b.WriteString("# Reasons\n\nA reason says in one word why a unit waits, or why it failed. Status, Events, metrics and `kubectl moult why NODE` use the same word. " +
		"The message beside it names nodes, pods and budgets. [When it is stuck](../guides/stuck.md) says where to look.\n")
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| reason | what it means | what ends it |\n|---|---|---|\n", strings.TrimSuffix(prose(group.Doc.Text()), "."))
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			word, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				return "", err
			}
			_, text, _ := strings.Cut(prose(value.Doc.Text()), ": ")
			why, ends, found := strings.Cut(text, " Ends: ")
			if !found {
				return "", fmt.Errorf("the comment of reason %s does not say what ends it: Ends: …", word)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", word, escape(capital(why)), escape(capital(ends)))
		}
	}
	return b.String(), nil
}

// capital begins a text with a capital letter, unless it is a command.
func capital(text string) string {
	if text == "" || strings.HasPrefix(text, "kubectl ") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
