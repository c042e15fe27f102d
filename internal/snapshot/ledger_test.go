package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func openRoot(t *testing.T) (*os.Root, string) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func digests(t *testing.T, root *os.Root, name string) map[string][32]byte {
	t.Helper()
	all := map[string][32]byte{}
	last := ""
	require.NoError(t, Digests(root, name, func(path string, digest [32]byte) error {
		require.Less(t, last, path, "sorted")
		all[path], last = digest, path
		return nil
	}))
	return all
}

// requireFound compares what a Finder finds with all digests, in any order.
func requireFound(t *testing.T, r *rand.Rand, root *os.Root, name string, want map[string][32]byte) {
	f, err := NewFinder(root, name)
	require.NoError(t, err)
	defer f.Close()
	paths := slices.Concat(slices.Collect(maps.Keys(want)), []string{"", "d0", "a", "f  g", "zz", "gone meanwhile"})
	for n := range min(400, 2*len(paths)) {
		path := paths[r.IntN(len(paths))]
		if n%9 == 0 {
			path += "x"
		}
		digest, ok, err := f.Digest(path)
		require.NoError(t, err)
		expected, there := want[path]
		require.Equal(t, there, ok, "%s: %q", name, path)
		require.Equal(t, expected, digest, "%s: %q", name, path)
	}
}

// requireLinks finds the digests of hard links.
func requireLinks(t *testing.T, root *os.Root, name string, want map[string][32]byte, links map[string]string) {
	f, err := NewFinder(root, name)
	require.NoError(t, err)
	defer f.Close()
	for path, first := range links {
		digest, ok, err := f.Digest(path)
		require.NoError(t, err)
		expected, there := want[first]
		require.Equal(t, there, ok, path)
		require.Equal(t, expected, digest, path)
	}
}

// TestFinder finds lines in lists that are longer than what it reads at a time, with short and long
// paths, and in broken lists.
func TestFinder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	root, dir := openRoot(t)
	for n := range 4 {
		name := fmt.Sprintf("s%d", n)
		want := map[string][32]byte{}
		d, err := writeDigests(root, name, "", 0)
		require.NoError(t, err)
		for range 1_500 {
			path := fmt.Sprintf("d%d/%x", r.IntN(5), r.Uint32()>>r.IntN(32))
			if r.IntN(1+50*n) == 0 {
				path += strings.Repeat("\n", r.IntN(4<<10))
			}
			want[path] = [32]byte{byte(r.Uint32())}
		}
		for _, path := range slices.Sorted(maps.Keys(want)) {
			require.NoError(t, d.add(path, want[path]))
		}
		require.NoError(t, d.keep())
		d.discard()
		requireFound(t, r, root, name, want)
		broken, err := os.ReadFile(filepath.Join(dir, name+listSuffix))
		require.NoError(t, err)
		broken = bytes.ReplaceAll(broken, []byte("  "), []byte{' '})
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+listSuffix), broken, 0o600))
		f, err := NewFinder(root, name)
		require.NoError(t, err)
		_, ok, _ := f.Digest("d0/0")
		require.False(t, ok)
		f.Close()
	}
	_, err := NewFinder(root, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestNights fills one snapshot after the other, in sessions that are interrupted, and compares the
// lists with the files.
func TestNights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	root, dir := openRoot(t)
	content := map[string]byte{} // of the previous snapshot
	previous := ""
	all := map[string]map[string][32]byte{} // by snapshot
	diffs := 0                              // lists of differences
	for night := range 20 {
		name := fmt.Sprintf("n%d", night)
		now := map[string]byte{}
		if night%5 > 0 {
			maps.Copy(now, content)
			maps.DeleteFunc(now, func(string, byte) bool { return r.IntN(30) == 0 })
		}
		for range []int{300, 3, 3, 0, 9}[night%5] {
			path := fmt.Sprintf("d%d/%s", r.IntN(9), []string{"a", "b\nc", `d\e`, "f  g", "\xff\xfe", "h\r"}[r.IntN(6)]+fmt.Sprint(r.IntN(60)))
			now[path] = byte(r.IntN(3)) // may be unchanged
		}
		held := map[string]byte{} // in the unfinished snapshot
		links := map[string]string{}
		failed := map[string]string{}
		for session, last := 0, r.IntN(3); session <= last; session++ {
			l, err := OpenLedger(root, name)
			require.NoError(t, err)
			l.room, l.small = 1+r.IntN(20_000), 0
			noted := map[string]bool{"folder": true}
			l.Other("folder")
			clear(failed)
			if r.IntN(3) > 0 {
				for i := range 3 {
					failed["  failed\\\n "+fmt.Sprint(i)] = "open  it:\nno"
				}
				for path, why := range failed {
					l.Failed(path, why)
				}
				l.Failed("", "one folder")
				l.Failed("", "another folder")
			}
			for path, value := range now {
				if session < last && r.IntN(2) == 0 {
					continue
				}
				if session < last && r.IntN(10) == 0 {
					value = 77 // changes later
				}
				had, there := held[path]
				before, known := content[path]
				switch {
				case there && had == value:
					l.Same(path)
				case known && before == value:
					l.Reused(path)
				case r.IntN(10) == 0:
					l.Sparse(path)
				default:
					l.Committed(path, [32]byte{value})
				}
				held[path], noted[path] = value, true
			}
			require.NoError(t, l.There(func(path string) { delete(noted, path) }))
			require.Empty(t, noted)
			if session < last {
				l.Committed("gone meanwhile", [32]byte{5})
				require.NoError(t, l.Close())
				if r.IntN(2) == 0 { // killed during a write
					log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_APPEND, 0)
					require.NoError(t, err)
					_, err = log.Write([]byte{0, 0, 0, 9, 1, 2})
					require.NoError(t, errors.Join(err, log.Close()))
				}
				continue
			}
			for i := range r.IntN(5) {
				links[fmt.Sprintf("link  %d\n", i)] = "d0/a  \\"
				l.Link(fmt.Sprintf("link  %d\n", i), "d0/a  \\")
			}
			require.NoError(t, l.Finish(previous, func(string) bool { return false }, func(path string) ([32]byte, error) { return [32]byte{now[path]}, nil }))
			require.NoError(t, l.Close())
		}
		want := map[string][32]byte{}
		for path, value := range now {
			want[path] = [32]byte{value}
		}
		all[name] = want
		if _, err := root.Lstat(name + diffSuffix); err == nil {
			diffs++
			_, err := root.Lstat(name + listSuffix)
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		for old, want := range all { // also after others were removed
			require.Equal(t, want, digests(t, root, old), old)
			requireFound(t, r, root, old, want)
			if old != name && r.IntN(5) == 0 {
				delete(all, old)
				gone, err := filepath.Glob(filepath.Join(dir, old+".*"))
				require.NoError(t, err)
				for _, file := range gone {
					require.NoError(t, os.Remove(file))
				}
			}
		}
		got := map[string]string{}
		require.NoError(t, Links(root, name, func(first, path string) error { got[path] = first; return nil }))
		require.Equal(t, links, got)
		requireLinks(t, root, name, want, links)
		var unlisted []string
		count, err := Failures(root, name, nil)
		require.NoError(t, err)
		lacking := int64(len(failed))
		if lacking > 0 {
			lacking += 2
		}
		require.Equal(t, lacking, count)
		_, err = Failures(root, name, func(path, why string) error {
			if path == "" {
				unlisted = append(unlisted, why)
				return nil
			}
			require.Equal(t, "open it: no", why)
			require.Contains(t, failed, path)
			delete(failed, path)
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, failed)
		require.True(t, unlisted == nil || slices.Equal(unlisted, []string{"one folder", "another folder"}), "%v", unlisted)
		content, previous = now, name
	}
	require.Greater(t, diffs, 5)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(left, func(p string) bool {
		return !slices.Contains([]string{".b3", ".base", ".diff", ".links", ".failed"}, filepath.Ext(p))
	}), "%v", left)
}

func TestBroken(t *testing.T) {
	root, dir := openRoot(t)
	require.ErrorIs(t, Digests(root, "no", nil), fs.ErrNotExist)
	for _, text := range []string{"x", "abc  d\n", strings.Repeat("0", 64) + " d\n", strings.Repeat("z", 64) + "  d\n", strings.Repeat("0", 64) + "  d"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "s.b3"), []byte(text), 0o600))
		require.Error(t, Digests(root, "s", func(string, [32]byte) error { return nil }), "%q", text)
	}
}

// TestWantsWhole checks that whole lists are written just often enough for all lists together to
// take little room.
func TestWantsWhole(t *testing.T) {
	const whole = 4_350_000
	for perNight, most := range map[int64]int64{0: 200_000, 40_000: 700_000, 130_000: 1_200_000, 1_000_000: 3_500_000, 9_000_000: 4_350_000} {
		var sum, before, nights int64
		for n := range int64(100) {
			diff := min(perNight*nights, 2*whole)
			if n == 0 || wantsWhole(whole, diff, before) {
				sum, before, nights = sum+whole, 0, 1
				continue
			}
			sum, before, nights = sum+diff, before+diff, nights+1
		}
		require.LessOrEqual(t, sum/100, most, perNight)
	}
}

// TestLeftLists checks that lists of an interrupted session, of both kinds, have no effect.
func TestLeftLists(t *testing.T) {
	root, dir := openRoot(t)
	finish := func(name, previous string, small int64, files ...string) {
		for _, suffix := range []string{listSuffix, baseSuffix, diffSuffix, failedSuffix} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+suffix), []byte("left"), 0o600))
		}
		l, err := OpenLedger(root, name)
		require.NoError(t, err)
		l.small = small
		want := map[string][32]byte{}
		for _, file := range files {
			digest := [32]byte{file[0]}
			l.Committed(file, digest)
			want[file] = digest
		}
		require.NoError(t, l.Finish(previous, nil, nil))
		require.NoError(t, l.Close())
		require.Equal(t, want, digests(t, root, name))
	}
	finish("a", "", 0, "x", "y", "z")
	finish("b", "a", 0, "x", "z", "zz")
	require.FileExists(t, filepath.Join(dir, "b.diff"))
	finish("c", "b", 0, "a")
	finish("d", "c", smallList, "a")
	require.NoFileExists(t, filepath.Join(dir, "d.diff"))
}

// A file that comes from the previous snapshot has the digest that is noted of it there, whatever
// name it had, and in however many sessions it came. Reading it could take damage for the truth.
func TestDigestOfReused(t *testing.T) {
	root, _ := openRoot(t)
	never := func(path string) ([32]byte, error) {
		t.Errorf("%s was read", path)
		return [32]byte{}, nil
	}
	first, err := OpenLedger(root, "a")
	require.NoError(t, err)
	first.Committed("x", [32]byte{1})
	first.Link("y", "x")
	require.NoError(t, first.Finish("", nil, never))
	require.NoError(t, first.Close())

	cut, err := OpenLedger(root, "b")
	require.NoError(t, err)
	cut.Reused("y")
	require.NoError(t, cut.Close())
	for name, note := range map[string]func(*Ledger, string){"b": (*Ledger).Same, "c": (*Ledger).Reused} {
		l, err := OpenLedger(root, name)
		require.NoError(t, err)
		note(l, "y")
		require.NoError(t, l.Finish("a", func(string) bool { return true }, never))
		require.NoError(t, l.Close())
		require.Equal(t, map[string][32]byte{"y": {1}}, digests(t, root, name))
	}
}
