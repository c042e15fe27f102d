package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/session"
)

// shareFolder is the open folder of a share. It survives a Reload that keeps name and path.
type shareFolder struct {
	folder *access.Folder
	limit  rateLimit
	quota  *shareQuota
	free   atomic.Int64 // free space some seconds ago, bytes; -1 if unknown

	// Guarded by Server.mu.
	users   int  // sessions
	retired bool // no share has it any more: the last session closes it
}

func (s *Server) newShareFolder(share string, folder *access.Folder) *shareFolder {
	f := &shareFolder{folder: folder, quota: newShareQuota(share, folder, s.log)}
	f.free.Store(folder.Free())
	return f
}

// folderError explains why the folder of a share can't be opened.
func (s *Server) folderError(share string, err error) error {
	e := &session.Error{Kind: session.KindLocalDisk, Err: fmt.Errorf("share %q: %w", share, err)}
	if s.confined.Load() && errors.Is(err, fs.ErrPermission) {
		e.Advice = session.AdviceRestartServer
	}
	return e
}

// errFolderReplaced says that the path of a share leads to another folder than the open one.
var errFolderReplaced = errors.New("the folder was replaced")

// checkFolder returns nil if the path of the share leads to the open folder. Otherwise it returns
// errFolderReplaced, or why the path leads to no folder.
func (l *liveShare) checkFolder() error {
	found, err := os.Stat(l.Dir)
	if err == nil && !l.folder.Is(found) {
		err = errFolderReplaced
	}
	return err
}

// has reports whether the share has the folder at dir open. l may be nil.
func (l *liveShare) has(dir string) bool {
	return l != nil && l.Dir == dir && !errors.Is(l.checkFolder(), errFolderReplaced)
}

// retireFolders closes the folders that only the old settings have, once no session uses them.
func (s *Server) retireFolders(old, next *liveSettings) {
	var unused []*shareFolder
	s.mu.Lock()
	for name, was := range old.shares {
		if now := next.shares[name]; now == nil || now.shareFolder != was.shareFolder {
			was.retired = true
			if was.users == 0 {
				unused = append(unused, was.shareFolder)
			}
		}
	}
	s.mu.Unlock()
	closeFolders(unused)
}

func closeFolders(folders []*shareFolder) {
	for _, f := range folders {
		_ = f.folder.Close()
	}
}
