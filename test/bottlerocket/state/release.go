// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Release is an update as the repository's manifest has it.
type Release struct {
	Variant string `json:"variant"`
	Arch    string `json:"arch"`
	Version string `json:"version"`
	// MaxVersion is the newest version that hosts of the variant may have. Those that have a newer one go back.
	MaxVersion string `json:"max_version"`
	// Waves are when the hosts from a seed on get the update. Without any all get it at once.
	Waves  map[int]time.Time `json:"waves"`
	Images Images            `json:"images"`
}

// Images are the names of a release's files.
type Images struct {
	Boot string `json:"boot"`
	Root string `json:"root"`
	Hash string `json:"hash"`
}

// maxSeed is the highest seed that a host can have.
const maxSeed = 2048

// Arch is the machine's, in Bottlerocket's words.
func Arch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// NewRelease is a release for all hosts of a variant.
func NewRelease(variant, version string) Release {
	name := fmt.Sprintf("bottlerocket-%s-%s-%s", variant, Arch(), version)
	return Release{
		Variant: variant, Arch: Arch(), Version: version, MaxVersion: version, Waves: map[int]time.Time{},
		Images: Images{Boot: name + "-boot.ext4.lz4", Root: name + "-root.ext4.lz4", Hash: name + "-root.verity.lz4"},
	}
}

// ready reports whether a host's wave has begun.
func (r *Release) ready(seed int, now time.Time) bool {
	begins, ends := -1, false
	for bound := range r.Waves {
		if bound < seed {
			begins = max(begins, bound)
		} else if bound <= maxSeed {
			ends = true
		}
	}
	switch {
	case begins >= 0:
		return !r.Waves[begins].After(now)
	case ends:
		return true // it is in the first one
	default:
		return true // there are none
	}
}

// repository is the manifest.
type repository struct {
	Updates []Release `json:"updates"`
}

// Releases reads the repository.
func (r Root) Releases() ([]Release, error) {
	var all repository
	err := r.read(RepositoryFile, &all)
	return all.Updates, err
}

// FormatRepository is the content of RepositoryFile.
func FormatRepository(releases []Release) any { return repository{Updates: releases} }

// SetReleases writes the repository.
func (r Root) SetReleases(releases []Release) error {
	return r.write(RepositoryFile, FormatRepository(releases))
}

// Settings steer updates, as settings.updates does.
type Settings struct {
	// VersionLock is "latest" or the version that the host is kept at, with or without a "v".
	VersionLock string `json:"version-lock"`
	// IgnoreWaves takes a release before the host's wave begins.
	IgnoreWaves bool `json:"ignore-waves"`
	// Seed places the host in the waves: 0 to 2047.
	Seed int `json:"seed"`
}

// Latest is the version lock of hosts that take every release.
const Latest = "latest"

// Settings reads the settings.
func (r Root) Settings() (Settings, error) {
	s := Settings{VersionLock: Latest}
	err := r.read(SettingsFile, &s)
	return s, err
}

// SetSettings writes the settings.
func (r Root) SetSettings(s Settings) error { return r.write(SettingsFile, s) }

// Applicable are the releases that a host may take, newest first.
func Applicable(all []Release, variant string, ignoreWaves bool, seed int, now time.Time) []Release {
	var some []Release
	for _, r := range all {
		if r.Variant == variant && r.Arch == Arch() && Compare(r.Version, r.MaxVersion) <= 0 && (ignoreWaves || r.ready(seed, now)) {
			some = append(some, r)
		}
	}
	slices.SortStableFunc(some, func(a, b Release) int { return Compare(b.Version, a.Version) })
	return some
}

// Choose is the release that a host goes to, of those that it may take, newest first; nil if it stays.
func Choose(applicable []Release, running, lock string) (*Release, error) {
	if cmp.Or(lock, Latest) != Latest {
		if _, err := version.ParseSemantic(lock); err != nil {
			return nil, fmt.Errorf("Bad version string '%s' in config: %w", lock, err) //nolint:staticcheck // As Bottlerocket says it.
		}
		if Compare(lock, running) == 0 {
			return nil, nil
		}
	}
	for i := range applicable {
		r := &applicable[i]
		if cmp.Or(lock, Latest) != Latest {
			if Compare(r.Version, lock) == 0 {
				return r, nil
			}
		} else if Compare(running, r.Version) < 0 || Compare(running, r.MaxVersion) > 0 {
			return r, nil
		}
	}
	return nil, nil
}

// Compare compares versions. What is none is the oldest.
func Compare(a, b string) int {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	switch {
	case errA != nil || errB != nil:
		return cmp.Or(-boolean(errA != nil)+boolean(errB != nil), strings.Compare(a, b))
	case va.LessThan(vb):
		return -1
	case vb.LessThan(va):
		return 1
	default:
		return 0
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// OSRelease is the content of OSReleaseFile.
func OSRelease(i Image) []byte {
	return fmt.Appendf(nil, `NAME=Bottlerocket
ID=bottlerocket
VERSION="%[1]s (%[2]s)"
PRETTY_NAME="Bottlerocket OS %[1]s (%[2]s)"
VARIANT_ID=%[2]s
VERSION_ID=%[1]s
BUILD_ID=%[3]s
HOME_URL="https://github.com/bottlerocket-os/bottlerocket"
SUPPORT_URL="https://github.com/bottlerocket-os/bottlerocket/discussions"
BUG_REPORT_URL="https://github.com/bottlerocket-os/bottlerocket/issues"
`, i.Version, i.Variant, BuildID)
}

// BuildID is of all images.
const BuildID = "d0ub1e00"
