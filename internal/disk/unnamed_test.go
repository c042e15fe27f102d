package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	writtenFolders = 10
	writtenFiles   = 30 // in each
)

// Two processes make the same small files in the same new folders, while a third one sweeps. No
// writer fails, each file is as one of them wrote it, and it is there from its first name on.
func TestTwoProcesses(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("files have no modes, and open ones keep their names")
	}
	tree, dir := openTree(t)
	var running sync.WaitGroup
	writers := []byte("ab")
	said, ended := make([]string, len(writers)), make([]error, len(writers))
	for i, who := range writers {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"=writer", "DIR="+dir, "WHO="+string(who))
		running.Go(func() {
			out, err := child.CombinedOutput()
			said[i], ended[i] = string(out), err
		})
	}
	over := make(chan struct{})
	go func() { running.Wait(); close(over) }()
	by := map[byte]int{}
	seen := map[string]bool{}
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		_, err := tree.Sweep(t.Context(), ".", -time.Hour)
		require.NoError(t, err)
		for i := range writtenFolders * writtenFiles {
			path := writtenPath(i)
			who := writtenBy(t, filepath.Join(dir, path), i)
			require.True(t, who != 0 || !seen[path] && !last, "%s is gone", path)
			if seen[path] = who != 0; last {
				by[who]++
			}
		}
	}
	require.Equal(t, make([]error, len(writers)), ended, said)
	t.Logf("%d files of a, %d of b", by['a'], by['b'])
	for i := range writtenFolders {
		require.Empty(t, leftovers(t, filepath.Join(dir, filepath.Dir(writtenPath(i*writtenFiles)))))
	}
}

func writtenPath(i int) string { return fmt.Sprintf("%d/%d", i/writtenFiles, i%writtenFiles) }

// written is file i as a writer writes it.
func written(who byte, i int) (Meta, []byte) {
	data := bytes.Repeat([]byte{who}, 1+i%writtenFiles*int(who))
	m := testMeta(writtenPath(i), int64(len(data)))
	m.Mode, m.ModTime = 0o600|fs.FileMode(who-'a'), someTime.Add(time.Duration(who)*time.Second)
	return m, data
}

// writtenBy returns who wrote the file i at path, 0 if there is none. Its content and metadata are
// of the same file, because it is open.
func writtenBy(t *testing.T, path string, i int) byte {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	got := make([]byte, info.Size()+1)
	n, _ := f.Read(got)
	require.NotZero(t, n, path)
	m, want := written(got[0], i)
	require.True(t, bytes.Equal(want, got[:n]), path)
	require.Equal(t, m.Mode, info.Mode(), path)
	require.True(t, info.ModTime().Equal(m.ModTime), path)
	return got[0]
}

// writerChild writes all files, ten at a time, as if it had made their folders. The second writer
// starts at the end of each folder, so they meet.
func writerChild() {
	tree, err := Open(os.Getenv("DIR"))
	if err == nil {
		err = writeAll(tree, os.Getenv("WHO")[0])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func writeAll(tree *Tree, who byte) error {
	batch := NewBatch(tree, TargetOptions{Sync: SyncNone})
	for i := range writtenFolders * writtenFiles {
		file := i
		if who == 'b' {
			file += writtenFiles - 1 - i%writtenFiles*2
		}
		m, data := written(who, file)
		if i%writtenFiles == 0 {
			above := filepath.Dir(m.Path)
			if err := tree.Mkdir(above, 0o755); err != nil {
				return err
			}
			tree.folders.made(above)
		}
		s, err := tree.Put(m, data, TargetOptions{Sync: SyncNone})
		for errors.Is(err, ErrBusy) {
			s, err = tree.Put(m, data, TargetOptions{Sync: SyncNone})
		}
		if err != nil {
			return err
		}
		if batch.Add(s); i%10 == 9 {
			if err := errors.Join(batch.Commit()...); err != nil {
				return err
			}
		}
	}
	return nil
}
