package backup

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// contents returns the files of a folder and what a backup has to keep of them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			text, err = os.Readlink(p)
		case d.Type().IsRegular():
			var data []byte
			data, err = os.ReadFile(p)
			text = string(data)
		}
		all[p[len(dir):]] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano(), text)
		return err
	}))
	return all
}

// A host of backups listens nowhere and gets the files of three servers by its schedule. They let it
// read. Each night's snapshot is what the server had then, shares what did not change, and has other
// content in the place of what the disk has damaged since.
func TestPulledNights(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	var hosts, sources []string
	for range 3 {
		dir, u := readable(t, home)
		hosts, sources = append(hosts, dir), append(sources, u.String())
	}
	pullNights(t, home, hosts, sources, "rate: 800mbit", 5)

	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	u, err := fxfer.ParseURL(sources[0])
	require.NoError(t, err)
	u.Path, u.TrailingSlash = "new", false
	_, err = client.Send(t.Context(), []string{filepath.Join(hosts[1], "stays")}, u, fxfer.Transfer{})
	require.Equal(t, fxfer.KindTrust, fxfer.KindOf(err), "the key may read: %v", err)
	require.NoFileExists(t, filepath.Join(hosts[0], "new"))
}

// pullNights is the host of backups in so many nights. It changes what the folders hosts have, which
// sources serve; more is what jobs have besides.
func pullNights(t *testing.T, home string, hosts, sources []string, more string, nights int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	vault := t.TempDir()
	text := "time-zone: UTC\njobs:\n"
	for i, dir := range hosts {
		text += fmt.Sprintf("- {name: h%d, schedule: 30 1 * * *, source: '%s', destination: %s/h%d, keep: {last: 3}, %s}\n", i, sources[i], vault, i, more)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stays"), []byte("stays"), 0o600))
		require.NoError(t, os.Link(filepath.Join(dir, "stays"), filepath.Join(dir, "d", "same")))
		require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "d", "out")))
	}
	config, err := parseConfig("jobs", []byte(text))
	require.NoError(t, err)
	clock := &setClock{}
	clock.set(moment(t, "2026-11-01T12:00:00Z").Sub(clock.Now()))
	store := OpenStore(home)
	transferrer := &Client{Home: home}
	d := &Daemon{Config: config, Look: 20 * time.Millisecond, Runner: &Runner{Store: store, Transferrer: transferrer, Clock: clock, Log: quiet()}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(t, d.Run(ctx)) })
	defer running.Wait()
	defer cancel()
	settled := func(due time.Time, name string) *Record {
		var st State
		require.Eventually(t, func() bool {
			st, err = store.State(name)
			return err == nil && st.Active == nil && !st.Handled.Before(due)
		}, 2*time.Minute, 5*time.Millisecond, name)
		return st.Last
	}
	for i := range hosts {
		settled(time.Time{}.Add(1), fmt.Sprintf("h%d", i))
	}
	for night := range nights {
		for _, dir := range hosts {
			for range 4 {
				at := filepath.Join(dir, "d", fmt.Sprint(dice.IntN(6)))
				if dice.IntN(4) == 0 {
					_ = os.Remove(at)
				} else {
					require.NoError(t, os.WriteFile(at, fmt.Appendf(nil, "%d %d", night, dice.Uint64()), 0o640))
				}
			}
		}
		due := time.Date(2026, 11, 2+night, 1, 30, 0, 0, time.UTC)
		clock.set(due.Add(-time.Second / 2).Sub(clock.Now()))
		for i, dir := range hosts {
			job := config.Jobs[i]
			last := settled(due, job.Name)
			require.Equal(t, Good, last.Outcome, last.Error)
			require.Equal(t, fxfer.SnapshotName(due), last.Snapshot)
			at := filepath.Join(job.Folder, last.Snapshot)
			require.Equal(t, contents(t, dir), contents(t, at))
			all, err := transferrer.Snapshots(t.Context(), job)
			require.NoError(t, err)
			require.Len(t, all, min(night+1, 3))
			now, err := os.Stat(filepath.Join(at, "stays"))
			require.NoError(t, err)
			same, err := os.Stat(filepath.Join(at, "d", "same"))
			require.NoError(t, err)
			require.True(t, os.SameFile(now, same), "two names of one file")
			if night > 0 && (i > 0 || night != nights-1) {
				before, err := os.Stat(filepath.Join(job.Folder, fxfer.SnapshotName(due.AddDate(0, 0, -1)), "stays"))
				require.NoError(t, err)
				require.True(t, os.SameFile(now, before), "nothing changed")
			}
			sum, err := transferrer.Scrub(t.Context(), job, last.Snapshot, fxfer.Verification{})
			require.NoError(t, err)
			require.Positive(t, sum.Same)
		}
		if night == nights-2 { // what a disk does to a file of the first host
			damaged := filepath.Join(config.Jobs[0].Folder, fxfer.SnapshotName(due), "stays")
			info, err := os.Stat(damaged)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(damaged, []byte("stayz"), 0o600))
			require.NoError(t, os.Chtimes(damaged, info.ModTime(), info.ModTime()))
			_, err = transferrer.Scrub(t.Context(), config.Jobs[0], fxfer.SnapshotName(due), fxfer.Verification{})
			require.Equal(t, fxfer.KindIntegrity, fxfer.KindOf(err), "%v", err)
		}
	}
	cancel()
	running.Wait()
	st, err := store.State("h0")
	require.NoError(t, err)
	require.Positive(t, st.Last.Healed)
}

// A snapshot is made once, and not in the place of another folder or inside other snapshots. A run
// that was cut off goes on.
func TestPullRefusals(t *testing.T) {
	t.Parallel()
	home, vault := t.TempDir(), t.TempDir()
	dir, u := readable(t, home)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600))
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	name := fxfer.SnapshotName(time.Now())
	get := func(to, name string) error {
		_, err := client.Get(t.Context(), []fxfer.URL{u}, filepath.Join(vault, to), fxfer.Transfer{Target: fxfer.Target{Snapshot: name}})
		return err
	}
	require.NoError(t, get("s", name))
	require.ErrorIs(t, get("s", name), fxfer.ErrSnapshotExists)
	require.Equal(t, fxfer.KindLocalDisk, fxfer.KindOf(get("s/"+name, name)), "inside another")
	require.Equal(t, fxfer.KindLocalDisk, fxfer.KindOf(get("not/mounted", name)))
	require.NoDirExists(t, filepath.Join(vault, "not"))
	require.NoError(t, os.Symlink(dir, filepath.Join(vault, "link")))
	require.Error(t, get("link", name), "what a symlink leads to")
	require.NoDirExists(t, filepath.Join(dir, name))
	require.NoError(t, get("s", fxfer.SnapshotName(time.Now().Add(time.Hour))))
	all, err := client.LocalSnapshots(filepath.Join(vault, "s"))
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// The timetable changes the rate at which the server of a running pull sends.
func TestPullTimetable(t *testing.T) {
	t.Parallel()
	home, vault := t.TempDir(), t.TempDir()
	dir, u := readable(t, home)
	data := make([]byte, 8<<20)
	_, _ = cryptorand.Read(data)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), data, 0o600))
	config, err := parseConfig("jobs", fmt.Appendf(nil, "time-zone: UTC\njobs: [{name: a, retries: 0, rate: '00:00-12:00 8kbit, otherwise unlimited', source: '%s', destination: %s/a}]", u.String(), vault))
	require.NoError(t, err)
	clock := &setClock{}
	clock.set(moment(t, "2026-11-20T11:59:58Z").Sub(clock.Now()))
	var before atomic.Int64
	r := &Runner{Store: testStore(t), Transferrer: &Client{Home: home}, Clock: clock, Log: quiet(), Watch: func(_ string, p fxfer.Progress) {
		before.CompareAndSwap(0, max(1, p.BytesDone))
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	record, err := r.Run(ctx, config.Jobs[0], clock.Now(), true)
	require.NoError(t, err, "in hours, perhaps")
	require.Equal(t, Good, record.Outcome, record.Error)
	require.Less(t, before.Load(), int64(len(data)), "the rate held nothing back")
}
