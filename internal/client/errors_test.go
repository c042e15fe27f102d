package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// TestDescribeLost: to run the command again is no advice where another service has the port.
func TestDescribeLost(t *testing.T) {
	t.Parallel()
	for advice, causes := range map[session.Advice][]error{
		session.AdviceServerPort: {transport.ErrSilent, transport.ErrProtocol},
		session.AdviceRetry:      {io.EOF, os.ErrDeadlineExceeded},
	} {
		for _, cause := range causes {
			var known *session.Error
			require.ErrorAs(t, describe(t.Context(), fmt.Errorf("handshake: %w", cause), "nas:7433"), &known)
			require.Equal(t, session.KindUnreachable, known.Kind, "%v", cause)
			require.Equal(t, advice, known.Advice, "%v", cause)
			// Another session meets the same service, but a host that hangs may recover.
			require.Equal(t, !errors.Is(cause, transport.ErrProtocol), temporary(cause), "%v", cause)
		}
	}
}

// TestDescribeSilent: who was not heard can try again.
func TestDescribeSilent(t *testing.T) {
	t.Parallel()
	var known *session.Error
	require.ErrorAs(t, describe(t.Context(), &wire.Error{Code: wire.CodeSilent, Text: "x", Remote: true}, "nas:7433"), &known)
	require.Equal(t, session.KindUnreachable, known.Kind)
	require.Equal(t, session.AdviceRetry, known.Advice)
}
