package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	smallFile = 1 << 10
	perFolder = 1000
)

// plant makes a tree of small files.
func plant(dir string, files int) error {
	content := make([]byte, smallFile)
	random := rand.NewChaCha8([32]byte{1})
	for i := range files {
		folder := filepath.Join(dir, fmt.Sprintf("d%04d", i/perFolder))
		if i%perFolder == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		_, _ = random.Read(content) // never fails
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%06d", i)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// touch changes one small file of a hundred.
func touch(dir string) error {
	n, content := 0, make([]byte, smallFile)
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if n++; n%100 != 1 {
			return nil
		}
		content[0]++
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
		return os.Chtimes(path, time.Time{}, time.Now())
	})
}

// fill makes files of random bytes.
func fill(dir string, files int, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{2})
	chunk := make([]byte, 1<<20)
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("large", i)))
		if err != nil {
			return err
		}
		for n := int64(0); n < size && err == nil; n += int64(len(chunk)) {
			_, _ = random.Read(chunk) // never fails
			_, err = f.Write(chunk)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
