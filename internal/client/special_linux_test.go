package client

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestSpecialTargets: what is no file is written to or refused, and never replaced. Success means
// that whoever reads there has all of the file.
func TestSpecialTargets(t *testing.T) {
	t.Parallel()
	s := serve(t, identity.Read|identity.Write)
	defer s.stop()
	c := newClient(t, enrol(t, s), Options{Streams: 2})
	small, large := []byte("small\n"), bytes.Repeat([]byte("large"), 700_000)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "small"), small, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "large"), large, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "folder"), 0o700))
	contents := map[string][]byte{"small": small, "large": large, "folder": nil, "missing": nil}
	for name, want := range contents {
		for kind, setUp := range specialKinds {
			t.Run(kind+" "+name, func(t *testing.T) {
				target, arrived := setUp(t, t.TempDir())
				before, missing := os.Lstat(target)
				_, err := c.Get(t.Context(), urls(s.plain(t, name)), target, Transfer{})
				after, gone := os.Lstat(target)
				require.Equal(t, missing == nil, gone == nil)
				if gone == nil {
					require.True(t, os.SameFile(before, after) && before.Mode() == after.Mode(), "it is %v", after.Mode())
				}
				switch {
				case want == nil, arrived == nil:
					require.Error(t, err)
					require.NotEqual(t, session.KindUnreachable, session.KindOf(err), "%v", err)
				default:
					require.NoError(t, err)
				}
				if arrived != nil {
					require.True(t, bytes.Equal(want, arrived()))
				}
			})
		}
	}
	for _, kind := range []string{"pipe", "symlink to a pipe", "descriptor", "socket"} {
		t.Run("manifest to "+kind, func(t *testing.T) {
			target, arrived := specialKinds[kind](t, t.TempDir())
			before, err := os.Lstat(target)
			require.NoError(t, err)
			_, err = c.Get(t.Context(), urls(s.plain(t, "small")), t.TempDir(), Transfer{Manifest: target})
			after, gone := os.Lstat(target)
			require.NoError(t, gone)
			require.True(t, os.SameFile(before, after), "it is %v", after.Mode())
			if arrived == nil {
				require.Equal(t, session.KindLocalDisk, session.KindOf(err), "%v", err)
				return
			}
			require.NoError(t, err)
			require.Regexp(t, "^[0-9a-f]{64}  small\n$", string(arrived()))
		})
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "folder", "f"), small, 0o600))
	report, err := c.Get(t.Context(), urls(s.plain(t, "folder")), "/proc/", Transfer{})
	require.Equal(t, session.KindLocalDisk, session.KindOf(err), "%v", err)
	require.Len(t, report.Failures, 2)
	require.ErrorContains(t, report.Failures[0].Failure(), "/proc/folder: mkdir: no such file or directory")
	require.ErrorContains(t, report.Failures[1].Failure(), "/proc/folder/f: its folder can't be made: no such file or directory")
	_, err = c.Get(t.Context(), urls(s.plain(t, "small"), s.plain(t, "large")), os.DevNull, Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err))

	require.NoError(t, unix.Mkfifo(filepath.Join(s.dir, "fifo"), 0o600))
	_, err = c.SendStream(t.Context(), strings.NewReader("x"), s.plain(t, "fifo"), Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	_, err = c.Send(t.Context(), []string{filepath.Join(s.dir, "large")}, s.plain(t, "fifo"), Transfer{})
	require.Equal(t, session.KindUsage, session.KindOf(err))
	info, err := os.Lstat(filepath.Join(s.dir, "fifo"))
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
}

// specialKinds make special targets in a folder. arrived waits for the end of what is written there;
// nil where nothing can be.
var specialKinds = map[string]func(t *testing.T, dir string) (target string, arrived func() []byte){
	"pipe": fifo,
	"symlink to a pipe": func(t *testing.T, dir string) (string, func() []byte) {
		target, arrived := fifo(t, dir)
		require.NoError(t, os.Symlink(filepath.Base(target), dir+"/link"))
		return dir + "/link", arrived
	},
	"descriptor": func(t *testing.T, dir string) (string, func() []byte) {
		f, err := os.Create(dir + "/open")
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), dir+"/link"))
		return dir + "/link", func() []byte {
			got, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			return got
		}
	},
	"device that is full": func(*testing.T, string) (string, func() []byte) { return "/dev/full", nil },
	"nothing in /proc":    func(*testing.T, string) (string, func() []byte) { return "/proc/x", nil },
	"socket": func(t *testing.T, dir string) (string, func() []byte) {
		l, err := net.Listen("unix", dir+"/socket")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return dir + "/socket", nil
	},
}

// fifo makes a named pipe with a reader.
func fifo(t *testing.T, dir string) (target string, arrived func() []byte) {
	target = dir + "/fifo"
	require.NoError(t, unix.Mkfifo(target, 0o600))
	read := make(chan []byte, 1)
	go func() {
		f, err := os.Open(target)
		if err != nil {
			read <- nil
			return
		}
		defer f.Close()
		got, _ := io.ReadAll(f)
		read <- got
	}()
	return target, func() []byte { return <-read }
}
