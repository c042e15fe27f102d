//go:build !linux

package fxfer

// idly calls f.
func idly(f func()) { f() }
