package sftp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// packet is a request or an answer of some bytes.
func packet(kind byte, size int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(size+1))
	return append(append(b, kind), bytes.Repeat([]byte{kind}, size)...)
}

// TestInOrder asks for reads and writes in turn, and sees which of them run beside each other.
func TestInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		o := newInOrder(here)
		const write = 6
		kinds := []byte{readPacket, readPacket, write, write, readPacket}
		go func() {
			for _, k := range kinds {
				_, _ = there.Write(packet(k, 1000))
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		got := make(chan byte, len(kinds))
		go func() {
			b := make([]byte, 1005)
			for range kinds {
				if _, err := io.ReadFull(o, b); err != nil {
					close(got)
					return
				}
				got <- b[lengthOfSize]
			}
		}()
		run := func(want ...byte) {
			t.Helper()
			synctest.Wait()
			require.Len(t, got, len(want))
			for _, k := range want {
				require.Equal(t, k, <-got)
			}
		}
		answer := func() { // in parts, as a library may write it
			for _, part := range bytes.SplitAfter(packet(101, 20), []byte{101, 101, 101}) {
				_, err := o.Write(part)
				require.NoError(t, err)
			}
		}
		run(readPacket, readPacket)
		answer()
		run()
		answer()
		run(write)
		answer()
		run(write)
		require.NoError(t, o.Close(), "the last one waits no more")
		_, open := <-got
		require.False(t, open)
		there.Close()
	})
}

// stream is a channel whose requests are there already.
type stream struct {
	io.Reader
	io.Writer
}

func (stream) Close() error { return nil }

// FuzzInOrder reads any requests and answers. The requests pass as they are, up to a fault.
func FuzzInOrder(f *testing.F) {
	f.Add(append(packet(readPacket, 3), packet(6, 0)...), packet(101, 2))
	f.Add([]byte{0, 0, 0, 0, 1}, []byte{0, 0})
	f.Fuzz(func(t *testing.T, requests, answers []byte) {
		o := newInOrder(stream{bytes.NewReader(requests), io.Discard})
		_, err := o.Write(answers)
		require.NoError(t, err)
		var passed []byte
		for b := make([]byte, 7); ; {
			n, err := o.Read(b)
			passed = append(passed, b[:n]...)
			if err != nil {
				break
			}
			o.mu.Lock()
			o.running = 0
			o.mu.Unlock()
		}
		require.True(t, bytes.HasPrefix(requests, passed))
	})
}
