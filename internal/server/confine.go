package server

import (
	"path/filepath"

	"github.com/fxfer/fxfer/internal/confine"
	"github.com/fxfer/fxfer/internal/identity"
)

// systemFolders are the folders of the system that a server reads: kernel figures, the names of
// file owners, the time zone.
var systemFolders = []string{"/proc", "/sys", "/etc", "/usr/share/zoneinfo"}

// Folder is a folder that a confined process may still use.
type Folder = confine.Folder

// Confine gives up, for the whole process and for good, whatever the server does not need: new TCP
// connections, and all files outside of the shares, the home folder, the certificates, the system's
// settings and the other folders. Shares without the rights Write and Append become read-only. An
// error says why the process is not confined; then it may do what it could before.
func (s *Server) Confine(others ...Folder) error {
	keep := append([]confine.Folder{{Path: s.store.Dir(), Write: true}}, others...)
	for _, p := range s.store.Links() {
		keep = append(keep, confine.Folder{Path: filepath.Dir(p), Write: true})
	}
	for _, dir := range s.opt.TLS.folders() {
		keep = append(keep, confine.Folder{Path: dir})
	}
	for _, share := range s.live.Load().shares {
		writes := share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append)
		keep = append(keep, confine.Folder{Path: share.Dir, Write: writes})
	}
	for _, p := range systemFolders {
		keep = append(keep, confine.Folder{Path: p})
	}
	err := confine.To(keep)
	s.confined.Store(err == nil)
	return err
}
