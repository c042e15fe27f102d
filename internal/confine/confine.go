// Package confine takes from this process what it does not need, where the kernel can: on Linux with Landlock.
package confine

// Folder is one that the process keeps, with all below it, to read or also to write.
type Folder struct {
	Path  string
	Write bool
}
