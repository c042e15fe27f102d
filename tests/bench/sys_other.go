//go:build !linux

package main

import (
	"io/fs"

	"github.com/fxfer/fxfer/internal/path/lab"
)

// allocated returns the size of a file.
func allocated(info fs.FileInfo) int64 { return info.Size() }

// threadSeconds knows nothing: this system has no lab.
func threadSeconds() (float64, error) { return 0, lab.ErrUnsupported }

// look knows nothing: this system has no lab.
func (resends) look(*lab.Host) error { return lab.ErrUnsupported }
