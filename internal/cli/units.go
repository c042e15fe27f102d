package cli

import "github.com/fxfer/fxfer/internal/units"

// parseRate returns a rate in bit/s, which is more than zero.
func parseRate(s string) (int64, error) { return units.ParseRate(s) }

// parseSize returns a size in bytes.
func parseSize(s string) (int64, error) { return units.ParseSize(s) }
