package outbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEarlyTo(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct{ there, size, to int64 }{
		{0, 0, 0},
		{0, 4*mib - 1, 0},
		{0, 4 * mib, 4 * mib},
		{0, 9*mib + 5, 9 * mib},
		{9 * mib, 9*mib + 5, 0},
		{9 * mib, 10*mib - 1, 0},
		{9 * mib, 10 * mib, 10 * mib},
		{9 * mib, 9*mib - 1, 8 * mib}, // it was cut
		{9 * mib, 5, 0},
	} {
		require.Equal(t, c.to, earlyTo(c.there, c.size), c)
	}
}

// TestDense: what follows a hole is not sent early.
func TestDense(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	f, err := root.Create("f")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 5*mib))
	require.NoError(t, err)
	require.EqualValues(t, 5*mib, dense(root, "f", 5*mib))
	require.NoError(t, f.Truncate(1<<30))
	if n := dense(root, "f", 1<<30); runtime.GOOS == "linux" && n != 1<<30 { // some file systems know no holes
		require.EqualValues(t, 5*mib, n)
	}
	require.Zero(t, dense(root, "missing", 5*mib))
}

// TestEarly: a file is part of a session once at a time, goes on from what is there, and begins anew
// when it is another file. Before it is sent, the session ends.
func TestEarly(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	dir := t.TempDir()
	at := filepath.Join(dir, "f")
	put := func(size int64) {
		f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		_, err = f.WriteAt(make([]byte, size), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	var e early
	now := time.Now()
	find := func() int64 {
		_, to, _ := e.find(root, true, now)
		return to
	}
	arrives := func() { e.set(map[string]uint64{"f": look(root, "f").Inode}) }

	put(5*mib + 1)
	require.Zero(t, find(), "no scan has found it")
	arrives()
	require.EqualValues(t, 5*mib, find())
	put(6 * mib)
	require.Zero(t, find(), "it is under way")
	e.result("f", 5*mib, nil)
	require.EqualValues(t, 5*mib, e.there("f"))
	require.EqualValues(t, 6*mib, find())
	e.result("f", 6*mib, errors.New("cut"))
	require.Zero(t, find(), "it failed just now")
	now = now.Add(time.Hour)
	require.EqualValues(t, 6*mib, find())
	e.result("f", 6*mib, nil)
	require.Zero(t, find())
	put(5 * mib)
	require.EqualValues(t, 5*mib, find(), "it was cut")
	e.result("f", 5*mib, nil)
	require.NoError(t, os.Rename(at, at+"1")) // which keeps the inode from being used again
	put(5 * mib)
	if look(root, "f").Inode != 0 {
		require.EqualValues(t, 5*mib, find(), "another file has its name")
	}
	arrives()

	session, cancel := context.WithCancel(t.Context())
	end := e.begin(cancel)
	released := make(chan struct{})
	go func() {
		e.release(t.Context(), map[string]Version{"f": {}})
		close(released)
	}()
	if look(root, "f").Inode != 0 {
		<-session.Done()
		select {
		case <-released:
			t.Error("the session has not ended")
		default:
		}
	}
	end()
	<-released
	now = now.Add(time.Hour)
	require.Zero(t, find())
}
