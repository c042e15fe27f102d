package outbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// newForwarding returns the forwarding of a share with the file a, to a server that is not there, and
// what changes it.
func newForwarding(t *testing.T) (all *Forwards, f Forward) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	to, err := fxfer.ParseURL("fxfer://127.0.0.1:1/inbox")
	require.NoError(t, err)
	all = NewForwards(fxfer.Options{Home: t.TempDir()}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(all.Close)
	return all, Forward{Share: "s", Dir: dir, URL: to, Settle: time.Hour, ConfirmWithin: time.Hour}
}

// TestSuccessor asks for a file while a reload replaces what sends it on: the successor confirms it.
// Once all is closed, nothing is confirmed.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	all, f := newForwarding(t)
	all.Apply([]Forward{f})
	old := all.of("s")
	type answer struct {
		state string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		state, err := old.Confirm(t.Context(), "a")
		answers <- answer{state, err}
	}()
	f.RateLimit = 1e6
	all.Apply([]Forward{f})
	next := all.of("s")
	require.NotSame(t, old, next)
	select {
	case a := <-answers:
		require.Fail(t, "it did not wait", "%v", a)
	default:
	}
	root, err := os.OpenRoot(f.Dir)
	require.NoError(t, err)
	defer root.Close()
	queueFiles(t, next.queue, map[string]File{"a": {State: There, Version: *look(root, "a"), There: time.Now()}})
	require.Equal(t, answer{state: "there"}, <-answers)

	require.NoError(t, os.WriteFile(filepath.Join(f.Dir, "b"), nil, 0o600))
	all.Close()
	state, err := all.Of("s").Confirm(t.Context(), "b")
	require.NoError(t, err)
	require.NotEqual(t, string(There), state)
	require.NotEmpty(t, state)
}

// TestTakeover lets no client find a share without what sends it on, while the predecessor ends.
func TestTakeover(t *testing.T) {
	t.Parallel()
	all, f := newForwarding(t)
	old := &forwarding{Forward: f, stop: func() {}, ended: make(chan struct{})} // it ends late
	all.running["s"] = old
	f.RateLimit = 1e6
	applied := make(chan struct{})
	go func() {
		all.Apply([]Forward{f})
		close(applied)
	}()
	for all.of("s") == old {
		time.Sleep(time.Millisecond)
	}
	require.NotNil(t, all.Of("s"))
	select {
	case <-applied:
		require.Fail(t, "the predecessor has not ended")
	case <-all.of("s").ended:
		require.Fail(t, "it has not waited for its predecessor")
	default:
	}
	close(old.ended)
	<-applied
}
