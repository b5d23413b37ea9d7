// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/internal/cloud"
)

// memory is what an operation keeps of itself in cloud.Operation.State.
type memory struct {
	// Add, Delete or Image, of which one is set, is the change.
	Add    int      `json:"add,omitempty"`
	Delete []string `json:"delete,omitempty"`
	Image  string   `json:"image,omitempty"`
	// Etag and Capacity are the scale set's as it was described, and Before its machines then, packed.
	Etag     string `json:"etag,omitempty"`
	Capacity int64  `json:"capacity,omitempty"`
	Before   string `json:"before,omitempty"`
	// Sent is true once Azure has taken it, and Resume what it can be asked by how it stands; empty where that is not known.
	Sent   bool   `json:"sent,omitempty"`
	Resume string `json:"resume,omitempty"`
	// Ended is true once Azure has ended it well. Failed is the error that it has ended with, while what that leaves behind is put right, and Kind
	// its kind.
	Ended  bool       `json:"ended,omitempty"`
	Failed string     `json:"failed,omitempty"`
	Kind   cloud.Kind `json:"kind,omitempty"`
	// Added are machines that were found to be new.
	Added []string `json:"added,omitempty"`
}

// remember reads what an operation keeps of itself.
func remember(o cloud.Operation) (memory, error) {
	var m memory
	if err := json.Unmarshal([]byte(o.State), &m); err != nil {
		return m, cloud.Errorf(cloud.KindInvalid, "reading operation %s, %w", o.Token, err)
	}
	return m, nil
}

// operation is the operation that keeps this of itself.
func (m *memory) operation(token string) (cloud.Operation, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return cloud.Operation{}, cloud.Errorf(cloud.KindInvalid, "writing operation %s, %w", token, err)
	}
	return cloud.Operation{Token: token, State: string(text)}, nil
}

// How lists of machines are packed: numbers as runs, of which each says its distance from the one before, and, if it is not 1, its length; names as
// five bytes of a hash each. A thousand machines take at most 7 KB.
const (
	packedNumbers = "n"
	packedNames   = "h"
	hashed        = 5
	base          = 36
)

// pack packs the names of machines.
func pack(ids []string) string {
	numbers := make([]uint64, 0, len(ids))
	for _, id := range ids {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != id {
			return packNames(ids)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var runs []string
	last := uint64(0)
	for i := 0; i < len(numbers); {
		length := 1
		for i+length < len(numbers) && numbers[i+length] == numbers[i]+uint64(length) {
			length++
		}
		run := strconv.FormatUint(numbers[i]-last, base)
		if length > 1 {
			run += "-" + strconv.FormatInt(int64(length), base)
		}
		runs = append(runs, run)
		i += length
		last = numbers[i-1]
	}
	return packedNumbers + strings.Join(runs, ",")
}

func packNames(ids []string) string {
	hashes := make([]string, 0, len(ids))
	for _, id := range ids {
		hashes = append(hashes, hash(id))
	}
	slices.Sort(hashes)
	return packedNames + base64.RawStdEncoding.EncodeToString([]byte(strings.Join(slices.Compact(hashes), "")))
}

func hash(id string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(id)))
	return string(sum[:hashed])
}

// unpack returns what tells whether a machine is in a packed list. In one that can't be read is none.
func unpack(packed string) func(id string) bool {
	known := map[string]bool{}
	if list, ok := strings.CutPrefix(packed, packedNames); ok {
		all, err := base64.RawStdEncoding.DecodeString(list)
		for err == nil && len(all) >= hashed {
			known[string(all[:hashed])] = true
			all = all[hashed:]
		}
		return func(id string) bool { return known[hash(id)] }
	}
	last := uint64(0)
	for run := range strings.SplitSeq(strings.TrimPrefix(packed, packedNumbers), ",") {
		distance, length, many := strings.Cut(run, "-")
		d, err := strconv.ParseUint(distance, base, 64)
		if err != nil {
			break
		}
		n := uint64(1)
		if many {
			if n, err = strconv.ParseUint(length, base, 16); err != nil {
				break
			}
		}
		for i := range n {
			known[strconv.FormatUint(last+d+i, 10)] = true
		}
		last += d + max(n, 1) - 1
	}
	return func(id string) bool { return known[id] }
}
