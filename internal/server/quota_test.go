package server

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
)

// inPlace counts what a folder holds, partial files included. seen lists names and sizes: the result
// is the state of one moment if a second call sees the same.
func inPlace(dir string) (h usage, seen string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || filepath.Ext(e.Name()) == ".ckpt" {
			continue
		}
		h.entries++
		if info.Mode().IsRegular() {
			h.bytes += info.Size()
		}
		seen += fmt.Sprintln(e.Name(), info.Size(), info.ModTime())
	}
	return h, seen
}

// TestShareQuota has twenty writers fill a share of limited size. Some replace files, some send
// streams of unknown length. The quota is never exceeded, nor left unused.
func TestShareQuota(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const quota, files, writers, each = 24 << 20, 40, 20, 4
	s := serveWith(t, Options{}, identity.Read|identity.Write)
	defer s.stop()
	opt := s.opt
	opt.Shares[0].Quota, opt.Shares[0].QuotaFiles = quota, files
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "before"), make([]byte, 1<<20), 0o600))
	require.NoError(t, s.Reload(opt))
	over, watching := make(chan usage, 1), make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for before := ""; ; {
			h, seen := inPlace(s.dir)
			if (h.bytes > quota || h.entries > files) && seen == before {
				select {
				case over <- h:
				default:
				}
			}
			before = seen
			select {
			case <-watching:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	home, dir := t.TempDir(), t.TempDir()
	_, err := newClient(t, home, client.Options{}).List(t.Context(), s.invited(t))
	require.NoError(t, err)
	var placed, refused atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		c := newClient(t, home, client.Options{Streams: 1})
		all.Go(func() {
			for n := range each {
				name := fmt.Sprintf("w%d-%d", w, random.IntN(4)) // sometimes replaces a file
				size := 1 + random.IntN(1<<20)
				if n == 0 {
					size = 5<<20 + random.IntN(1<<20) // several blocks
				}
				u := s.plain(t, name)
				var err error
				if random.IntN(4) == 0 {
					_, err = c.SendStream(t.Context(), io.LimitReader(zeros{}, int64(size)), u, client.Transfer{})
				} else {
					source := filepath.Join(dir, fmt.Sprint(w, "-", n))
					if os.WriteFile(source, make([]byte, size), 0o600) != nil {
						return
					}
					_, err = c.Send(t.Context(), []string{source}, u, client.Transfer{})
				}
				switch {
				case err == nil:
					placed.Add(1)
				case session.KindOf(err) == session.KindRemoteDisk:
					refused.Add(1)
				default:
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	all.Wait()
	close(watching)
	watcher.Wait()
	select {
	case h := <-over:
		t.Errorf("%d bytes, %d entries are there: more than the quota", h.bytes, h.entries)
	default:
	}
	h, _ := inPlace(s.dir)
	t.Logf("%d placed, %d refused; %d of %d bytes, %d of %d entries", placed.Load(), refused.Load(), h.bytes, quota, h.entries, files)
	require.Positive(t, refused.Load())
	require.Greater(t, h.bytes, int64(quota/4))
	l := s.live.Load().shares["data"].quota
	require.Zero(t, l.claimed, "claims that nobody settled")

	// A removed file makes room at once, and no more than its size.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, quota-(1<<20)), 0o600))
	c := newClient(t, home, client.Options{})
	_, err = c.Send(t.Context(), []string{filepath.Join(dir, "large")}, s.plain(t, "large"), client.Transfer{})
	require.ErrorContains(t, err, `share "data" has a quota of 25.2 MB, of which `)
	require.Equal(t, session.KindRemoteDisk, session.KindOf(err))
	entries, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != "before" {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	l.mu.Lock()
	l.countedAt = l.countedAt.Add(-countAfter) // another program removes files
	l.mu.Unlock()
	_, err = c.Send(t.Context(), []string{filepath.Join(dir, "large")}, s.plain(t, "large"), client.Transfer{})
	require.NoError(t, err)
	_, err = c.SendStream(t.Context(), io.LimitReader(zeros{}, 1), s.plain(t, "one"), client.Transfer{})
	require.ErrorContains(t, err, "of which 0 B are left")
	opt.Shares[0].QuotaFiles = 2
	require.NoError(t, s.Reload(opt))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	_, err = c.Send(t.Context(), []string{filepath.Join(dir, "folder")}, s.plain(t, ""), client.Transfer{})
	require.ErrorContains(t, err, "has a quota of 2 entries, of which 0 are left")
	opt.Shares[0].Quota, opt.Shares[0].QuotaFiles = 0, 0
	require.NoError(t, s.Reload(opt))
	_, err = c.Send(t.Context(), []string{filepath.Join(dir, "folder")}, s.plain(t, ""), client.Transfer{})
	require.NoError(t, err)
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
