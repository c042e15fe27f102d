package doors

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// sentOn sends the files of the shares docs and scans on, as far as a server knows.
type sentOn struct{ files []fxfer.Forwarded }

func (s *sentOn) States() ([]fxfer.Forwarded, error) { return s.files, nil }

// beginSentOn runs a server with all doors whose shares are sent on.
func beginSentOn(t *testing.T, f fxfer.Forwarder) *dav {
	return beginDAV(t, func(o *fxfer.ServerOptions) {
		o.Doors.FTP = fxfer.FTPDoor{Addr: "127.0.0.1:0"}
		o.Forwarder = func(string) fxfer.Forwarder { return f }
	})
}

// TestStates reads how far files are, by each door.
func TestStates(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	d := beginSentOn(t, &sentOn{[]fxfer.Forwarded{
		{Path: "d/a b", State: "there", Since: at}, {Path: "line\nbreak", State: "arriving", Since: at}, {Path: "mine", State: "waiting", Since: at},
	}})
	want := "there     2026-01-02T02:04:05Z  d/a b\narriving  2026-01-02T02:04:05Z  line\ufffdbreak\nwaiting   2026-01-02T02:04:05Z  mine\n"
	require.NoError(t, os.WriteFile(d.share("docs/.state"), []byte("of the disk"), 0o600))

	client, _ := d.dial(t, "anna")
	f, err := client.Open("/docs/.state")
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
	require.NoError(t, f.Close())
	info, err := client.Stat("/docs/.state")
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), info.Size())
	require.True(t, at.Equal(info.ModTime()))
	_, err = client.Create("/docs/.state")
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorIs(t, client.Remove("/docs/.state"), os.ErrPermission)
	require.ErrorIs(t, client.Mkdir("/docs/.state"), os.ErrPermission)
	require.NoError(t, client.Mkdir("/docs/d"))
	require.ErrorIs(t, client.Rename("/docs/d", "/docs/.state"), os.ErrPermission)
	_, err = client.Stat("/docs/d/.state")
	require.ErrorIs(t, err, os.ErrNotExist, "only the top has one")
	_, err = client.Stat("/.state")
	require.ErrorIs(t, err, os.ErrNotExist)

	x := d.dialFTP(t).logIn("anna", true)
	data, _ := x.data("RETR /docs/.state")
	text, err = io.ReadAll(data)
	require.NoError(t, err)
	x.expect(226)
	require.Equal(t, want, string(text))
	x.do(550, "DELE /docs/.state")

	status, answer, h := d.as(t, "anna", http.MethodGet, d.url("/docs/.state"), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, want, answer)
	require.NotEmpty(t, h.Get("ETag"))
	require.Equal(t, http.StatusForbidden, d.anna(t, http.MethodPut, "/docs/.state", "mine"))

	// Who may not list the share learns of what came on this connection.
	client, _ = d.dial(t, "scanner")
	read := func() string {
		f, err := client.Open("/scans/.state")
		require.NoError(t, err)
		defer f.Close()
		text, err := io.ReadAll(f)
		require.NoError(t, err)
		return string(text)
	}
	require.Empty(t, read())
	mine, err := client.Create("/scans/mine")
	require.NoError(t, err)
	require.NoError(t, mine.Close())
	require.True(t, strings.HasSuffix(read(), "  mine\n"))
	require.Equal(t, 1, strings.Count(read(), "\n"))
}
