package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// realDisk is an ext4 file system in a file on a loop device. Its errors when it is full or broken
// are the kernel's own.
type realDisk struct{ image, point string }

const realSize = 96 << 20

// mountReal makes a file system in the file image and mounts it at point. The caller calls unmount.
func mountReal(image, point string) (*realDisk, error) {
	d := &realDisk{image, point}
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	err = errors.Join(f.Truncate(realSize), f.Close())
	if err == nil {
		err = run("mkfs.ext4", "-q", "-m", "0", "-E", fmt.Sprintf("root_owner=%d:%d", hosts.OrdinaryUser, hosts.OrdinaryUser), image)
	}
	if err == nil {
		err = d.mount()
	}
	return d, err
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// mount mounts the file system. After an unclean end that replays the journal.
func (d *realDisk) mount() error {
	return run("mount", "-o", "loop,errors=remount-ro", d.image, d.point)
}

func (d *realDisk) unmount() error {
	if err := unbusy(func() error { return unix.Unmount(d.point, 0) }); err != nil {
		return fmt.Errorf("unmount %s: %w", d.point, err)
	}
	return nil
}

// unbusy retries unmount for a while if something is busy: labs that begin or end hold copies of
// all mounts.
func unbusy(unmount func() error) (err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = unmount(); err == nil || !strings.Contains(err.Error(), "busy") {
			return err
		}
	}
	return err
}

func (d *realDisk) ballast() string { return filepath.Join(d.point, "ballast") }

// fill takes all free space.
func (d *realDisk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	for end, step := int64(0), int64(16<<20); step >= 4096; {
		err := unix.Fallocate(int(f.Fd()), 0, end, step)
		switch {
		case err == nil:
			end += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		default:
			return fmt.Errorf("fill the disk: %w", err)
		}
	}
	return nil
}

// abort makes the kernel act as if it found the file system damaged: the file system becomes
// read-only for good.
func (d *realDisk) abort() error { return run("mount", "-o", "remount,abort", d.point) }

// pull takes the disk away. From now on each call fails, and unsynced data is lost
// (EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, fs/ext4/ioctl.c).
func (d *realDisk) pull() error {
	f, err := os.Open(d.point)
	if err != nil {
		return err
	}
	defer f.Close()
	const shutdown, noLogFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		return fmt.Errorf("take the disk away: %w", err)
	}
	return nil
}
