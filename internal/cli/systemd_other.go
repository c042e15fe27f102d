//go:build !linux

package cli

// reloading is nothing: there is no systemd.
func reloading() []string { return nil }
