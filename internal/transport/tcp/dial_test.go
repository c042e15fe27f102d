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

// TestAnswerLiftsDeadline: the deadline of a handshake does not end what follows.
func TestAnswerLiftsDeadline(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0", Config{Auth: newAuth(t)})
	require.NoError(t, err)
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Handshake(t.Context())
			defer c.Close()
		}
		served <- err
	}()
	c, err := Dial(t.Context(), l.Addr().String(), Config{Auth: newAuth(t)}, transporttest.AnyKey)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, <-served)
	require.False(t, c.mute)
}
