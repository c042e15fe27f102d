//go:build linux

package fleet_test

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"

	"github.com/fxfer/fxfer/internal/fleet"
)

// rangedBytes is the size of a file of 8 ranges where a shard has 4 MiB.
const rangedBytes = 7<<22 + 1_234_567

// fill makes a file of random bytes. One with holes has data only here and there.
func fill(t *testing.T, rng *rand.Rand, name string, holes bool) {
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	piece := make([]byte, 1<<16)
	for off := int64(0); off < rangedBytes; off += int64(len(piece)) {
		if holes && rng.IntN(40) > 0 {
			continue
		}
		for i := range piece {
			piece[i] = byte(rng.Uint32())
		}
		_, err := f.WriteAt(piece, off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Truncate(rangedBytes))
}

// memberWithKey makes a worker with a key of its own.
func (s *site) memberWithKey(home, rate string) {
	invite := exec.Command(program, "invite")
	invite.Env = append(os.Environ(), "FXFER_HOME="+filepath.Join(s.dir, "server"))
	url, err := invite.Output()
	require.NoError(s.t, err)
	ls := exec.Command(program, "ls", string(bytes.TrimSpace(url)))
	ls.Env = append(os.Environ(), "FXFER_HOME="+filepath.Join(s.dir, home))
	out, err := ls.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	s.work(home, rate)
}

// received sums up the sessions of one intent in the server's log: bytes and files.
func (s *site) received(intent string) (n, files int64) {
	for _, line := range regexp.MustCompile(`"msg":"session ends".*"intent":"`+intent+`".*"bytes":(\d+),"files":(\d+)`).FindAllStringSubmatch(s.server.output(), -1) {
		b, err := strconv.ParseInt(line[1], 10, 64)
		require.NoError(s.t, err)
		f, err := strconv.ParseInt(line[2], 10, 64)
		require.NoError(s.t, err)
		n, files = n+b, files+f
	}
	return n, files
}

// same checks that a file arrived, by its digest, and that nothing lies beside it.
func (s *site) same(name string) {
	digest := func(name string) [32]byte {
		data, err := os.ReadFile(name)
		require.NoError(s.t, err)
		return blake3.Sum256(data)
	}
	out := filepath.Join(s.dir, "files", "out", name)
	require.Equal(s.t, digest(filepath.Join(s.source(), name)), digest(out), name)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".fxfer-*"))
	require.NoError(s.t, err)
	require.Empty(s.t, left)
}

// TestRanges: workers with keys of their own send the ranges of large files. Each byte is sent once, and
// the last task sends nothing more. A file that has changed since is a delta, and so comes whole.
func TestRanges(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newSite(t, 0, "", short)
	for _, home := range []string{"a", "b", "c"} {
		s.memberWithKey(home, "none")
	}
	large, sparse := filepath.Join(s.source(), "large"), filepath.Join(s.source(), "sparse")
	fill(t, rng, large, false)
	fill(t, rng, sparse, true)
	require.NoError(t, os.Link(large, large+"2"))
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "small"), []byte("small"), 0o600))
	opt := fleet.Options{ShardBytes: 4 << 20}
	j, dead := s.wait(s.submit(s.source()+"/", "/out", opt))
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.Equal(t, 17, j.Shards)
	require.EqualValues(t, 3, j.Files)
	s.same("large")
	s.same("sparse")
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
	sent, named := s.received("ranges")
	require.GreaterOrEqual(t, sent, int64(rangedBytes))
	require.Less(t, sent, int64(rangedBytes+8<<20), "holes are not sent")
	require.EqualValues(t, 2, named)
	sent, named = s.received("receive")
	require.EqualValues(t, len("small"), sent)
	require.EqualValues(t, 1, named)

	f, err := os.OpenFile(large, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("changed"), 11<<20)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	before, _ := s.received("ranges")
	j, dead = s.wait(s.submit(s.source()+"/", "/out", opt))
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	s.same("large")
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
	after, _ := s.received("ranges")
	require.Equal(t, before, after)
}

// TestSourceInRanges: a source that is a large file goes in ranges, and then has the name that "send"
// gives it.
func TestSourceInRanges(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "none", short)
	large := filepath.Join(s.source(), "large")
	fill(t, random(t), large, false)
	j, dead := s.wait(s.submit(large, "/out", fleet.Options{ShardBytes: 4 << 20}))
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.Equal(t, 8, j.Shards)
	require.EqualValues(t, 1, j.Files)
	s.same("large")
	_, named := s.received("ranges")
	require.EqualValues(t, 1, named)
	_, again := s.received("receive")
	require.Zero(t, again)
}

// TestTargetFolder: a source that is put into the target as a whole changes the content of the target's folder only,
// as "send" does it.
func TestTargetFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "none", short)
	require.NoError(t, os.WriteFile(filepath.Join(s.source(), "f"), []byte("f"), 0o600))
	fill(t, random(t), filepath.Join(s.source(), "large"), false)
	out := filepath.Join(s.dir, "files", "out")
	require.NoError(t, os.Mkdir(out, 0o700))
	require.NoError(t, os.Chmod(out, 0o751))
	require.NoError(t, os.Chmod(s.dir, 0o700))
	for _, source := range []string{s.source(), filepath.Join(s.source(), "large")} {
		j, dead := s.wait(s.submit(source, "/out/", fleet.Options{ShardBytes: 4 << 20}))
		require.Equal(t, fleet.Done, j.State, j.Reason)
		require.Empty(t, dead)
	}
	agree(t, s.source(), filepath.Join(out, "source"))
	require.FileExists(t, filepath.Join(out, "large"))
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o751), info.Mode().Perm(), "that of the folder above the source")
}

// TestKilledRanges kills workers and the server while they have ranges of one file. The file is whole
// in the end, and no shard is given up.
func TestKilledRanges(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newSite(t, 0, "", short)
	for _, home := range []string{"a", "b", "c"} {
		s.memberWithKey(home, "12mbit")
	}
	large, sparse := filepath.Join(s.source(), "large"), filepath.Join(s.source(), "sparse")
	fill(t, rng, large, false)
	fill(t, rng, sparse, true)
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardBytes: 4 << 20})
	victims := append(slices.Clone(s.workers), s.server, s.server)
	killed := 0
	for range *kills {
		time.Sleep(time.Duration(200+rng.IntN(1500)) * time.Millisecond)
		if j, _ := s.look(id); j != nil && j.State.Ended() {
			break
		}
		v := victims[rng.IntN(len(victims))]
		v.kill()
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		v.start()
		killed++
	}
	j, dead := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	require.Empty(t, dead)
	require.Zero(t, j.Dead)
	require.Equal(t, 16, j.Done)
	s.same("large")
	s.same("sparse")
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
	sent, _ := s.received("ranges")
	again, _ := s.received("receive")
	t.Logf("%d kills; %d bytes in ranges, %d by the last task, of %d", killed, sent, again, 2*rangedBytes)
}

// TestDamagedRanges: ranges that were complete are damaged at the server while that is down. The file is
// whole in the end.
func TestDamagedRanges(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newSite(t, 2, "12mbit", short)
	fill(t, rng, filepath.Join(s.source(), "large"), false)
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardBytes: 4 << 20})
	s.workers[0].says("msg=ended key=" + id + ".1-1.")
	s.server.kill()
	left, err := filepath.Glob(filepath.Join(s.dir, "files", "out", ".fxfer-*.part"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	f, err := os.OpenFile(left[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	for off := int64(0); off < rangedBytes; off += 1 << 22 {
		_, err = f.WriteAt([]byte("damage"), off+rng.Int64N(1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	s.server.start()
	j, _ := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	s.same("large")
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
}

// TestChangedRanges: a file that changes after it was listed is sent by the last task as it is then.
func TestChangedRanges(t *testing.T) {
	t.Parallel()
	rng := random(t)
	s := newSite(t, 2, "12mbit", short)
	large := filepath.Join(s.source(), "large")
	fill(t, rng, large, false)
	id := s.submit(s.source()+"/", "/out", fleet.Options{ShardBytes: 4 << 20})
	s.workers[0].says("msg=ended key=" + id + ".1-1.")
	fill(t, rng, large, false)
	j, _ := s.wait(id)
	require.Equal(t, fleet.Done, j.State, j.Reason)
	s.same("large")
	agree(t, s.source(), filepath.Join(s.dir, "files", "out"))
}
