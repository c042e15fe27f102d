//go:build linux

package trees_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	manyFiles = flag.Int("files", 2_500, "files of TestKillManyFiles")
	kills     = flag.Int("kills", 2, "how often TestKillManyFiles kills a transfer")
)

// smallSize is the size of each small file.
const smallSize = 1024

// TestKillManyFiles kills either side at random moments during a transfer of very many small files,
// and runs the same command again. Files that were complete are not sent again, and the target is
// exact in the end.
func TestKillManyFiles(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, target := filepath.Join(base, "source"), filepath.Join(base, "target")
	m := newMaker(t, rng, source)
	m.small(*manyFiles)
	p := newPair(t, base)

	// A whole transfer shows how long one takes.
	whole := p.do(t, "send", source+"/", p.url("whole"))
	require.EqualValues(t, *manyFiles, whole.Sent)
	t.Logf("%d files in %.2f s", whole.Files, whole.Seconds)
	go func() { _ = os.RemoveAll(filepath.Join(base, "whole")) }() // this takes a while, so it runs beside the test; scratch removes the rest

	for i := range *kills {
		before := placed(t, target)
		server := rng.IntN(2) == 1
		moment := time.Duration(rng.Float64() * whole.Seconds / 3 * float64(time.Second))
		killed, o := p.killOne(t, p.start(t, "send", source+"/", p.url("target")), server, moment)
		after := placed(t, target)
		t.Logf("%d: server %v, after %v, killed %v: %d files placed before, %d more", i+1, server, moment.Round(time.Millisecond), killed,
			len(before), len(after)-len(before))
		if !killed {
			require.Zero(t, o.Code, "%v", o)
			require.GreaterOrEqual(t, o.Unchanged, int64(len(before)))
		}
	}
	before := placed(t, target)
	leftovers := partials(t, target)
	report := filepath.Join(base, "report")
	o := p.do(t, "send", "--report", report, source+"/", p.url("target"))
	lines := reportOf(t, report)
	t.Logf("last: %d files in %.2f s: %d unchanged, %d sent", o.Files, o.Seconds, o.Unchanged, o.Sent)
	require.EqualValues(t, *manyFiles, o.Files)
	for _, name := range before {
		require.Equal(t, "unchanged", lines[name][0].Outcome, name)
	}
	require.GreaterOrEqual(t, o.Unchanged, int64(len(before))) // the server may have completed more files after it lost the client
	require.Equal(t, o.Files, o.Unchanged+o.Sent)
	require.InEpsilon(t, smallSize*o.Sent+1, o.Written+1, 0.01)
	// The session of a killed client still gives files their names while the next client has them sent
	// again. If the server is killed just then, partial files of complete files are left, until the
	// server sweeps them.
	for name, inode := range partials(t, target) {
		require.Equal(t, leftovers[name], inode, "the last transfer left %s", name)
	}
	require.Empty(t, differences(source, target, comparison{leftovers: true}))

	o = p.do(t, "send", source+"/", p.url("target"))
	t.Logf("nothing to do: %d files in %.2f s", o.Files, o.Seconds)
	require.Zero(t, o.Sent)
}

// small makes n small files, 1000 per folder.
func (m *maker) small(n int) {
	content := m.bytes(smallSize)
	for i := range n {
		dir := m.at(fmt.Sprintf("%04d", i/1000))
		if i%1000 == 0 {
			require.NoError(m.t, os.Mkdir(dir, 0o755))
		}
		copy(content, fmt.Sprintf("%020d", i)) // all files differ
		require.NoError(m.t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", i%1000)), content, 0o644))
	}
}

// partials returns the inodes of the partial files below dir, by their paths.
func partials(t *testing.T, dir string) map[string]uint64 {
	found := map[string]uint64{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(d.Name(), ".fxfer-") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			found[name] = info.Sys().(*syscall.Stat_t).Ino
		}
		return err
	})
	if !os.IsNotExist(err) { // the transfer had not come that far
		require.NoError(t, err)
	}
	return found
}

// placed lists the complete files below dir.
func placed(t *testing.T, dir string) (found []string) {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".fxfer-") {
			found = append(found, strings.TrimPrefix(name, dir+"/"))
		}
		return err
	})
	if !os.IsNotExist(err) { // the transfer had not come that far
		require.NoError(t, err)
	}
	return found
}
