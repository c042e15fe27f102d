package main

import (
	"io/fs"
	"syscall"
)

// allocated returns the bytes that a file takes, without holes.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
