//go:build !linux

package serve

// reloading is nothing: there is no systemd.
func reloading() []string { return nil }
