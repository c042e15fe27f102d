//go:build !linux

package faults

func apart() (code int, ran bool) { return 0, false }
