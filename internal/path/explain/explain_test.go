package explain

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/diagnose"
)

func connection(local, remote string, moved int64, l diagnose.Limiter) Connection {
	c := Connection{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), Sent: moved, Sends: true, seen: diagnose.Sender}
	c.Service = service(c.Local.Port(), c.Remote.Port())
	for i := range 20 {
		c.Cells = append(c.Cells, diagnose.Cell{Start: time.Duration(i) * step, Length: step, Limiter: l, Sender: diagnose.Sample{Acked: moved / 20, MSS: 1448, InFlight: 1000}})
	}
	c.Verdicts = diagnose.Judge(c.Cells, &c.sender, &c.receiver, &diagnose.Asked{Here: diagnose.Sender, Program: true})
	return c
}

// The connection that carries the data decides, not the one for commands.
func TestReport(t *testing.T) {
	t.Parallel()
	r := Report{Connections: []Connection{
		connection("10.0.0.1:40000", "10.0.0.2:21", 2000, diagnose.SendingProgram),
		connection("10.0.0.2:33333", "10.0.0.1:44444", 10_000_000, diagnose.ReceiverWindow),
		connection("10.0.0.3:33333", "10.0.0.1:44444", 9_000_000, diagnose.ReceiverWindow),
	}}
	r.judge()
	require.Equal(t, diagnose.ReceiverWindow, r.Verdicts[0].Limiter)
	require.InDelta(t, 1, r.Verdicts[0].Share, 0.001)
	require.Equal(t, []string{"FTP data", "", "FTP"}, []string{r.Connections[0].Service, r.Connections[1].Service, r.Connections[2].Service})
	require.Len(t, r.Timeline, 20)
	require.InDelta(t, 19_002_000*8/2, r.Timeline[3].Rate, 100)
	require.Equal(t, int64(3000), r.Timeline[3].InFlight)
}
