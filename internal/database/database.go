// Package database opens files of bbolt, which have history and queues. Where a file is damaged, bbolt ends
// the program by a panic, or by a fault of the memory that the file is mapped to. Here that is an error.
package database

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrOpen means that another process did not close a file within the timeout.
var ErrOpen = errors.New("another process has it open")

// Use opens a file, or makes it, calls f, and closes the file. f must stay in its goroutine. A panic of f's own goes
// on.
func Use(path string, opt *bolt.Options, f func(*bolt.DB) error) error {
	_, err := Open(path, opt, func(db *bolt.DB) error { return errors.Join(f(db), db.Close()) })
	return err
}

// Open is Use that leaves the file open unless it fails.
func Open(path string, opt *bolt.Options, f func(*bolt.DB) error) (db *bolt.DB, err error) {
	var file *os.File
	o := *opt
	o.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if why := recover(); why != nil {
			release(file)                                             // Close of bbolt may wait for what has panicked
			if _, fault := why.(interface{ Addr() uintptr }); fault { // whoever reads what is mapped
				why = "it is cut off"
			} else if !strings.HasPrefix(panicking(), "go.etcd.io/") {
				panic(why)
			}
			db, err = nil, damaged(path, why)
		}
	}()
	db, err = bolt.Open(path, 0o600, &o)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		err = ErrOpen
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, damaged(path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := f(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// panicking returns the first function of a module that the present panic has passed, for the function that recovers it.
func panicking() string {
	calls := make([]uintptr, 32)
	frames := runtime.CallersFrames(calls[:runtime.Callers(3, calls)])
	begun := false
	for {
		f, more := frames.Next()
		module, _, _ := strings.Cut(f.Function, "/")
		switch {
		case f.Function == "runtime.gopanic":
			begun = true
		case begun && strings.Contains(module, ".") && strings.Contains(f.Function, "/"): // not of the standard library
			return f.Function
		case !more:
			return ""
		}
	}
}

func damaged(path string, why any) error {
	return fmt.Errorf("%s is damaged, or not a file of fxfer's (%v): move it away, and fxfer makes a new one", path, why)
}
