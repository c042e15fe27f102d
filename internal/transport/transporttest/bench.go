//go:build unix

package transporttest

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const benchBlock = 1 << 20

// BenchEnd is an end of a stream for Bench.
type BenchEnd interface {
	io.ReadCloser
	WriteBuffers(header, payload []byte) (int, error)
	CloseWrite() error
}

// Bench moves blocks of 1 MiB with a header from client to server, both in this process, and closes
// them. It reports the CPU seconds that both take for 1e9 bytes. Run it several times and compare
// medians: on a busy machine single runs differ by a third.
func Bench(b *testing.B, client, server BenchEnd) {
	defer client.Close()
	defer server.Close()
	done := make(chan error, 1)
	go func() { done <- benchReceive(server) }()
	header, block := make([]byte, 64), make([]byte, benchBlock)
	b.SetBytes(benchBlock)
	b.ResetTimer()
	start := cpuSeconds()
	for range b.N {
		_, err := client.WriteBuffers(header, block)
		require.NoError(b, err)
	}
	require.NoError(b, client.CloseWrite())
	require.NoError(b, <-done)
	b.ReportMetric((cpuSeconds()-start)/float64(b.N)/benchBlock*1e9, "cpu-s/GB")
}

func benchReceive(server io.Reader) error {
	header, block := make([]byte, 64), make([]byte, benchBlock)
	for {
		if _, err := io.ReadFull(server, header); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := io.ReadFull(server, block); err != nil {
			return err
		}
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
