// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"moult.dev/moult/internal/cloud"
)

// pollDelete looks whether machines are gone.
func (s *scaleSet) pollDelete(ctx context.Context, g group, m *memory) (cloud.Progress, error) {
	managed, err := s.cloud.list(ctx, g)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return cloud.Progress{Done: true}, nil // and its machines with it
	}
	if err != nil {
		return cloud.Progress{}, cloud.NotFinal(err)
	}
	ids := m.machines()
	left, said := 0, ""
	for _, i := range managed {
		zone, name, ok := machineOf(i.Instance)
		if !ok || !slices.Contains(ids, machineID(zone, name)) {
			continue
		}
		code, text := lastError(i)
		if i.CurrentAction != "DELETING" && i.CurrentAction != "ABANDONING" {
			kind := m.Kind
			if code != "" {
				kind = kindOfFailure(code)
			}
			return cloud.Progress{}, cloud.Errorf(cmp.Or(kind, cloud.KindFailed), "%s, it keeps %s, %s", description(g, m), name,
				cmp.Or(text, m.Failure, "and does not say why"))
		}
		left++
		said = cmp.Or(said, text)
	}
	if left == 0 {
		return cloud.Progress{Done: true}, nil
	}
	message := fmt.Sprintf("%d of %d machines are being deleted", left, len(ids))
	if said != "" {
		message += ", " + said
	}
	return cloud.Progress{Message: message}, nil
}
