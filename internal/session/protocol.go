package session

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/wire"
)

// Agent is what this build calls itself to a peer.
const Agent = "fxfer"

// CheckHello refuses what does not fit into the first message, of which a server reads no more before it knows the client.
func CheckHello(m *wire.Hello) error {
	if len(m.Select.Rules) > wire.MaxStrings || len(m.Paths) > wire.MaxStrings || len(wire.Append(nil, m))+helloRoom > wire.MaxFirstMessage {
		return Usage("select by fewer or shorter rules, or get less at once", "the request is too long: %d rules and %d paths in %d bytes, of at most %d",
			len(m.Select.Rules), len(m.Paths), len(wire.Append(nil, m)), wire.MaxFirstMessage-helloRoom)
	}
	return nil
}

// helloRoom is left in the first message for what a session adds to it, bytes.
const helloRoom = 256

// FilterOf makes the filter of what a client asks for. The rules may be hostile.
func FilterOf(s *wire.Select) (*filter.Filter, error) {
	o := filter.Options{Rules: s.Rules, MaxSize: s.MaxSize}
	if s.NewerThan != 0 {
		o.NewerThan = time.Unix(0, s.NewerThan)
	}
	return filter.New(o)
}

// What the Samples of a scrub tell.
const (
	ScrubFiles = "files"
	ScrubBytes = "bytes"
	ScrubSame  = "same"
)

const (
	// MaxStreams bounds the data streams of a session, whatever either side asks for.
	MaxStreams = 64
	// DialTimeout is for one stream, TLS included.
	DialTimeout = 15 * time.Second
	// ExporterLabel names the channel binding of an invitation's proof (RFC 8446, section 7.5).
	ExporterLabel = "EXPORTER-fxfer-invitation"
)

// PartWithin is how long a session that has ended waits until the server has got its last words.
const PartWithin = time.Second

// Pause waits, and returns false if ctx is done before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// What the Link of a snapshot's entry says.
const (
	SnapshotComplete = "complete"
	SnapshotFilling  = "filling"
)

// SnapshotFailed is the What of the Warning about a snapshot that lacks entries.
const SnapshotFailed = "failed"

// MaxKeep bounds the snapshots that a client names.
const MaxKeep = 100_000

const (
	// VerifyAhead bounds the entries that are walked and not sent.
	VerifyAhead = 1024
	// VerifyPatience is how long the client may take for its own files before it reads or asks on.
	VerifyPatience = 10 * time.Minute
)
