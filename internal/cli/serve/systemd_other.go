//go:build !linux

package serve

// reloading returns nothing: this system has no systemd.
func reloading() []string { return nil }
