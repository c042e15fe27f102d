package server

import (
	"path/filepath"

	"github.com/fxfer/fxfer/internal/confine"
	"github.com/fxfer/fxfer/internal/identity"
)

// systemFolders are what a server reads of its system: figures, the names of owners, the time zone.
var systemFolders = []string{"/proc", "/sys", "/etc", "/usr/share/zoneinfo"}

// Folder is one that a confined process keeps.
type Folder = confine.Folder

// Confine takes from the whole process, for good, what a server does not need: all files but those of its shares, by their rights, of its
// home folder, of other folders named here and of the system's settings, and new TCP connections. The error says why that does not hold; the
// process then may do what it could before.
func (s *Server) Confine(others ...Folder) error {
	home := s.store.Dir()
	keep := append([]confine.Folder{{Path: home, Write: true}}, others...)
	for _, p := range s.store.Links() {
		keep = append(keep, confine.Folder{Path: filepath.Dir(p), Write: true})
	}
	tls := s.opt.TLS
	for _, dir := range tls.folders() {
		keep = append(keep, confine.Folder{Path: dir})
	}
	for _, share := range s.rules.Load().shares {
		keep = append(keep, confine.Folder{Path: share.Dir, Write: share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append)})
	}
	for _, p := range systemFolders {
		keep = append(keep, confine.Folder{Path: p})
	}
	err := confine.To(keep)
	s.confined.Store(err == nil)
	return err
}
