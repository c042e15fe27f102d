package database

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// fill writes what a file has.
func fill(db *bolt.DB) error {
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("bucket"))
		for i := 0; err == nil && i < 1000; i++ {
			err = b.Put(fmt.Append(nil, i), bytes.Repeat([]byte("x"), 100))
		}
		return err
	})
}

// look reads all of a file.
func look(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte("bucket")); b != nil {
			return b.ForEach(func(_, _ []byte) error { return nil })
		}
		return nil
	})
}

// TestDamaged: a file that is cut off, foreign or overwritten is an error, or is as good as before. It can be
// moved away then, and the process does not keep it locked.
func TestDamaged(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	require.NoError(t, Use(path, bolt.DefaultOptions, fill))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	damage := map[string][]byte{"foreign": bytes.Repeat([]byte("hello\n"), 10_000), "short": []byte("hello"), "zeros": make([]byte, len(whole))}
	for size := 1; size < len(whole); size += os.Getpagesize() {
		damage[fmt.Sprint("cut to ", size)] = whole[:size]
	}
	for at := 0; at < len(whole); at += os.Getpagesize() {
		bad := bytes.Clone(whole)
		for i := range bad[at:min(at+os.Getpagesize(), len(bad))] {
			bad[at+i] = byte(rng.Uint32())
		}
		damage[fmt.Sprint("page at ", at)] = bad
	}
	refused := 0
	for name, content := range damage {
		for _, readOnly := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "db")
			require.NoError(t, os.WriteFile(path, content, 0o600))
			opt := *bolt.DefaultOptions
			opt.ReadOnly, opt.Timeout = readOnly, 1
			use := look
			if !readOnly {
				use = fill
			}
			if err := Use(path, &opt, use); err != nil {
				refused++
				require.ErrorContains(t, err, path, name)
				require.NotErrorIs(t, Use(path, &opt, use), ErrOpen, name)
			}
		}
	}
	require.Greater(t, refused, len(damage)/2)
}

// TestOwnPanic: a mistake of the caller's is no damaged file.
func TestOwnPanic(t *testing.T) {
	t.Parallel()
	pointers := map[string]*[]byte{}
	for name, f := range map[string]func(){
		"panic": func() { panic("mine") },
		"index": func() { _ = []byte(nil)[len(os.Args):] },
		"nil":   func() { _ = *pointers["none"] },
		"std":   func() { _ = strings.Repeat("x", -len(os.Args)) },
	} {
		path := filepath.Join(t.TempDir(), "db")
		require.Panics(t, func() {
			_ = Use(path, bolt.DefaultOptions, func(db *bolt.DB) error {
				return db.Update(func(*bolt.Tx) error { f(); return nil })
			})
		}, name)
		require.NoError(t, Use(path, &bolt.Options{Timeout: 1}, fill), "and it does not stay locked")
	}
}

// TestOpen: a file that another one has open is not damaged.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, bolt.DefaultOptions, fill)
	require.NoError(t, err)
	require.ErrorIs(t, Use(path, &bolt.Options{Timeout: 1}, look), ErrOpen)
	require.NoError(t, db.Close())
	require.NoError(t, Use(path, &bolt.Options{Timeout: 1}, look))
}
