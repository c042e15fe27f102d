package probe

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/fxfer/fxfer/internal/transport"
	"github.com/fxfer/fxfer/internal/wire"
)

// Sizes are the sizes of the table's messages in bytes.
var Sizes = []int{1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}

// Ways are all ways to write a message: in one write or two, by who sets TCP_NODELAY, and in two by
// who sets TCP_CORK. The other fields are zero.
func Ways() (all []Latency) {
	all = basic()
	for i := 1; i < 4; i++ {
		all = append(all, Latency{Split: true, ClientCork: i&1 != 0, ServerCork: i&2 != 0})
	}
	return all
}

// basic are the ways without TCP_CORK.
func basic() (all []Latency) {
	for i := range 8 {
		all = append(all, Latency{Split: i&4 != 0, ClientND: i&1 != 0, ServerND: i&2 != 0})
	}
	return all
}

// PerConnection are how many messages the connections of a whole matrix carry; 0 is all.
var PerConnection = []int{0, 10, 1}

const (
	// cellMost and cellLeast limit how often a message of the table is exchanged.
	cellMost, cellLeast = 200, 5
	// newCount is how many new connections a cell makes, newMost in a whole matrix at the most.
	newCount, newMost = 3, 10
	// wholeShare is the share of the time that a whole matrix has.
	wholeShare = 0.85
	// newPace bounds the streams that a whole matrix opens in a second. The server may make a host
	// wait that opens more, which would look like a slow path.
	newPace = 100
)

// matrix is how a table of messages is measured.
type matrix struct {
	*prober
	cells   []Latency
	slice   time.Duration // for each cell
	newMost int           // connections of a cell, if it needs several
	pace    *rate.Limiter // of new streams
}

// exchanges fills the table of messages. It measures several cells at a time, more of them on a
// long path.
func (p *prober) exchanges(ctx context.Context) error {
	m := &matrix{prober: p, newMost: newCount, pace: rate.NewLimiter(rate.Inf, 1)}
	carriers, counts, ways, budget := []bool{true}, []int{0, 1}, basic(), p.share(exchangeShare)
	if p.opt.Requests {
		counts, ways, budget = PerConnection, Ways(), p.share(wholeShare)
		open := newPace / 2 * budget.Seconds() / float64((len(counts)-1)*len(ways)*len(Sizes))
		m.newMost, m.pace = int(min(max(open, 1), newMost)), rate.NewLimiter(newPace, newPace/10)
		if !p.opt.Ways {
			ways = slices.DeleteFunc(ways, func(l Latency) bool { return l.ServerCork })
			p.report.Notes = append(p.report.Notes,
				"not measured: connections without TLS, and TCP_CORK at the server. It is older than this program and has neither")
		} else if p.opt.Plain != nil {
			carriers = append(carriers, false)
		}
	}
	for _, tls := range carriers {
		for _, n := range counts {
			for _, size := range Sizes {
				for _, l := range ways {
					l.TLS, l.PerConnection, l.Size, l.Think = tls, n, size, p.opt.Think.Seconds()
					m.cells = append(m.cells, l)
				}
			}
		}
	}
	// Each cell needs enough round trips, with a delayed ACK in both directions. A new connection
	// takes about six.
	cells := float64(len(m.cells) / len(counts))
	need := (cellLeast + 1) * (p.rtt + p.opt.Think + 80*time.Millisecond)
	all := cells * (need.Seconds() + newCount*6*p.rtt.Seconds())
	if p.opt.Requests { // a cell ends with a connection, so it may take twice its slice
		all, cells = 2*cells*(3*need.Seconds()+newCount*6*p.rtt.Seconds()), 2*float64(len(m.cells))
	}
	lanes := int(min(max(math.Ceil(all/budget.Seconds()), 2), 32))
	m.slice = min(seconds(budget.Seconds()*float64(lanes)/cells), 2*need)
	inTime, cancel := context.WithTimeout(ctx, 2*budget)
	defer cancel()
	var work errgroup.Group
	work.SetLimit(lanes)
	for i := range m.cells {
		work.Go(func() error { return m.cell(inTime, &m.cells[i]) })
	}
	err := work.Wait()
	p.report.Exchanges = m.cells
	if err != nil && !ended(ctx, err) {
		p.report.Notes = append(p.report.Notes, shortTable(m.cells))
		err = nil
	}
	return err
}

// shortTable is the note about a table that did not get all its exchanges in time.
func shortTable(cells []Latency) string {
	if slices.ContainsFunc(cells, func(l Latency) bool { return l.Count == 0 }) {
		return "the path is too slow to measure the whole request-reply table in this time"
	}
	return "the path is slow: some figures of the request-reply table are from few exchanges"
}

// ended reports whether an error ends the probe. Otherwise a test took too long, at either end.
func ended(ctx context.Context, err error) bool {
	var refused *wire.Error
	return err != nil && (ctx.Err() != nil || errors.As(err, &refused))
}

// request is the time of one message, by its parts.
type request struct{ connect, send, wait time.Duration }

func (r request) whole() time.Duration { return r.connect + r.send + r.wait }

// cell measures one cell of the table.
func (m *matrix) cell(ctx context.Context, l *Latency) error {
	test := wire.Test{Kind: wire.Exchange, Size: uint64(l.Size), Split: l.Split, NoDelay: l.ServerND, Cork: l.ServerCork,
		Time: uint64(min(4*m.slice.Milliseconds(), wire.MaxTestTime))}
	pace := m.pace
	open := func() (*exchanger, io.Closer, error) {
		c, err := m.dial(ctx, transport.Path{RTT: m.rtt})
		if err != nil {
			return nil, nil, err
		}
		x, err := newExchanger(c, test, l.ClientND, l.ClientCork)
		return x, c, err
	}
	if !l.TLS {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		pace = rate.NewLimiter(rate.Inf, 1)
		c, err := m.dial(ctx, transport.Path{RTT: m.rtt})
		if err != nil {
			return err
		}
		defer c.Close()
		plain, err := openPlain(c, test)
		if err != nil {
			return err
		}
		open = func() (*exchanger, io.Closer, error) {
			c, err := m.opt.Plain(ctx)
			if err != nil {
				return nil, nil, err
			}
			x, err := plain.exchanger(c, l.ClientND, l.ClientCork)
			return x, c, err
		}
	}
	var samples []request
	defer func() { l.sum(samples, m.opt.Think) }()
	least := min(newCount, m.newMost)
	if l.PerConnection > 1 {
		least = 1
	}
	end := time.Now().Add(m.slice)
	for n := 0; n < least || n < m.newMost && time.Now().Before(end); n++ {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		start := time.Now()
		x, c, err := open()
		connect := time.Since(start)
		if err == nil {
			unhook := context.AfterFunc(ctx, func() { _ = c.Close() })
			samples, err = m.talk(ctx, x, l, connect, end, samples)
			unhook()
		}
		if c != nil {
			_ = c.Close()
		}
		if err != nil || l.PerConnection == 0 {
			return err
		}
	}
	return nil
}

// talk exchanges messages on one connection, which took so long to open, and appends their times.
func (m *matrix) talk(ctx context.Context, x *exchanger, l *Latency, connect time.Duration, end time.Time, samples []request) ([]request, error) {
	if l.PerConnection == 0 {
		if _, _, err := x.once(false); err != nil { // includes the time to join the stream
			return samples, err
		}
		connect = 0
	}
	for n := 0; n < l.PerConnection || l.PerConnection == 0 && n < cellMost && (n < cellLeast || time.Now().Before(end)); n++ {
		if m.opt.Think > 0 && (n > 0 || l.PerConnection == 0) {
			if err := sleep(ctx, m.opt.Think); err != nil {
				return samples, err
			}
		}
		send, wait, err := x.once(n+1 == l.PerConnection)
		if err != nil {
			return samples, err
		}
		samples = append(samples, request{connect, send, wait})
		connect = 0
	}
	return samples, nil
}

// withExchanger calls f with the exchanger of a test on a new stream.
func (p *prober) withExchanger(ctx context.Context, t wire.Test, f func(*exchanger) error) error {
	c, err := p.dial(ctx, transport.Path{RTT: p.rtt})
	if err != nil {
		return err
	}
	defer c.Close()
	x, err := newExchanger(c, t, true, false)
	if err != nil {
		return err
	}
	return f(x)
}

// sum computes the statistics of the samples, between which a program thinks.
func (l *Latency) sum(samples []request, think time.Duration) {
	var whole, connect, send, wait []time.Duration
	var all time.Duration
	for _, s := range samples {
		whole, send, wait = append(whole, s.whole()), append(send, s.send), append(wait, s.wait)
		if s.connect > 0 {
			connect = append(connect, s.connect)
		}
		all += s.whole() + think
	}
	l.Histogram = histogram(whole)
	r := rttOf(whole)
	l.Count, l.Min, l.Median, l.P99, l.Max = r.Count, r.Min, r.Median, r.P99, r.Max
	l.Connect, l.Send, l.Wait = rttOf(connect).Median, rttOf(send).Median, rttOf(wait).Median
	if all > 0 {
		l.Rate = float64(len(samples)) / all.Seconds()
	}
}
