package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transfer"
	"github.com/fxfer/fxfer/internal/wire"
)

// ErrNoRange says that a file has to be sent whole: the server is too old for ranges, it has an older
// version of the file, or the file is one of a snapshot.
var ErrNoRange = errors.New("the file has to be sent whole")

// The bounds of Range.Log.
const (
	MinRangeLog = wire.MinRangeLog
	MaxRangeLog = wire.MaxRangeLog
)

// Range is a part of a file that was listed before.
type Range struct {
	File   SourceFile // as ListSource found it
	Log    uint8      // from MinRangeLog to MaxRangeLog: the size of all ranges but the last is 1<<Log bytes
	Number int64      // which of them, from 0
}

// SendRange sends one range of a file of a source. Other sessions and hosts send the others, in any order
// and at the same time. The server keeps them in one partial file. Whoever sends the last one gives the
// file its name. Nothing is sent of a file that is not what was listed any more. The error is ErrNoRange
// if a Send has to send the file. SendRange takes OneFileSystem and Within of call.Selection, and of
// call.Target what says how files are written.
func (c *Client) SendRange(ctx context.Context, source string, r Range, target session.URL, call Transfer) (*session.Report, error) {
	only := call.Selection
	only.OneFileSystem = false
	if !only.all() || call.Target.Snapshot != "" || call.Manifest != "" {
		return nil, session.Usage("send the file", "a range is selected by itself, and has no digest that a manifest could name")
	}
	if err := call.check(); err != nil {
		return nil, err
	}
	if r.Log < MinRangeLog || r.Log > MaxRangeLog || r.Number < 0 {
		return nil, session.Usage("ranges have at least 4 MiB", "no file has range %d of 2^%d bytes", r.Number, r.Log)
	}
	root, err := openSource(source, call.Selection.Within)
	if err != nil {
		return nil, err
	}
	defer root.Tree.Close()
	part := wire.Range{Log: r.Log, Number: uint64(r.Number)}
	p := &push{args: []string{source}, roots: []transfer.Root{root}}
	p.source = &transfer.TreeSource{
		Roots: p.roots, OneFileSystem: call.Selection.OneFileSystem, Part: true,
		Paths: func(yield func(string, error) bool) { yield(r.File.Path, nil) },
		Range: &transfer.FileRange{Range: part, Size: r.File.Size, ModTime: r.File.ModTime, Ino: r.File.Inode},
	}
	report, err := c.transfer(ctx, target, wire.Hello{Intent: wire.Ranges, Share: target.Share, Paths: []string{below(target)}, Range: part}, p, &call)
	if why := noRange(report, err); why != nil {
		err = fmt.Errorf("%w: %w", ErrNoRange, why)
	}
	return report, err
}

// noRange tells why a file has to be sent whole, nil if it has not.
func noRange(report *session.Report, err error) error {
	var coded *wire.Error
	if errors.As(err, &coded) && coded.Remote && coded.Code == wire.CodeProtocol {
		return err
	}
	if report == nil || len(report.Failures) != 1 {
		return nil
	}
	err = report.Failures[0].Err
	if errors.Is(err, transfer.ErrNotRanged) || errors.As(err, &coded) && coded.Remote && coded.Code == wire.CodeTaken {
		return err
	}
	return nil
}
