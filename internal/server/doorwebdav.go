package server

import (
	"net"
	"net/netip"

	"github.com/fxfer/fxfer/internal/door/webdav"
)

const webdavDoor = "webdav"

// WebDAVDoor is the door for clients of WebDAV. Its zero value is closed.
type WebDAVDoor struct {
	// Addr is where the door is, with and without TLS. "" is nowhere.
	Addr string
	// Clear lists the addresses of clients that may use it without TLS, besides those on this host.
	Clear []netip.Prefix
}

func (s *Server) openWebDAV() error {
	w := &s.opt.Doors.WebDAV
	if w.Addr == "" {
		return nil
	}
	cfg, shown, err := s.doorTLS()
	if err != nil {
		return err
	}
	cfg.NextProtos = []string{"http/1.1"}
	d := webdav.New(doorServer{s, webdavDoor}, webdav.Options{TLS: cfg, Clear: func(from net.Addr) bool {
		at := addressOf(from)
		return at.IsLoopback() || len(w.Clear) > 0 && checkAddress(at, w.Clear, "") == nil
	}})
	return s.openDoor(&openDoor{name: webdavDoor, serve: d.Serve, shown: shown, end: d.Close}, w.Addr)
}
