// Package wire is fxfer's protocol: its messages, the block header and the error codes, as SPEC.md beside this
// file describes them. It encodes and checks; it neither reads files nor decides. Everything decoded here may come
// from a hostile peer: each length is checked before it is believed.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Version is the protocol's major version. A peer of another one is refused with CodeVersion.
const Version = 1

// Limits of what is accepted from a peer.
const (
	MaxMessage      = 1 << 20 // body of a message on an admitted control stream, bytes
	MaxFirstMessage = 16 << 10
	MaxPath         = 4096
	MaxText         = 1024
	MaxStrings      = 1024     // of a list
	MaxXattrs       = 64 << 10 // names and values of one entry, bytes
	MaxSize         = 1 << 60  // bytes of a file
	maxBlockNumber  = 1 << 47
	maxSnapshot     = 32 // bytes of a snapshot's name
	// MaxAllowFailed bounds the entries that a snapshot may lack.
	MaxAllowFailed = 10_000
	// NoEntry is the Index of an EntryFailed about something that could not become an entry.
	NoEntry     = 1<<64 - 1
	MinBlockLog = 16 // 64 KiB
	MaxBlockLog = 20 // 1 MiB
)

// Type identifies a message. Unknown types are skipped by their length.
type Type uint8

// The message types.
const (
	TypeHello Type = iota + 1
	TypeJoin
	TypeWelcome
	TypeRefuse
	TypeManifest
	TypeEntries
	TypeEndManifest
	TypeAnswers
	TypeWritten
	TypeResend
	TypeEndEntry
	TypeEntryFailed
	TypePlaced
	TypeFinished
	TypePing
	TypePong
	TypeStreams
	TypeSample
	TypeCompared
	TypePrune
	TypeFolder
	TypeExtra
	TypeRemoved
	TypeWarning
	TypeDigests
	TypeTest
	TypeDatagrams
	TypeVolley
	TypePick
	TypePieces
	TypeChunks
	TypeAsk
	TypeEmpty
	TypeRetire
)

// Message is one message of the protocol.
type Message interface {
	Type() Type
	encode(*encoder)
	decode(*decoder)
}

// Intent says what a session is for.
type Intent uint8

// The intents.
const (
	Push   Intent = 1 // the client sends
	Pull   Intent = 2 // the client receives
	List   Intent = 3 // the client asks for names
	Verify Intent = 4 // the client asks for names and digests
	Probe  Intent = 5 // the client measures the path; no files are touched
	Store  Intent = 6 // the client sends a snapshot
	Series Intent = 7 // the client asks for snapshots
	Expire Intent = 8 // the client has snapshots removed
	Scrub  Intent = 9 // the server compares a snapshot with the digests that it keeps
)

// Hello opens a session: the first message on the control stream.
type Hello struct {
	Version    uint64
	Session    [16]byte // chosen by the client, random
	Secret     [32]byte // admits data streams to the session
	Intent     Intent
	Share      string
	Paths      []string // below the share; one for Push and List
	Fresh      bool     // the client never tried this transfer before: a sender need not wait for answers
	Target     Target   // how the receiver writes; of Push
	Select     Select   // what the sender leaves out; of Pull
	SockBuf    int64    // bytes, 0 = automatic; for the server's sockets
	Congestion string   // "" = automatic; for the server's sockets
	RateLimit  int64    // bit/s of payload, 0 = none; for a server that sends
	MaxStreams uint64   // the client opens no more data streams
	Proof      []byte   // of an invitation, 32 bytes, or empty
	Agent      string
	Snapshot   string   // its name; of Store
	Replaces   [16]byte // the session before of the same transfer, which ends if the server has not seen that it is dead; zero for none
}

// Target says what the receiver does with entries.
type Target struct {
	Compare     Compare
	Sync        Sync
	Readback    bool   // read each file back from the disk before it gets its name
	NumericIDs  bool   // owners by number, not by name
	Delete      bool   // remove what the sender does not have
	MaxDelete   int64  // but only if that is at most so many entries; -1 is any number
	BackupDir   string // below the share: what is removed or replaced by Delete goes there; "" removes it
	DryRun      bool   // compare only
	Delta       Delta  // how the old version of a file is used
	AllowFailed int64  // of Store: so many entries may fail, and the snapshot becomes visible without them
}

// Delta says how the receiver's old version of a file spares sending what the two have in common.
type Delta uint8

// The ways.
const (
	DeltaNone   Delta = 0
	DeltaFixed  Delta = 1 // blocks and pieces in their places
	DeltaChunks Delta = 2 // chunks that their content delimits, wherever they are
	DeltaAuto   Delta = 3 // one of these, by a sample
)

// Limits of deltas.
const (
	PieceLog     = 12   // pieces of a block are 1<<PieceLog bytes
	MaxPieces    = 4096 // digests in a message
	MaxChunk     = 1 << 20
	SampleBlocks = 8
)

// Compare says how the receiver decides whether an entry is needed. Zero compares size and modification time.
type Compare struct {
	Checksum       bool // compare digests where sizes are equal
	Update         bool // leave what is newer at the target
	Existing       bool // leave what the target does not have
	IgnoreExisting bool // leave what the target has
}

// Sync says when files are made durable.
type Sync uint8

// The policies.
const (
	SyncBatch Sync = 0 // many at a time, each before it gets its name
	SyncFile  Sync = 1 // each for itself
	SyncNone  Sync = 2 // when the system likes
)

// Select says what of the source is not sent.
type Select struct {
	Rules         []string // gitignore lines, in order
	MaxSize       int64    // bytes of a file; 0 is any
	NewerThan     int64    // ns since 1970: files not changed after it stay; 0 is none
	OneFileSystem bool
	Compress      string // "" is none
}

// Join is the first message on a data stream.
type Join struct {
	Version    uint64
	Session    [16]byte
	Secret     [32]byte
	Stream     uint64 // number of the stream within its session, never used twice
	SockBuf    int64
	Congestion string
}

// Welcome is the server's answer to an accepted Hello.
type Welcome struct {
	Agent      string
	Host       string // what the server calls itself, for messages
	MaxStreams uint64
}

// Refuse ends a session, with the reason. Sent by the server instead of Welcome, or by either side at any time.
type Refuse struct {
	Code Code
	Text string
}

// Manifest opens the list of entries.
type Manifest struct {
	Single bool // exactly one regular file or stream: the target may be its new name
	Prune  bool // a Prune follows when all entries are resolved
	Delta  bool // the sender can make use of old versions
}

// Kind of an entry.
type Kind uint8

// The kinds. Hardlink is another name of a file that was announced before.
const (
	File        Kind = 1
	Dir         Kind = 2
	Symlink     Kind = 3
	Share       Kind = 4 // only in listings
	Fifo        Kind = 5
	CharDevice  Kind = 6
	BlockDevice Kind = 7
	Socket      Kind = 8
	Hardlink    Kind = 9
)

// Unknown is the size of a stream whose end is not known yet.
const Unknown = -1

// Entry is one file, folder, link or special file of the manifest.
type Entry struct {
	Kind        Kind
	Path        string // slash separated, relative to the target
	Size        int64  // bytes, or Unknown
	ModTime     int64  // ns since 1970
	Mode        uint32 // permission bits 0o7777
	Link        string // a symlink's target, a share's rights, a hard link's Path of the file
	First       uint64 // of a hard link: the file's index
	Ino, Dev    uint64 // the source's file id, 0 where it has none
	BlockLog    uint8  // block size is 1<<BlockLog bytes
	Holes       bool   // the file has ranges without data
	Owned       bool   // UID and GID are known
	UID, GID    uint32
	User, Group string // their names, "" if unknown
	Rdev        uint64 // of a device: major<<32 | minor
	Listed      bool   // Xattrs are all that the source has
	Xattrs      []Xattr
}

// Xattr is an extended attribute. POSIX ACLs are among them.
type Xattr struct {
	Name  string
	Value []byte
}

// Entries carries entries in manifest order; they are numbered from First upward, without gaps.
type Entries struct {
	First   uint64
	Entries []Entry
}

// EndManifest follows the last Entries.
type EndManifest struct {
	Count uint64
	Bytes int64
}

// Verdict is the receiver's answer to an entry.
type Verdict uint8

// The verdicts.
const (
	Need Verdict = 1 // send every block but those in Have
	Same Verdict = 2 // unchanged, skipped
	Done Verdict = 3 // nothing to send: folder, symlink
	Fail Verdict = 4 // refused or failed, see Code and Text
	Skip Verdict = 5 // not wanted, by Compare
	Hash Verdict = 6 // the target has the same size and Digest: say with Compared whether the source's is the same
	Lack Verdict = 7 // of a dry run: would be sent, New tells whether the target has nothing of that name
	Meta Verdict = 8 // of a dry run: only metadata would be set

	needDelta = 9 // Need with a Delta, on the wire
)

// Extent is a run of Count blocks from block Start.
type Extent struct{ Start, Count int64 }

// Answer to one entry.
type Answer struct {
	Index   uint64
	Verdict Verdict
	Have    []Extent // blocks an earlier run left, ascending, disjoint
	Delta   Delta    // with Need: wait with the others for Pieces or Chunks of the old version
	Old     int64    // size of that, bytes
	Digest  [32]byte // with Hash
	New     bool     // with Lack
	Code    Code
	Text    string
}

// Answers carries one or more answers.
type Answers struct{ Answers []Answer }

// ShortDigest finds what two files have in common. That it is the same is seen by the digest of a block.
type ShortDigest [8]byte

// Pick tells which way of Delta the sender goes with an entry, DeltaNone if it sends all of it.
type Pick struct {
	Index uint64
	Delta Delta
}

// Pieces carries the digests of pieces of an old file, of 1<<Log bytes each but for the last of the file: of PieceLog, or of whole blocks.
type Pieces struct {
	Index   uint64
	Start   int64 // of the first, bytes
	Log     uint8
	Digests []ShortDigest
}

// Chunks carries the digests of an old file's chunks, one after the other. The last message of a file has none.
type Chunks struct {
	Index  uint64
	Start  int64 // of the first, bytes
	Chunks []Chunk
}

// Chunk is a piece of a file that its content delimits.
type Chunk struct {
	Length int64
	Digest ShortDigest
}

// Ask asks for the Pieces of blocks.
type Ask struct {
	Index  uint64
	Blocks []Extent
}

// Empty tells of offered blocks that they have no data, and are not sent.
type Empty struct {
	Index  uint64
	Blocks []Extent
}

// Written acknowledges blocks written at the receiver.
type Written struct{ Blocks []BlockID }

// BlockID names a block of an entry.
type BlockID struct {
	Index uint64
	Block int64
}

// Resend asks for blocks that were announced in Have and proved wrong when re-read.
type Resend struct {
	Index  uint64
	Blocks []Extent
}

// EndEntry tells the final size and digest of an entry of more than one block, or of a stream.
type EndEntry struct {
	Index  uint64
	Size   int64
	Digest [32]byte
	Holes  []Extent // blocks without data: they are not sent
}

// EntryFailed ends an entry without commit. Either side may send it.
type EntryFailed struct {
	Index uint64
	Code  Code
	Text  string
}

// Finished is the receiver's last message: every entry is committed, skipped or failed.
type Finished struct{}

// Placed tells that entries have their final names, checked and durable as Sync demands: those of one block, whose digest came with it.
type Placed struct{ Entries []Extent }

// Compared answers Hash.
type Compared struct {
	Index uint64
	Same  bool
}

// Prune lists the folders, relative to the target, in which the receiver removes what the sender does not have. None if entries
// failed.
type Prune struct{ Folders []string }

// Folder asks which names in a folder the sender does not have. A folder of many names takes several.
type Folder struct {
	Path  string // relative to the target
	Names []string
}

// Extra answers the oldest unanswered Folder: the positions in Names of those that the sender does not have, ascending.
type Extra struct{ Names []uint64 }

// Removed tells what was removed, or would be in a dry run.
type Removed struct {
	Kind Kind
	Path string
}

// Warning tells what a target could not hold of an entry, such as its owner: the first of a kind, later ones only count.
type Warning struct {
	What  string
	Path  string // of the first
	Text  string
	Count uint64
}

// Digests carries the digests of files among the entries that were sent, of a Verify.
type Digests struct{ Digests []EntryDigest }

// EntryDigest is the digest of a file.
type EntryDigest struct {
	Index  uint64
	Digest [32]byte
}

// Ping asks for a Pong with the same Time.
type Ping struct{ Time int64 }

// Pong answers a Ping.
type Pong struct{ Time int64 }

// Streams asks the client for Want data streams in total; those in Dead are given up by the sender.
type Streams struct {
	Want uint64
	Dead []uint64
}

// Retire asks the server to send no more on data streams, and to end them when what they carry is written: others take their place.
type Retire struct{ Streams []uint64 }

// Sample carries the sender of the message's own measurements: names and values as in SPEC.md.
type Sample struct{ Values []Value }

// Map returns the values by name.
func (m *Sample) Map() map[string]int64 {
	values := make(map[string]int64, len(m.Values))
	for _, v := range m.Values {
		values[v.Name] = v.Value
	}
	return values
}

// TestKind is what a Test measures.
type TestKind uint8

// The kinds of tests.
const (
	Exchange TestKind = 1 // the server answers messages of Size bytes by such messages
	Upload   TestKind = 2 // the client sends
	Download TestKind = 3 // the server sends
	Sound    TestKind = 4 // datagrams of many sizes, for the path MTU
)

// Limits of a probe.
const (
	MinExchange  = 64
	MaxExchange  = 64 << 10
	FlowBlock    = 64 << 10 // bytes of what Upload and Download are made of
	MaxTestTime  = 60_000   // ms
	MaxVolley    = 32       // datagrams
	DatagramHead = 40       // bytes that each datagram has at least
)

// Test asks for one test, on a data stream of a probe.
type Test struct {
	Kind    TestKind
	Size    uint64 // of Exchange: bytes of each message; of Download: bytes at most, 0 is no bound
	Split   bool   // of Exchange: the server writes the first 16 bytes for themselves
	NoDelay bool   // TCP_NODELAY at the server
	Time    uint64 // ms at most
}

// Datagrams answers a Test of kind Sound: where the server's datagrams come from.
type Datagrams struct {
	Port  uint64
	Token [16]byte // in every datagram of the client
}

// Volley asks the server for one datagram of each size.
type Volley struct {
	Proof [16]byte // that the client receives what is sent to its address
	First uint64   // number of the first datagram
	Sizes []uint64 // bytes of UDP payload
	Time  uint64   // ms until the answer, in which routers may speak
}

// Value is one measurement.
type Value struct {
	Name  string
	Value int64
}

// Type implements Message.
func (*Hello) Type() Type { return TypeHello }

// Type implements Message.
func (*Join) Type() Type { return TypeJoin }

// Type implements Message.
func (*Welcome) Type() Type { return TypeWelcome }

// Type implements Message.
func (*Refuse) Type() Type { return TypeRefuse }

// Type implements Message.
func (*Manifest) Type() Type { return TypeManifest }

// Type implements Message.
func (*Entries) Type() Type { return TypeEntries }

// Type implements Message.
func (*EndManifest) Type() Type { return TypeEndManifest }

// Type implements Message.
func (*Answers) Type() Type { return TypeAnswers }

// Type implements Message.
func (*Written) Type() Type { return TypeWritten }

// Type implements Message.
func (*Resend) Type() Type { return TypeResend }

// Type implements Message.
func (*EndEntry) Type() Type { return TypeEndEntry }

// Type implements Message.
func (*EntryFailed) Type() Type { return TypeEntryFailed }

// Type implements Message.
func (*Finished) Type() Type { return TypeFinished }

// Type implements Message.
func (*Ping) Type() Type { return TypePing }

// Type implements Message.
func (*Pong) Type() Type { return TypePong }

// Type implements Message.
func (*Streams) Type() Type { return TypeStreams }

// Type implements Message.
func (*Sample) Type() Type { return TypeSample }

// Type implements Message.
func (*Placed) Type() Type { return TypePlaced }

// Type implements Message.
func (*Compared) Type() Type { return TypeCompared }

// Type implements Message.
func (*Prune) Type() Type { return TypePrune }

// Type implements Message.
func (*Folder) Type() Type { return TypeFolder }

// Type implements Message.
func (*Extra) Type() Type { return TypeExtra }

// Type implements Message.
func (*Removed) Type() Type { return TypeRemoved }

// Type implements Message.
func (*Warning) Type() Type { return TypeWarning }

// Type implements Message.
func (*Digests) Type() Type { return TypeDigests }

// Type implements Message.
func (*Test) Type() Type { return TypeTest }

// Type implements Message.
func (*Datagrams) Type() Type { return TypeDatagrams }

// Type implements Message.
func (*Volley) Type() Type { return TypeVolley }

// Type implements Message.
func (*Pick) Type() Type { return TypePick }

// Type implements Message.
func (*Pieces) Type() Type { return TypePieces }

// Type implements Message.
func (*Chunks) Type() Type { return TypeChunks }

// Type implements Message.
func (*Ask) Type() Type { return TypeAsk }

// Type implements Message.
func (*Empty) Type() Type { return TypeEmpty }

// Type implements Message.
func (*Retire) Type() Type { return TypeRetire }

// newMessage returns an empty message of a type, nil for unknown ones.
func newMessage(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeJoin:
		return new(Join)
	case TypeWelcome:
		return new(Welcome)
	case TypeRefuse:
		return new(Refuse)
	case TypeManifest:
		return new(Manifest)
	case TypeEntries:
		return new(Entries)
	case TypeEndManifest:
		return new(EndManifest)
	case TypeAnswers:
		return new(Answers)
	case TypeWritten:
		return new(Written)
	case TypeResend:
		return new(Resend)
	case TypeEndEntry:
		return new(EndEntry)
	case TypeEntryFailed:
		return new(EntryFailed)
	case TypeFinished:
		return new(Finished)
	case TypePing:
		return new(Ping)
	case TypePong:
		return new(Pong)
	case TypeStreams:
		return new(Streams)
	case TypeSample:
		return new(Sample)
	case TypePlaced:
		return new(Placed)
	case TypeCompared:
		return new(Compared)
	case TypePrune:
		return new(Prune)
	case TypeFolder:
		return new(Folder)
	case TypeExtra:
		return new(Extra)
	case TypeRemoved:
		return new(Removed)
	case TypeWarning:
		return new(Warning)
	case TypeDigests:
		return new(Digests)
	case TypeTest:
		return new(Test)
	case TypeDatagrams:
		return new(Datagrams)
	case TypeVolley:
		return new(Volley)
	case TypePick:
		return new(Pick)
	case TypePieces:
		return new(Pieces)
	case TypeChunks:
		return new(Chunks)
	case TypeAsk:
		return new(Ask)
	case TypeEmpty:
		return new(Empty)
	case TypeRetire:
		return new(Retire)
	}
	return nil
}

const headerLen = 5 // type, length

// Append appends the encoded message to b.
func Append(b []byte, m Message) []byte {
	start := len(b)
	e := encoder{append(b, byte(m.Type()), 0, 0, 0, 0)}
	m.encode(&e)
	binary.BigEndian.PutUint32(e.b[start+1:], uint32(len(e.b)-start-headerLen))
	return e.b
}

// Decode decodes a body of the given type. Unknown types give nil without an error. Bytes after the known fields are
// ignored: a newer peer may add fields.
func Decode(t Type, body []byte) (Message, error) {
	m := newMessage(t)
	if m == nil {
		return nil, nil
	}
	d := decoder{b: body}
	m.decode(&d)
	if d.err != nil {
		return nil, fmt.Errorf("message type %d: %w", t, d.err)
	}
	return m, nil
}

// Reader reads messages from a stream. Not safe for concurrent use.
type Reader struct {
	r    io.Reader
	max  int
	head [headerLen]byte
	body []byte
}

// NewReader returns a Reader that refuses bodies of more than max bytes. It reads no byte past the message asked for
// unless r itself does.
func NewReader(r io.Reader, max int) *Reader { return &Reader{r: r, max: max} }

// Next returns the next message of a known type. At the end of the stream between messages it returns io.EOF. Memory for
// a body grows with the bytes that arrived, never with the length announced.
func (r *Reader) Next() (Message, error) {
	for {
		if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
			return nil, err
		}
		n := int(binary.BigEndian.Uint32(r.head[1:]))
		if n > r.max || n < 0 {
			return nil, malformed("message of %d bytes, limit %d", n, r.max)
		}
		if err := r.readBody(n); err != nil {
			return nil, err
		}
		m, err := Decode(Type(r.head[0]), r.body)
		if m != nil || err != nil {
			return m, err
		}
	}
}

func (r *Reader) readBody(n int) error {
	const step = 16 << 10
	r.body = r.body[:0]
	for len(r.body) < n {
		k := min(step, n-len(r.body))
		at := len(r.body)
		if cap(r.body)-at < k {
			grown := make([]byte, at, max(2*cap(r.body), at+k))
			copy(grown, r.body)
			r.body = grown
		}
		r.body = r.body[:at+k]
		if _, err := io.ReadFull(r.r, r.body[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

func (m *Hello) encode(e *encoder) {
	e.uint(m.Version)
	e.raw(m.Session[:])
	e.raw(m.Secret[:])
	e.uint(uint64(m.Intent))
	e.string(m.Share)
	e.strings(m.Paths)
	e.bool(m.Fresh)
	e.uint(uint64(m.SockBuf))
	e.string(m.Congestion)
	e.uint(uint64(m.RateLimit))
	e.uint(m.MaxStreams)
	e.string(string(m.Proof))
	e.string(m.Agent)
	m.Target.encode(e)
	m.Select.encode(e)
	e.string(m.Snapshot)
	e.raw(m.Replaces[:])
	e.b = append(e.b, byte(m.Target.Delta))
	e.uint(uint64(m.Target.AllowFailed))
}

func (t *Target) encode(e *encoder) {
	e.bool(t.Compare.Checksum)
	e.bool(t.Compare.Update)
	e.bool(t.Compare.Existing)
	e.bool(t.Compare.IgnoreExisting)
	e.b = append(e.b, byte(t.Sync))
	e.bool(t.Readback)
	e.bool(t.NumericIDs)
	e.bool(t.Delete)
	e.int(t.MaxDelete)
	e.string(t.BackupDir)
	e.bool(t.DryRun)
}

func (t *Target) decode(d *decoder) {
	t.Compare.Checksum = d.bool()
	t.Compare.Update = d.bool()
	t.Compare.Existing = d.bool()
	t.Compare.IgnoreExisting = d.bool()
	if t.Sync = Sync(d.byte()); t.Sync > SyncNone {
		d.fail("unknown sync policy")
	}
	t.Readback = d.bool()
	t.NumericIDs = d.bool()
	t.Delete = d.bool()
	t.MaxDelete = d.int()
	t.BackupDir = d.string(MaxPath)
	t.DryRun = d.bool()
}

func (s *Select) encode(e *encoder) {
	e.strings(s.Rules)
	e.uint(uint64(s.MaxSize))
	e.int(s.NewerThan)
	e.bool(s.OneFileSystem)
	e.string(s.Compress)
}

func (s *Select) decode(d *decoder) {
	s.Rules = d.strings()
	s.MaxSize = d.nonNegative()
	s.NewerThan = d.int()
	s.OneFileSystem = d.bool()
	s.Compress = d.string(32)
}

func (m *Hello) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return // the rest may look different; the caller refuses
	}
	d.raw(m.Session[:])
	d.raw(m.Secret[:])
	m.Intent = Intent(min(d.uint(), 255)) // none that is known
	m.Share = d.string(MaxPath)
	m.Paths = d.strings()
	m.Fresh = d.bool()
	m.SockBuf = d.nonNegative()
	m.Congestion = d.string(32)
	m.RateLimit = d.nonNegative()
	m.MaxStreams = d.uint()
	m.Proof = []byte(d.string(32))
	m.Agent = d.string(MaxText)
	m.Target.decode(d)
	m.Select.decode(d)
	if d.more() {
		m.Snapshot = d.string(maxSnapshot)
	}
	if d.more() {
		d.raw(m.Replaces[:])
	}
	if d.more() {
		m.Target.Delta = d.delta(DeltaAuto)
	}
	if d.more() {
		m.Target.AllowFailed = int64(min(d.uint(), MaxAllowFailed))
	}
}

func (m *Join) encode(e *encoder) {
	e.uint(m.Version)
	e.raw(m.Session[:])
	e.raw(m.Secret[:])
	e.uint(m.Stream)
	e.uint(uint64(m.SockBuf))
	e.string(m.Congestion)
}

func (m *Join) decode(d *decoder) {
	if m.Version = d.uint(); m.Version != Version {
		return
	}
	d.raw(m.Session[:])
	d.raw(m.Secret[:])
	m.Stream = d.uint()
	m.SockBuf = d.nonNegative()
	m.Congestion = d.string(32)
}

func (m *Welcome) encode(e *encoder) { e.string(m.Agent); e.string(m.Host); e.uint(m.MaxStreams) }
func (m *Welcome) decode(d *decoder) {
	m.Agent = d.string(MaxText)
	m.Host = d.string(MaxText)
	m.MaxStreams = d.uint()
}

func (m *Refuse) encode(e *encoder) { e.uint(uint64(m.Code)); e.string(clip(m.Text)) }
func (m *Refuse) decode(d *decoder) { m.Code = Code(d.uint()); m.Text = d.string(MaxText) }

func (m *Manifest) encode(e *encoder) { e.bool(m.Single); e.bool(m.Prune); e.bool(m.Delta) }
func (m *Manifest) decode(d *decoder) {
	m.Single = d.bool()
	m.Prune = d.bool()
	m.Delta = d.more() && d.bool()
}

func (m *Entries) encode(e *encoder) {
	e.uint(m.First)
	e.uint(uint64(len(m.Entries)))
	for i := range m.Entries {
		m.Entries[i].encode(e)
	}
}

func (m *Entries) decode(d *decoder) {
	m.First = d.uint()
	n := d.count()
	for range n {
		var x Entry
		x.decode(d)
		if d.err != nil {
			return
		}
		m.Entries = append(m.Entries, x)
	}
}

// What an Entry has beside its kind.
const (
	entryOwned  = 1 << 0
	entryHoles  = 1 << 1
	entryXattrs = 1 << 2
	entryListed = 1 << 3
)

func (x *Entry) encode(e *encoder) {
	var flags byte
	if x.Owned {
		flags |= entryOwned
	}
	if x.Holes {
		flags |= entryHoles
	}
	if len(x.Xattrs) > 0 {
		flags |= entryXattrs
	}
	if x.Listed {
		flags |= entryListed
	}
	e.b = append(e.b, byte(x.Kind), flags)
	e.string(x.Path)
	e.int(x.ModTime)
	e.uint(uint64(x.Mode))
	switch x.Kind {
	case File:
		e.int(x.Size)
		e.uint(x.Ino)
		e.uint(x.Dev)
		e.b = append(e.b, x.BlockLog)
	case Symlink, Share:
		e.string(x.Link)
	case Hardlink:
		e.string(x.Link)
		e.uint(x.First)
	case CharDevice, BlockDevice:
		e.uint(x.Rdev)
	case Dir, Fifo, Socket:
	}
	if x.Owned {
		e.uint(uint64(x.UID))
		e.uint(uint64(x.GID))
		e.string(x.User)
		e.string(x.Group)
	}
	if len(x.Xattrs) > 0 {
		e.uint(uint64(len(x.Xattrs)))
		for _, a := range x.Xattrs {
			e.string(a.Name)
			e.string(string(a.Value))
		}
	}
}

func (x *Entry) decode(d *decoder) {
	x.Kind = Kind(d.byte())
	flags := d.byte()
	x.Path = d.string(MaxPath)
	x.ModTime = d.int()
	x.Mode = uint32(d.uint() & 0o7777)
	switch x.Kind {
	case File:
		x.Size = d.int()
		x.Ino = d.uint()
		x.Dev = d.uint()
		x.BlockLog = d.byte()
		if x.Size < Unknown || x.Size > MaxSize || x.BlockLog < MinBlockLog || x.BlockLog > MaxBlockLog {
			d.fail("file entry out of range")
		}
	case Symlink, Share:
		x.Link = d.string(MaxPath)
	case Hardlink:
		x.Link = d.string(MaxPath)
		x.First = d.uint()
	case CharDevice, BlockDevice:
		x.Rdev = d.uint()
	case Dir, Fifo, Socket:
	default:
		d.fail("unknown kind of entry")
	}
	x.Holes, x.Listed = flags&entryHoles != 0, flags&entryListed != 0
	if x.Owned = flags&entryOwned != 0; x.Owned {
		x.UID, x.GID = d.uint32(), d.uint32()
		x.User, x.Group = d.string(256), d.string(256)
	}
	if flags&entryXattrs != 0 {
		size := 0
		for range d.count() {
			a := Xattr{d.string(256), []byte(d.string(MaxXattrs))}
			if size += len(a.Name) + len(a.Value) + 8; d.err != nil || a.Name == "" || size > 2*MaxXattrs {
				d.fail("extended attributes too long")
				return
			}
			x.Xattrs = append(x.Xattrs, a)
		}
	}
}

func (m *EndManifest) encode(e *encoder) { e.uint(m.Count); e.uint(uint64(m.Bytes)) }
func (m *EndManifest) decode(d *decoder) { m.Count = d.uint(); m.Bytes = d.nonNegative() }

func encodeExtents(e *encoder, xs []Extent) {
	e.uint(uint64(len(xs)))
	for _, x := range xs {
		e.uint(uint64(x.Start))
		e.uint(uint64(x.Count))
	}
}

// decodeExtents accepts only ascending, disjoint, non-empty extents.
func decodeExtents(d *decoder) []Extent {
	n := d.count()
	var xs []Extent
	var end int64
	for i := range n {
		x := Extent{d.nonNegative(), d.nonNegative()}
		if d.err == nil && (x.Count == 0 || x.Start > maxBlockNumber || x.Count > maxBlockNumber || i > 0 && x.Start < end) {
			d.fail("extents out of order")
		}
		if d.err != nil {
			return nil
		}
		end = x.Start + x.Count
		xs = append(xs, x)
	}
	return xs
}

func (m *Answers) encode(e *encoder) {
	e.uint(uint64(len(m.Answers)))
	for i := range m.Answers {
		a := &m.Answers[i]
		e.uint(a.Index)
		if a.Verdict == Need && a.Delta != DeltaNone {
			e.b = append(e.b, needDelta, byte(a.Delta))
			e.uint(uint64(a.Old))
			encodeExtents(e, a.Have)
			continue
		}
		e.b = append(e.b, byte(a.Verdict))
		switch a.Verdict {
		case Need:
			encodeExtents(e, a.Have)
		case Fail:
			e.uint(uint64(a.Code))
			e.string(clip(a.Text))
		case Hash:
			e.raw(a.Digest[:])
		case Lack:
			e.bool(a.New)
		case Same, Done, Skip, Meta:
		}
	}
}

func (m *Answers) decode(d *decoder) {
	n := d.count()
	for range n {
		a := Answer{Index: d.uint(), Verdict: Verdict(d.byte())}
		switch a.Verdict {
		case needDelta:
			a.Verdict, a.Delta = Need, d.delta(DeltaAuto)
			if a.Old = d.nonNegative(); a.Delta == DeltaNone || a.Old > MaxSize {
				d.fail("no such old version")
			}
			a.Have = decodeExtents(d)
		case Need:
			a.Have = decodeExtents(d)
		case Fail:
			a.Code = Code(d.uint())
			a.Text = d.string(MaxText)
		case Hash:
			d.raw(a.Digest[:])
		case Lack:
			a.New = d.bool()
		case Same, Done, Skip, Meta:
		default:
			d.fail("unknown verdict")
		}
		if d.err != nil {
			return
		}
		m.Answers = append(m.Answers, a)
	}
}

func (m *Written) encode(e *encoder) {
	e.uint(uint64(len(m.Blocks)))
	for _, b := range m.Blocks {
		e.uint(b.Index)
		e.uint(uint64(b.Block))
	}
}

func (m *Written) decode(d *decoder) {
	n := d.count()
	for range n {
		b := BlockID{d.uint(), d.nonNegative()}
		if d.err != nil {
			return
		}
		m.Blocks = append(m.Blocks, b)
	}
}

// delta reads a Delta of at most most.
func (d *decoder) delta(most Delta) Delta {
	v := Delta(d.byte())
	if v > most {
		d.fail("unknown way of delta")
	}
	return v
}

func (m *Pick) encode(e *encoder) { e.uint(m.Index); e.b = append(e.b, byte(m.Delta)) }
func (m *Pick) decode(d *decoder) { m.Index = d.uint(); m.Delta = d.delta(DeltaChunks) }

func (m *Pieces) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Start))
	e.b = append(e.b, m.Log)
	e.uint(uint64(len(m.Digests)))
	for i := range m.Digests {
		e.raw(m.Digests[i][:])
	}
}

func (m *Pieces) decode(d *decoder) {
	m.Index = d.uint()
	m.Start = d.nonNegative()
	m.Log = d.byte()
	n := d.count()
	if m.Log < PieceLog || m.Log > MaxBlockLog || n > MaxPieces || m.Start > MaxSize || m.Start&(1<<m.Log-1) != 0 {
		d.fail("pieces out of range")
		return
	}
	for range n {
		var digest ShortDigest
		d.raw(digest[:])
		if d.err != nil {
			return
		}
		m.Digests = append(m.Digests, digest)
	}
}

func (m *Chunks) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Start))
	e.uint(uint64(len(m.Chunks)))
	for i := range m.Chunks {
		e.uint(uint64(m.Chunks[i].Length))
		e.raw(m.Chunks[i].Digest[:])
	}
}

func (m *Chunks) decode(d *decoder) {
	m.Index = d.uint()
	m.Start = d.nonNegative()
	n := d.count()
	if n > MaxPieces || m.Start > MaxSize {
		d.fail("chunks out of range")
		return
	}
	for range n {
		c := Chunk{Length: d.nonNegative()}
		d.raw(c.Digest[:])
		if d.err == nil && (c.Length == 0 || c.Length > MaxChunk) {
			d.fail("chunk out of range")
		}
		if d.err != nil {
			return
		}
		m.Chunks = append(m.Chunks, c)
	}
}

func (m *Ask) encode(e *encoder) { e.uint(m.Index); encodeExtents(e, m.Blocks) }
func (m *Ask) decode(d *decoder) { m.Index = d.uint(); m.Blocks = decodeExtents(d) }

func (m *Empty) encode(e *encoder) { e.uint(m.Index); encodeExtents(e, m.Blocks) }
func (m *Empty) decode(d *decoder) { m.Index = d.uint(); m.Blocks = decodeExtents(d) }

func (m *Resend) encode(e *encoder) { e.uint(m.Index); encodeExtents(e, m.Blocks) }
func (m *Resend) decode(d *decoder) { m.Index = d.uint(); m.Blocks = decodeExtents(d) }

func (m *EndEntry) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Size))
	e.raw(m.Digest[:])
	encodeExtents(e, m.Holes)
}

func (m *EndEntry) decode(d *decoder) {
	m.Index = d.uint()
	if m.Size = d.nonNegative(); m.Size > MaxSize {
		d.fail("size out of range")
	}
	d.raw(m.Digest[:])
	m.Holes = decodeExtents(d)
}

func (m *EntryFailed) encode(e *encoder) {
	e.uint(m.Index)
	e.uint(uint64(m.Code))
	e.string(clip(m.Text))
}

func (m *EntryFailed) decode(d *decoder) {
	m.Index = d.uint()
	m.Code = Code(d.uint())
	m.Text = d.string(MaxText)
}

func (m *Finished) encode(*encoder) {}
func (m *Finished) decode(*decoder) {}

func (m *Ping) encode(e *encoder) { e.int(m.Time) }
func (m *Ping) decode(d *decoder) { m.Time = d.int() }

func (m *Pong) encode(e *encoder) { e.int(m.Time) }
func (m *Pong) decode(d *decoder) { m.Time = d.int() }

func (m *Streams) encode(e *encoder) {
	e.uint(m.Want)
	encodeUints(e, m.Dead)
}

func (m *Streams) decode(d *decoder) {
	m.Want = d.uint()
	m.Dead = decodeUints(d)
}

func (m *Retire) encode(e *encoder) { encodeUints(e, m.Streams) }
func (m *Retire) decode(d *decoder) { m.Streams = decodeUints(d) }

func encodeUints(e *encoder, list []uint64) {
	e.uint(uint64(len(list)))
	for _, n := range list {
		e.uint(n)
	}
}

func decodeUints(d *decoder) (list []uint64) {
	for range d.count() {
		list = append(list, d.uint())
	}
	return list
}

func (m *Sample) encode(e *encoder) {
	e.uint(uint64(len(m.Values)))
	for _, v := range m.Values {
		e.string(v.Name)
		e.int(v.Value)
	}
}

func (m *Sample) decode(d *decoder) {
	n := d.count()
	if n > 256 {
		d.fail("too many values")
		return
	}
	for range n {
		m.Values = append(m.Values, Value{d.string(64), d.int()})
	}
}

func (m *Placed) encode(e *encoder) { encodeExtents(e, m.Entries) }
func (m *Placed) decode(d *decoder) { m.Entries = decodeExtents(d) }

func (m *Compared) encode(e *encoder) { e.uint(m.Index); e.bool(m.Same) }
func (m *Compared) decode(d *decoder) { m.Index = d.uint(); m.Same = d.bool() }

func (m *Prune) encode(e *encoder) { e.strings(m.Folders) }
func (m *Prune) decode(d *decoder) { m.Folders = d.strings() }

func (m *Folder) encode(e *encoder) { e.string(m.Path); e.strings(m.Names) }
func (m *Folder) decode(d *decoder) {
	m.Path = d.string(MaxPath)
	m.Names = d.strings()
}

func (m *Extra) encode(e *encoder) {
	e.uint(uint64(len(m.Names)))
	for _, n := range m.Names {
		e.uint(n)
	}
}

func (m *Extra) decode(d *decoder) {
	n := d.count()
	for i := range n {
		m.Names = append(m.Names, d.uint())
		if i > 0 && m.Names[i] <= m.Names[i-1] {
			d.fail("positions out of order")
			return
		}
	}
}

func (m *Removed) encode(e *encoder) { e.b = append(e.b, byte(m.Kind)); e.string(m.Path) }
func (m *Removed) decode(d *decoder) { m.Kind = Kind(d.byte()); m.Path = d.string(MaxPath) }

func (m *Warning) encode(e *encoder) {
	e.string(m.What)
	e.string(m.Path)
	e.string(clip(m.Text))
	e.uint(m.Count)
}

func (m *Warning) decode(d *decoder) {
	m.What = d.string(64)
	m.Path = d.string(MaxPath)
	m.Text = d.string(MaxText)
	m.Count = d.uint()
}

func (m *Digests) encode(e *encoder) {
	e.uint(uint64(len(m.Digests)))
	for i := range m.Digests {
		e.uint(m.Digests[i].Index)
		e.raw(m.Digests[i].Digest[:])
	}
}

func (m *Digests) decode(d *decoder) {
	for range d.count() {
		x := EntryDigest{Index: d.uint()}
		d.raw(x.Digest[:])
		if d.err != nil {
			return
		}
		m.Digests = append(m.Digests, x)
	}
}

func (m *Test) encode(e *encoder) {
	e.b = append(e.b, byte(m.Kind))
	e.uint(m.Size)
	e.bool(m.Split)
	e.bool(m.NoDelay)
	e.uint(m.Time)
}

func (m *Test) decode(d *decoder) {
	m.Kind = TestKind(d.byte())
	m.Size = d.uint()
	m.Split = d.bool()
	m.NoDelay = d.bool()
	if m.Time = d.uint(); m.Time > MaxTestTime {
		d.fail("test too long")
	}
	if m.Kind == Exchange && (m.Size < MinExchange || m.Size > MaxExchange) {
		d.fail("message size out of range")
	}
}

func (m *Datagrams) encode(e *encoder) { e.uint(m.Port); e.raw(m.Token[:]) }
func (m *Datagrams) decode(d *decoder) {
	if m.Port = d.uint(); m.Port == 0 || m.Port > 65535 {
		d.fail("no port")
	}
	d.raw(m.Token[:])
}

func (m *Volley) encode(e *encoder) {
	e.raw(m.Proof[:])
	e.uint(m.First)
	e.uint(uint64(len(m.Sizes)))
	for _, n := range m.Sizes {
		e.uint(n)
	}
	e.uint(m.Time)
}

func (m *Volley) decode(d *decoder) {
	d.raw(m.Proof[:])
	m.First = d.uint()
	n := d.count()
	if n > MaxVolley {
		d.fail("volley too long")
		return
	}
	for range n {
		size := d.uint()
		if size < DatagramHead || size > 65507 {
			d.fail("datagram size out of range")
			return
		}
		m.Sizes = append(m.Sizes, size)
	}
	if m.Time = d.uint(); m.Time > MaxTestTime {
		d.fail("volley too long")
	}
}

// clip keeps a text within MaxText.
func clip(s string) string { return s[:min(len(s), MaxText)] }

// Time converts a ModTime.
func (x *Entry) Time() time.Time { return time.Unix(0, x.ModTime) }
