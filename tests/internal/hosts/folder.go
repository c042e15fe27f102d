// Package hosts runs programs on the hosts of a lab: as an ordinary user, in a folder in memory,
// with kernel settings that are restored.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// OrdinaryUser is "nobody". All commands run as this user and group.
const OrdinaryUser = 65534

const memoryFS = "/dev/shm"

// Folder contains all files of a run, in memory. Nothing outside of it is written. Commands run in
// it, so that their arguments need no paths. The names that its methods take are relative to it.
type Folder struct{ Path string }

// NewFolder makes a folder with the given folders in it. Its name begins with the prefix and the
// process ID. It removes the rest of a killed run. The caller calls Remove.
func NewFolder(prefix string, dirs ...string) (*Folder, error) {
	old, err := filepath.Glob(filepath.Join(memoryFS, prefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		pid, err := strconv.Atoi(text)
		if err == nil && !alive(pid) {
			if err := os.RemoveAll(path); err != nil {
				return nil, fmt.Errorf("remove what an earlier run left: %w", err)
			}
		}
	}
	path, err := os.MkdirTemp(memoryFS, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	f := &Folder{Path: path}
	if err := os.Chmod(path, 0o755); err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	for _, dir := range dirs {
		if err := f.Mkdir(dir); err != nil {
			return nil, errors.Join(err, f.Remove())
		}
	}
	return f, nil
}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// Remove removes the folder and everything in it.
func (f *Folder) Remove() error { return os.RemoveAll(f.Path) }

// Abs returns the absolute path of name.
func (f *Folder) Abs(name string) string { return filepath.Join(f.Path, name) }

// Mkdir makes a folder that belongs to the ordinary user.
func (f *Folder) Mkdir(name string) error {
	if err := os.MkdirAll(f.Abs(name), 0o755); err != nil {
		return err
	}
	return os.Chown(f.Abs(name), OrdinaryUser, OrdinaryUser)
}

// Write writes a small file that belongs to the ordinary user. Nobody else may read it.
func (f *Folder) Write(name, text string) error {
	if err := os.WriteFile(f.Abs(name), []byte(text), 0o600); err != nil {
		return err
	}
	return os.Chown(f.Abs(name), OrdinaryUser, OrdinaryUser)
}

// Install copies a program. Another process does it: what is open here for writing stays open in
// what a test beside this one starts, and can't be run meanwhile.
func (f *Folder) Install(ctx context.Context, program, name string) error {
	return exec.CommandContext(ctx, "cp", program, f.Abs(name)).Run()
}

// Empty removes everything in the folder of that name. A server may still end what was cancelled, and
// make files there for a moment.
func (f *Folder) Empty(name string) error {
	for try := 0; ; try++ {
		entries, err := os.ReadDir(f.Abs(name))
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.Abs(name), e.Name())))
		}
		if !errors.Is(err, fs.ErrExist) || try == 50 { // as a folder that is not empty
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Fill writes a new file of pseudo-random bytes, the same for the same seed. Everyone may read it.
func (f *Folder) Fill(ctx context.Context, name string, size int64, seed byte) error {
	random := rand.NewChaCha8([32]byte{seed})
	file, err := os.Create(f.Abs(name))
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, 1<<20)
	for left := size; left > 0 && ctx.Err() == nil; left -= int64(len(chunk)) {
		chunk = chunk[:min(left, int64(len(chunk)))]
		_, _ = random.Read(chunk) // never fails
		if _, err := file.Write(chunk); err != nil {
			return err
		}
	}
	return ctx.Err()
}
