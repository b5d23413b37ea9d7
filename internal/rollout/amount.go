// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Amount is a number of nodes, or a percentage of them.
type Amount struct {
	N       int
	Percent bool
}

// ParseAmount reads a count or a percentage such as "10%".
func ParseAmount(from intstr.IntOrString) (Amount, error) {
	if from.Type == intstr.Int {
		if from.IntVal < 0 {
			return Amount{}, fmt.Errorf("%d is negative", from.IntVal)
		}
		return Amount{N: int(from.IntVal)}, nil
	}
	digits, ok := strings.CutSuffix(from.StrVal, "%")
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n > 100 {
		return Amount{}, fmt.Errorf("%q is neither a count nor a percentage from 0%% to 100%%", from.StrVal)
	}
	return Amount{N: int(n), Percent: true}, nil
}

// AtLeastOne applies the amount to this many nodes: rounded down, but at least 1 unless the amount is zero.
func (a Amount) AtLeastOne(total int) int {
	if a.Percent && a.N > 0 {
		return max(1, total*a.N/100)
	}
	return a.Down(total)
}

// Down applies the amount to this many nodes, rounded down.
func (a Amount) Down(total int) int {
	if a.Percent {
		return total * a.N / 100
	}
	return a.N
}

// Up applies the amount to this many nodes, rounded up.
func (a Amount) Up(total int) int {
	if a.Percent {
		return (total*a.N + 99) / 100
	}
	return a.N
}

func (a Amount) String() string {
	if a.Percent {
		return strconv.Itoa(a.N) + "%"
	}
	return strconv.Itoa(a.N)
}
