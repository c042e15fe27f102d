package disk

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	crashBlock   = 16 << 10
	crashSize    = 400*crashBlock + 777
	crashWriters = 4
)

// A process may be killed at any moment. Then nothing has the final name, and the checkpoint claims
// only what was written. The next process resumes.
func TestKilledWriter(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and other tests have its goroutines as well")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	tree, dir := openTree(t)
	m := testMeta("file", crashSize)
	resumed := int64(0)
	for turn := range 20 {
		marked := runCrashChild(t, dir, random.Uint64(), random.IntN(150))
		if _, err := tree.Stat("file"); err == nil {
			checkCrashFile(t, dir)
			require.NoError(t, os.Remove(filepath.Join(dir, "file")))
			continue
		}
		p, err := tree.Partial(m, crashBlock, TargetOptions{Sync: SyncNone})
		require.NoError(t, err)
		recorded := int64(0)
		require.NoError(t, p.Recorded(func(block int64, cv [32]byte) error {
			want, wantCV := blockOf(block, blockLength(block, crashSize, crashBlock))
			got := make([]byte, len(want))
			_, err := p.ReadAt(got, block*crashBlock)
			require.NoError(t, err)
			require.Equal(t, wantCV, cv)
			require.True(t, bytes.Equal(want, got), "turn %d block %d", turn, block)
			recorded++
			return nil
		}))
		require.Equal(t, p.earlier.have.Count(), recorded)
		if bootID() != ([32]byte{}) {
			lost := 0
			for _, block := range marked {
				if !p.earlier.have.Has(block) {
					lost++
				}
			}
			// These are records of a write to the log that the kill prevented, and those that
			// gathered behind it.
			require.LessOrEqual(t, lost, 2*(maxBuffered+crashWriters), "of %d marked", len(marked))
		}
		resumed += recorded
		require.NoError(t, p.Close())
	}
	if bootID() != ([32]byte{}) {
		require.Positive(t, resumed)
	}
}

// runCrashChild lets a child write until it has marked this many blocks, and kills it then. It
// returns the blocks that were marked and not dropped again.
func runCrashChild(t *testing.T, dir string, seed uint64, marks int) []int64 {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=crash", "DIR="+dir, fmt.Sprintf("SEED=%d", seed))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	state := map[int64]bool{}
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if i == marks {
			require.NoError(t, child.Process.Kill())
		}
		what, number, found := strings.Cut(lines.Text(), " ")
		block, err := strconv.ParseInt(number, 10, 64)
		if !found || err != nil {
			require.Equal(t, "committed", lines.Text())
			continue
		}
		state[block] = what == "marked"
	}
	_ = child.Wait() // killed, or done before
	var marked []int64
	for block, is := range state {
		if is {
			marked = append(marked, block)
		}
	}
	return marked
}

func checkCrashFile(t *testing.T, dir string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Len(t, got, crashSize)
	for block := int64(0); block*crashBlock < crashSize; block++ {
		want, _ := blockOf(block, blockLength(block, crashSize, crashBlock))
		require.True(t, bytes.Equal(want, got[block*crashBlock:][:len(want)]), "block %d", block)
	}
}

// crashChild writes the missing blocks with several writers, and drops some finished blocks. Every
// block holds garbage before it holds its content.
func crashChild() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	fail(err)
	tree, err := Open(os.Getenv("DIR"))
	fail(err)
	m := testMeta("file", crashSize)
	p, err := tree.Partial(m, crashBlock, TargetOptions{Sync: SyncNone})
	fail(err)
	var mu sync.Mutex // one line at a time
	say := func(what string, block int64) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, block)
	}
	write := func(block int64) {
		b, cv := blockOf(block, blockLength(block, crashSize, crashBlock))
		_, err := p.WriteAt(bytes.Repeat([]byte{0xee}, len(b)), block*crashBlock)
		fail(err)
		_, err = p.WriteAt(b, block*crashBlock)
		fail(err)
		fail(p.Mark(block, cv))
		say("marked", block)
	}
	missing := make(chan int64, p.blocks(crashSize))
	for block := range p.blocks(crashSize) {
		if p.earlier == nil || !p.earlier.have.Has(block) {
			missing <- block
		}
	}
	close(missing)
	var writers sync.WaitGroup
	for writer := range uint64(crashWriters) {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(seed, writer))
			for block := range missing {
				write(block)
				if random.IntN(10) == 0 {
					say("dropped", block)
					fail(p.Drop(block))
					write(block)
				}
				if random.IntN(50) == 0 {
					fail(p.Checkpoint(context.Background()))
				}
			}
		})
	}
	writers.Wait()
	fail(p.Commit(m))
	fmt.Println("committed")
}
