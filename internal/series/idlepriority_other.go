//go:build !linux

package series

// atIdlePriority calls f.
func atIdlePriority(f func()) { f() }
