package server

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fxfer/fxfer/internal/connlimit"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/units"
)

// The default limits suit a host with 1 GB of memory. Clients beyond MaxSessions are asked to
// retry. Connections beyond their limits are closed before the handshake, and clients retry then,
// too.
const (
	DefaultMaxSessions              = 128
	DefaultMaxSessionsPerClient     = 32
	DefaultMaxConnections           = 2048
	DefaultMaxConnectionsPerAddress = 512
	DefaultMaxHandshakes            = 400
	DefaultMaxHandshakesPerAddress  = 200
	DefaultMaxMemory                = 640 << 20
	DefaultPartialAge               = 14 * 24 * time.Hour
)

const (
	// streamMemory is what one data stream takes: a block, and what the transport reads and writes
	// at once. TestCrowd in tests/hostile measures it.
	streamMemory = 3 << 19
	// otherMemory is for everything but data streams, such as unauthenticated connections, which
	// may take 64 KiB each.
	otherMemory = 64 << 20
	// entryMemory is what the entries under way of all sessions may take beyond a small part of
	// each session. Those of one client may take half.
	entryMemory = 192 << 20
	// spareFiles is the part of the open file limit that listening, logs, the web pages and the
	// runtime need.
	spareFiles = 64
	// fewestConnections is what a useful server needs: control streams, data streams and some
	// unauthenticated connections.
	fewestConnections = 32
)

const raiseOpenFiles = "raise it: ulimit -n, or LimitNOFILE= of systemd"

// fill replaces automatic limits by numbers. It rejects limits that contradict each other or the
// limit of open files, which is 0 if unknown.
func (o *Options) fill(openFiles uint64) error {
	if err := o.checkNegative(); err != nil {
		return err
	}
	if len(o.Call) > 0 && o.Transport == session.TransportQUIC {
		return session.Usage("choose tcp or auto", "relays are called over TCP")
	}
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.MaxSessionsPerClient = cmp.Or(o.MaxSessionsPerClient, DefaultMaxSessionsPerClient)
	if err := o.fillConnections(openFiles); err != nil {
		return err
	}
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, DefaultMaxHandshakes)
	o.MaxHandshakesPerAddress = cmp.Or(o.MaxHandshakesPerAddress, DefaultMaxHandshakesPerAddress)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	if least := otherMemory + int64(o.MaxSessions)*streamMemory; o.MaxMemory < least {
		return session.Usage("allow more memory, or fewer sessions",
			"%d sessions take %d MiB of memory, and the limit is %s",
			o.MaxSessions, (least+1<<20-1)>>20, mebibytes(o.MaxMemory))
	}
	return nil
}

// mebibytes writes a size in MiB, and one below that in bytes.
func mebibytes(n int64) string {
	if n < 1<<20 {
		return units.Count(n, "byte", "bytes")
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (o *Options) checkNegative() error {
	for name, n := range map[string]int64{
		"sessions":                int64(o.MaxSessions),
		"sessions per client":     int64(o.MaxSessionsPerClient),
		"connections":             int64(o.MaxConnections),
		"connections per address": int64(o.MaxConnectionsPerAddress),
		"handshakes":              int64(o.MaxHandshakes),
		"handshakes per address":  int64(o.MaxHandshakesPerAddress),
		"bytes of memory":         o.MaxMemory,
	} {
		if n < 0 {
			return session.Usage("0 is automatic", "at most %d %s", n, name)
		}
	}
	return nil
}

// connections are the bounds that hold before anything is known of a peer.
func (o *Options) connections() connlimit.Bounds {
	return connlimit.Bounds{
		Connections: o.MaxConnections, PerAddress: o.MaxConnectionsPerAddress,
		Handshakes: o.MaxHandshakes, HandshakesPerAddress: o.MaxHandshakesPerAddress,
	}
}

// fillConnections gives connections half of the open files. The other half is for the files that
// transfers read and write.
func (o *Options) fillConnections(openFiles uint64) error {
	room := DefaultMaxConnections
	if openFiles > 0 {
		room = int(min(openFiles-min(openFiles, spareFiles), 1<<30) / 2)
	}
	switch {
	case room < fewestConnections:
		return session.Usage(raiseOpenFiles,
			"a limit of %d open files is too low for a server", openFiles)
	case o.MaxConnections > room && openFiles > 0:
		return session.Usage(raiseOpenFiles,
			"a limit of %d open files leaves room for %d connections, not for %d",
			openFiles, room, o.MaxConnections)
	}
	o.MaxConnections = cmp.Or(o.MaxConnections, min(DefaultMaxConnections, room))
	perAddress := cmp.Or(o.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress)
	o.MaxConnectionsPerAddress = min(perAddress, o.MaxConnections)
	return nil
}

// filesOfTransfers is how many files may be open for entries under way, of a limit of open files
// that is 0 if unknown.
func filesOfTransfers(openFiles uint64) int {
	if openFiles == 0 {
		return 1 << 20
	}
	return int(min(openFiles-min(openFiles, spareFiles), 1<<30) / 2)
}

// extraStreams is how many data streams all sessions may share beyond the first of each, which
// always has room.
func (o *Options) extraStreams(sessions int) int {
	streams := (o.MaxMemory - otherMemory) / streamMemory
	return int(max(0, min(streams-int64(sessions), 1<<20)))
}
