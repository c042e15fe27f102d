package transfer

import (
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// A peer that was stopped for a while hears the reason, so that it tries again.
func TestRefusalOfSilence(t *testing.T) {
	require.Equal(t, wire.CodeSilent, refusal(fmt.Errorf("read: %w", os.ErrDeadlineExceeded)).Code)
	require.Equal(t, wire.CodeOther, refusal(os.ErrClosed).Code)
}

// Acknowledgements gather for a moment, and a message takes them with it at once.
func TestAcksGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _, _ = here.Close(), there.Close() }()
		p := newPump(here, nil)
		go func() { _ = p.write() }()
		writes := make(chan time.Duration, 8)
		began := time.Now()
		go func() {
			for buf := make([]byte, 1<<10); ; {
				if _, err := there.Read(buf); err != nil {
					return
				}
				writes <- time.Since(began)
			}
		}()
		ackThree := func() {
			for block := range int64(3) {
				p.ack(0, block)
				synctest.Wait()
			}
		}
		ackThree()
		require.Zero(t, <-writes, "the first one does not wait")
		require.Equal(t, ackEvery, <-writes)
		ackThree()
		p.send(&wire.Finished{})
		require.Equal(t, ackEvery, <-writes)
		synctest.Wait()
		require.Empty(t, writes)
		p.mu.Lock()
		p.flush = true
		p.mu.Unlock()
		p.wake()
	})
}
