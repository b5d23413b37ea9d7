// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"moult.dev/moult/internal/view"
)

// output is the value of --output.
type output string

const (
	wide   = "wide"
	asJSON = "json"
	asYAML = "yaml"
)

// Set is a flag's.
func (o *output) Set(value string) error {
	switch value {
	case wide, asJSON, asYAML:
		*o = output(value)
		return nil
	}
	return fmt.Errorf("it must be %s, %s or %s", wide, asJSON, asYAML)
}

// String is a flag's.
func (o *output) String() string { return string(*o) }

// Type is a flag's.
func (*output) Type() string { return "FORMAT" }

// structured reports whether programs read the output.
func (o *output) structured() bool { return *o == asJSON || *o == asYAML }

// print writes what one asked for by name as it is, and others as a list.
func (o *output) print(to io.Writer, rollouts []view.Rollout, one bool) error {
	var content any = map[string]any{"items": rollouts}
	if one && len(rollouts) == 1 {
		content = rollouts[0]
	}
	text, err := json.MarshalIndent(content, "", "    ")
	text = append(text, '\n')
	if err == nil && *o == asYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("writing rollouts, %w", err)
	}
	_, err = to.Write(text)
	return err
}
