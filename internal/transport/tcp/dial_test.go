package tcp

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/transport/transporttest"
)

// TestSilentPeer: a port that accepts connections and says nothing costs answerTimeout, not the time that a
// whole handshake may take. It is not parallel, because it changes answerTimeout.
func TestSilentPeer(t *testing.T) {
	defer func(before time.Duration) { answerTimeout = before }(answerTimeout)
	answerTimeout = 10 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	require.NoError(t, err)
	defer l.Close()
	_, err = Dial(t.Context(), l.Addr().String(), Config{Auth: newAuth(t)}, transporttest.AnyKey)
	require.ErrorIs(t, err, ErrSilent)
}

// TestAnswerLiftsDeadline: the deadline of the first byte does not end what follows.
func TestAnswerLiftsDeadline(t *testing.T) {
	t.Parallel()
	const patience = 500 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
	defer peer.Close()
	c := newConn(near.(*net.TCPConn), Config{})
	defer c.Close()
	_, err = peer.Write([]byte{1})
	require.NoError(t, err)
	c.mute = true
	require.NoError(t, near.SetReadDeadline(time.Now().Add(patience)))
	s, p := socketOf{c.tcp, c}, make([]byte, 1)
	_, err = s.Read(p)
	require.NoError(t, err)
	time.AfterFunc(patience*3/2, func() { _, _ = peer.Write([]byte{2}) })
	_, err = s.Read(p)
	require.NoError(t, err, "it waits for longer")
}
