//go:build !linux

package doctor

import (
	"context"
	"fmt"
	"runtime"
)

var errSystem = fmt.Errorf("%w: the doctor reads Linux, and this is %s", ErrUnsupported, runtime.GOOS)

// Read fails with an error that matches ErrUnsupported.
func Read() (*Host, error) { return nil, errSystem }

// NewChanger fails with an error that matches ErrUnsupported.
func NewChanger(home string) (*Changer, error) { return nil, errSystem }

// MeasureDisk reports that it can't measure.
func MeasureDisk(_ context.Context, dir string) *Disk {
	return &Disk{Dir: dir, Problem: errSystem.Error()}
}

func withMetrics([]byte, []Metric) ([]byte, error) { return nil, errSystem }

func describeRoute([]byte) (*Route, error) { return nil, errSystem }

func sameRoute(a, b []byte) bool { return false }

func syncFolder(string) error { return nil }
