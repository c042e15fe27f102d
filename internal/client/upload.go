package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fxfer/fxfer/internal/path/probe"
	"github.com/fxfer/fxfer/internal/session"
	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// UploadReport is what a measured upload showed.
type UploadReport struct {
	probe.Upload
	CPU time.Duration // of this process
}

// MeasureUpload sends size bytes, or what it can within a time of at most a minute, from memory to
// the memory of a server. The streams are chosen and paced as for a transfer with the client's
// options. It touches no files at either end. The share and path of u don't matter.
func (c *Client) MeasureUpload(ctx context.Context, u session.URL, size int64, within time.Duration) (*UploadReport, error) {
	if size <= 0 || within <= 0 || within > wire.MaxTestTime*time.Millisecond {
		return nil, session.Usage("", "an upload of %d bytes within %v", size, within)
	}
	p := c.probing(u)
	var report UploadReport
	err := p.run(ctx, func(ctx context.Context, welcome *wire.Welcome) error {
		wish, _ := session.WirePriority(c.opt.Priority) // checked
		limit := NewThrottle(c.opt.RateLimit)
		set := session.NewStreamSet(nil, limit.pacer.NewQueue(&limit.limit))
		flow := session.NewFlow(set, c.opt.Streams, c.opt.MaxStreams, session.PriorityWithin(wish, welcome.LeastPriority, welcome.MostPriority))
		var streams atomic.Uint64
		dial := func(ctx context.Context, path transport.Path) (probe.Conn, error) {
			id := streams.Add(1)
			conn, err := p.join(ctx, id, path)
			if err != nil || id == 1 { // the first is for round trips
				return conn, err
			}
			return set.Add(id, conn, session.MaxStreams), nil
		}
		r, err := probe.RunUpload(ctx, dial, size, within, flow)
		if err != nil {
			return err
		}
		report = UploadReport{*r, flow.CPU()}
		return nil
	})
	if err != nil {
		return nil, describeProbe(ctx, err, serverOf(u))
	}
	return &report, nil
}
