package ssh

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// way is how a server is reached. The zero way is inside of ssh alone.
type way struct {
	host   string // it answers there
	called bool   // it connects to this host
}

// reach finds the way to a server whose answer is a.
func (f *Flags) reach(ctx context.Context, s *started, a *Answer, server fxfer.URL, opt *fxfer.Options) (way, error) {
	client, err := fxfer.NewClient(*opt)
	if err != nil {
		return way{}, err
	}
	direct := func(ctx context.Context) string {
		return firstAnswer(ctx, client, server, []string{server.Host, a.Address})
	}
	var call func(context.Context) bool
	if a.Calls && opt.Transport != fxfer.TransportQUIC {
		calling := *opt
		calling.Connect, calling.Transport = s.calls.connect, fxfer.TransportTCP
		caller, err := fxfer.NewClient(calling)
		if err != nil {
			return way{}, err
		}
		call = func(ctx context.Context) bool { return caller.Reaches(ctx, server) }
	}
	return findWay(ctx, direct, call), nil
}

// findWay returns the first way that is open. direct returns the host that answers, or "". call tells
// whether the server connects to this host; nil is no. It begins later than direct, but does not wait
// for its end: where nothing is open, it costs no more time.
func findWay(ctx context.Context, direct func(context.Context) string, call func(context.Context) bool) way {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered, called := make(chan string, 1), make(chan bool, 1)
	tasks.Go(func() { answered <- direct(ctx) })
	var began time.Time
	begin := func() {
		if call == nil {
			called <- false
		} else if began.IsZero() {
			began = time.Now()
			tasks.Go(func() { called <- call(ctx) })
		}
	}
	soon := time.NewTimer(callAfter)
	defer soon.Stop()
	late := time.NewTimer(reachWithin + callWithin)
	defer late.Stop()
	isBlocked := false
	for {
		select {
		case host := <-answered:
			if host != "" {
				return way{host: host}
			}
			if ctx.Err() != nil {
				return way{}
			}
			isBlocked = true
			begin()
			late.Reset(callWithin - time.Since(began))
		case <-soon.C:
			if call != nil && ctx.Err() == nil {
				begin()
			}
		case ok := <-called:
			if ok || isBlocked {
				return way{called: ok}
			}
			call = nil
		case <-late.C:
			return way{}
		}
	}
}

// firstAnswer returns the first of hosts at which the server answers; "" if it answers nowhere.
func firstAnswer(ctx context.Context, client *fxfer.Client, server fxfer.URL, hosts []string) string {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	answers := make(chan string)
	for _, host := range hosts {
		go func() {
			u := server
			u.Host = host
			if host == "" || !client.Reaches(ctx, u) {
				host = ""
			}
			answers <- host
		}()
	}
	found := ""
	for range hosts {
		if found = cmp.Or(found, <-answers); found != "" {
			cancel()
		}
	}
	return found
}
