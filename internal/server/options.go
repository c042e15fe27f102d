package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// principal is who an Admission is for.
func (a *Admission) principal() (identity.Principal, error) {
	switch {
	case a.Key != "" && a.Certificate != "":
		return "", fmt.Errorf("client %q has both a key and a certificate's name", a.Name)
	case a.Certificate == string(anyName):
		return anyName, nil
	case a.Certificate != "":
		id, err := identity.ParseName(a.Certificate)
		if err != nil {
			err = fmt.Errorf("client %q: %w", a.Name, err)
		}
		return id, err
	}
	pin, err := identity.ParsePin(a.Key)
	if err != nil {
		err = fmt.Errorf("client %q: %w", a.Name, err)
	}
	return identity.Principal(pin), err
}

// fill sets the bounds that are automatic, and refuses those that contradict each other or the limit of open files, 0 if unknown.
func (o *Options) fill(files uint64) error {
	for name, n := range map[string]int64{
		"sessions": int64(o.MaxSessions), "sessions per client": int64(o.MaxSessionsPerClient), "connections": int64(o.MaxConnections),
		"connections per address": int64(o.MaxConnectionsPerAddress), "handshakes": int64(o.MaxHandshakes),
		"handshakes per address": int64(o.MaxHandshakesPerAddress), "bytes of memory": o.MaxMemory,
	} {
		if n < 0 {
			return session.Usage("0 is automatic", "at most %d %s", n, name)
		}
	}
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.MaxSessionsPerClient = cmp.Or(o.MaxSessionsPerClient, DefaultMaxSessionsPerClient)
	// The other half is for the files of transfers.
	room := DefaultMaxConnections
	if files > 0 {
		room = int(min(files-min(files, spareFiles), 1<<30) / 2)
	}
	switch {
	case room < fewestConnections:
		return session.Usage("raise it: ulimit -n, or LimitNOFILE= of systemd", "a limit of %d open files is too low for a server", files)
	case o.MaxConnections > room && files > 0:
		return session.Usage("raise it: ulimit -n, or LimitNOFILE= of systemd", "a limit of %d open files leaves room for %d connections, not for %d", files, room, o.MaxConnections)
	}
	o.MaxConnections = cmp.Or(o.MaxConnections, min(DefaultMaxConnections, room))
	o.MaxConnectionsPerAddress = min(cmp.Or(o.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress), o.MaxConnections)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, DefaultMaxHandshakes)
	o.MaxHandshakesPerAddress = cmp.Or(o.MaxHandshakesPerAddress, DefaultMaxHandshakesPerAddress)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	if least := otherMemory + int64(o.MaxSessions)*streamMemory; o.MaxMemory < least {
		return session.Usage("allow more memory, or fewer sessions", "%d sessions take %d MiB of memory, and %d are allowed", o.MaxSessions, (least+1<<20-1)>>20, o.MaxMemory>>20)
	}
	return nil
}

// moreStreams is how many data streams there may be beyond the first of each of so many sessions, for which there is always room.
func (o *Options) moreStreams(sessions int) int {
	return int(max(0, min((o.MaxMemory-otherMemory)/streamMemory-int64(sessions), 1<<20)))
}

// Options configure a Server. Reload can change those of the second group while it runs.
type Options struct {
	Home       string            // folder of identity, authorised clients and invitations; "" is the user's
	Listen     string            // address, such as ":7433"
	Socket     *net.TCPListener  // listened on already, as by systemd, in place of Listen; Serve closes it
	Datagrams  *net.UDPConn      // the same for QUIC
	Transport  session.Transport // what clients may use; "" is TransportAuto
	SockBuf    int               // bytes; a fixed window for every client, 0 is automatic
	Congestion string            // congestion control, "" is automatic
	Log        *slog.Logger
	Audit      *slog.Logger // who did what to which entry, with its digest and outcome; nil is nowhere
	TLS        TLS          // certificates beside keys; of the second group but for Cert and Key

	Shares               []Share        // what is offered
	Clients              []Admission    // who is admitted beside those in authorized_clients
	Allow                []netip.Prefix // addresses that may use the server; nil is any
	RateLimit            int64          // of all sessions, bit/s in each direction, which they share fairly; 0 is none, as below
	ClientRateLimit      int64          // of each client that has none of its own
	MaxSessions          int            // at a time, DefaultMaxSessions if 0
	MaxSessionsPerClient int            // of one key, DefaultMaxSessionsPerClient if 0

	// Of an IPv6 address, its /64 counts. A quarter of the connections may be such that are not admitted yet.
	MaxConnections           int   // at a time; 0 is DefaultMaxConnections, or what the limit of open files allows
	MaxConnectionsPerAddress int   // DefaultMaxConnectionsPerAddress if 0
	MaxHandshakes            int   // a second, DefaultMaxHandshakes if 0; others wait
	MaxHandshakesPerAddress  int   // DefaultMaxHandshakesPerAddress if 0
	MaxMemory                int64 // bytes, of the buffers of all data streams, DefaultMaxMemory if 0
}

// Share is a folder that a server offers.
type Share struct {
	Name      string
	Dir       string
	Rights    identity.Rights // the most that any client has
	Allow     []netip.Prefix  // addresses that may use it; nil is any
	RateLimit int64           // of all sessions on it, bit/s in each direction; 0 is none
	Keep      snapshot.Keep   // which of a series of snapshots stay when another is complete; the zero one is all

	Quota      int64 // bytes that files in it may have; 0 is any number, as below
	QuotaFiles int64 // entries in it, folders included
}

// Admission is what a server grants one client.
type Admission struct {
	Key         string                     // the client's key, or
	Certificate string                     // the name in its certificate with the kind, such as "dns:nas.example.org"; "*" is any that is not named. It needs TLS.ClientCA
	Name        string                     // for people
	Rights      map[string]identity.Rights // by share; "*" stands for those not named. They add to what authorized_clients says; nil admits nobody
	Allow       []netip.Prefix             // addresses that it may come from; nil is any
	RateLimit   int64                      // of all its sessions, bit/s in each direction; 0 is ClientRateLimit
	MaxSessions int                        // at a time; 0 is MaxSessionsPerClient
}
