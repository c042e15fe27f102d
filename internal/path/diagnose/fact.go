package diagnose

import "time"

// FactKind says what a fact is about. Package words turns facts into sentences.
type FactKind string

// The kinds of facts. Each comment names the fields of Fact that the kind uses.
const (
	// Windows and buffers.
	WindowObtained     FactKind = "window obtained"       // Bytes a stream, Count streams, Time of a round trip
	WindowHeldBack     FactKind = "window held back"      // Share of the time with data in flight
	LineBDP            FactKind = "BDP of a line"         // Rate of the line, Bytes of its BDP
	ScalingOff         FactKind = "window scaling is off" // Host
	AutotuningOff      FactKind = "autotuning is off"
	SockBufAsked       FactKind = "--sock-buf of this end" // Bytes
	SockBufOfServer    FactKind = "--sock-buf of server"   // Bytes
	RmemEnds           FactKind = "tcp_rmem ends"          // Bytes
	WmemEnds           FactKind = "tcp_wmem ends"          // Bytes
	WmemMaxReached     FactKind = "wmem_max reached"       // Bytes of the buffer
	ReceiverWindowFull FactKind = "receiver window full"   // Share of the time with data in flight
	SendBufferFull     FactKind = "send buffer full"       // Share of the time with data in flight
	BufferObtained     FactKind = "buffer obtained"        // Bytes, Need for the BDP

	// The path.
	PathCarries      FactKind = "path carries"         // Rate
	RoundTrips       FactKind = "round trips"          // Time mean, Least
	SegmentsResent   FactKind = "segments resent"      // Share of the segments; 0 is none
	LossNoQueue      FactKind = "loss without a queue" // Share of the segments; Time and Least of round trips
	Overtaken        FactKind = "segments overtaken"   // Count, Share of those sent again that had arrived
	ControlSlows     FactKind = "control slows down"   // Name of the congestion control, "" if unknown
	QueueOnPath      FactKind = "queue on the path"    // Time and Least of round trips
	RampUp           FactKind = "ramp"                 // Time of all, Least of round trips
	InitialWindowOf  FactKind = "initial window"       // Host, Name of the setting, Count of segments
	NothingAcked     FactKind = "nothing acknowledged" // Time
	PacketsVanish    FactKind = "packets vanish"       // Bytes of each
	ResentInVain     FactKind = "resent in vain"       // Count of times
	FlowMeasured     FactKind = "measured"             // Name of the direction, Count of streams, Rate
	LossAfterStart   FactKind = "loss"                 // Share of the segments after slow start
	RTTIdleLoaded    FactKind = "idle and loaded"      // Least idle, Time under load
	RTTWithoutQueue  FactKind = "no queue"             // the same
	BloatGrade       FactKind = "grade"                // Name
	ProbesVanish     FactKind = "probes vanish"        // Name of the direction, Bytes that pass, Need that vanish
	DroppedAbove     FactKind = "dropped above a rate" // Rate that passes, Share of the segments sent again
	LostInOwnQueue   FactKind = "lost in own queue"    // Share of the segments
	GotBesideOthers  FactKind = "got beside others"    // Rate, Limit is the most that the transfer got
	QueueOfOthers    FactKind = "queue of others"      // Share of the time
	LeftToOthers     FactKind = "left to others"       // Share of the time, Rate, Limit as above
	SACKOff          FactKind = "SACK is off"          // Host
	TimestampsOff    FactKind = "timestamps are off"   // Host
	RelayCarries     FactKind = "relay carries"        // Rate
	NothingStandsOut FactKind = "nothing stands out"   // Rate
	RateAsked        FactKind = "rate asked for"       // Rate on the line, Limit
	RateOfServer     FactKind = "rate of server"       // Rate on the line

	// Programs that are not ours.
	ProgramWrites  FactKind = "program writes"     // Share of the time with nothing to send, Rate
	ProgramSteady  FactKind = "steady rate"        // Rate
	SocketPaced    FactKind = "socket is paced"    // Rate, Limit
	ReaderSlow     FactKind = "reader is slow"     // Share of the time, Rate
	WindowShut     FactKind = "window is shut"     // Share of the time, Rate
	RequestsBring  FactKind = "requests bring"     // Bytes each, Count a second, Time of a round trip
	NagleWaits     FactKind = "Nagle waits"        // Share of the time, Time in all
	BufferByItself FactKind = "buffer of its own"  // Name of the option, Bytes, Need that autotuning allows
	SeenFromHere   FactKind = "seen from here"     // Rate
	NothingHeld    FactKind = "nothing held it up" // Rate

	// The hosts.
	StdinWaited FactKind = "standard input" // Share of the time, Rate
	Reading     FactKind = "reading"        // Share of the streams' time, Rate
	Listing     FactKind = "listing"        // Share of the time
	Syncing     FactKind = "syncing"        // Share of the time
	Writing     FactKind = "writing"        // Share of the streams' time, Rate
	Comparing   FactKind = "comparing"      // Share of the time
	CPUUsed     FactKind = "CPU used"       // Share of the Cores
	CPUWaited   FactKind = "CPU waited for" // Time
	Compressing FactKind = "compressing"    // Share of the streams' time
	Computing   FactKind = "computing"      // Share of the streams' time
	CPUsBusy    FactKind = "CPUs busy"      // Share of the host's CPUs, Name of the side
)

// Fact is one piece of evidence for a verdict: what was found, with the fields that its Kind
// uses. All other fields are zero.
type Fact struct {
	Kind  FactKind
	Share float64 // 0 to 1
	Rate  float64 // bit/s
	Limit float64 // bit/s
	Bytes int64
	Need  int64 // bytes
	Count int64
	Cores float64
	Time  time.Duration
	Least time.Duration
	Name  string
	Host  string // "" if unknown
}

// RemedyKind says what can be done about a limiter.
type RemedyKind string

// The remedies. Each comment names the fields of Remedy that the kind uses.
const (
	SetSysctl         RemedyKind = "set a sysctl"             // Sysctl
	AutoSockBuf       RemedyKind = "automatic socket buffers" // of this host
	ServerAutoSockBuf RemedyKind = "the same, at the server"
	MoreStreams       RemedyKind = "more streams"           // Streams
	MoreAutoStreams   RemedyKind = "more automatic streams" // Streams at most
	UseBBR            RemedyKind = "use BBR"
	AllowBBR          RemedyKind = "allow BBR" // for all processes of the host
	LoadBBR           RemedyKind = "load and allow BBR"
	LimitRate         RemedyKind = "limit the rate"   // Rate
	ManageQueue       RemedyKind = "manage the queue" // in front of the slow line
	LongerTransfers   RemedyKind = "longer transfers"
	RaiseInitCwnd     RemedyKind = "raise initcwnd" // of the route, with fxfer doctor
	RaiseInitRwnd     RemedyKind = "raise initrwnd" // the same
	FasterFeed        RemedyKind = "faster feed"    // of standard input
	FasterSource      RemedyKind = "faster source disk"
	FasterTarget      RemedyKind = "faster target disk"
	SyncBatches       RemedyKind = "sync in batches"
	SyncNothing       RemedyKind = "sync nothing"
	RaiseLimit        RemedyKind = "raise the limit" // that the user set
	RaiseServerLimit  RemedyKind = "raise the server's limit"
	NoCompression     RemedyKind = "no compression"
	MoreCPU           RemedyKind = "more CPU"
	FixPathMTU        RemedyKind = "let ICMP pass"  // or lower the MTU
	RaiseRmem         RemedyKind = "raise tcp_rmem" // to the value from fxfer doctor
	RaiseWmem         RemedyKind = "raise tcp_wmem" // and wmem_max, to the values from fxfer doctor
	QueueAtBottleneck RemedyKind = "manage the queue somewhere"
	AskProvider       RemedyKind = "ask the provider" // for a higher rate, or a queue
	NormalPriority    RemedyKind = "normal priority"
	HighPriority      RemedyKind = "high priority"
	ClampMSS          RemedyKind = "clamp the MSS" // or let ICMP pass
	ProbeNextLeg      RemedyKind = "probe the next leg"

	// For programs that are not ours.
	FasterProgram   RemedyKind = "faster program"
	FasterReader    RemedyKind = "faster reader"
	BBRForAll       RemedyKind = "BBR for all programs"
	LimitProgram    RemedyKind = "limit the program" // Rate
	ProgramRate     RemedyKind = "higher rate of the program"
	MoreRequests    RemedyKind = "more requests at once"
	OneWrite        RemedyKind = "one write for each message"
	LeaveBuffers    RemedyKind = "leave buffers alone"
	RaiseTheirs     RemedyKind = "raise the other buffer"
	MoreConnections RemedyKind = "more connections"
	LookAtSender    RemedyKind = "look at the sender"
)

// Remedy is something that can be done about a limiter, with the fields that its Kind uses.
type Remedy struct {
	Kind    RemedyKind
	Sysctl  *Sysctl
	Streams int
	Rate    int64   // bit/s
	Expect  float64 // expected goodput in bit/s, at least; 0 if unknown
	Host    string  // where to do it, if not on the verdict's host
}

// Sysctl is a kernel setting.
type Sysctl struct{ Name, Value string }
