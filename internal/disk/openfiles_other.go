//go:build !unix

package server

// openFilesLimit returns how many files this process may have open, 0 if unknown.
func openFilesLimit() uint64 { return 0 }
