package client

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

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
		"write only":            {rights: w, size: 5 * mib},
		"read only":             {rights: r, size: 5 * mib, ends: "may not be written to"},
		"append only":           {rights: a, size: 5 * mib, ends: "may not be written to"},
		"within the quota":      {rights: r | w, quota: 5 * mib, size: 5 * mib},
		"more than the quota":   {rights: r | w, quota: 5*mib - 1, size: 5 * mib, fails: "quota"},
		"more than the file":    {rights: r | w, size: 7 * mib, fails: "changed"},
		"too little to be kept": {rights: r | w, size: 3 * mib, fails: "not the beginning"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{dir: t.TempDir()}
			var err error
			s.Server, err = server.New(server.Options{
				Home: t.TempDir(), Listen: "127.0.0.1:0",
				Shares: []server.Share{{Name: "data", Dir: s.dir, Rights: c.rights, Quota: c.quota}},
			})
			require.NoError(t, err)
			defer sessiontest.Run(t, s.Server)()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 5*mib), 0o600))
			next := make(chan bool, 1)
			next <- true
			var there int64
			var failed error
			err = newClient(t, t.TempDir(), Options{}).SendEarly(t.Context(), dir, s.invited(t), Early{
				Next: func(ctx context.Context) (string, int64, bool) {
					select {
					case more := <-next:
						return "f", c.size, more
					case <-ctx.Done():
						return "", 0, false
					}
				},
				Result: func(_ string, n int64, err error) {
					there, failed = n, err
					next <- false
				},
			})
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
