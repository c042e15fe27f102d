package server

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

// Bounds of a server, for a host with 1 GB of memory. Over them a client is told to come again, or its connection is closed before it
// began, which it takes for the same.
const (
	DefaultMaxSessions              = 128
	DefaultMaxSessionsPerClient     = 32
	DefaultMaxConnections           = 2048
	DefaultMaxConnectionsPerAddress = 512
	DefaultMaxHandshakes            = 400
	DefaultMaxHandshakesPerAddress  = 200
	DefaultMaxMemory                = 640 << 20
)
