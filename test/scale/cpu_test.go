// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const after = " S 1 4242 4242 0 -1 4194560 9130 0 12 0 345 67 0 0 20 0 9 0 8877 2261614592 17012 18446744073709551615 1 1 0"
	for _, name := range []string{"(moult)", "(a b)", "(x) R 1 (y)"} {
		if got, err := parseStat("4242 " + name + after); err != nil || got != 4120*time.Millisecond {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "4242 (moult)", "4242 (moult) S 1 2 3", "4242 moult" + after, "1 (x) S 1 2 3 4 5 6 7 8 9 10 a 12"} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestProcessorOf(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := processorOf(self)
	if err != nil {
		t.Fatal(err)
	}
	if used, err := p.used(); err != nil || used < 0 || used > time.Hour {
		t.Errorf("got %s, %v", used, err)
	}
	if p, err := processorOf("/there/is/no/such/program"); err == nil {
		t.Errorf("got %+v", p)
	}
}
