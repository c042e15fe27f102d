package session

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/fxfer/fxfer/internal/filter"
	"github.com/fxfer/fxfer/internal/wire"
)

// Agent is the name of this implementation in Hello and Welcome.
const Agent = "fxfer"

// ExporterLabel names the channel binding of an invitation's proof (RFC 8446, section 7.5).
const ExporterLabel = "EXPORTER-fxfer-invitation"

const (
	// MaxStreams bounds the data streams of a session, whatever either end asks for.
	MaxStreams = 64
	// MaxKeep bounds the snapshots that a client names.
	MaxKeep = 100_000
	// VerifyAhead bounds the entries that are walked but not sent yet.
	VerifyAhead = 1024
	// MaxAllowFailed is the largest number of failed entries that a snapshot may be allowed.
	MaxAllowFailed = wire.MaxAllowFailed
)

const (
	// DialTimeout is for one stream, TLS included, and for a server's answer. Over TCP, a server that
	// answers no SYN gets less.
	DialTimeout = 40 * time.Second
	// PartWithin is how long a session that has ended waits until the peer has read its last message.
	PartWithin = time.Second
	// AwaitPing is how often a relay pings a server that waits for clients there.
	AwaitPing = 15 * time.Second
	// AwaitSilence is after how long without a word each of both ends that connection.
	AwaitSilence = 50 * time.Second
	// VerifyPatience is how long the client may take for its own files before it reads or asks on.
	VerifyPatience = 10 * time.Minute
)

// writePiece is what WritePatiently writes at a time, bytes.
const writePiece = 16 << 10

// WritePatiently writes b. The peer may take so long for each 16 KiB of it: a slow line needs time, and a
// peer that reads nothing gets no more. A write deadline stays behind. One goroutine may write at a time.
func WritePatiently(conn interface {
	io.Writer
	SetWriteDeadline(t time.Time) error
}, b []byte, patience time.Duration) error {
	for piece := range slices.Chunk(b, writePiece) {
		_ = conn.SetWriteDeadline(time.Now().Add(patience)) // it fails only on a closed connection, and then writing reports that
		if _, err := conn.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// WorkTime is the value in a Sample of how long a server has worked to answer, in ns. In a transfer it has the same
// meaning, for files that are there.
const WorkTime = "check_ns"

// The values in a Sample of a scrub.
const (
	ScrubTotal = "total" // files to be read
	ScrubFiles = "files"
	ScrubBytes = "bytes"
	ScrubSame  = "same"
)

// The Link of a snapshot's entry in a listing.
const (
	SnapshotComplete = "complete"
	SnapshotFilling  = "filling"
)

// The What of Warnings about snapshots, which count entries.
const (
	SnapshotFailed  = "failed"  // that a snapshot lacks because they failed
	SnapshotDamaged = "damaged" // that are known to be damaged in a snapshot
	SnapshotHealed  = "healed"  // that were damaged in the previous snapshot, and are intact in this
	// SnapshotIntact names a snapshot that stays because it has the last intact version of a file.
	SnapshotIntact = "intact"
)

// UnnamedEntry is the What of a Warning about entries that a list lacks, because no path can name
// them.
const UnnamedEntry = "name"

// helloRoom is the part of the first message that is left for what a session adds to it, in bytes.
const helloRoom = 256

// CheckHello rejects a Hello that does not fit into the first message. A server reads no more than
// that before it knows the client.
func CheckHello(m *wire.Hello) error {
	size := len(wire.Append(nil, m))
	if len(m.Select.Rules) > wire.MaxStrings || len(m.Paths) > wire.MaxStrings || size+helloRoom > wire.MaxFirstMessage {
		return Usage("select by fewer or shorter rules, or get less at once",
			"the request is too long: %d rules and %d paths in %d bytes, of at most %d",
			len(m.Select.Rules), len(m.Paths), size, wire.MaxFirstMessage-helloRoom)
	}
	return nil
}

// FilterOf makes the filter that a client asks for. The rules may be hostile.
func FilterOf(s *wire.Select) (*filter.Filter, error) {
	o := filter.Options{Rules: s.Rules, MaxSize: s.MaxSize}
	if s.NewerThan != 0 {
		o.NewerThan = time.Unix(0, s.NewerThan)
	}
	return filter.New(o)
}

// Sleep pauses the caller for d. It returns false if ctx is done before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// ProtocolVersion is the version that both ends must speak.
const ProtocolVersion = wire.Version
