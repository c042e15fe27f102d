package server

import (
	"cmp"
	"net"
	"path/filepath"
	"slices"

	"github.com/fxfer/fxfer/internal/confine"
	"github.com/fxfer/fxfer/internal/identity"
)

// systemFolders are the folders of the system that a server reads: kernel figures, the names of
// file owners, the time zone.
var systemFolders = []string{"/proc", "/sys", "/etc", "/usr/share/zoneinfo"}

// Folder is a folder that a confined process may still use.
type Folder = confine.Folder

// Confine gives up, for the whole process and for good, whatever the server does not need: new TCP
// connections, unless FTP is active, Options.Connect is set or the server calls clients, and all files
// outside of the shares, the home folder, the certificates, the system's settings and the other
// folders. Shares without the rights Write and Append become read-only, unless they are among the
// others. An error says why the process is not confined; then it may do what it could before.
func (s *Server) Confine(others ...Folder) error {
	err := confine.To(keep(s.store, &s.opt, others), s.opt.connects())
	s.confined.Store(err == nil)
	return err
}

// connects reports whether a confined process may make connections.
func (o *Options) connects() bool { return o.Connect || o.Calls || o.Doors.FTP.Active }

// keep returns the folders that a server with these options may use.
func keep(store *identity.Store, opt *Options, others []Folder) []Folder {
	all := slices.Clone(others)
	if home := store.Dir(); home != "" {
		all = append(all, Folder{Path: home, Write: true})
	}
	for _, p := range store.Links() {
		all = append(all, Folder{Path: filepath.Dir(p), Write: true})
	}
	for _, dir := range opt.TLS.folders() {
		all = append(all, Folder{Path: dir})
	}
	for _, share := range opt.Shares {
		writes := share.Rights.Has(identity.Write) || share.Rights.Has(identity.Append)
		all = append(all, Folder{Path: share.Dir, Write: writes})
	}
	for _, p := range systemFolders {
		all = append(all, Folder{Path: p})
	}
	if target := nameServers(); target != "" && opt.Connect {
		all = append(all, Folder{Path: filepath.Dir(target)})
	}
	return all
}

// nameServers returns where the list of name servers is, "" if there is none.
func nameServers() string {
	target, _ := filepath.EvalSymlinks("/etc/resolv.conf")
	return target
}

// Begin is for programs that were built with cgo, whose threads Confine cannot confine on most
// kernels. It confines the process as Confine does for a server with these options, by executing
// the program anew, and does not return. Confine then has nothing to do. A program calls Begin
// before it opens anything. Settings are single files that it reads, and listen the addresses that
// it listens on beside those of the options. Begin returns nil if it is not needed, and otherwise
// why it failed; then nothing has changed.
func Begin(opt *Options, settings, listen []string, others ...Folder) error {
	store, _, err := opt.openIdentity()
	if err != nil {
		return err
	}
	var ports []int
	for _, addr := range slices.Concat([]string{cmp.Or(opt.Listen, ":0"), opt.Doors.SFTP, opt.Doors.WebDAV.Addr}, opt.Doors.FTP.addresses(), listen) {
		_, name, err := net.SplitHostPort(addr)
		if err != nil {
			continue // there is none, or the server says what is wrong
		}
		if port, err := net.LookupPort("tcp", name); err == nil {
			ports = append(ports, port)
		}
	}
	if target := nameServers(); target != "" {
		settings = append(settings, target)
	}
	return confine.Anew(keep(store, opt, others), settings, ports, opt.connects())
}
