//go:build !linux

package server

// atIdlePriority calls f.
func atIdlePriority(f func()) { f() }
