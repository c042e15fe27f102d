package ssh

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// route is how a server is reached. The zero route is inside of ssh alone.
type route struct {
	host   string // it answers there
	called bool   // it connects to this host
}

// reach finds the route to a server whose answer is a.
func (f *Flags) reach(ctx context.Context, s *started, a *Answer, server fxfer.URL, opt *fxfer.Options) (route, error) {
	client, err := fxfer.NewClient(*opt)
	if err != nil {
		return route{}, err
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
			return route{}, err
		}
		call = func(ctx context.Context) bool { return caller.Reaches(ctx, server) }
	}
	return findRoute(ctx, direct, call), nil
}

// findRoute returns the first route that is open. direct returns the host that answers, or "". call tells
// whether the server connects to this host; nil is no. It begins later than direct, but does not wait
// for its end: where nothing is open, it costs no more time.
func findRoute(ctx context.Context, direct func(context.Context) string, call func(context.Context) bool) route {
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
				return route{host: host}
			}
			if ctx.Err() != nil {
				return route{}
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
				return route{called: ok}
			}
			call = nil
		case <-late.C:
			return route{}
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
