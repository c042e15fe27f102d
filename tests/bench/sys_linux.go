package main

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// allocated returns the bytes that a file takes, without holes.
func allocated(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }

// threadSeconds returns the CPU seconds of this thread so far.
func threadSeconds() (float64, error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds(), nil
}

// look updates the counts from the sockets of a host. Others on the line have another address.
func (r resends) look(h *lab.Host) error {
	return h.Do(func() error {
		all, err := netlink.SocketDiagTCPInfo(unix.AF_INET)
		if err != nil {
			return err
		}
		for _, x := range all {
			id := &x.InetDiagMsg.ID
			if x.TCPInfo != nil && id.Source.Equal(h.Addr().AsSlice()) && x.TCPInfo.Data_segs_out > 0 {
				r[id.Cookie] = segments{sent: int64(x.TCPInfo.Data_segs_out), again: int64(x.TCPInfo.Total_retrans)}
			}
		}
		return nil
	})
}
