package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListens(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue
   0: 00000000:1D09 00000000:0000 0A 00000000:00000000
   1: 02004D0A:0016 01004D0A:C350 01 00000000:00000000
`
	require.True(t, listens(table, 7433))
	require.False(t, listens(table, 22), "connected, not listening")
	require.False(t, listens("", 7433))
}
