package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/stream"
	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// TestDoubtIsNoProof: a peer that was stopped for a while is no black hole, even if it answers the
// small packets first.
func TestDoubtIsNoProof(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t)})
	require.NoError(t, err)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		var conns [2]*Conn // the first, and the one with small packets that follows because there was no answer
		var err error
		for i := 0; i < len(conns) && err == nil; i++ {
			conns[i], err = l.Accept()
		}
		for i := len(conns) - 1; i >= 0 && err == nil; i-- {
			err = conns[i].Handshake(t.Context())
		}
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		served <- err
	}()
	c, err := Dial(t.Context(), l.Addr().String(), Config{Auth: newAuth(t), Doubt: true}, transporttest.AnyKey)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, <-served)
}

// A full queue loses a packet, or two, while small ones pass.
func TestProven(t *testing.T) {
	t.Parallel()
	const full = 1448
	for _, c := range []struct {
		name string
		info stream.Info
		hole bool
	}{
		{"sent again once", stream.Info{SndMSS: full, InFlight: full, RetransSegs: 1}, false},
		{"sent again twice", stream.Info{SndMSS: full, InFlight: full, RetransSegs: 2}, true},
		{"a small packet", stream.Info{SndMSS: full, InFlight: 100, RetransSegs: 9}, false},
		{"acknowledged", stream.Info{SndMSS: full, InFlight: full, RetransSegs: 9, BytesAcked: 2000, BytesReceived: 1}, false},
		{"acknowledged, but not answered", stream.Info{SndMSS: full, BytesAcked: 2000}, true},
	} {
		require.Equal(t, c.hole, proven(&c.info), c.name)
	}
}
