package disk

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const crashFiles = 300

// crashPath and crashContent define the file i of a batch. Some files are large enough for a
// checkpoint.
func crashPath(i int) string { return fmt.Sprintf("folder%d/file%d", i%3, i) }

func crashContent(i int) []byte {
	size := i * 37
	if i%100 == 99 {
		size = CheckpointFrom + i
	}
	b, _ := blockOf(int64(i), size)
	return b
}

// A process may be killed at any moment of staging and naming. Then final names lead only to whole
// files, every file that it reported is named, its leftovers do not hold up the next process, and
// Sweep removes them.
func TestKilledBatch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, and other tests have its goroutines as well")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	tree, dir := openTree(t)
	for turn := range 15 {
		named := runBatchChild(t, dir, random.IntN(2*crashFiles))
		tree.folders.changed() // the child may have been faster than folderFresh
		left := 0
		for i := range crashFiles {
			got, err := os.ReadFile(filepath.Join(dir, crashPath(i)))
			if os.IsNotExist(err) {
				require.NotContains(t, named, i, "turn %d", turn)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, crashContent(i), got, "turn %d file %d", turn, i)
			m, err := tree.Stat(crashPath(i))
			require.NoError(t, err)
			require.True(t, m.ModTime.Equal(someTime))
		}
		for folder := range 3 {
			left += len(leftovers(t, filepath.Join(dir, fmt.Sprintf("folder%d", folder))))
		}
		if turn%2 == 0 {
			_, err := tree.Sweep(t.Context(), ".", -time.Hour)
			require.NoError(t, err)
			for folder := range 3 {
				require.Empty(t, leftovers(t, filepath.Join(dir, fmt.Sprintf("folder%d", folder))))
				require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("folder%d", folder))))
			}
		}
		t.Logf("turn %d: %d named, %d leftovers", turn, len(named), left)
	}
	// Run to the end, over the leftovers.
	named := runBatchChild(t, dir, 2*crashFiles+1)
	require.Len(t, named, crashFiles)
	for folder := range 3 {
		require.Empty(t, leftovers(t, filepath.Join(dir, fmt.Sprintf("folder%d", folder))))
	}
}

// runBatchChild lets a child stage and name files until it has printed this many lines, and kills
// it then. It returns the files that the child reported as named.
func runBatchChild(t *testing.T, dir string, lines int) map[int]bool {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=batch", "DIR="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	named := map[int]bool{}
	said := bufio.NewScanner(out)
	for i := 0; said.Scan(); i++ {
		if i == lines {
			require.NoError(t, child.Process.Kill())
		}
		what, number, _ := strings.Cut(said.Text(), " ")
		file, err := strconv.Atoi(number)
		require.NoError(t, err)
		if what == "named" {
			named[file] = true
		}
	}
	if err := child.Wait(); lines > 2*crashFiles {
		require.NoError(t, err)
	}
	return named
}

// batchChild stages all files, those with a checkpoint block by block, and names them fifty at a
// time.
func batchChild() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	tree, err := Open(os.Getenv("DIR"))
	fail(err)
	batch := NewBatch(tree, TargetOptions{})
	var waiting []int
	for i := range crashFiles {
		m := testMeta(crashPath(i), int64(len(crashContent(i))))
		fail(tree.Mkdir(filepath.Dir(m.Path), 0o755))
		var s *Staged
		if m.Size > CheckpointFrom {
			s, err = stageBlocks(tree, m, crashContent(i))
		} else {
			s, err = tree.Put(m, crashContent(i), TargetOptions{})
		}
		fail(err)
		batch.Add(s)
		fmt.Println("staged", i)
		if waiting = append(waiting, i); len(waiting) < 50 {
			continue
		}
		for _, err := range batch.Commit() {
			fail(err)
		}
		for _, file := range waiting {
			fmt.Println("named", file)
		}
		waiting = waiting[:0]
	}
}

func stageBlocks(tree *Tree, m Meta, content []byte) (*Staged, error) {
	p, err := tree.Partial(m, testBlock, TargetOptions{})
	if err != nil {
		return nil, err
	}
	for block := range p.blocks(m.Size) {
		if p.done.Has(block) {
			continue
		}
		from := block * testBlock
		if _, err := p.WriteAt(content[from:min(from+testBlock, m.Size)], from); err != nil {
			return nil, err
		}
		if err := p.Mark(block, [32]byte{}); err != nil {
			return nil, err
		}
	}
	return p.Stage(m)
}
