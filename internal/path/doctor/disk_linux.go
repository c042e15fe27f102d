package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a measurement of a disk.
const (
	diskBytes   = 256 << 20
	diskWriting = 1500 * time.Millisecond
	diskReading = 1000 * time.Millisecond
	diskBlock   = 4 << 20
	diskAlign   = 4096 // required by O_DIRECT
)

// MeasureDisk writes a file below dir and reads it back, bypassing the page cache if the file
// system allows it. It takes at most 256 MiB and 2.5 s, plus one block of 4 MiB. The file has no
// name, so nothing is left however the measurement ends. It returns early when ctx is done.
func MeasureDisk(ctx context.Context, dir string) *Disk {
	d := &Disk{Dir: dir}
	if err := d.measure(ctx); err != nil {
		d.Write, d.Read, d.Problem = 0, 0, err.Error()
	}
	return d
}

func (d *Disk) measure(ctx context.Context) error {
	f, direct, err := openNameless(d.Dir)
	if err != nil {
		return err
	}
	defer f.Close()

	block, free, err := alignedBlock()
	if err != nil {
		return err
	}
	defer free()
	written, took, err := timed(ctx, diskWriting, diskBytes, func(at int64) error {
		// Pages differ, so that the disk can't compress or deduplicate them.
		for page := 0; page < len(block); page += diskAlign {
			binary.LittleEndian.PutUint64(block[page:], uint64(at)+uint64(page))
		}
		if _, err := f.WriteAt(block, at); err != nil || direct {
			return err
		}
		return unix.Fdatasync(int(f.Fd())) // or all would wait for the end, for any time
	})
	if err != nil {
		return err
	}
	syncing := time.Now()
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return err
	}
	took += time.Since(syncing)
	d.Write = float64(written) / took.Seconds()
	if !direct {
		// After the page cache drops the data, reading comes from the disk.
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}
	read, took, err := timed(ctx, diskReading, written, func(at int64) error {
		_, err := f.ReadAt(block, at)
		return err
	})
	if err != nil {
		return err
	}
	d.Read = float64(read) / took.Seconds()
	return nil
}

// timed calls f for each block of the given size until the time is over.
func timed(ctx context.Context, limit time.Duration, size int64, f func(at int64) error) (done int64, took time.Duration, err error) {
	start := time.Now()
	for done < size && took < limit {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		if err := f(done); err != nil {
			return 0, 0, err
		}
		done += diskBlock
		took = time.Since(start)
	}
	return done, took, nil
}

// openNameless opens a new file without a name in dir, with O_DIRECT if the file system supports
// it.
func openNameless(dir string) (f *os.File, direct bool, err error) {
	for _, flag := range []int{unix.O_DIRECT, 0} {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|flag, 0o600)
		if err == nil {
			return os.NewFile(uintptr(fd), dir), flag != 0, nil
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
			return nil, false, fmt.Errorf("make a file: %w", err)
		}
	}
	if f, err = os.CreateTemp(dir, ".fxfer-doctor-*"); err != nil {
		return nil, false, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, false, fmt.Errorf("remove %s: %w", filepath.Base(f.Name()), err)
	}
	return f, false, nil
}

// alignedBlock returns aligned memory for O_DIRECT, with random content.
func alignedBlock() (block []byte, free func(), err error) {
	block, err = unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("get memory: %w", err)
	}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(block) // never fails
	return block, func() { _ = unix.Munmap(block) }, nil
}
