package client

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
)

// A listing that lacks an entry, here a mount whose process has died, has the others and fails. So has
// what fits a pattern.
func TestListLacks(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{})
	for _, name := range []string{"a", "dead", "z"} {
		require.NoError(t, os.Mkdir(filepath.Join(s.dir, name), 0o700))
	}
	process, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("opening FUSE: %v", err)
	}
	defer process.Close()
	dead := filepath.Join(s.dir, "dead")
	opt := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", process.Fd())
	if err := unix.Mount("dead", dead, "fuse", 0, opt); err != nil {
		t.Skipf("mounting FUSE: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dead, unix.MNT_DETACH)) })
	process.Close()

	entries, err := c.List(t.Context(), s.plain(t, ""))
	require.Equal(t, session.KindRemoteDisk, session.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "dead")
	var names []string
	for _, e := range entries {
		names = append(names, e.Path)
	}
	require.Equal(t, []string{"a", "z"}, names)

	f, err := c.Files(t.Context(), s.plain(t, ""))
	require.NoError(t, err)
	defer f.Close()
	for pattern, want := range map[string]int{"?": 2, "z*": 1, "none": 0} {
		fits, err := f.Glob("", []string{pattern})
		require.ErrorContains(t, err, "dead")
		require.Len(t, fits, want, pattern)
	}
}
