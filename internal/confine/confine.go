// Package confine takes away rights that this process does not need. On Linux it uses Landlock;
// other systems are not supported.
package confine

// Folder is a folder that the process may still use, with everything below it.
type Folder struct {
	Path  string
	Write bool // otherwise it may only read
}
