//go:build !linux

package faults

func shareMounts() {}
