//go:build linux

package trees_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	nights      = flag.Int("nights", 2, "snapshots of TestNights")
	nightFiles  = flag.Int("night-files", 200, "small files of TestNights")
	nightEdits  = flag.Int("night-edits", 60, "changes of TestNights between two nights")
	nightKills  = flag.Int("night-kills", 1, "how often TestNights kills a side of each night's transfer")
	nightsTruth = flag.Bool("nights-truth", true, "TestNights keeps a copy of each night's source, and compares all snapshots with these in the end")
)

// nightOf returns the name of a snapshot.
func nightOf(n int) string {
	return time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, n).Format("2006-01-02T150405Z")
}

// visible lists the complete snapshots.
func visible(t *testing.T, series string) (names []string) {
	entries, err := os.ReadDir(series)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestNights makes a snapshot of a changing tree each night, and kills either side at random
// moments. Every visible snapshot is complete, equals the source of its night, and never changes.
// All snapshots together take no more space than those of rsync.
func TestNights(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, series := filepath.Join(base, "source"), filepath.Join(base, "series")
	truth, linked := filepath.Join(base, "truth"), filepath.Join(base, "linked")
	require.NoError(t, os.MkdirAll(truth, 0o755))
	require.NoError(t, os.MkdirAll(linked, 0o755))
	m := newMaker(t, rng, source)
	m.everything()
	for i := range *nightFiles {
		m.file(fmt.Sprintf("small-%04d", i), rng.IntN(20_000), 0o644)
	}
	m.file("big", 6<<20+777, 0o644)
	p := newPair(t, base)
	var names []string
	seconds := 0.4
	for n := range *nights {
		name := nightOf(n)
		if n > 0 {
			m.change(*nightEdits)
			if f, err := os.OpenFile(m.at("big"), os.O_RDWR, 0); err == nil { // large enough for a delta transfer
				_, err = f.WriteAt(m.bytes(5000), rng.Int64N(5<<20))
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
		}
		for range *nightKills {
			server := rng.IntN(2) == 1
			moment := time.Duration(rng.Float64() * seconds * float64(time.Second))
			killed, o := p.killOne(t, p.start(t, "send", "--snapshot="+name, source+"/", p.url("series")), server, moment)
			if !killed {
				seconds = o.Seconds * 0.8
			}
			t.Logf("night %d: server %v, after %v, killed %v, code %d", n, server, moment.Round(time.Millisecond), killed, o.Code)
			if now := visible(t, series); !slices.Equal(now, names) { // the snapshot may have been complete before the client heard of it
				require.Equal(t, append(slices.Clone(names), name), now)
				agree(t, source, filepath.Join(series, name))
			}
			if len(visible(t, series)) > len(names) {
				break
			}
			if server && killed && rng.IntN(2) == 0 { // if only the client was killed, the server may have everything and go on
				m.change(3) // the same snapshot resumes with a changed source
			}
		}
		if len(visible(t, series)) == len(names) {
			o := p.start(t, "send", "--snapshot="+name, source+"/", p.url("series")).wait(t)
			if o.Code != 0 { // the server had completed the snapshot
				require.Contains(t, visible(t, series), name, "%v", o)
			}
			seconds = o.Seconds * 0.8
			t.Logf("night %d: %d files in %.2f s: %d sent (%d bytes), %d unchanged", n, o.Files, o.Seconds, o.Sent, o.Written, o.Unchanged)
			agree(t, source, filepath.Join(series, name))
		}
		names = append(names, name)
		require.Equal(t, names, visible(t, series))
		latest, err := os.Readlink(filepath.Join(series, "latest"))
		if err == nil { // or the server was killed before
			require.Contains(t, names, latest)
		}
		if *nightsTruth {
			// Without the window, times of the same second are the same to rsync.
			succeed(t, "rsync", "-aHAXS", "--modify-window=-1", filepath.Join(series, name)+"/", filepath.Join(truth, name)+"/")
		}
		args := []string{"-aHAXS", source + "/", filepath.Join(linked, name) + "/"}
		if n > 0 {
			args = append([]string{"--link-dest=" + filepath.Join(linked, names[n-1])}, args...)
		}
		succeed(t, "rsync", args...)
	}
	o := p.do(t, "send", "--snapshot="+nightOf(*nights), source+"/", p.url("series"))
	t.Logf("a night without a change: %d files in %.2f s, %d bytes", o.Files, o.Seconds, o.Written)
	require.Zero(t, o.Sent)
	if *nightsTruth {
		for _, name := range names {
			require.Empty(t, differences(filepath.Join(truth, name), filepath.Join(series, name), comparison{}), name)
		}
	}
	for _, name := range names[len(names)-1:] {
		out, err := p.command("verify", "--pin", p.pin, p.url("series"), "--snapshot", name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	clearTree(t, filepath.Join(series, nightOf(*nights)))
	notes := used(t, filepath.Join(series, ".fxfer-snapshots"))
	ours, theirs := used(t, series)-notes, used(t, linked)
	t.Logf("%d nights take %d KB and %d KB for digests, those of rsync --link-dest %d KB", *nights, ours>>10, notes>>10, theirs>>10)
	// Of the names of one file the first may be new. Then fxfer sends the file, but rsync finds
	// another name.
	require.Less(t, float64(ours), float64(theirs)*1.5+1<<20)
}

// succeed runs a program that must succeed.
func succeed(t *testing.T, name string, args ...string) {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// used returns the space that a tree takes. Each file counts once.
func used(t *testing.T, dir string) (bytes int64) {
	seen := map[[2]uint64]bool{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		if id := [2]uint64{st.Dev, st.Ino}; !seen[id] {
			seen[id] = true
			bytes += st.Blocks * 512
		}
		return nil
	}))
	return bytes
}

var manyNights = flag.Int("many-nights", 0, "snapshots of TestManyNights, of -many-night-files small files; 0 skips it")

var manyNightFiles = flag.Int("many-night-files", 50_000, "files of TestManyNights")

// TestManyNights makes snapshots of a large tree of small files. Each night 1 % of the files get
// new content, as many files are new, as many are removed, and some get other metadata. rsync makes
// the same snapshots for comparison.
func TestManyNights(t *testing.T) {
	if *manyNights == 0 {
		t.Skip("-many-nights is 0")
	}
	rng := random(t)
	base := scratch(t)
	source, series, linked := filepath.Join(base, "source"), filepath.Join(base, "series"), filepath.Join(base, "linked")
	require.NoError(t, os.MkdirAll(linked, 0o755))
	m := newMaker(t, rng, source)
	m.small(*manyNightFiles)
	p := newPair(t, base)
	var names []string
	for n := range *manyNights {
		name := nightOf(n)
		if n > 0 {
			m.churn(n, *manyNightFiles)
		}
		o := p.do(t, "send", "--snapshot="+name, source+"/", p.url("series"))
		began := time.Now()
		args := []string{"-aHAXS", source + "/", filepath.Join(linked, name) + "/"}
		if n > 0 {
			args = append([]string{"--link-dest=" + filepath.Join(linked, names[n-1])}, args...)
		}
		succeed(t, "rsync", args...)
		t.Logf("night %d: %d files in %.2f s: %d sent, %d unchanged; rsync, on the same disk, took %.2f s", n, o.Files, o.Seconds, o.Sent, o.Unchanged,
			time.Since(began).Seconds())
		names = append(names, name)
	}
	o := p.do(t, "send", "--snapshot="+nightOf(*manyNights), source+"/", p.url("series"))
	t.Logf("a night without a change: %d files in %.2f s", o.Files, o.Seconds)
	require.Zero(t, o.Sent)
	clearTree(t, filepath.Join(series, nightOf(*manyNights)))
	for _, name := range names {
		out, err := exec.Command("rsync", "-aHAXn", "--checksum", "--delete", "--itemize-changes", filepath.Join(linked, name)+"/",
			filepath.Join(series, name)+"/").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out), name)
	}
	notes := used(t, filepath.Join(series, ".fxfer-snapshots"))
	ours, theirs := used(t, series)-notes, used(t, linked)
	t.Logf("%d nights of %d files take %d KB and %d KB for digests, those of rsync --link-dest %d KB", *manyNights, *manyNightFiles, ours>>10, notes>>10,
		theirs>>10)
	require.Less(t, float64(ours), float64(theirs)*1.1+1<<20)
	require.Less(t, float64(notes), float64(theirs)*0.1)
}

// churn makes the changes of one day in a tree of small files.
func (m *maker) churn(day, files int) {
	name := func() string { i := m.rng.IntN(files); return fmt.Sprintf("%04d/f%03d", i/1000, i%1000) }
	for i := range files / 100 {
		m.file(fmt.Sprintf("%04d/new-%d-%d", m.rng.IntN(files/1000), day, i), 1+m.rng.IntN(4000), 0o644)
		for _, change := range []func(string){m.gone, func(f string) { m.file(f, 1+m.rng.IntN(4000), 0o644) }} {
			if f := name(); exists(m.at(f)) {
				change(f)
			}
		}
		if f := name(); i%10 == 0 && exists(m.at(f)) {
			m.mode(f, 0o600)
		}
	}
}

func exists(name string) bool { _, err := os.Lstat(name); return err == nil }
