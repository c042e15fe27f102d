package transfer

import "sync/atomic"

// Stats counts the work of one session. All counts but Rejected, Steps and Underway are bytes of payload.
type Stats struct {
	Read     int64 // read from the source; at the receiver from the network
	Written  int64 // written by the receiver in this session
	Copied   int64 // taken by the receiver from old versions of files
	Resumed  int64 // found from earlier runs
	Resent   int64 // sent more than once
	Rejected int64 // blocks whose digest was wrong
	Raw      int64 // sent, before compression
	Coded    int64 // sent, after compression
	Steps    int64 // events
	Underway int64 // blocks that have been sent and not acknowledged now; at the receiver that have begun to arrive
}

// counters are the counters behind Stats. Any goroutine may add to them.
type counters struct {
	read, written, copied, resumed, resent, rejected, raw, coded atomic.Int64
	steps, arriving                                              atomic.Int64 // events, blocks
}

func (c *counters) stats() Stats {
	return Stats{
		Read: c.read.Load(), Written: c.written.Load(), Copied: c.copied.Load(), Resumed: c.resumed.Load(),
		Resent: c.resent.Load(), Rejected: c.rejected.Load(), Raw: c.raw.Load(), Coded: c.coded.Load(),
		Steps: c.steps.Load(), Underway: c.arriving.Load(),
	}
}
