package client

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// ErrNoEarly says that a server does not take files that still grow.
var ErrNoEarly = errors.New("the server takes no files that still grow: it has an older version")

// Early says which files SendEarly sends. Its functions are called from one goroutine each.
type Early struct {
	// Next waits for the next file that has grown. It returns its path below the folder, with slashes,
	// and how many bytes of it are to be there in the end, at least 4 MiB. Whole MiB of that are sent. It
	// returns false to end the session, and when ctx has ended. A file must not come again before its
	// result.
	Next func(ctx context.Context) (path string, size int64, ok bool)
	// Result says how many bytes of a file are there, from its beginning on, or why it failed.
	Result func(path string, there int64, err error)
	// Throttle is as in Transfer.
	Throttle *Throttle
}

// SendEarly sends the beginnings of files of the folder dir while they grow, in one session with the
// lowest priority. The server keeps them without names until Send sends the files, which is then
// quick. They may change: what no longer fits is sent again then. It returns nil after Next has
// ended the session, and ErrNoEarly if the server is too old for it. It does not try again.
func (c *Client) SendEarly(ctx context.Context, dir string, target session.URL, early Early) error {
	root, err := openSource(dir+string(filepath.Separator), nil)
	if err != nil {
		return err
	}
	defer root.Tree.Close()
	call := Transfer{
		Priority: session.NewLivePriority(session.PriorityLow), Throttle: early.Throttle,
		File: func(r session.FileResult) { early.Result(r.Path, r.Bytes, r.Err) },
	}
	p := &push{
		args: []string{dir}, roots: []transfer.Root{root}, once: true,
		source: &transfer.EarlySource{Tree: root.Tree, Next: early.Next},
	}
	report, err := c.transfer(ctx, target, wire.Hello{Intent: wire.Early, Share: target.Share, Paths: []string{below(target)}}, p, &call)
	var coded *wire.Error
	switch {
	case errors.As(err, &coded) && coded.Remote && coded.Code == wire.CodeProtocol:
		return ErrNoEarly
	case report != nil && report.Complete:
		return nil // what failed has its result
	}
	return err
}
