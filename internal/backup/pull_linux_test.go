package backup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// This host reads its snapshots again with low priority, as a server does.
func TestScrubIsIdle(t *testing.T) {
	t.Parallel()
	home, vault := t.TempDir(), filepath.Join(t.TempDir(), "series")
	dir, u := readable(t, home)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600))
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	name := fxfer.SnapshotName(time.Now())
	_, err = client.Get(t.Context(), []fxfer.URL{u}, vault, fxfer.Transfer{Target: fxfer.Target{Snapshot: name}})
	require.NoError(t, err)
	var found []int
	sum, err := client.ScrubLocal(t.Context(), vault, name, fxfer.Verification{Progress: func(fxfer.Progress) {
		n, _ := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
		found = append(found, 20-n)
	}})
	require.NoError(t, err)
	require.EqualValues(t, 1, sum.Same)
	require.NotEmpty(t, found)
	require.Subset(t, []int{19}, found)
}

// What gives privilege comes only if the job asks for it, and a restore brings it back. Otherwise the
// run warns of what the snapshot lacks.
func TestPullPrivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes what gives privilege")
	}
	home := t.TempDir()
	dir, u := readable(t, home)
	program := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Chown(program, 4711, 4712))
	require.NoError(t, os.Chmod(program, 0o755|fs.ModeSetuid))
	require.NoError(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if err := unix.Setxattr(program, "trusted.fxfer", []byte("x"), 0); err != nil {
		t.Logf("without trusted.*: %v", err)
	}
	type entry struct {
		mode, uid, gid uint32
		rdev           uint64
		trusted        string
	}
	look := func(dir, name string) (e entry) {
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(dir, name), &st))
		value := make([]byte, 8)
		n, _ := unix.Lgetxattr(filepath.Join(dir, name), "trusted.fxfer", value)
		return entry{st.Mode, st.Uid, st.Gid, st.Rdev, string(value[:max(0, n)])}
	}
	for _, mode := range []Mode{Snapshots, Mirror} {
		run := func(privileged bool) (*Record, string) {
			vault := filepath.Join(t.TempDir(), "vault")
			require.NoError(t, os.Mkdir(vault, 0o700))
			config, err := parseConfig("jobs", fmt.Appendf(nil, "jobs: [{name: a, mode: %s, source: '%s', destination: %s, privileged: %t}]",
				mode, u.String(), filepath.Join(vault, "a"), privileged))
			require.NoError(t, err)
			r := &Runner{Store: testStore(t), Transferrer: &Client{Home: home}, Clock: hasty{}, Log: quiet()}
			record, err := r.Run(t.Context(), config.Jobs[0], time.Now(), true)
			require.NoError(t, err)
			require.Equal(t, Good, record.Outcome, record.Error)
			return record, filepath.Join(vault, "a", record.Snapshot)
		}
		record, at := run(false)
		require.Len(t, record.Warnings, 2, "%v", record.Warnings)
		require.Contains(t, fmt.Sprint(record.Warnings), "program")
		require.Contains(t, fmt.Sprint(record.Warnings), "null")
		require.Equal(t, entry{unix.S_IFREG | 0o755, 4711, 4712, 0, ""}, look(at, "program"))
		require.NoFileExists(t, filepath.Join(at, "null"))

		record, at = run(true)
		require.Empty(t, record.Warnings)
		for _, name := range []string{"program", "null"} {
			require.Equal(t, look(dir, name), look(at, name), name)
		}
		back := t.TempDir()
		to := serverOf(t, home, fxfer.Share{Dir: back, Privileged: true}, identity.Read|identity.Write)
		client, err := fxfer.NewClient(fxfer.Options{Home: home})
		require.NoError(t, err)
		_, err = client.Send(t.Context(), []string{at + "/"}, to, fxfer.Transfer{})
		require.NoError(t, err)
		for _, name := range []string{"program", "null"} {
			require.Equal(t, look(dir, name), look(back, name), name)
		}
	}
}
