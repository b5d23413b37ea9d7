// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
)

// Image is a version of Bottlerocket.
type Image struct {
	Arch    string `json:"arch"`
	Version string `json:"version"`
	Variant string `json:"variant"`
}

// Set is one of the two partition sets, with the flags of its boot partition.
type Set struct {
	// Image is what is written there. Nil: nothing that could boot.
	Image *Image `json:"image"`
	// Priority is what the boot loader goes by among those that may boot.
	Priority int `json:"priority"`
	// TriesLeft is how often a set may be tried that has never booted.
	TriesLeft int `json:"tries_left"`
	// Successful says that it has booted.
	Successful bool `json:"successful"`
}

// willBoot reports whether the boot loader takes it into consideration.
func (s *Set) willBoot() bool { return s.Priority > 0 && s.TriesLeft > 0 || s.Successful }

// Disk is the host's partition table.
type Disk struct {
	// Sets are A and B.
	Sets [2]Set `json:"sets"`
	// Active is which of them runs.
	Active int `json:"active"`
}

// device is what messages of the partition table name.
const device = "/dev/nvme0n1"

// NewDisk is the disk of a host that was installed with an image.
func NewDisk(image Image) Disk {
	return Disk{Sets: [2]Set{{Image: &image, Priority: 2, Successful: true}, {}}}
}

// Disk reads the partition table.
func (r Root) Disk() (Disk, error) {
	var d Disk
	if err := r.read(DiskFile, &d); err != nil {
		return Disk{}, err
	}
	if d.Active < 0 || d.Active > 1 || d.Sets[d.Active].Image == nil {
		return Disk{}, errors.New("the disk has no active partition set")
	}
	return d, nil
}

// SetDisk writes the partition table.
func (r Root) SetDisk(d Disk) error { return r.write(DiskFile, d) }

// ChangeDisk changes the partition table, unless change fails.
func (r Root) ChangeDisk(change func(*Disk) error) error {
	return r.locked(func() error {
		d, err := r.Disk()
		if err != nil {
			return err
		}
		if err := change(&d); err != nil {
			return err
		}
		return r.SetDisk(d)
	})
}

// Running is what the host runs.
func (d *Disk) Running() Image {
	if image := d.Sets[d.Active].Image; image != nil {
		return *image
	}
	return Image{}
}

func (d *Disk) active() *Set   { return &d.Sets[d.Active] }
func (d *Disk) inactive() *Set { return &d.Sets[1-d.Active] }

// ActiveIsNext reports whether the next boot is one into what runs now.
func (d *Disk) ActiveIsNext() (bool, error) {
	next, ok := d.next()
	if !ok {
		return false, errors.New("No partition set is set to boot next") //nolint:staticcheck // As Bottlerocket says it.
	}
	return next == d.Active, nil
}

// next is the set that the boot loader would choose.
func (d *Disk) next() (set int, ok bool) {
	a, b := &d.Sets[0], &d.Sets[1]
	switch {
	case a.willBoot() && b.willBoot():
		if b.Priority > a.Priority {
			return 1, true
		}
		return 0, true
	case a.willBoot():
		return 0, true
	case b.willBoot():
		return 1, true
	default:
		return 0, false
	}
}

// ClearInactive takes the other set out of use, to be written to.
func (d *Disk) ClearInactive() { *d.inactive() = Set{} }

// WriteInactive says that the other set holds an image now that may be tried once.
func (d *Disk) WriteInactive(image Image) {
	d.inactive().Image, d.inactive().TriesLeft = &image, 1
}

// UpgradeToInactive makes the next boot one into the other set.
func (d *Disk) UpgradeToInactive() error {
	s := d.inactive()
	if s.Priority != 0 || s.Successful {
		return fmt.Errorf("Inactive partition %s is already marked for upgrade", device) //nolint:staticcheck // As Bottlerocket says it.
	}
	if s.TriesLeft == 0 {
		return fmt.Errorf("Inactive partition %s has not been marked valid for upgrade", device) //nolint:staticcheck // As Bottlerocket says it.
	}
	s.Priority, d.active().Priority = 2, 1
	return nil
}

// CancelUpgrade takes UpgradeToInactive back.
func (d *Disk) CancelUpgrade() { d.inactive().Priority, d.active().Priority = 0, 2 }

// Boot is what the boot loader does: it tries what may boot, what has the highest priority first. works says whether an
// image does boot. Where none does the host stays with what it ran.
func (d *Disk) Boot(works func(Image) bool) Image {
	for {
		n, ok := d.next()
		if !ok {
			break
		}
		s := &d.Sets[n]
		if !s.Successful {
			s.TriesLeft--
		}
		if s.Image != nil && (n == d.Active || works(*s.Image)) {
			s.Successful, d.Active = true, n
			break
		}
		if s.Successful {
			s.Successful, s.Priority = false, 0
		}
	}
	return d.Running()
}
