// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Keys returns the page of labels, annotations and taints, from the constants and functions in files of api that give them.
func Keys(files []string) (string, error) {
	rows, values := map[string]string{}, map[string]string{"GroupName": "moult.dev"}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return "", err
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				doc := d.Doc
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST && len(v.Values) == 1 {
						if v.Doc != nil {
							doc = v.Doc // It is also that of the following ones, if these have none.
						}
						values[v.Names[0].Name] = textOf(v.Values[0], values)
						addKey(rows, values[v.Names[0].Name], v.Names[0].Name, doc)
					}
				}
			case *ast.FuncDecl:
				if r, ok := d.Body.List[len(d.Body.List)-1].(*ast.ReturnStmt); ok && d.Recv == nil && len(r.Results) == 1 {
					addKey(rows, textOf(r.Results[0], values), d.Name.Name, d.Doc)
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("# Labels, annotations and taints\n\nKeys that Moult writes or reads, beside those of Kubernetes.\n\n| key | meaning |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		text := constant.ReplaceAllStringFunc(rows[key], func(name string) string {
			if value, ok := values[name]; ok {
				return strconv.Quote(value)
			}
			return name
		})
		fmt.Fprintf(&b, "| `%s` | %s |\n", key, escape(text))
	}
	return b.String(), nil
}

// addKey adds a row, if the text is a key and its comment says what it is.
func addKey(rows map[string]string, key, name string, doc *ast.CommentGroup) {
	isKey := strings.HasPrefix(name, "Annotation") || strings.HasPrefix(name, "Label") || strings.HasPrefix(name, "Taint")
	if text := prose(doc.Text()); isKey && text != "" && strings.Contains(key, "/") {
		rows[key] = capital(ownName.ReplaceAllString(text, ""))
	}
}

// ownName is what a comment begins with.
var ownName = regexp.MustCompile(`^(?:Annotation|Label|Taint)\w*(?: and \w+)?,? (?:is |are )?`)

// constant matches the names of constants in a comment.
var constant = regexp.MustCompile(`\b(?:Annotation|Label|Host)[A-Z]\w*\b`)

// textOf returns the text of an expression. What is not known stands for itself, in capitals.
func textOf(e ast.Expr, values map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil {
			return text
		}
	case *ast.Ident:
		if v, ok := values[e.Name]; ok {
			return v
		}
		return strings.ToUpper(e.Name)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return textOf(e.X, values) + textOf(e.Y, values)
		}
	}
	return ""
}
