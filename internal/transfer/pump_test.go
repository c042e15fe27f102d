package transfer

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/wire"
)

// A peer that was stopped for a while hears the reason, so that it tries again.
func TestRefusalOfSilence(t *testing.T) {
	require.Equal(t, wire.CodeSilent, refusal(fmt.Errorf("read: %w", os.ErrDeadlineExceeded)).Code)
	require.Equal(t, wire.CodeOther, refusal(os.ErrClosed).Code)
}
