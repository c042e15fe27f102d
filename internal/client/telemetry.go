package client

import (
	"github.com/fxfer/fxfer/internal/path/diagnose"
)

// asked is what the user asked of a transfer.
func (o *Options) asked(push bool) *diagnose.Asked {
	a := &diagnose.Asked{
		Here: diagnose.Sender, Streams: o.Streams, MaxStreams: o.MaxStreams, SockBuf: int64(o.SockBuf), RateLimit: o.throttle().Rate(),
		Sync: string(o.Target.Sync),
	}
	if !push {
		a.Here = diagnose.Receiver
	}
	return a
}
