// SPDX-License-Identifier: Apache-2.0

// Package quantity reads resource quantities of objects whose schema does not bound them.
package quantity

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxLength is the greatest length of a quantity, in bytes.
const maxLength = 64

// form is what resource.ParseQuantity reads, with at most 3 digits in the exponent. A larger exponent takes it seconds to hours, and gigabytes.
var form = regexp.MustCompile(`^[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,3})?$`)

// Check returns an error if a text is not a quantity, or may take long to read.
func Check(text string) error {
	if len(text) > maxLength || !form.MatchString(text) {
		return fmt.Errorf("%.*q is not a quantity such as 100m or 1Gi, of at most %[1]d bytes, with at most 3 digits in its exponent", maxLength, text)
	}
	return nil
}

// CheckAll checks the quantities of a pod template in a field of an object, and in all fields below it. path is the field's name in the error.
func CheckAll(path string, field any) error {
	if below, err := checkAll(field, false); err != nil {
		return fmt.Errorf("%s: %w", path+below, err)
	}
	return nil
}

// checkAll also returns which field below this one is bad.
func checkAll(field any, isQuantity bool) (below string, err error) {
	switch f := field.(type) {
	case string:
		if isQuantity {
			return "", Check(f)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(f)) {
			_, isList := f[key].(map[string]any)
			named := key == "divisor" || key == "sizeLimit" || isList && (key == "limits" || key == "requests" || key == "overhead")
			if below, err := checkAll(f[key], named || isQuantity && !isList); err != nil {
				return "." + key + below, err
			}
		}
	case []any:
		for i, value := range f {
			if below, err := checkAll(value, false); err != nil {
				return fmt.Sprintf("[%d]", i) + below, err
			}
		}
	}
	return "", nil
}

// Bounded is a quantity that is read only if Check accepts it.
type Bounded struct{ resource.Quantity }

// UnmarshalJSON reads a quantity, which is a string or a number. null leaves it as it is.
func (b *Bounded) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	if err := Check(strings.Trim(string(text), `"`)); err != nil {
		return err
	}
	return b.Quantity.UnmarshalJSON(text)
}
