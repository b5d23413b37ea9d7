// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// pollAdd looks whether the machines were made. A group never stops trying to make a machine that can't be made, so pollAdd removes it from the group.
// An operation that fails returns the machines that were made, with the error. An operation whose machines were deleted by others succeeds with the rest.
func (s *scaleSet) pollAdd(ctx context.Context, g group, token string, m *memory) (cloud.Progress, error) {
	managed, err := s.cloud.list(ctx, g)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return cloud.Progress{}, cloud.Errorf(cloud.KindFailed, "%s, it is gone", description(g, m))
	}
	if err != nil {
		return cloud.Progress{}, cloud.NotFinal(err)
	}
	known := m.Failure != ""
	made, hopeless, busy := m.sortMachines(managed)
	if len(hopeless) > 0 && !known {
		// Once they are removed nothing tells the reason any more: it is written down before.
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines can't be made, %s", len(hopeless), len(m.Add), m.Failure)}, nil
	}
	if len(hopeless) > 0 {
		slices.Sort(hopeless)
		request := requestID(append([]string{g.String(), token, "undo"}, hopeless...)...)
		if _, err := s.cloud.remove(ctx, g, hopeless, request); err != nil {
			return cloud.Progress{Added: made}, cloud.NotFinal(classify("removing machines that group "+g.String()+" can't make", err))
		}
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines can't be made and are removed, %s", len(hopeless), len(m.Add), m.Failure)}, nil
	}
	if busy > 0 {
		return cloud.Progress{Added: made, Message: fmt.Sprintf("%d of %d machines are made", len(made), len(m.Add))}, nil
	}
	if len(made) == 0 {
		return cloud.Progress{}, cloud.Errorf(cmp.Or(m.Kind, cloud.KindFailed), "%s, %s", description(g, m), cmp.Or(m.Failure, "it has none of them"))
	}
	short := len(m.Add) - len(made)
	if short > 0 && m.Failure != "" {
		return cloud.Progress{Added: made}, cloud.Errorf(m.Kind, "%s, %d of %d could not be made, %s", description(g, m), short, len(m.Add), m.Failure)
	}
	p := cloud.Progress{Done: true, Added: made}
	if short > 0 {
		p.Message = fmt.Sprintf("%d of %d machines are not there any more", short, len(m.Add))
	}
	return p, nil
}

// sortMachines parts the machines to add into those that were made, those that can't be, and the number of those of which that is not known yet. It remembers
// why one can't be.
func (m *memory) sortMachines(managed []*compute.ManagedInstance) (made, hopeless []string, busy int) {
	for _, i := range managed {
		if !slices.Contains(m.Add, i.Name) {
			continue
		}
		zone, name, placed := machineOf(i.Instance)
		code, text := lastError(i)
		switch {
		case i.CurrentAction == "DELETING" || i.CurrentAction == "ABANDONING":
			busy++
		case i.InstanceStatus == "" && text != "" && placed:
			hopeless = append(hopeless, machineID(zone, name))
			m.fail(kindOfFailure(code), text)
		case i.InstanceStatus == "" || !placed:
			busy++
		default:
			made = append(made, machineID(zone, name))
		}
	}
	return made, hopeless, busy
}

// sequence is the end of a base name that asks for running numbers.
var sequence = regexp.MustCompile(`-#+(\[[0-9]*\])?$`)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newNames makes the names of n machines from a token: the same ones each time, and no others' ever.
func newNames(base, token string, n int) []string {
	const longest = 63 - 11
	base = sequence.ReplaceAllString(base, "")
	if len(base) > longest {
		base = base[:longest]
	}
	sum := sha256.Sum256([]byte(token))
	mark := letters.EncodeToString(sum[:5])
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%s%02s", strings.TrimRight(base, "-"), mark, strconv.FormatInt(int64(i), 36))
	}
	return names
}
