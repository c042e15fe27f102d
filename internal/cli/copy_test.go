package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// TestCopyLine: what a server says of a copy cannot drive the terminal.
func TestCopyLine(t *testing.T) {
	t.Parallel()
	line := copyLine(fxfer.CopyStatus{State: "\x1b[2J", Text: "\x1b[2J\r"})
	require.NotContains(t, line, "\x1b")
	require.NotContains(t, line, "\r")
}
