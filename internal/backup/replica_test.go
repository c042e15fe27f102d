//go:build unix

package backup

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func TestMissing(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Date(2026, 11, 0, n%100, 0, 0, 0, time.UTC).AddDate(0, 0, n/100) }
	list := func(times ...int) (all []fxfer.Snapshot) { // 102 is 02:00 on the 1st
		for _, n := range times { // a negative one is damaged
			when := at(max(n, -n))
			all = append(all, fxfer.Snapshot{Name: fxfer.SnapshotName(when), Time: when, Damaged: int64(max(-n, 0))})
		}
		return all
	}
	names := func(times ...int) []string { return namesOf(list(times...)) }
	filling := list(102, 202, 302)
	filling[2].Partial = true
	three, days := snapshot.Keep{Last: 3}, snapshot.Keep{Daily: 3}
	for name, c := range map[string]struct {
		there, here []fxfer.Snapshot
		keep        snapshot.Keep
		want        missingSnapshots
	}{
		"all":                            {list(102, 202, 302), nil, snapshot.Keep{}, missingSnapshots{fetch: names(102, 202, 302)}},
		"the rest, also in between":      {list(102, 202, 302, 402), list(102, 302), snapshot.Keep{}, missingSnapshots{fetch: names(202, 402)}},
		"what is not complete here":      {list(102, 202, 302), filling, snapshot.Keep{}, missingSnapshots{fetch: names(302)}},
		"not what is not complete there": {filling, list(102), snapshot.Keep{}, missingSnapshots{fetch: names(202)}},
		"not what goes at once":          {list(102, 202, 302, 402), list(202), snapshot.Keep{Last: 2}, missingSnapshots{fetch: names(302, 402)}},
		"what stays there no longer":     {list(402), list(102, 202, 302), snapshot.Keep{}, missingSnapshots{fetch: names(402)}},
		"not what is damaged":            {list(102, -202, 302), list(102), snapshot.Keep{}, missingSnapshots{fetch: names(302), damaged: names(202)}},
		"damaged there, and here not":    {list(102, -202), list(102, 202), snapshot.Keep{}, missingSnapshots{}},
		"not what comes twice":           {list(102, 202, 202), nil, snapshot.Keep{}, missingSnapshots{fetch: names(102, 202)}},
		"an intact one of the same day":  {list(102, -103), nil, days, missingSnapshots{fetch: names(102), damaged: names(103)}},
		"none ahead of the clock":        {list(102, 1014, 1202), list(102), snapshot.Keep{}, missingSnapshots{ahead: names(1014, 1202)}},
		"a clock that is a bit ahead":    {list(102, 1013), list(102), snapshot.Keep{}, missingSnapshots{fetch: names(1013)}},
		"none in the place of the days":  {list(102, 123, 202, 223, 302, 323, 402), list(102, 202, 302), days, missingSnapshots{fetch: names(323, 402), late: names(223)}},
		"none in the place of the last":  {list(103, 104, 203, 204), list(102, 202, 302), three, missingSnapshots{late: names(203, 204)}},
		"a gap where there is room":      {list(202), list(102, 302), three, missingSnapshots{fetch: names(202)}},
		"one gap, not two":               {list(202, 203), list(102, 302), three, missingSnapshots{fetch: names(203), late: names(202)}},
	} {
		got := missing(c.there, c.here, c.keep, time.UTC, at(1012))
		require.Equal(t, c.want, got, name)
	}
}

// What the other site claims of many snapshots is a short message.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	require.NoError(t, (&missingSnapshots{fetch: []string{"a"}}).left(time.Now()))
	x := missingSnapshots{damaged: slices.Repeat([]string{"2026-11-01T020000Z"}, 100_000), ahead: []string{"2027-11-01T020000Z"}}
	text := x.left(time.Date(2026, 11, 2, 2, 0, 0, 0, time.UTC)).Error()
	require.Less(t, len(text), 500)
	require.Contains(t, text, "and 99990 more")
	require.Contains(t, text, "their time has not come: here it is 2026-11-02T020000Z: 2027-11-01T020000Z")
}

// The report of several snapshots is that of all, and does not grow with them.
func TestAdded(t *testing.T) {
	t.Parallel()
	one := &fxfer.Report{Complete: true, Files: 1, Written: 3, Peak: 9, Digest: "x", Changes: make([]fxfer.PriorityChange, 1), Failures: make([]fxfer.FileResult, 60)}
	require.Equal(t, one, added(&fxfer.Report{Complete: true}, one))
	two := added(one, &fxfer.Report{Files: 1, Written: 4, Peak: 5, Digest: "y", Snapshot: "s", Changes: make([]fxfer.PriorityChange, 2), Failures: make([]fxfer.FileResult, 60)})
	require.Equal(t, &fxfer.Report{Files: 2, Written: 7, Peak: 9, Snapshot: "s", Changes: make([]fxfer.PriorityChange, 3), Failures: make([]fxfer.FileResult, 100)}, two)
}

// meter passes connections on to addr, and counts what it passes.
func meter(t *testing.T, addr string) (port int, bytes *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	bytes = new(atomic.Int64)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				n, _ := io.Copy(to, from)
				bytes.Add(n)
				_ = to.(*net.TCPConn).CloseWrite()
			}
			go pass(far, near)
			go pass(near, far)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, bytes
}

// used is the space of all files below a folder, each counted once.
func used(t *testing.T, dir string) (bytes int64) {
	seen := map[uint64]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		err = syscall.Lstat(p, &st)
		if !seen[st.Ino] {
			seen[st.Ino] = true
			bytes += st.Blocks * 512
		}
		return err
	}))
	return bytes
}

// A second site has the snapshots of 30 nights as the first one, with what they share, for the bytes
// that have changed. Of damaged ones, those that are known are not asked for, and others do not
// arrive whole. Retention of the second site is its own.
func TestReplica(t *testing.T) {
	t.Parallel()
	const nights = 30
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	stream := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	first, u, home := realServer(t)
	u.Path = "series"
	source, second := t.TempDir(), filepath.Join(t.TempDir(), "series")
	put := func(name string, size int) {
		data := make([]byte, size)
		_, _ = stream.Read(data)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), data, 0o640))
	}
	require.NoError(t, os.Mkdir(filepath.Join(source, "d"), 0o751))
	for i := range 20 {
		put(fmt.Sprintf("d/%d", i), 60_000+dice.IntN(200_000))
	}
	put("large", 4<<20)
	require.NoError(t, os.Link(filepath.Join(source, "large"), filepath.Join(source, "d", "same")))
	require.NoError(t, os.Symlink("../large", filepath.Join(source, "d", "link")))

	client, err := fxfer.NewClient(fxfer.Options{Home: home, Compress: "none"})
	require.NoError(t, err)
	store, err := identity.OpenStore(home)
	require.NoError(t, err)
	pin, _, err := store.KnownServer(u.Address())
	require.NoError(t, err)
	metered := u
	var line *atomic.Int64
	metered.Port, line = meter(t, u.Address())
	require.NoError(t, store.AddKnownServer(metered.Address(), pin))
	config, err := parseConfig("jobs", fmt.Appendf(nil, "time-zone: UTC\njobs: [{name: a, source: '%s', destination: %s, mode: replica, compress: none, retries: 0}]", metered.String(), second))
	require.NoError(t, err)
	job := config.Jobs[0]
	r := &Runner{Store: testStore(t), Transferrer: &Client{Home: home}, Clock: hasty{}, Log: quiet()}
	replicate := func() *Record {
		t.Helper()
		record, err := r.Run(t.Context(), job, time.Now(), true)
		require.NoError(t, err)
		return record
	}

	var changed int64
	began := time.Now().AddDate(0, 0, -nights-1)
	name := func(night int) string {
		return fxfer.SnapshotName(began.Add(time.Duration(night) * 24 * time.Hour))
	}
	for night := range nights {
		for range 3 {
			put(fmt.Sprintf("d/%d", dice.IntN(25)), 60_000+dice.IntN(200_000))
		}
		_ = os.Remove(filepath.Join(source, fmt.Sprintf("d/%d", dice.IntN(25))))
		if night%5 == 2 { // a part of the large file
			f, err := os.OpenFile(filepath.Join(source, "large"), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte(fmt.Sprint(night)), int64(dice.IntN(4<<20)))
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		report, err := client.Send(t.Context(), []string{source + "/"}, u, fxfer.Transfer{Target: fxfer.Target{Snapshot: name(night)}})
		require.NoError(t, err)
		changed += report.Written
		if night%4 == 3 || night == nights-1 {
			record := replicate()
			require.Equal(t, Good, record.Outcome, record.Error)
		}
	}
	t.Logf("changed %d bytes, on the line %d: %.3f", changed, line.Load(), float64(line.Load())/float64(changed))
	require.LessOrEqual(t, float64(line.Load()), 1.1*float64(changed))
	one, two := used(t, filepath.Join(first, "series")), used(t, second)
	t.Logf("space %d and %d: %.3f", one, two, float64(two)/float64(one))
	require.InDelta(t, one, two, 0.05*float64(one))
	same := func() {
		t.Helper()
		if _, err := exec.LookPath("rsync"); err != nil {
			t.Skip("there is no rsync")
		}
		all, err := filepath.Glob(filepath.Join(first, "series", "[0-9]*")) // the folder above has the time of the last run
		require.NoError(t, err)
		require.Len(t, all, nights)
		out, err := exec.Command("rsync", append(append([]string{"-aHAXni", "--delete"}, all...), second+"/")...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
	}
	same()
	record := replicate()
	require.Equal(t, Good, record.Outcome)
	require.Zero(t, record.Written)
	st, err := r.Store.State("a")
	require.NoError(t, err)
	require.Equal(t, name(nights-1), fxfer.SnapshotName(st.LastGood), "the run does not make it younger")
	few := *job
	few.Name, few.Folder, few.Keep = "few", second+"-few", snapshot.Keep{Last: 3}
	for range 2 {
		record, err := r.Run(t.Context(), &few, time.Now(), true)
		require.NoError(t, err)
		require.Equal(t, Good, record.Outcome, record.Error)
		all, err := r.Transferrer.Snapshots(t.Context(), &few)
		require.NoError(t, err)
		require.Equal(t, []string{name(nights - 3), name(nights - 2), name(nights - 1)}, namesOf(all))
	}

	// A server may offer the replica: jobs restore from it.
	far := serverFor(t, home, filepath.Dir(second), identity.Read)
	far.Path = filepath.Base(second)
	all, err := client.Snapshots(t.Context(), far)
	require.NoError(t, err)
	require.Len(t, all, nights)
	sum, err := client.Scrub(t.Context(), far, name(nights-1), fxfer.Verification{})
	require.NoError(t, err)
	require.Positive(t, sum.Same)
	back := t.TempDir()
	far.Path, far.TrailingSlash = far.Path+"/"+name(nights-1), true
	_, err = client.Get(t.Context(), []fxfer.URL{far}, back+"/", fxfer.Transfer{})
	require.NoError(t, err)
	require.Equal(t, contents(t, source), contents(t, back))

	// What the disk of the first site damages does not spread, whether it is known there or not.
	put("d/new", 100_000)
	damage := func(night int) {
		_, err := client.Send(t.Context(), []string{source + "/"}, u, fxfer.Transfer{Target: fxfer.Target{Snapshot: name(night)}})
		require.NoError(t, err)
		at := filepath.Join(first, "series", name(night), "d", "new")
		info, err := os.Stat(at)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at, make([]byte, 100_000), 0o640))
		require.NoError(t, os.Chtimes(at, info.ModTime(), info.ModTime()))
	}
	damage(nights)
	record = replicate()
	require.Equal(t, Partial, record.Outcome, record.Error)
	require.ErrorContains(t, record.Err(), name(nights))
	require.Contains(t, fmt.Sprint(record.Causes), "d/new")
	require.NoDirExists(t, filepath.Join(second, name(nights)))
	_, err = client.Scrub(t.Context(), u, name(nights), fxfer.Verification{})
	require.Equal(t, fxfer.KindIntegrity, fxfer.KindOf(err), "%v", err)
	record = replicate()
	require.Equal(t, Good, record.Outcome, record.Error)
	require.Contains(t, fmt.Sprint(record.Warnings), name(nights))
	require.NoDirExists(t, filepath.Join(second, name(nights)))
}

// A snapshot that the first site removes while the replica gets others keeps none of these away.
func TestReplicaOfFewer(t *testing.T) {
	t.Parallel()
	first, u, home := realServer(t)
	u.Path = "series"
	source, second := t.TempDir(), filepath.Join(t.TempDir(), "series")
	require.NoError(t, os.WriteFile(filepath.Join(source, "a"), []byte("a"), 0o600))
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	var names []string
	for night := range 3 {
		names = append(names, fxfer.SnapshotName(time.Now().AddDate(0, 0, night-3)))
		_, err := client.Send(t.Context(), []string{source + "/"}, u, fxfer.Transfer{Target: fxfer.Target{Snapshot: names[night]}})
		require.NoError(t, err)
	}
	job := &Job{Mode: Replica, Source: u, Folder: second, Zone: time.UTC}
	report, err := replicate(t.Context(), client, &Task{Job: job}, fxfer.Transfer{Progress: func(fxfer.Progress) {
		_ = os.RemoveAll(filepath.Join(first, "series", names[1]))
	}})
	require.Equal(t, fxfer.KindPartial, fxfer.KindOf(err), "%v", err)
	require.ErrorContains(t, err, names[1])
	require.Empty(t, report.Snapshot)
	report, err = replicate(t.Context(), client, &Task{Job: job}, fxfer.Transfer{})
	require.NoError(t, err)
	require.Equal(t, names[2], report.Snapshot)
	all, err := client.LocalSnapshots(second)
	require.NoError(t, err)
	require.Equal(t, []string{names[0], names[2]}, namesOf(all))
}

// A snapshot of one file that is damaged keeps no later one away.
func TestReplicaOfDumps(t *testing.T) {
	t.Parallel()
	first, u, home := realServer(t)
	u.Path = "series"
	source, second := t.TempDir(), filepath.Join(t.TempDir(), "series")
	client, err := fxfer.NewClient(fxfer.Options{Home: home})
	require.NoError(t, err)
	var names []string
	for night := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(source, "dump"), fmt.Appendf(nil, "night %d", night), 0o600))
		names = append(names, fxfer.SnapshotName(time.Now().AddDate(0, 0, night-3)))
		_, err := client.Send(t.Context(), []string{source + "/"}, u, fxfer.Transfer{Target: fxfer.Target{Snapshot: names[night]}})
		require.NoError(t, err)
	}
	at := filepath.Join(first, "series", names[1], "dump")
	info, err := os.Stat(at)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at, []byte("nights!"), 0o600))
	require.NoError(t, os.Chtimes(at, info.ModTime(), info.ModTime()))
	job := &Job{Mode: Replica, Source: u, Folder: second, Zone: time.UTC}
	_, err = replicate(t.Context(), client, &Task{Job: job}, fxfer.Transfer{})
	require.Equal(t, fxfer.KindPartial, fxfer.KindOf(err), "%v", err)
	require.ErrorContains(t, err, names[1]+" lacks 1 entry that failed, and stays invisible: remove the cause and try again")
	all, err := client.LocalSnapshots(second)
	require.NoError(t, err)
	require.Equal(t, []string{names[0], names[2]}, namesOf(all))
}
