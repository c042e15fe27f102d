package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/path/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// Large packets vanish without an ICMP message, and the kernel does not probe for that. A transfer
// takes a moment longer and reports the reason.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	for name, open := range map[string]lab.Direction{"to the server": lab.RightToLeft, "from the server": lab.LeftToRight} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			throughHole(t, open)
		})
	}
}

// throughHole sends and gets while one direction is open and the other swallows large packets.
func throughHole(t *testing.T, open lab.Direction) {
	folder, err := hosts.NewFolder("fxfer-hole-", "home", "tmp", "src", "dst", "back")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Remove()) })
	require.NoError(t, folder.Install(t.Context(), program, "fxfer"))
	require.NoError(t, folder.Fill(t.Context(), "src/f", 3<<20, 1))
	box, err := lab.Start(lab.Link{Rate: 200e6, RTT: 10 * time.Millisecond, PMTU: 1308, BlackHole: true})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	whole := 1500
	require.NoError(t, box.Set(lab.Change{Direction: open, PMTU: &whole}))
	for _, h := range []*lab.Host{box.Left, box.Right} {
		require.NoError(t, h.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_mtu_probing", "0") }))
	}
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"), "ls gets through as well")

	want, err := os.ReadFile(folder.Abs("src/f"))
	require.NoError(t, err)
	for _, step := range []struct {
		args   []string
		result string
	}{
		{[]string{"send", "--json", "--transport", "tcp", "src/f", x.URL("dst")}, "dst/f"},
		{[]string{"get", "--json", "--transport", "tcp", x.URL("dst/f"), "back/"}, "back/f"},
	} {
		command, err := x.Cold(step.args...)
		require.NoError(t, err)
		out, err := folder.Prepare(t.Context(), command).Output()
		require.NoError(t, err, "%s", out)
		var summary struct {
			Type   string
			Limits []struct{ Limiter string }
		}
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		require.NoError(t, json.Unmarshal(lines[len(lines)-1], &summary))
		require.Equal(t, "summary", summary.Type)
		require.Equal(t, "MTU black hole", summary.Limits[0].Limiter)
		got, err := os.ReadFile(folder.Abs(step.result))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	}
}
