package session

import (
	"time"
)

const (
	// ReportEvery is the time between two calls of a progress function.
	ReportEvery = 200 * time.Millisecond
	// LimiterEvery is the number of Progress values with the same Limiter, which costs work to find.
	LimiterEvery = 5
	// MaxActive bounds the files of a Progress.
	MaxActive = 8
)

// Progress is a look at a running transfer.
type Progress struct {
	Elapsed     time.Duration
	Walking     bool    // more entries may be found
	Files       int64   // regular files found
	FilesDone   int64   // of these: committed, unchanged, or skipped
	FilesFailed int64   // of these
	Bytes       int64   // of the files found
	BytesDone   int64   // of these, written at the receiver, or there before
	Written     int64   // payload written at the receiver in this run
	Goodput     float64 // bit/s over the last seconds; what has arrived of incomplete blocks counts
	Streams     int     // data streams
	RTT         time.Duration
	Limiter     string         // what holds the transfer back now, "" if unknown
	Active      []FileProgress // files being transferred, oldest first, at most MaxActive
}

// FileProgress is a file that is being transferred.
type FileProgress struct {
	Path  string
	Bytes int64 // size, -1 if unknown
	Done  int64
}
