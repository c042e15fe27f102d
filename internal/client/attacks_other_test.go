//go:build !linux

package client

import "testing"

func privilegedFolder(*testing.T) string { return "" }

func fingerprintOf(*testing.T, string) string { return "" }
