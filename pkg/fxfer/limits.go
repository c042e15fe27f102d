package fxfer

import "cmp"

const (
	// streamMemory is what a data stream takes: a block, and what the transport reads and writes at once. TestCrowd in tests/hostile measures it.
	streamMemory = 3 << 19
	// otherMemory is for all that is not a data stream's, such as strangers, of which each may take 64 KiB.
	otherMemory = 64 << 20
	// spareFiles is what of the limit of open files is left for listening, logs and the runtime.
	spareFiles = 64
	// fewestConnections is what a server needs to be of use: control streams, data streams and some strangers.
	fewestConnections = 32
)

// fill sets the bounds that are automatic, and refuses those that contradict each other or the limit of open files, 0 if unknown.
func (o *ServerOptions) fill(files uint64) error {
	for name, n := range map[string]int64{
		"sessions": int64(o.MaxSessions), "sessions per client": int64(o.MaxSessionsPerClient), "connections": int64(o.MaxConnections),
		"connections per address": int64(o.MaxConnectionsPerAddress), "handshakes": int64(o.MaxHandshakes),
		"handshakes per address": int64(o.MaxHandshakesPerAddress), "bytes of memory": o.MaxMemory,
	} {
		if n < 0 {
			return usage("0 is automatic", "at most %d %s", n, name)
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
		return usage("raise it: ulimit -n, or LimitNOFILE= of systemd", "a limit of %d open files is too low for a server", files)
	case o.MaxConnections > room && files > 0:
		return usage("raise it: ulimit -n, or LimitNOFILE= of systemd", "a limit of %d open files leaves room for %d connections, not for %d", files, room, o.MaxConnections)
	}
	o.MaxConnections = cmp.Or(o.MaxConnections, min(DefaultMaxConnections, room))
	o.MaxConnectionsPerAddress = min(cmp.Or(o.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress), o.MaxConnections)
	o.MaxHandshakes = cmp.Or(o.MaxHandshakes, DefaultMaxHandshakes)
	o.MaxHandshakesPerAddress = cmp.Or(o.MaxHandshakesPerAddress, DefaultMaxHandshakesPerAddress)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	if least := otherMemory + int64(o.MaxSessions)*streamMemory; o.MaxMemory < least {
		return usage("allow more memory, or fewer sessions", "%d sessions take %d MiB of memory, and %d are allowed", o.MaxSessions, (least+1<<20-1)>>20, o.MaxMemory>>20)
	}
	return nil
}

// moreStreams is how many data streams there may be beyond the first of each of so many sessions, for which there is always room.
func (o *ServerOptions) moreStreams(sessions int) int {
	return int(max(0, min((o.MaxMemory-otherMemory)/streamMemory-int64(sessions), 1<<20)))
}
