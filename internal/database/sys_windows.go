package database

import "os"

// release closes a file, and with it bbolt's lock.
func release(f *os.File) { _ = f.Close() }
