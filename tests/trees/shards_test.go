//go:build linux

package trees_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shards is how many processes send one tree.
const shards = 8

// TestShards sends a tree in shards, at once, and then whole. Every file goes with one shard, and in
// the end rsync finds nothing to do. Then the tree changes, some shards are killed, some run twice
// at once and one never, and still the last command leaves what the source has.
func TestShards(t *testing.T) {
	t.Parallel()
	rng := random(t)
	base := scratch(t)
	source, target := filepath.Join(base, "source"), filepath.Join(base, "target")
	m := newMaker(t, rng, source)
	m.everything()
	m.manyForShards()
	p := newPair(t, base)

	var sent int64
	for i, o := range p.all(t, rng.Perm(shards), source) {
		require.Zero(t, o.Code, "%d: %v", i, o)
		require.Positive(t, o.Sent, "%d", i)
		sent += o.Sent
	}
	last := p.do(t, "send", "--delete", source+"/", p.url("target"))
	require.Zero(t, last.Sent, "%v", last)
	require.Equal(t, last.Unchanged, sent, "%v", last)
	agree(t, source, target)
	for i, o := range p.all(t, rng.Perm(shards), source) { // nothing is new
		require.Zero(t, o.Code, "%d: %v", i, o)
		require.Zero(t, o.Sent, "%d: %v", i, o)
	}
	require.Zero(t, p.do(t, "send", "--delete", source+"/", p.url("target")).Sent)
	agree(t, source, target)

	m.folder("later", 0o755)
	m.sparse("later/large", 200<<20, map[int64]int{0: 12 << 20, 90 << 20: 12 << 20})
	m.link("later/large", "large-later")
	require.NoError(t, os.MkdirAll(filepath.Join(target, "extra", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(target, "extra", "deep", "file"), []byte("goes"), 0o600))
	never := rng.IntN(shards)
	killed := 0
	for range 3 {
		m.change(*edits)
		order := append(rng.Perm(shards), rng.IntN(shards), rng.IntN(shards))
		order = slices.DeleteFunc(order, func(i int) bool { return i == never })
		killed += p.killSome(t, rng, order, source)
	}
	t.Logf("%d processes were killed", killed)
	require.DirExists(t, filepath.Join(target, "extra"), "a shard removed what only the last command may")
	last = p.do(t, "send", "--delete", source+"/", p.url("target"))
	t.Logf("last: %v", last)
	agree(t, source, target)
	require.Empty(t, partials(t, target))
}

// manyForShards adds small files and hard links across folders.
func (m *maker) manyForShards() {
	for i := range 40 {
		m.folder(fmt.Sprintf("many-%d", i), 0o755)
	}
	for i := range 1200 {
		name := fmt.Sprintf("many-%d/f%d", i%40, i)
		m.file(name, m.rng.IntN(20_000), 0o640)
		if i%10 == 0 {
			m.link(name, fmt.Sprintf("many-%d/linked-%d", m.rng.IntN(40), i))
			m.link(name, fmt.Sprintf("linked-%d", i))
		}
	}
	for i := range 40 { // a shard may not take the rights of others away
		m.mode(fmt.Sprintf("many-%d", i), []uint32{0o755, 0o555, 0o500, 0o2750}[i%4])
		m.touch(fmt.Sprintf("many-%d", i), m.moment())
	}
}

func (p *pair) shard(t *testing.T, i int, source string) *running {
	return p.start(t, "send", "--delete", "--shard", fmt.Sprintf("%d/%d", i, shards), source+"/", p.url("target"))
}

// all runs shards at once.
func (p *pair) all(t *testing.T, order []int, source string) (outcomes []*outcome) {
	var all []*running
	for _, i := range order {
		all = append(all, p.shard(t, i, source))
	}
	for _, r := range all {
		outcomes = append(outcomes, r.wait(t))
	}
	return outcomes
}

// killSome runs shards at once, and kills some of them. It returns how many were still running.
func (p *pair) killSome(t *testing.T, rng *rand.Rand, order []int, source string) (killed int) {
	var all []*running
	var timers []*time.Timer
	for _, i := range order {
		r := p.shard(t, i, source)
		if all = append(all, r); rng.IntN(3) > 0 {
			timers = append(timers, time.AfterFunc(time.Duration(rng.IntN(600))*time.Millisecond, func() { _ = r.cmd.Process.Kill() }))
		}
	}
	for _, r := range all {
		o := r.wait(t)
		if o.Code < 0 {
			killed++
			continue
		}
		require.Zero(t, o.Code, "%v", o)
	}
	for _, timer := range timers {
		timer.Stop()
	}
	return killed
}
