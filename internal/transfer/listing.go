package transfer

import (
	"context"
	"sync"

	"github.com/fxfer/fxfer/internal/disk"
)

// ListFiles calls visit for each regular file below the one root, in no order and one at a time. So many
// goroutines read folders at the same time: where each look at the file system takes long, one waits for
// nearly all of the time. It leaves out what cannot be listed. It returns the error of the root itself, of
// visit, or of ctx. Memory follows the number of goroutines and the depth of the tree, as Walk's does.
func (s *TreeSource) ListFiles(ctx context.Context, goroutines int, visit func(Item) error) error {
	l := listing{source: s, root: &s.Roots[0], free: make(chan struct{}, goroutines-1), visit: visit}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	err := l.walk(l.root.Path)
	l.walks.Wait()
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return err
}

// listing is one ListFiles.
type listing struct {
	source *TreeSource
	root   *Root
	ctx    context.Context //nolint:containedctx // of one call
	cancel context.CancelCauseFunc
	walks  sync.WaitGroup
	free   chan struct{} // holds a value for each walk that runs beside the first one
	dev    uint64        // of the root, set by the first visit, before other walks begin

	mu    sync.Mutex // held by the caller of visit
	visit func(Item) error
}

// walk visits what is at from and below, except the folders that it hands over.
func (l *listing) walk(from string) error {
	opt := disk.WalkOptions{OneFileSystem: l.source.OneFileSystem, Skip: func(m disk.Meta) bool {
		return l.source.leavesOut(&m, l.root.rest(m.Path)) || m.Kind == disk.Dir && m.Path != from && l.handOver(&m)
	}}
	return l.root.Tree.Walk(l.ctx, from, opt, func(m disk.Meta) error {
		if m.Path == l.root.Path {
			l.dev = m.ID.Dev
		}
		if m.Kind != disk.File {
			return nil
		}
		return l.file(m)
	}, func(string, error) {})
}

// handOver has another goroutine walk a folder, if one is free. The walk of a folder where another file
// system is mounted would take it for its own.
func (l *listing) handOver(m *disk.Meta) bool {
	if l.source.OneFileSystem && m.ID.Dev != l.dev {
		return false
	}
	select {
	case l.free <- struct{}{}:
	default:
		return false
	}
	l.walks.Go(func() {
		_ = l.walk(m.Path) // it is gone, or ctx is done
		<-l.free
	})
	return true
}

// file calls visit.
func (l *listing) file(m disk.Meta) error {
	item := l.root.item(m, l.root.manifestPath(m.Path))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.ctx.Err(); err != nil {
		return err
	}
	err := l.visit(item)
	if err != nil {
		l.cancel(err)
	}
	return err
}
