//go:build !unix

package server

// mostFiles is how many files this process may have open, 0 if unknown.
func mostFiles() uint64 { return 0 }
