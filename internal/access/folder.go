package access

import (
	"context"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/wire"
)

// Folder is the open folder of a share. It hands out scopes to clients.
type Folder struct {
	tree  *disk.Tree
	began atomic.Int64 // series that this process began: what scopes remember is void then
}

// Open opens the folder at dir. The caller closes it.
func Open(dir string) (*Folder, error) {
	tree, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Folder{tree: tree}, nil
}

// Close ends the use of the folder, and of its scopes.
func (f *Folder) Close() error { return f.tree.Close() }

// Free returns how many bytes are free on the file system of the folder, -1 if that is unknown.
func (f *Folder) Free() int64 { return f.tree.Free() }

// Writable returns why the server can't make entries in the folder, or nil.
func (f *Folder) Writable() error { return f.tree.Writable() }

// Is reports whether info, from os.Stat, describes the folder.
func (f *Folder) Is(info fs.FileInfo) bool { return f.tree.Is(info) }

// Usage counts bytes of files and entries in the folder, see disk.Tree.Usage.
func (f *Folder) Usage(ctx context.Context) (bytes, entries int64, err error) {
	return f.tree.Usage(ctx)
}

// Sweep removes what killed transfers left longer than that ago, see disk.Tree.Sweep.
func (f *Folder) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	return f.tree.Sweep(ctx, ".", olderThan)
}

// Stat describes the folder.
func (f *Folder) Stat() (disk.Meta, error) { return f.tree.Stat(".") }

// OpenSource opens a folder of the user's own for reading. The caller closes the scope.
func OpenSource(dir string) (*Scope, error) {
	tree, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Scope{tree: tree, effects: Names | Read, whole: true}, nil
}

// OpenSourceIn is OpenSource for a path in the folder dir, see disk.OpenIn.
func OpenSourceIn(dir, rest string) (*Scope, error) {
	tree, err := disk.OpenIn(dir, rest)
	if err != nil {
		return nil, err
	}
	return &Scope{tree: tree, effects: Names | Read, whole: true}, nil
}

// Asked is what a user asked a server for.
type Asked struct {
	Base string // path of the target in the folder; "." for the folder
	// Names are the first elements of the paths that the server may send; nil is any.
	Names      []string
	BackupDir  string // also written; "" for none
	Privileged bool   // set what gives privilege: see disk.TargetOptions
	Private    bool   // nobody else may read what arrives
}

// OpenTarget opens the folder into which a user receives what was asked for, and nothing else. The
// caller closes the scope.
func OpenTarget(dir string, a Asked) (*Scope, error) {
	tree, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Scope{
		tree: tree, effects: Names | Read | Write | Reuse, whole: true,
		asked: &a, backup: a.BackupDir, privileged: a.Privileged, private: a.Private,
	}, nil
}

// Request is what a client asks of a share.
type Request struct {
	Share      string
	Client     string          // the owner of the series that it makes
	Rights     identity.Rights // on the share
	Intent     wire.Intent
	DryRun     bool   // nothing changes, whatever the intent
	BackupDir  string // as in wire.Target
	Privileged bool   // set what gives privilege: see disk.TargetOptions
	Below      string // what is elsewhere in the share is out of reach; "" and "." are all of it
}

// Client returns a scope for a request of a client. The caller closes it.
func (f *Folder) Client(r Request) *Scope {
	s := &Scope{
		folder: f, tree: f.tree.Session(), effects: intents[r.Intent], share: r.Share, client: r.Client,
		rights: r.Rights, backup: r.BackupDir, privileged: r.Privileged,
	}
	if r.Below != "." {
		s.below = r.Below
	}
	if r.DryRun {
		s.effects &= Names | Read
	}
	return s
}
