//go:build unix

package backup

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

var (
	decayNights = flag.Int("decay-nights", 4, "nights of TestDecay")
	decayFiles  = flag.Int("decay-files", 40, "files of TestDecay")
	decaySeed   = flag.Uint64("decay-seed", 0, "seed of TestDecay; 0 is a new one")
)

// decay is a server whose disk flips bytes, and a job that has its snapshots there. It knows what
// each snapshot ought to hold.
type decay struct {
	t      *testing.T
	rng    *rand.Rand
	source string
	series string
	job    *Job
	daemon *Daemon
	clock  *setClock
	client *fxfer.Client

	truth    map[string]map[string][]byte // snapshot → path → content
	unknown  map[string]waiting           // snapshot/path that is damaged, and not known
	flipped  int
	healed   int64
	restored int
	refused  int
	noticed  int // by a restore before a verification
	held     int
}

// waiting is damage that no verification has found: for how many of them, and how many snapshots
// there were at most beside the newest.
type waiting struct{ nights, others int }

// TestDecay makes a snapshot each night, verifies snapshots on schedule, and flips bytes in one of
// a hundred files of the server at random times. Each flip is found when the newest snapshot, or
// the snapshot whose turn it is, is read; the next run heals what the source has; retention keeps
// the last intact version; a restore of any date is right, or names the file that it refuses.
func TestDecay(t *testing.T) {
	t.Parallel()
	seed := *decaySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	d := newDecay(t, rand.New(rand.NewPCG(seed, 0)))
	for range *decayFiles {
		d.write(d.newName())
	}
	start := moment(t, "2026-11-01T02:00:00Z")
	for n := range *decayNights {
		now := start.AddDate(0, 0, n)
		d.edit()
		d.maybeFlip(n > 0)
		d.run(now)
		d.maybeFlip(n > 0)
		d.verify(now.Add(2 * time.Hour))
		d.maybeFlip(n > 0)
		d.restore(d.anySnapshot())
	}
	end := start.AddDate(0, 0, *decayNights)
	for n := range len(d.snapshots()) {
		d.verify(end.AddDate(0, 0, n))
	}
	require.Empty(t, d.unknown, "verified in turn, and still not known")
	for _, name := range d.snapshots() {
		d.restore(name)
	}
	d.edit()
	d.run(end.AddDate(0, 1, 0))
	st, err := d.daemon.Store.State(d.job.Name)
	require.NoError(t, err)
	require.True(t, st.Damage == nil || st.Damage.Newest == 0, "the newest backup is intact")
	require.Empty(t, StatusOf(d.job, st, nil, false, end.AddDate(0, 1, 0)).Alarm)
	require.Positive(t, d.flipped)
	t.Logf("%d bytes flipped; %d files healed; %d restored, %d refused by name, of which %d were not known; %d snapshots kept for an intact file",
		d.flipped, d.healed, d.restored, d.refused, d.noticed, d.held)
}

// TestNoticed damages files of a snapshot that nobody has verified, and restores it: each damaged
// file is refused by name, under each of its names, and recorded, so that the next run heals it.
func TestNoticed(t *testing.T) {
	t.Parallel()
	seed := *decaySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	d := newDecay(t, rand.New(rand.NewPCG(seed, 0)))
	for range 60 {
		d.write(d.newName())
	}
	start := moment(t, "2026-11-01T02:00:00Z")
	d.edit() // makes hard links
	d.run(start)
	d.run(start.AddDate(0, 0, 1)) // shares all files
	for n := range 4 {
		name := d.anySnapshot()
		paths := slices.Sorted(maps.Keys(d.truth[name]))
		for range 1 + d.rng.IntN(10) {
			d.flip(filepath.Join(d.series, name, paths[d.rng.IntN(len(paths))]))
		}
		d.look(false)
		if n%2 == 0 {
			d.restore(name)
		} else {
			d.read(name, paths, d.differing(name))
			d.look(false)
		}
		require.Empty(t, d.unknown, "the other snapshot shares the files")
		require.NotEmpty(t, d.known()[name])
		require.Equal(t, d.known()[name], d.differing(name))
	}
	d.run(start.AddDate(0, 0, 2))
	require.Positive(t, d.healed)
	d.restore(d.snapshots()[2])
	require.Empty(t, d.known()[d.snapshots()[2]])
}

// differing returns the files of a snapshot that are not what they ought to be.
func (d *decay) differing(name string) snapshot.Damage {
	damage := snapshot.Damage{}
	have := contentOf(d.t, filepath.Join(d.series, name))
	for p, want := range d.truth[name] {
		if !bytes.Equal(want, have[p]) {
			damage[p] = snapshot.DamagedSince("different", time.Now())
		}
	}
	return damage
}

// read reads files of a snapshot one by one: the damaged ones fail.
func (d *decay) read(name string, paths []string, damaged snapshot.Damage) {
	u := d.job.Destination
	files, err := d.client.Files(d.t.Context(), u)
	require.NoError(d.t, err)
	defer files.Close()
	at := u.Path + "/" + name + "/"
	for i, p := range paths {
		var got bytes.Buffer
		if u.Path, u.TrailingSlash = at+p, false; i < 8 { // as a transfer
			_, err = d.client.GetTo(d.t.Context(), u, &got, fxfer.Transfer{})
		} else {
			err = files.Read(u.Path, &got)
		}
		if _, ok := damaged[p]; ok {
			require.Equal(d.t, fxfer.KindIntegrity, fxfer.KindOf(err), "%s: %v", p, err)
		} else {
			require.NoError(d.t, err)
			require.True(d.t, bytes.Equal(d.truth[name][p], got.Bytes()), p)
		}
	}
}

func newDecay(t *testing.T, rng *rand.Rand) *decay {
	dir, u, home := realServer(t)
	u.Path = "series"
	d := &decay{
		t: t, rng: rng, source: t.TempDir(), series: filepath.Join(dir, "series"), clock: &setClock{},
		truth: map[string]map[string][]byte{}, unknown: map[string]waiting{},
	}
	config, err := parseConfig("jobs", fmt.Appendf(nil, "time-zone: UTC\njobs: [{name: a, sources: [%s/], destination: '%s', keep: {daily: 4, weekly: 3}, streams: 1}]",
		d.source, u.String()))
	require.NoError(t, err)
	d.job = config.Jobs[0]
	d.daemon = &Daemon{Config: config, Runner: &Runner{Store: OpenStore(home), Transferrer: &Client{Home: home}, Clock: d.clock, Log: quiet()}}
	d.client, err = fxfer.NewClient(fxfer.Options{Home: home, Streams: 1})
	require.NoError(t, err)
	return d
}

func (d *decay) newName() string {
	return fmt.Sprintf("d%d/f%08x", d.rng.IntN(4), d.rng.Uint32())
}

// write gives a file of the source new content.
func (d *decay) write(name string) {
	path := filepath.Join(d.source, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(path), 0o755))
	data := make([]byte, 1+d.rng.IntN(3000))
	if d.rng.IntN(20) == 0 { // of several blocks, so that deltas have old parts to take
		data = make([]byte, 256<<10+d.rng.IntN(200_000))
	}
	for i := range data {
		data[i] = byte(d.rng.Uint32())
	}
	_ = os.Remove(path) // the other names of the file keep their content
	require.NoError(d.t, os.WriteFile(path, data, 0o644))
	if d.rng.IntN(20) == 0 { // with a hole in the middle, and one at the end
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(d.t, err)
		_, err = f.WriteAt(data, int64(len(data))+d.rng.Int64N(400<<10))
		require.NoError(d.t, err)
		require.NoError(d.t, f.Truncate(600<<10+d.rng.Int64N(200_000)))
		require.NoError(d.t, f.Close())
	}
	at := time.Unix(1_700_000_000+d.rng.Int64N(1e8), d.rng.Int64N(1e9))
	require.NoError(d.t, os.Chtimes(path, at, at))
}

// edit changes some of the source: new content, other modes, new files, removed ones, hard links.
func (d *decay) edit() {
	names := slices.Sorted(maps.Keys(contentOf(d.t, d.source)))
	for _, name := range names[:3] { // some have a new version each night
		d.write(name)
	}
	if all := d.snapshots(); len(all) > 0 {
		for _, name := range slices.Sorted(maps.Keys(d.known()[all[len(all)-1]])) {
			if d.rng.IntN(2) == 0 { // nobody can send it anew
				_ = os.Remove(filepath.Join(d.source, name))
			}
		}
	}
	for range max(2, len(names)/20) {
		name := names[d.rng.IntN(len(names))]
		path := filepath.Join(d.source, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		switch d.rng.IntN(6) {
		case 0, 1:
			d.write(name)
		case 2:
			require.NoError(d.t, os.Chmod(path, 0o600+fs.FileMode(d.rng.IntN(8))))
		case 3:
			d.write(d.newName())
		case 4:
			require.NoError(d.t, os.Remove(path))
			d.write(d.newName())
		case 5:
			other := filepath.Join(d.source, d.newName())
			require.NoError(d.t, os.MkdirAll(filepath.Dir(other), 0o755))
			require.NoError(d.t, os.Link(path, other))
		}
	}
}

// contentOf reads all files of a tree, by path. It reads a file with several names, which may be in
// other trees of the same reader, once.
func (r inodes) contentOf(t *testing.T, dir string) map[string][]byte {
	all := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		ino := info.Sys().(*syscall.Stat_t).Ino
		if _, ok := r[ino]; !ok {
			if r[ino], err = os.ReadFile(path); err != nil {
				return err
			}
		}
		name, err := filepath.Rel(dir, path)
		all[name] = r[ino]
		return err
	}))
	return all
}

// inodes is the content of files by their numbers.
type inodes map[uint64][]byte

func contentOf(t *testing.T, dir string) map[string][]byte { return inodes{}.contentOf(t, dir) }

// snapshots lists the visible snapshots, the oldest first.
func (d *decay) snapshots() (names []string) {
	entries, err := os.ReadDir(d.series)
	require.True(d.t, err == nil || os.IsNotExist(err), "%v", err)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

func (d *decay) anySnapshot() string {
	all := d.snapshots()
	return all[d.rng.IntN(len(all))]
}

// known returns what the server's notes say about damage, by snapshot.
func (d *decay) known() map[string]snapshot.Damage {
	all := map[string]snapshot.Damage{}
	if len(d.snapshots()) == 0 {
		return all
	}
	root, err := os.OpenRoot(filepath.Join(d.series, ".fxfer-snapshots"))
	require.NoError(d.t, err)
	defer root.Close()
	for _, name := range d.snapshots() {
		all[name], err = snapshot.ReadDamage(root, name)
		require.NoError(d.t, err)
	}
	return all
}

// maybeFlip flips a byte in one of a hundred files of the server, in half of the cases. Times stay:
// the disk did it.
func (d *decay) maybeFlip(there bool) {
	if !there || d.flipped > 0 && d.rng.IntN(2) == 0 {
		return
	}
	files := map[uint64]string{} // by inode
	for _, name := range d.snapshots() {
		require.NoError(d.t, filepath.WalkDir(filepath.Join(d.series, name), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				info, err := e.Info()
				require.NoError(d.t, err)
				files[info.Sys().(*syscall.Stat_t).Ino] = path
			}
			return err
		}))
	}
	inodes := slices.Sorted(maps.Keys(files))
	for range max(1, len(inodes)/100) {
		d.flip(files[inodes[d.rng.IntN(len(inodes))]])
	}
	all := d.snapshots()
	newest := all[len(all)-1]
	hot := slices.Sorted(maps.Keys(d.truth[newest]))[d.rng.IntN(3)]
	d.flip(filepath.Join(d.series, newest, hot))
	d.look(false)
}

func (d *decay) flip(path string) {
	info, err := os.Stat(path)
	require.NoError(d.t, err)
	if info.Mode()&0o600 != 0o600 {
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(d.t, err)
	defer f.Close()
	if info.Size() == 0 || d.rng.IntN(20) == 0 { // nothing is left of it
		require.NoError(d.t, f.Truncate(0))
	} else {
		var b [1]byte
		at := d.rng.Int64N(info.Size())
		_, err = f.ReadAt(b[:], at)
		require.NoError(d.t, err)
		b[0] += 1 << d.rng.IntN(8) // a second time does not make it whole again
		_, err = f.WriteAt(b[:], at)
		require.NoError(d.t, err)
	}
	require.NoError(d.t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	d.flipped++
}

// look compares the server with the truth: everything differs that is known to be damaged, and
// nothing differs for longer without being known than the schedule promises.
func (d *decay) look(verified bool) {
	known, names := d.known(), d.snapshots()
	still, disk := map[string]waiting{}, inodes{}
	for i, name := range names {
		have := disk.contentOf(d.t, filepath.Join(d.series, name))
		for path, want := range d.truth[name] {
			_, isKnown := known[name][path]
			differs := !bytes.Equal(have[path], want)
			if isKnown {
				require.True(d.t, differs, "%s/%s is intact", name, path)
			}
			if !differs || isKnown {
				continue
			}
			at := name + "/" + path
			w := d.unknown[at]
			if w.others = max(w.others, len(names)-1); verified {
				w.nights++
			}
			still[at] = w
			require.False(d.t, verified && i == len(names)-1, "%s: the newest was verified", at)
			require.Less(d.t, w.nights, max(1, w.others), "%s is not found in turn", at)
		}
		require.Equal(d.t, slices.Sorted(maps.Keys(d.truth[name])), slices.Sorted(maps.Keys(have)))
	}
	d.unknown = still
}

// run makes a snapshot, and checks that it holds nothing that was known to be damaged, and that
// retention left the last intact version of each file.
func (d *decay) run(due time.Time) {
	t, before, names := d.t, d.known(), d.snapshots()
	d.clock.set(due.Sub(d.clock.Now()))
	name := snapshot.Name(due)
	d.truth[name] = contentOf(t, d.source)
	record, err := d.daemon.Runner.Run(t.Context(), d.job, due, false)
	require.NoError(t, err)
	require.Equal(t, Good, record.Outcome, record.Error)
	require.Equal(t, name, record.Snapshot)
	require.Empty(t, record.Warnings)
	after := d.known()
	require.Empty(t, after[name], "no known damage spreads")
	var healed int64
	if len(names) > 0 {
		for path := range before[names[len(names)-1]] {
			if _, ok := d.truth[name][path]; ok {
				healed++
			}
		}
	}
	require.Equal(t, healed, record.Healed)
	d.healed += healed
	d.checkRetention(before, after, append(names, name))
	d.look(false)
}

// checkRetention compares what was removed with what may be, for each file alone.
func (d *decay) checkRetention(before, after map[string]snapshot.Damage, names []string) {
	left := d.snapshots()
	wanted, _ := d.job.Keep.Decide(names, time.UTC)
	kept := map[string]bool{}
	for _, k := range wanted {
		kept[k.Name] = true
		require.Contains(d.t, left, k.Name, "wanted by the policy")
	}
	damaged := func(name, path string) bool {
		_, ok := before[name][path]
		if now, there := after[name]; there {
			_, ok = now[path]
		}
		return ok
	}
	last := map[string]bool{} // snapshots with a last intact version
	paths := map[string]bool{}
	for _, name := range names {
		for path := range d.truth[name] {
			paths[path] = true
		}
	}
	for path := range paths {
		newer := false // a newer version is damaged
		for _, name := range slices.Backward(names) {
			if _, ok := d.truth[name][path]; !ok {
				continue
			}
			if !damaged(name, path) {
				last[name] = last[name] || newer
				break
			}
			newer = true
		}
	}
	for name := range last {
		if last[name] {
			require.Contains(d.t, left, name, "it has the last intact version of a file")
			if !kept[name] {
				d.held++
			}
		}
	}
	for _, name := range left {
		require.True(d.t, kept[name] || last[name], "%s stays for no reason", name)
	}
	for name := range d.truth {
		if !slices.Contains(left, name) {
			delete(d.truth, name)
		}
	}
}

// verify does what the schedule does.
func (d *decay) verify(at time.Time) {
	d.clock.set(at.Sub(d.clock.Now()))
	st, err := d.daemon.Store.State(d.job.Name)
	require.NoError(d.t, err)
	err = d.daemon.verifyNext(d.t.Context(), d.job, st.Snapshots)
	require.True(d.t, err == nil || fxfer.KindOf(err) == fxfer.KindIntegrity, "%v", err)
	d.look(true)
	known, names := d.known(), d.snapshots()
	st, err = d.daemon.Store.State(d.job.Name)
	require.NoError(d.t, err)
	newest := int64(len(known[names[len(names)-1]]))
	require.Equal(d.t, newest, cmp.Or(st.Damage, &Damage{}).Newest)
	require.Equal(d.t, newest > 0, strings.Contains(StatusOf(d.job, st, nil, false, at).Alarm, "damaged"))
}

// restore gets a snapshot. Each file is right, or refused by name, whether somebody has verified it
// before or not.
func (d *decay) restore(name string) {
	t, target := d.t, d.t.TempDir()
	u := d.job.Destination
	u.Path, u.TrailingSlash = u.Path+"/"+name, true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var refusals strings.Builder
	linked := map[string]bool{} // further names of files that are refused
	report, err := d.client.Get(ctx, []fxfer.URL{u}, target, fxfer.Transfer{File: func(f fxfer.FileResult) {
		if f.Err != nil {
			fmt.Fprintln(&refusals, f.Err)
			linked[name+"/"+f.Path] = strings.Contains(f.Err.Error(), ": it is damaged")
		}
	}})
	require.NotNil(t, report, "%v", err)
	got := contentOf(t, target)
	for path, want := range d.truth[name] {
		at := name + "/" + path
		refused := strings.Contains(refusals.String(), at+": it is damaged") || linked[at]
		_, notKnown := d.unknown[at]
		data, ok := got[path]
		switch {
		case refused:
			require.False(t, ok, at)
			d.refused++
			if notKnown {
				d.noticed++
			}
		default:
			require.True(t, ok, "%s is missing, and not refused by name:\n%s", at, refusals.String())
			require.True(t, bytes.Equal(want, data), at)
			d.restored++
		}
	}
	require.Equal(t, refusals.Len() > 0, err != nil, "%v", err)
	require.NoError(t, os.RemoveAll(target))
	d.look(false)
	for at := range d.unknown {
		require.False(t, strings.HasPrefix(at, name+"/"), "%s: the restore has noticed it", at)
	}
}
