package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/lab"
	"github.com/fxfer/fxfer/tests/internal/hosts"
)

// Where large packets vanish without a word and the kernel does not look for that, a transfer takes a moment longer, and says why.
func TestBlackHole(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run programs as another user on a lab's hosts")
	}
	folder, err := hosts.NewFolder("fxfer-hole-", "home", "tmp", "src", "dst")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Remove()) })
	binary, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder.Abs("fxfer"), binary, 0o755))
	require.NoError(t, folder.Fill(t.Context(), "src/f", 3<<20, 1))

	box, err := lab.Start(lab.Link{Rate: 200e6, RTT: 10 * time.Millisecond, PMTU: 1308, BlackHole: true})
	if errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, box.Close()) })
	for _, h := range []*lab.Host{box.Left, box.Right} {
		require.NoError(t, h.Do(func() error { return hosts.SetSysctl("net/ipv4/tcp_mtu_probing", "0") }))
	}
	x := hosts.Fxfer{Folder: folder, Server: box.Right, Client: box.Left, Addr: box.Right.Addr(), Port: 7433, Home: "home"}
	require.NoError(t, x.Start(t.Context(), "--share", "dst=dst"), "ls gets through as well")

	send, err := x.Cold("send", "--json", "src/f", x.URL("dst"))
	require.NoError(t, err)
	out, err := folder.Prepare(t.Context(), send).Output()
	require.NoError(t, err, "%s", out)
	var summary struct {
		Type   string
		Limits []struct{ Limiter string }
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	require.NoError(t, json.Unmarshal(lines[len(lines)-1], &summary))
	require.Equal(t, "summary", summary.Type)
	require.Equal(t, "MTU black hole", summary.Limits[0].Limiter)
	want, err := os.ReadFile(folder.Abs("src/f"))
	require.NoError(t, err)
	got, err := os.ReadFile(folder.Abs("dst/f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
}
