package server

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/fxfer/fxfer/internal/door"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// Options configure a Server. Only Shares is required. Reload can change the second group while the
// server runs.
//
// Rates are in bit/s, separately in each direction. A prefix such as 192.0.2.7/32 stands for one
// address.
type Options struct {
	// Home is the folder of the server's key, authorized_clients and the invitations. New makes it
	// if it is missing. "" is the folder of the present user.
	Home string
	// Ephemeral makes a key that lives no longer than the server, and keeps no file besides what
	// clients send: Home is not used, only Clients are admitted, and Invite and Revoke fail.
	Ephemeral bool
	// Listen is the address of TCP and UDP, such as ":7433" or "192.0.2.1:7433". Port 0 picks a
	// free port. "" is every address on a free port.
	Listen string
	// Socket takes the place of Listen for TCP, such as a socket from systemd. The server closes
	// it.
	Socket *net.TCPListener
	// Datagrams takes the place of Listen for QUIC. The server closes it.
	Datagrams *net.UDPConn
	// Calls lets a confined server connect to clients: see Server.Call.
	Calls bool
	// Transport limits what clients may use. "" and TransportAuto offer TCP, and QUIC where UDP
	// works.
	Transport session.Transport
	// StandardCrypto takes TLS records and ciphers from the standard library instead of fxfer's own.
	// QUIC never has fxfer's own.
	StandardCrypto bool
	// SockBuf fixes the socket buffers of every data stream, in bytes. 0 is automatic, which is
	// nearly always faster.
	SockBuf int
	// Congestion names the kernel's congestion control for TCP, such as "bbr". "" is automatic.
	Congestion string
	// Log gets what happens to the server and its sessions. nil discards it.
	Log *slog.Logger
	// Audit gets one record for each entry that a client changed or read, one for each session, and
	// one for each request to make or change a copy, with client, path, digest and outcome. nil
	// discards them.
	Audit *slog.Logger
	// Doors let clients of older protocols in. Their users are in door_users in Home, and their rights
	// in authorized_clients and in Clients.
	Doors Doors
	// Forwarder returns what sends the files of a share on to another server, nil for none. Users of
	// the Doors see how far their files are. nil is none.
	Forwarder func(share string) Forwarder
	// Copies keeps and makes the copies that clients ask for. nil makes none.
	Copies Copies
	// Connect lets the process connect to other hosts after Confine, such as for a Forwarder.
	Connect bool
	// Call names relays that the server connects to, so that clients reach it there if they can't
	// connect to it. Only Host, Port and Pin of a URL count. Without a Pin, the relay has to be a known
	// server. A confined server needs Connect, too.
	Call []session.URL
	// TLS adds certificates to the keys. Reload changes the CAs, but neither Cert nor Key.
	TLS TLS

	// Shares are the folders on offer. There must be at least one; names are unique.
	Shares []Share
	// Clients are admitted in addition to those in authorized_clients.
	Clients []Admission
	// Allow lists the addresses that may use the server. nil allows any.
	Allow []netip.Prefix
	// RateLimit is for all sessions together, which get equal parts of it. 0 is no limit.
	RateLimit int64
	// ClientRateLimit is for all sessions of one client, unless its Admission has another limit.
	// 0 is no limit.
	ClientRateLimit int64
	// MaxSessions bounds the sessions at a time. Further clients are asked to retry. 0 is
	// DefaultMaxSessions.
	MaxSessions int
	// MaxSessionsPerClient bounds the sessions of one client at a time, unless its Admission has
	// another bound. 0 is DefaultMaxSessionsPerClient.
	MaxSessionsPerClient int
	// PartialAge is for how long a partial file, or an interrupted snapshot, may stay without being
	// written. The server removes older ones when it starts, and every day, where clients may write.
	// 0 is DefaultPartialAge, less is for ever.
	PartialAge time.Duration

	// MaxConnections bounds the connections at a time, streams included. At most a quarter of them
	// may be unauthenticated; further ones are closed. 0 is DefaultMaxConnections, or fewer where
	// the limit of open files is low.
	MaxConnections int
	// MaxConnectionsPerAddress is the same for one IPv4 address or one IPv6 /64. 0 is
	// DefaultMaxConnectionsPerAddress.
	MaxConnectionsPerAddress int
	// MaxHandshakes bounds the handshakes that begin in a second. Further ones wait. 0 is
	// DefaultMaxHandshakes.
	MaxHandshakes int
	// MaxHandshakesPerAddress is the same for one IPv4 address or one IPv6 /64. 0 is
	// DefaultMaxHandshakesPerAddress.
	MaxHandshakesPerAddress int
	// MaxMemory bounds the memory for data streams, in bytes: it decides how many streams all
	// sessions may use together. 0 is DefaultMaxMemory.
	MaxMemory int64
}

// Forwarder sends the files of a share on to another server, and knows how far each is.
type Forwarder = door.Forwarder

// Forwarded is a file that a Forwarder sends on.
type Forwarded = door.Forwarded

// openIdentity opens the folder of the server's identity, or makes an identity without one.
func (o *Options) openIdentity() (*identity.Store, ed25519.PrivateKey, error) {
	if !o.Ephemeral {
		return session.OpenIdentity(o.Home)
	}
	store := identity.Ephemeral()
	key, err := store.Key()
	return store, key, err
}

// Share is a folder that a server offers.
type Share struct {
	// Name is how clients call it: 1 to 255 bytes of UTF-8 without slashes and control characters,
	// and not ".", ".." or "*".
	Name string
	// Dir is the folder. It must exist.
	Dir string
	// Rights are the most that any client gets. At least one is required.
	Rights identity.Rights
	// Privileged keeps what gives privilege on this host: setuid, setgid, devices, and attributes
	// in security.* and trusted.*. Otherwise the share leaves that out, and reports it.
	Privileged bool
	// Allow lists the addresses that may use the share. nil allows any.
	Allow []netip.Prefix
	// RateLimit is for all sessions on the share, in bit/s in each direction. 0 is no limit.
	RateLimit int64
	// Keep says which snapshots of a series stay when another one is complete. The zero value keeps
	// all.
	Keep snapshot.Keep

	// Quota bounds the bytes of all files in the share. 0 is no bound.
	Quota int64
	// QuotaFiles bounds the number of entries in the share, folders included. 0 is no bound.
	QuotaFiles int64
}

// Admission is what a server grants one client. It has one of Key, Certificate and User.
type Admission struct {
	// Key is the pin of the client's key.
	Key string
	// Certificate is the name in the client's certificate with its kind, such as
	// "dns:nas.example.org". "*" is every name that has no Admission of its own. It needs
	// TLS.ClientCA.
	Certificate string
	// User is the name of a user of the Doors.
	User string
	// Name is for people.
	Name string
	// Rights are by share; "*" stands for the shares that are not named. They add to the rights in
	// authorized_clients. nil admits nobody by itself.
	Rights map[string]identity.Rights
	// Allow lists the addresses that the client may come from. nil allows any.
	Allow []netip.Prefix
	// RateLimit is for all sessions of the client, in bit/s in each direction. 0 is
	// Options.ClientRateLimit.
	RateLimit int64
	// Priority is the most that the client's sessions may have, for what it sends and for what it
	// gets. "" is no bound.
	Priority session.Priority
	// MaxSessions bounds the client's sessions at a time. 0 is Options.MaxSessionsPerClient.
	MaxSessions int
}

// anyName is the principal of the Admission for every certificate name without one of its own.
const anyName identity.Principal = "*"

// principal returns the client that the Admission is for.
func (a *Admission) principal() (identity.Principal, error) {
	switch {
	case a.Key != "" && a.Certificate != "" || a.User != "" && a.Key+a.Certificate != "":
		return "", fmt.Errorf("client %q has two of a key, a certificate's name and a user's name", a.Name)
	case a.User != "":
		id, err := identity.ParseUser(a.User)
		if err != nil {
			err = fmt.Errorf("client %q: %w", a.Name, err)
		}
		return id, err
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
