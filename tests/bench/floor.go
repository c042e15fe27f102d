package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"

	"github.com/fxfer/fxfer/internal/digest"
	"github.com/fxfer/fxfer/internal/transport/tlsrecord/vaesgcm"
)

const (
	floorBlock  = 1 << 20   // a block and the buffer for it
	floorPiece  = 128 << 10 // what fxfer reads and digests at a time
	floorWrite  = 256 << 10 // what fxfer writes at a time: 16 records
	floorRecord = 16 << 10
)

// stepsAlone measures what each step costs alone: medians of reps runs over size bytes, which the
// file at path has.
func (b *bench) stepsAlone(ctx context.Context, path string, size int64, reps int) (c costs, err error) {
	for _, x := range []struct {
		step
		run func() (float64, error)
	}{
		{stepRead, func() (float64, error) { return readAlone(path, size) }},
		{stepDigest, func() (float64, error) { return digestAlone(size) }},
		{stepSeal, func() (float64, error) { return cipherAlone(size, true) }},
		{stepOpen, func() (float64, error) { return cipherAlone(size, false) }},
	} {
		var all []float64
		for range reps {
			seconds, err := x.run()
			if err := errors.Join(err, ctx.Err()); err != nil {
				return c, fmt.Errorf("%s: %w", stepNames[x.step], err)
			}
			all = append(all, seconds/(float64(size)/gb))
		}
		c[x.step] = median(all)
	}
	if err := b.writesAlone(&c, size, reps); err != nil {
		return c, err
	}
	return c, b.socketsAlone(ctx, &c, size, reps)
}

// onThread returns the CPU seconds of f, which has a thread of its own.
func onThread(f func() error) (seconds float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := threadSeconds()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := threadSeconds()
	return after - before, err
}

func readAlone(path string, size int64) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	room := make([]byte, floorBlock)
	clear(room)
	return onThread(func() error {
		for at := int64(0); at < size; {
			part := room[at%floorBlock:]
			n, err := f.ReadAt(part[:min(floorPiece, int64(len(part)), size-at)], at)
			if at += int64(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// digestAlone digests what is in the cache.
func digestAlone(size int64) (float64, error) {
	var h digest.Hasher
	piece := make([]byte, floorPiece)
	return onThread(func() error {
		for at := int64(0); at < size; at += floorBlock {
			h.Reset(at)
			for range floorBlock / floorPiece {
				h.Write(piece)
			}
			_ = h.Sum()
		}
		return nil
	})
}

// cipherAlone seals or opens records in place.
func cipherAlone(size int64, seal bool) (float64, error) {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	aead, err := vaesgcm.New(key[:])
	if err != nil {
		return 0, err
	}
	var nonce [12]byte
	var head [5]byte
	plain, sealed := make([]byte, floorRecord, floorRecord+aead.Overhead()), []byte(nil)
	sealed = aead.Seal(sealed, nonce[:], plain, head[:])
	opened := make([]byte, 0, floorRecord)
	return onThread(func() error {
		for at := int64(0); at < size; at += floorRecord {
			if seal {
				_ = aead.Seal(plain[:0], nonce[:], plain, head[:])
			} else if _, err := aead.Open(opened, nonce[:], sealed, head[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// writesAlone writes a new file block by block, and syncs it.
func (b *bench) writesAlone(c *costs, size int64, reps int) error {
	block := make([]byte, floorBlock)
	_, _ = rand.Read(block) // never fails
	var writes, syncs []float64
	once := func() (err error) {
		if err := b.warm(size); err != nil {
			return err
		}
		f, err := os.Create(b.Abs("tmp/floor"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
		written, err := onThread(func() error {
			for at := int64(0); at < size; at += floorBlock {
				if _, err := f.WriteAt(block[:min(floorBlock, size-at)], at); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		synced, err := onThread(f.Sync)
		writes, syncs = append(writes, written/(float64(size)/gb)), append(syncs, synced/(float64(size)/gb))
		return err
	}
	for range reps {
		if err := once(); err != nil {
			return fmt.Errorf("%s: %w", stepNames[stepWrite], err)
		}
	}
	c[stepWrite], c[stepSync] = median(writes), median(syncs)
	return nil
}

// socketsAlone moves bytes over loopback in clear. perf divides the time into the copies and the
// rest.
func (b *bench) socketsAlone(ctx context.Context, c *costs, size int64, reps int) error {
	var all []float64
	for range reps {
		seconds, err := loopback(ctx, size)
		if err != nil {
			return err
		}
		all = append(all, seconds)
	}
	samples, err := b.profile(ctx, func() error { _, err := loopback(ctx, size); return err })
	if err != nil {
		return err
	}
	of := []step{stepCopyIn, stepStack, stepCopyOut, stepWake}
	socket := func(s *sample) bool { return s.pid == os.Getpid() && slices.Contains(of, stepOf(s.stack)) }
	parts := distribute(samples, socket, median(all)/(float64(size)/gb))
	for _, x := range of {
		c[x] = parts[x]
	}
	return nil
}

// loopback returns the CPU seconds of both sides. Each has a thread, and blocks in the kernel.
func loopback(ctx context.Context, size int64) (float64, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	type result struct {
		seconds float64
		err     error
	}
	received := make(chan result, 1)
	go func() {
		var r result
		defer func() { received <- r }()
		var f *os.File
		if f, r.err = blocking(l.Accept()); r.err != nil {
			return
		}
		defer f.Close()
		room := make([]byte, floorWrite)
		r.seconds, r.err = onThread(func() error {
			for left := size; left > 0; {
				n, err := f.Read(room[:min(floorWrite, left)])
				if left -= int64(n); err != nil && left > 0 {
					return errors.Join(io.ErrUnexpectedEOF, err)
				}
			}
			return nil
		})
	}()
	f, err := blocking(net.Dial("tcp4", l.Addr().String()))
	if err != nil {
		return 0, errors.Join(err, l.Close(), (<-received).err)
	}
	room := make([]byte, floorWrite)
	sent, err := onThread(func() error {
		for left := size; left > 0; left -= floorWrite {
			if _, err := f.Write(room[:min(floorWrite, left)]); err != nil {
				return err
			}
		}
		return nil
	})
	err = errors.Join(err, f.Close())
	r := <-received
	return sent + r.seconds, errors.Join(err, r.err)
}

// blocking returns a file of a new connection whose calls block their thread, without Go's poller.
func blocking(c net.Conn, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	_ = f.Fd() // from now on it blocks
	return f, nil
}
