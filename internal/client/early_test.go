package client

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
)

// sendEarly sends so much of the file "f" of a folder early, and returns its result and the session's.
func sendEarly(t *testing.T, c *Client, dir string, to session.URL, size int64) (there int64, failed, err error) {
	next := make(chan bool, 1)
	next <- true
	err = c.SendEarly(t.Context(), dir, to, Early{
		Next: func(ctx context.Context) (string, int64, bool) {
			select {
			case more := <-next:
				return "f", size, more
			case <-ctx.Done():
				return "", 0, false
			}
		},
		Result: func(_ string, n int64, err error) {
			there, failed = n, err
			next <- false
		},
	})
	return there, failed, err
}

// TestSendEarly: what is sent early needs the right to write, counts in the quota, and has no name.
func TestSendEarly(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		rights identity.Rights
		quota  int64
		size   int64
		ends   string // error of the session
		fails  string // error of the file
	}{
		"read and write":        {rights: r | w, size: 5 * mib},
		"write only":            {rights: w, size: 5 * mib, ends: "may not be read"},
		"read only":             {rights: r, size: 5 * mib, ends: "may not be written to"},
		"append only":           {rights: a, size: 5 * mib, ends: "may not be written to"},
		"room for it twice":     {rights: r | w, quota: 10 * mib, size: 5 * mib},
		"less room than twice":  {rights: r | w, quota: 10*mib - 1, size: 5 * mib, fails: "quota"},
		"more than the file":    {rights: r | w, size: 7 * mib, fails: "changed"},
		"too little to be kept": {rights: r | w, size: 3 * mib, fails: "not the beginning"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{dir: t.TempDir()}
			s.runShare(t, server.Options{}, server.Share{Name: "data", Dir: s.dir, Rights: c.rights, Quota: c.quota})
			defer s.stop()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 5*mib), 0o600))
			there, failed, err := sendEarly(t, newClient(t, t.TempDir(), Options{}), dir, s.invited(t), c.size)
			left, _ := filepath.Glob(filepath.Join(s.dir, ".fxfer-*.part"))
			require.NoFileExists(t, filepath.Join(s.dir, "f"))
			switch {
			case c.ends != "":
				require.ErrorContains(t, err, c.ends)
				require.Empty(t, left)
			case c.fails != "":
				require.NoError(t, err)
				require.ErrorContains(t, failed, c.fails)
				require.Empty(t, left)
			default:
				require.NoError(t, err)
				require.NoError(t, failed)
				require.Equal(t, c.size, there)
				require.Len(t, left, 1)
			}
		})
	}
}
