//go:build !linux && !darwin && !freebsd

package outbox

import "io/fs"

// changeOf returns zeros: on Windows, the metadata of a folder's entries has neither.
func changeOf(fs.FileInfo) (changed int64, inode uint64) { return 0, 0 }
