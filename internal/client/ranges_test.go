package client

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/session/sessiontest"
	"github.com/stretchr/testify/require"
)

const (
	rangedLog  = 22
	rangedSize = 7<<rangedLog + 1234567 // 8 ranges
)

// rangesOf returns the ranges of the file "sub/f" of a folder.
func rangesOf(t *testing.T, dir string) (all []Range) {
	t.Helper()
	require.NoError(t, ListSource(t.Context(), dir, Selection{}, func(f SourceFile) error {
		for n := range (f.Size + 1<<rangedLog - 1) >> rangedLog {
			all = append(all, Range{File: f, Log: rangedLog, Number: n})
		}
		return nil
	}))
	return all
}

// ranged makes a folder with a file "sub/f".
func ranged(t *testing.T) (dir string, data []byte) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	return dir + "/", sessiontest.RandomFile(t, filepath.Join(dir, "sub", "f"), rangedSize)
}

// TestSendRanges: clients with keys of their own send the ranges of one file, and the server is started
// anew in between. What is complete is not sent again.
func TestSendRanges(t *testing.T) {
	t.Parallel()
	s := &site{dir: t.TempDir()}
	dir, data := ranged(t)
	all := rangesOf(t, dir)
	require.Len(t, all, 8)
	send := func(parts []Range) (written int64) {
		var hosts sync.WaitGroup
		next := make(chan Range, len(parts))
		for _, r := range parts {
			next <- r
		}
		close(next)
		var mu sync.Mutex
		for range 3 {
			c := newClient(t, t.TempDir(), Options{})
			u := s.invited(t)
			u.Path = "out"
			hosts.Go(func() {
				for r := range next {
					report, err := c.SendRange(t.Context(), dir, r, u, Transfer{})
					require.NoError(t, err)
					u.Token = ""
					mu.Lock()
					written += report.Written
					mu.Unlock()
				}
			})
		}
		hosts.Wait()
		return written
	}
	s.run(t, server.Options{}, identity.Write)
	require.EqualValues(t, 5<<rangedLog, send(all[1:6]))
	s.stop()
	require.NoFileExists(t, filepath.Join(s.dir, "out", "sub", "f"))
	s.run(t, server.Options{}, identity.Write)
	require.EqualValues(t, rangedSize-5<<rangedLog, send(all))
	require.Zero(t, send(all))
	s.stop()
	got, err := os.ReadFile(filepath.Join(s.dir, "out", "sub", "f"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	left, err := filepath.Glob(filepath.Join(s.dir, "out", "sub", ".fxfer-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSendRange: a range needs the right to write, counts in the quota, and takes only what says how
// files are written.
func TestSendRange(t *testing.T) {
	t.Parallel()
	dir, _ := ranged(t)
	part := rangesOf(t, dir)[1]
	for name, c := range map[string]struct {
		rights identity.Rights
		quota  int64
		target Target
		log    uint8
		number int64
		there  string // content of the target
		err    string
	}{
		"write only":         {rights: w},
		"read only":          {rights: r, err: "may not be written to"},
		"append only":        {rights: a, err: "may not be written to"},
		"no room for all":    {rights: w, quota: rangedSize - 1, err: "quota"},
		"room for all":       {rights: w, quota: rangedSize + 1<<20},
		"an older version":   {rights: w, there: "old", err: ErrNoRange.Error() + ": an older version is there"},
		"checksums":          {rights: w | r, target: Target{Checksum: true}, err: "only written"},
		"only what is there": {rights: w, target: Target{Existing: true}, err: "only written"},
		"a backup":           {rights: w, target: Target{BackupDir: "old"}, err: "only written"},
		"read back":          {rights: w, target: Target{Readback: true}, err: "only written"},
		"compared only":      {rights: w | r, target: Target{DryRun: true}, err: "only written"},
		"a snapshot":         {rights: w, target: Target{Snapshot: "auto"}, err: "selected by itself"},
		"a range too small":  {rights: w, log: 21, err: "no file has range"},
		"a range too large":  {rights: w, log: 61, err: "no file has range"},
		"a range of no file": {rights: w, number: 1 << 40, err: "no file has range"},
		"a negative range":   {rights: w, number: -1, err: "no file has range"},
		"behind the end":     {rights: w, number: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{dir: t.TempDir()}
			s.runShare(t, server.Options{}, server.Share{Name: "data", Dir: s.dir, Rights: c.rights, Quota: c.quota})
			defer s.stop()
			if c.there != "" {
				require.NoError(t, os.Mkdir(filepath.Join(s.dir, "sub"), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sub", "f"), []byte(c.there), 0o600))
			}
			part := part
			if c.log != 0 {
				part.Log = c.log
			}
			if c.number != 0 {
				part.Number = c.number
			}
			_, err := newClient(t, t.TempDir(), Options{}).SendRange(t.Context(), dir, part, s.invited(t), Transfer{Target: c.target})
			left, _ := filepath.Glob(filepath.Join(s.dir, "sub", ".fxfer-*.part"))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Empty(t, left)
				return
			}
			require.NoError(t, err)
			require.NoFileExists(t, filepath.Join(s.dir, "sub", "f"))
			require.Len(t, left, map[bool]int{true: 0, false: 1}[part.Number == 8])
		})
	}
}

// TestSendRangeOfOlder: a server that does not know the intent says so, and nothing is sent of a file
// that is not what was listed.
func TestSendRangeOfOlder(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Write)
	defer s.stop()
	dir, _ := ranged(t)
	part := rangesOf(t, dir)[1]
	part.File.Inode++
	report, err := newClient(t, t.TempDir(), Options{}).SendRange(t.Context(), dir, part, s.invited(t), Transfer{})
	require.NoError(t, err)
	require.Zero(t, report.Files)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	report, err = newClient(t, t.TempDir(), Options{}).SendRange(t.Context(), dir, part, s.invited(t), Transfer{})
	require.NoError(t, err)
	require.Zero(t, report.Files)
	_, err = newClient(t, t.TempDir(), Options{}).SendRange(t.Context(), dir, part, s.invited(t), Transfer{Selection: Selection{Rules: []string{"*"}}})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newClient(t, t.TempDir(), Options{}).SendRange(ctx, dir, part, s.invited(t), Transfer{})
	require.Equal(t, session.KindInterrupted, session.KindOf(err))
}
