package path

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// checkPage makes sure that the page of --html can be written, before what it shows takes its time. name "" is no
// page. What is there stays as it is.
func checkPage(name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil // such as a pipe, whose reader would take this for the end
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err == nil {
		err = file.Close()
		if fresh {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return pageError(err)
}

// writePage writes the page of --html. name "" is no page.
func writePage(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err == nil {
		err = errors.Join(write(file), file.Close())
	}
	return pageError(err)
}

func pageError(err error) error {
	if err == nil {
		return nil
	}
	return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("write the page: %w", err)}
}
