package profile

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestProfile(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.Empty(t, Names(home))
	want := Profile{Streams: 32, Congestion: "bbr", SockBuf: 17520, Transport: "tcp", Priority: "low"}
	require.NoError(t, want.Save(home, "office", "found by a test"))
	got, err := Load(home, "office")
	require.NoError(t, err)
	require.Equal(t, want, *got)
	require.Equal(t, []string{"office"}, Names(home))

	require.NoError(t, (&Profile{}).Save(home, "office", "the defaults"), "it replaces the first")
	got, err = Load(home, "office")
	require.NoError(t, err)
	require.Equal(t, Profile{}, *got)

	_, err = Load(home, "home")
	require.ErrorContains(t, err, `there is no profile "home", only office: `)
	require.Equal(t, fxfer.KindUsage, fxfer.KindOf(err))
	require.NoError(t, os.WriteFile(path(home, "bad"), []byte("streams: 4\nlanes: 2\n"), 0o600))
	_, err = Load(home, "bad")
	require.ErrorContains(t, err, "bad.yaml:2: ")
	for _, name := range []string{"", "../x", "a/b", "-x"} {
		_, err := ParseName(name)
		require.Error(t, err)
	}
}

// TestApply: what the user chose stays, and QUIC gets nothing that it lacks.
func TestApply(t *testing.T) {
	t.Parallel()
	p := Profile{Streams: 32, Congestion: "bbr", SockBuf: 17520, Priority: "low"}
	opt := fxfer.Options{Streams: 4, MaxStreams: 8}
	p.Apply(&opt, func(key string) bool { return key == "streams" })
	require.Equal(t, fxfer.Options{Streams: 4, MaxStreams: 8, Congestion: "bbr", SockBuf: 17520, Priority: "low"}, opt)
	opt = fxfer.Options{MaxStreams: 8, Transport: fxfer.TransportQUIC}
	p.Apply(&opt, func(string) bool { return false })
	require.Equal(t, fxfer.Options{Streams: 32, Transport: fxfer.TransportQUIC, Priority: "low"}, opt)
}
