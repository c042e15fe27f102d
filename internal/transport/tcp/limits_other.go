//go:build !linux && !darwin

package tcp

// readLimits knows nothing here, so the buffers are left to the system.
func readLimits() kernelLimits { return kernelLimits{} }
