//go:build !linux

package session

// WhenIdle calls f.
func WhenIdle(f func()) { f() }
