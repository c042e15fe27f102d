package server

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/fxfer/fxfer/internal/door/ftp"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
)

const ftpDoor = "ftp"

// FTPDoor is the door for clients of FTP. Its zero value is closed.
type FTPDoor struct {
	// Addr is where a connection gets TLS when the client asks for it. "" is nowhere.
	Addr string
	// ImplicitTLS is where a connection begins with TLS. "" is nowhere.
	ImplicitTLS string
	// Ports are the passive ports, to which clients open data connections. Each of them waits for one
	// client of an address at a time, and a user has at most half of them wait. The zero PortRange
	// is DefaultPassivePorts ports that the system chooses.
	Ports PortRange
	// Public is the address that the server names for passive ports, behind NAT. The zero Addr is
	// the one that the client has reached.
	Public netip.Addr
	// Clear lists the addresses of clients that may log in and transfer without TLS. nil is none.
	Clear []netip.Prefix
	// Active lets the server connect to clients (PORT and EPRT).
	Active bool
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

const (
	// DefaultPassivePorts is how many ports for data connections the system chooses: enough for all
	// connections that a user may have by default, which is half of them.
	DefaultPassivePorts = 2 * DefaultMaxSessionsPerClient
	// MaxPassivePorts bounds them: each takes an open file.
	MaxPassivePorts = 1024
)

// Len is the number of ports.
func (r PortRange) Len() int { return int(r.Last) - int(r.First) + 1 }

// open reports whether clients can reach the door.
func (f *FTPDoor) open() bool { return f.Addr != "" || f.ImplicitTLS != "" }

// passive returns the addresses of the passive ports, on the same address as the door.
func (f *FTPDoor) passive() (all []string) {
	host, _, _ := net.SplitHostPort(cmp.Or(f.Addr, f.ImplicitTLS))
	if f.Ports == (PortRange{}) {
		for range DefaultPassivePorts {
			all = append(all, net.JoinHostPort(host, "0"))
		}
		return all
	}
	for i := range f.Ports.Len() {
		all = append(all, net.JoinHostPort(host, strconv.Itoa(int(f.Ports.First)+i)))
	}
	return all
}

// addresses returns all addresses that the door listens on.
func (f *FTPDoor) addresses() []string {
	if !f.open() {
		return nil
	}
	return append(f.passive(), f.Addr, f.ImplicitTLS)
}

// checkHosts refuses two addresses with different hosts: the passive ports have one.
func (f *FTPDoor) checkHosts() error {
	host, _, _ := net.SplitHostPort(f.Addr)
	other, _, _ := net.SplitHostPort(f.ImplicitTLS)
	if f.Addr == "" || f.ImplicitTLS == "" || host == other {
		return nil
	}
	return session.Usage("name the same host in both", "ftp listens at %s, and with implicit TLS at %s, but its passive ports have one host", f.Addr, f.ImplicitTLS)
}

func (s *Server) openFTP() error {
	f := &s.opt.Doors.FTP
	if !f.open() {
		return nil
	}
	if err := f.checkHosts(); err != nil {
		return err
	}
	if f.Ports != (PortRange{}) && (f.Ports.First == 0 || f.Ports.Len() < 1 || f.Ports.Len() > MaxPassivePorts) {
		return session.Usage("", "the range of passive ports %d-%d has to have 1 to %d ports", f.Ports.First, f.Ports.Last, MaxPassivePorts)
	}
	cfg, shown, err := s.doorTLS()
	if err != nil {
		return err
	}
	var listeners []net.Listener
	for _, addr := range f.passive() {
		l, err := listenTCP(ftpDoor, addr)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return err
		}
		listeners = append(listeners, l)
	}
	s.ftpPorts = ftp.NewPorts(listeners)
	d := ftp.New(doorServer{s, ftpDoor}, ftp.Options{
		TLS: cfg, Ports: s.ftpPorts, Public: f.Public, Clear: f.Clear, Active: f.Active,
		Place: s.dataPlace, RoundTrip: roundTripOf,
	})
	if f.Addr != "" {
		err = s.openDoor(&openDoor{name: ftpDoor, serve: d.Serve, shown: shown}, f.Addr)
	}
	if err == nil && f.ImplicitTLS != "" {
		err = s.openDoor(&openDoor{name: "ftps", serve: d.ServeTLS, shown: shown}, f.ImplicitTLS)
	}
	return err
}

// dataPlace takes a place for a data connection of a client that is logged in.
func (s *Server) dataPlace(from net.Addr) (release func()) {
	slot := s.conns.AcquireAuthenticated(from)
	if slot == nil {
		s.counters.refuse(refusedConnLimit)
		return nil
	}
	return slot.Release
}

// roundTripOf is the least round trip of a connection, where the system tells it. The smoothed one
// has the time for which clients delay acknowledgements.
func roundTripOf(c net.Conn) time.Duration {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	info, _ := transport.InfoOf(tcp)
	return info.MinRTT
}
