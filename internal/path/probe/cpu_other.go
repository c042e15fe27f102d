//go:build !linux

package probe

// cpuTimes returns zeros: the times are unknown on this system.
func cpuTimes() (busy, all uint64) { return 0, 0 }
