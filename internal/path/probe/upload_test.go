package probe

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// piped is a stream in memory that delivers only so many bytes, each part after a pause.
type piped struct {
	net.Conn
	most  int
	pause time.Duration
	once  sync.Once
	gone  chan struct{}
}

func (p *piped) Read(b []byte) (int, error) {
	if p.most <= 0 {
		<-p.gone
		return 0, net.ErrClosed
	}
	time.Sleep(p.pause)
	n, err := p.Conn.Read(b[:min(len(b), p.most)])
	p.most -= n
	return n, err
}

func (p *piped) Close() error {
	p.once.Do(func() { close(p.gone) })
	return p.Conn.Close()
}

func (*piped) SetNoDelay(bool) error        { return nil }
func (*piped) SetCork(bool) error           { return nil }
func (*piped) LimitUnsent(int)              {}
func (*piped) Info() (transport.Info, bool) { return transport.Info{}, false }

// fixed lets so many streams send.
type fixed int

func (n fixed) Next(time.Time, int64, bool) int { return int(n) }

// TestUploadEnds: an upload over streams that deliver only a part of what was written has the part
// as its result, before the server gives up. One that delivers nothing fails.
func TestUploadEnds(t *testing.T) {
	const within, part = 5 * time.Second, 3 * wire.FlowBlock
	for _, most := range []int{part, 64} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := NewSession(&net.TCPAddr{})
			var served sync.WaitGroup
			defer served.Wait()
			defer cancel()
			streams := 0
			dial := func(context.Context, transport.Path) (Conn, error) {
				here, there := net.Pipe()
				far := &piped{Conn: there, most: 1 << 30, gone: make(chan struct{})}
				if streams++; streams > 1 { // the first is for round trips
					far.most, far.pause = most, tickEvery
				}
				served.Go(func() { _ = server.Serve(ctx, far) })
				return &piped{Conn: here, most: 1 << 30, gone: make(chan struct{})}, nil
			}
			began := time.Now()
			r, err := RunUpload(ctx, dial, 1e6, within, fixed(1))
			require.Less(t, time.Since(began), within+testExtra)
			if most < part {
				require.ErrorIs(t, err, errNothing)
				return
			}
			require.NoError(t, err)
			require.InDelta(t, part, r.Bytes, 2*wire.FlowBlock, "up to the last tick")
			require.Positive(t, r.Idle.Count)
		})
	}
}
