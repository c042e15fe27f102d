package fxfer

import (
	"context"
	"time"

	"github.com/fxfer/fxfer/internal/client"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/diagnose"
	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/relay"
	"github.com/fxfer/fxfer/internal/server"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// The Client, and its requests.
type (
	// Client sends, gets, lists and verifies.
	Client = client.Client
	// Options configure a Client.
	Options = client.Options
	// Transfer says what one call of Send, SendStream, Get or GetTo does.
	Transfer = client.Transfer
	// Selection chooses the entries to transfer.
	Selection = client.Selection
	// Range is a part of a large file, for SendRange.
	Range = client.Range
	// SourceFile is a regular file of a source.
	SourceFile = client.SourceFile
	// Shard is a part of the files that several processes send.
	Shard = client.Shard
	// Target says how the receiver compares and writes.
	Target = client.Target
	// Delta is a way to find what two versions of a file have in common.
	Delta = client.Delta
	// Early says which files SendEarly sends while they grow.
	Early = client.Early
	// CopyOptions say how a server makes a copy on another one.
	CopyOptions = client.CopyOptions
	// CopyStatus is the state and the progress of a copy.
	CopyStatus = session.CopyStatus
	// CopyState says whether a copy goes on.
	CopyState = session.CopyState
	// CopyChange is what a client does to a copy.
	CopyChange = session.CopyChange
	// Throttle is a rate limit that can change while a transfer runs.
	Throttle = client.Throttle
	// Priority says how a transfer shares the line with other traffic.
	Priority = session.Priority
	// LivePriority is a priority that can change while a transfer runs.
	LivePriority = session.LivePriority
	// TLS names the client's certificates, which take the place of keys.
	TLS = client.TLS
	// URL names a server, a share and a path.
	URL = session.URL
	// Pin is a server's or a client's key, as people write it.
	Pin = identity.Pin
	// Transport carries the streams of a session.
	Transport = session.Transport
	// Sync says when files are durable.
	Sync = session.Sync
)

// The answers of a Client.
type (
	// Report sums a transfer up.
	Report = session.Report
	// Plan sums a dry run up.
	Plan = session.Plan
	// Progress is a look at a running transfer.
	Progress = session.Progress
	// FileProgress is a file that is being transferred.
	FileProgress = session.FileProgress
	// FileResult is the outcome of one entry.
	FileResult = session.FileResult
	// Outcome is the outcome of an entry.
	Outcome = session.Outcome
	// NotStored counts entries that the target could not store completely.
	NotStored = session.NotStored
	// Limit is something that held a transfer back, with the evidence.
	Limit = session.Limit
	// Fact is one piece of evidence for a Limit.
	Fact = session.Fact
	// Remedy is something that can be done about a Limit.
	Remedy = session.Remedy
	// Sharing is how the sending end of a transfer shared the line with other traffic.
	Sharing = session.Sharing
	// PriorityChange is a change of priority for the sake of a deadline, with its reason.
	PriorityChange = session.PriorityChange
	// Moment is a short time of a transfer, with its limiter.
	Moment = session.Moment
	// Limiter is the name of something that can hold a transfer back.
	Limiter = diagnose.Limiter
	// Side is an end of a transfer.
	Side = diagnose.Side
	// FactKind says which figures a Fact has.
	FactKind = diagnose.FactKind
	// RemedyKind says which figures a Remedy has.
	RemedyKind = diagnose.RemedyKind
	// Sysctl is a setting of a kernel that a Remedy changes.
	Sysctl = diagnose.Sysctl
	// Sample is what one side measured in a Moment.
	Sample = diagnose.Sample
	// Entry is an entry of a listing.
	Entry = client.Entry
	// Files is a session in which entries are listed, read, made, moved and removed one by one.
	Files = client.Files
	// Usage is what an entry takes at a server.
	Usage = client.Usage
	// Snapshot is a snapshot in a listing.
	Snapshot = client.Snapshot
	// Verification says what is reported while a verification runs.
	Verification = client.Verification
	// Comparison sums up a verification.
	Comparison = client.Comparison
	// Difference is something that a verification found.
	Difference = client.Difference
	// Finding is the kind of a Difference.
	Finding = session.Finding
	// ProbeOptions say how a path is probed.
	ProbeOptions = client.ProbeOptions
	// ProbeReport says what a path carries.
	ProbeReport = client.ProbeReport
	// UploadReport is what a measured upload showed.
	UploadReport = client.UploadReport
)

// The parts of a ProbeReport.
type (
	// ProbeRTT sums up round trips.
	ProbeRTT = probe.RTT
	// ProbeFlow is what one test of throughput found.
	ProbeFlow = probe.Flow
	// ProbeDirection is the way that data go.
	ProbeDirection = probe.Direction
	// ProbeTCP is what the kernel reports of a path's TCP.
	ProbeTCP = probe.TCP
	// ProbeMTU is what packets the path carries.
	ProbeMTU = probe.PathMTU
	// ProbeLatency sums up exchanges of small messages.
	ProbeLatency = probe.Latency
	// ProbeBin is a bar of a histogram.
	ProbeBin = probe.Bin
	// ProbeThroughput is a rate with its limits.
	ProbeThroughput = probe.Throughput
	// ProbePoint is a moment of a probe.
	ProbePoint = probe.Point
	// ProbeChoice is what a transfer on this path would choose.
	ProbeChoice = probe.Choice
	// ProbeUpload has the figures of an UploadReport that are about the path.
	ProbeUpload = probe.Upload
)

// The server.
type (
	// Server offers shares.
	Server = server.Server
	// ServerOptions configure a Server.
	ServerOptions = server.Options
	// Doors are the addresses at which clients of older protocols use a server's shares.
	Doors = server.Doors
	// WebDAVDoor is the door for clients of WebDAV.
	WebDAVDoor = server.WebDAVDoor
	// FTPDoor is the door for clients of FTP.
	FTPDoor = server.FTPDoor
	// PortRange is a range of ports, both ends included.
	PortRange = server.PortRange
	// DoorStatus is a door that is open.
	DoorStatus = server.DoorStatus
	// DoorSession is what a user does at a door, on one share.
	DoorSession = server.DoorSession
	// ServerTLS names the server's certificates, which stand beside keys.
	ServerTLS = server.TLS
	// Forwarder sends the files of a share on to another server, and knows how far each is.
	Forwarder = server.Forwarder
	// Forwarded is a file that a Forwarder sends on.
	Forwarded = server.Forwarded
	// Copies keeps and makes the copies that clients ask a server for.
	Copies = server.Copies
	// Copy is what a client asks a server to send to another one.
	Copy = session.Copy
	// CopySource is what a server sends to another one for a user: see Server.OpenCopy.
	CopySource = session.Source
	// Share is a folder that a server offers.
	Share = server.Share
	// Rights are what a client may do in a share.
	Rights = identity.Rights
	// Keep says which snapshots of a series stay when another one is complete.
	Keep = snapshot.Keep
	// Kept is a snapshot with the reasons for which Keep keeps it.
	Kept = snapshot.Kept
	// Admission is what a server grants one client.
	Admission = server.Admission
	// InviteOptions say what an invitation admits to.
	InviteOptions = server.InviteOptions
	// Folder is a folder that a confined server may still use.
	Folder = server.Folder
	// Status is a look at a running server.
	Status = server.Status
	// ShareStatus is a share in a Status.
	ShareStatus = server.ShareStatus
	// SessionStatus is a session in a Status.
	SessionStatus = server.SessionStatus
	// ClientStatus is a client that a server knows.
	ClientStatus = server.ClientStatus
	// Counters are sums since the server started.
	Counters = server.Counters
	// ShareTraffic counts what moved in one direction of a share.
	ShareTraffic = server.ShareTraffic
	// BlockTimes says where blocks spent their time.
	BlockTimes = server.BlockTimes
	// Network says what the kernel reports of a session's streams.
	Network = server.Network
	// Point is a moment of a session.
	Point = server.Point
	// Certificate is a certificate or a list whose end must be watched.
	Certificate = server.Certificate
)

// The relay.
type (
	// Relay joins connections of clients with connections to servers.
	Relay = relay.Relay
	// RelayOptions configure a Relay.
	RelayOptions = relay.Options
)

// Error is an error with its kind. Use errors.As or KindOf.
type Error = session.Error

// Kind classes errors by what a user can do about them.
type Kind = session.Kind

// The kinds of errors.
const (
	KindOther       = session.KindOther
	KindUsage       = session.KindUsage
	KindPartial     = session.KindPartial
	KindTrust       = session.KindTrust
	KindUnreachable = session.KindUnreachable
	KindIntegrity   = session.KindIntegrity
	KindLocalDisk   = session.KindLocalDisk
	KindRemoteDisk  = session.KindRemoteDisk
	KindInterrupted = session.KindInterrupted
	KindNotFound    = session.KindNotFound
)

// Advice is what helps against an error, beyond what its text says.
type Advice = session.Advice

// The kinds of advice.
const (
	AdviceResume            = session.AdviceResume
	AdviceRetry             = session.AdviceRetry
	AdviceRetryLater        = session.AdviceRetryLater
	AdviceMakeRoom          = session.AdviceMakeRoom
	AdviceRename            = session.AdviceRename
	AdviceAgain             = session.AdviceAgain
	AdviceMakeRoomAgain     = session.AdviceMakeRoomAgain
	AdviceMakeFolder        = session.AdviceMakeFolder
	AdviceInvitation        = session.AdviceInvitation
	AdviceReadmit           = session.AdviceReadmit
	AdviceServerLog         = session.AdviceServerLog
	AdviceServerPort        = session.AdviceServerPort
	AdviceServerCopies      = session.AdviceServerCopies
	AdviceServerCertificate = session.AdviceServerCertificate
	AdviceServerClientCA    = session.AdviceServerClientCA
	AdviceCheckPin          = session.AdviceCheckPin
	AdviceFixPathMTU        = session.AdviceFixPathMTU
	AdviceNotStrict         = session.AdviceNotStrict
	AdviceUpdateServer      = session.AdviceUpdateServer
	AdviceRestartServer     = session.AdviceRestartServer
	AdviceRelay             = session.AdviceRelay
	AdviceRelayInvitation   = session.AdviceRelayInvitation
	AdviceStandardCrypto    = session.AdviceStandardCrypto
)

// Errors for errors.Is.
var (
	ErrUnknownServer  = identity.ErrUnknownServer
	ErrServerChanged  = identity.ErrServerChanged
	ErrSnapshotExists = session.ErrSnapshotExists
	ErrNoCopy         = session.ErrNoCopy
	ErrCopyEnded      = session.ErrCopyEnded
	ErrCopiesFull     = session.ErrCopiesFull
)

// The rights. They combine with |.
const (
	Read   = identity.Read
	Write  = identity.Write
	Append = identity.Append
	List   = identity.List
)

// The transports.
const (
	TransportTCP  = session.TransportTCP
	TransportQUIC = session.TransportQUIC
	TransportAuto = session.TransportAuto
)

// The priorities.
const (
	PriorityLow    = session.PriorityLow
	PriorityNormal = session.PriorityNormal
	PriorityHigh   = session.PriorityHigh
)

// The sync policies.
const (
	SyncBatch = session.SyncBatch
	SyncFile  = session.SyncFile
	SyncNone  = session.SyncNone
)

// The ways of Target.Delta.
const (
	DeltaAuto   = client.DeltaAuto
	DeltaFixed  = client.DeltaFixed
	DeltaChunks = client.DeltaChunks
	DeltaNone   = client.DeltaNone
)

// The outcomes of entries. Those that begin with Would are outcomes of a dry run.
const (
	Committed   = session.Committed
	Unchanged   = session.Unchanged
	Made        = session.Made
	Skipped     = session.Skipped
	Removed     = session.Removed
	Failed      = session.Failed
	WouldCreate = session.WouldCreate
	WouldUpdate = session.WouldUpdate
	WouldSet    = session.WouldSet
	WouldRemove = session.WouldRemove
)

// The findings of a verification.
const (
	Missing    = session.Missing
	Extra      = session.Extra
	Different  = session.Different
	Unreadable = session.Unreadable
	Lacking    = session.Lacking
)

// Defaults and bounds.
const (
	DefaultMaxStreams               = client.DefaultMaxStreams
	DefaultProbeTime                = client.DefaultProbeTime
	DefaultProbeBytes               = client.DefaultProbeBytes
	DefaultMaxSessions              = server.DefaultMaxSessions
	DefaultMaxSessionsPerClient     = server.DefaultMaxSessionsPerClient
	DefaultMaxConnections           = server.DefaultMaxConnections
	DefaultMaxConnectionsPerAddress = server.DefaultMaxConnectionsPerAddress
	MaxPassivePorts                 = server.MaxPassivePorts
	DefaultMaxHandshakes            = server.DefaultMaxHandshakes
	DefaultMaxHandshakesPerAddress  = server.DefaultMaxHandshakesPerAddress
	DefaultMaxMemory                = server.DefaultMaxMemory
	DefaultPartialAge               = server.DefaultPartialAge
	DefaultRelayConnections         = relay.DefaultMaxConnections
	DefaultRelayClientConnections   = relay.DefaultMaxConnectionsPerClient
	MaxAllowFailed                  = session.MaxAllowFailed
)

// ProtocolVersion is the version of the protocol that clients and servers of this package speak.
// They work together only with the same version.
const ProtocolVersion = session.ProtocolVersion

// The states of a copy. The last three are final.
const (
	CopyWaiting   = session.CopyWaiting
	CopyRunning   = session.CopyRunning
	CopyPaused    = session.CopyPaused
	CopyDone      = session.CopyDone
	CopyFailed    = session.CopyFailed
	CopyCancelled = session.CopyCancelled
)

// The changes of a copy.
const (
	PauseCopy  = session.PauseCopy
	ResumeCopy = session.ResumeCopy
	CancelCopy = session.CancelCopy
)

// SystemCA stands for the system's certificate authorities in TLS.CA.
const SystemCA = session.SystemCA

// SnapshotAuto in Target.Snapshot names the snapshot after the present time.
const SnapshotAuto = client.SnapshotAuto

// ErrNoEarly is the error of SendEarly to a server that is too old for it.
var ErrNoEarly = client.ErrNoEarly

// ErrNoRange is the error of SendRange where the file has to be sent whole.
var ErrNoRange = client.ErrNoRange

// The bounds of Range.Log.
const (
	MinRangeLog = client.MinRangeLog
	MaxRangeLog = client.MaxRangeLog
)

// ErrNoCopies is the error of copies from or to a server that is too old for them.
var ErrNoCopies = client.ErrNoCopies

// NewClient loads or makes this host's identity.
func NewClient(opt Options) (*Client, error) { return client.New(opt) }

// NewServer opens the shares and listens. The caller calls Serve next.
func NewServer(opt ServerOptions) (*Server, error) { return server.New(opt) }

// NewRelay opens the relay's identity and listens. The caller calls Serve next.
func NewRelay(opt RelayOptions) (*Relay, error) { return relay.New(opt) }

// BeginConfined confines a process that will run a server with these options, where Server.Confine
// can't do so because the program was built with cgo. It executes the program anew, with the same
// process id, and does not return. Call it before anything is opened. Settings are single files
// that the program reads, and listen the addresses that it listens on beside those of the options.
// It returns nil if it is not needed.
func BeginConfined(opt ServerOptions, settings, listen []string, others ...Folder) error {
	return server.Begin(&opt, settings, listen, others...)
}

// NewThrottle makes a Throttle of so many bits per second; 0 is no limit.
func NewThrottle(bitsPerSecond int64) *Throttle { return client.NewThrottle(bitsPerSecond) }

// NewLivePriority makes a LivePriority of p.
func NewLivePriority(p Priority) *LivePriority { return session.NewLivePriority(p) }

// ParseURL reads a URL or an invitation.
func ParseURL(s string) (URL, error) { return session.ParseURL(s) }

// ParseVia reads an element of Options.Via: host or host:port of a relay, its invitation, or "direct".
func ParseVia(s string) (URL, error) { return client.ParseVia(s) }

// ParseTarget reads an element of RelayOptions.Targets, and returns it as clients name it.
func ParseTarget(s string) (string, error) { return relay.ParseTarget(s) }

// ParsePattern reads a URL whose path may have patterns, for Files.Glob: *, ? and [a-z].
func ParsePattern(s string) (u URL, elements []string, err error) { return session.ParsePattern(s) }

// IsURL reports whether s is meant as a URL: it begins with fxfer://.
func IsURL(s string) bool { return session.IsURL(s) }

// ParseRights reads "rw", "ro" or "wo", or some of the names read, write, append and list with "+"
// between them.
func ParseRights(s string) (Rights, error) { return identity.ParseRights(s) }

// ListSource calls visit for each regular file of a source, as Send would list it, but in another order.
// It calls it one at a time. It leaves out what cannot be listed: Send reports that. It returns visit's
// error.
func ListSource(ctx context.Context, source string, selection Selection, visit func(SourceFile) error) error {
	return client.ListSource(ctx, source, selection, visit)
}

// ParseShard reads a shard such as "3/8", the fourth of eight.
func ParseShard(s string) (Shard, error) { return client.ParseShard(s) }

// ParseKeep reads a policy such as "daily=7,weekly=4".
func ParseKeep(s string) (Keep, error) { return snapshot.ParseKeep(s) }

// KindOf returns the kind of an error of this package.
func KindOf(err error) Kind { return session.KindOf(err) }

// SnapshotName is the name of a snapshot of that time.
func SnapshotName(t time.Time) string { return client.SnapshotName(t) }

// Outcomes are all values of SessionStatus.Outcome.
func Outcomes() []string { return server.Outcomes }

// Intents are all values of SessionStatus.Intent.
func Intents() []string { return server.Intents() }

// RefusalReasons are all keys of Counters.Refused.
func RefusalReasons() []string { return server.RefusalReasons() }

// Limiters are all names of limiters.
func Limiters() []string { return server.Limiters() }
