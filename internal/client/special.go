package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fxfer/fxfer/internal/session"
)

// maxLinks is how many symlinks may follow each other, as for the kernel.
const maxLinks = 40

// isSpecial reports whether a target on this host is to be written to, because a file must not
// replace it: a device, a pipe, a socket, or an entry of /proc or /sys. Symlinks are followed, so
// /dev/stdout is special, too.
func isSpecial(target string) bool {
	if strings.HasSuffix(target, "/") || strings.HasSuffix(target, string(filepath.Separator)) {
		return false // it is to be a folder
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		return !info.IsDir()
	}
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(target))
		if err != nil {
			return false
		}
		if strings.HasPrefix(dir+"/", "/proc/") || strings.HasPrefix(dir+"/", "/sys/") {
			return true
		}
		to, err := os.Readlink(target)
		if err != nil {
			return false
		}
		if target = to; !filepath.IsAbs(to) {
			target = filepath.Join(dir, to)
		}
	}
	return false
}

// behindLinks returns the path that symlinks at the end of target lead to. Nothing needs to be there.
func behindLinks(target string) string {
	for range maxLinks {
		to, err := os.Readlink(target)
		if err != nil {
			return target
		}
		if !filepath.IsAbs(to) {
			to = filepath.Dir(target) + string(filepath.Separator) + to // Join would resolve ".." without looking
		}
		target = to
	}
	return target
}

// getSpecial writes one file to a special target.
func (c *Client) getSpecial(ctx context.Context, sources []session.URL, target string, call Transfer) (*session.Report, error) {
	if len(sources) != 1 {
		return nil, session.Usage("name a folder", "%s takes one file, and here are %d sources", target, len(sources))
	}
	if err := call.checkGetTo(); err != nil {
		return nil, err
	}
	w, err := openSpecial(ctx, target)
	if err != nil {
		return nil, &session.Error{Kind: session.KindLocalDisk, Err: err}
	}
	report, err := c.GetTo(ctx, sources[0], w, call)
	if err == nil {
		_ = w.Sync() // a pipe or a terminal cannot
	}
	if closed := w.Close(); err == nil && closed != nil {
		err = &session.Error{Kind: session.KindLocalDisk, Err: closed}
	}
	return report, err
}

// openSpecial opens a special target. It waits until somebody reads from a pipe.
func openSpecial(ctx context.Context, target string) (*os.File, error) {
	if info, err := os.Stat(target); err == nil && info.Mode()&fs.ModeSocket != 0 {
		return nil, fmt.Errorf("%s is a socket: no file can be written to it", target)
	}
	type result struct {
		file *os.File
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := os.OpenFile(target, os.O_WRONLY|os.O_TRUNC, 0)
		opened <- result{f, err}
	}()
	select {
	case r := <-opened:
		return r.file, r.err
	case <-ctx.Done():
		return nil, errors.New("interrupted while nobody read from " + target)
	}
}
