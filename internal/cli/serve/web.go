package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/fxfer/fxfer/internal/cli/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// openPages listens for metrics and dashboard. It has to be called before the process is confined.
func openPages(f *serveFlags, server *fxfer.Server, forwards *outbox.Forwards) (*web.Pages, error) {
	pages, err := web.Listen(f.web, server, web.Options{
		Version: f.version, Home: server.Home(), Names: []string{f.name}, Log: f.opt.Log, Jobs: backup.WebJobs,
		Queues: func() []web.Queue { return queuesOf(forwards.Status()) },
	})
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther, Err: err}, "another program uses this port: choose another one with --web")
	case err != nil:
		return nil, &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	return pages, nil
}

func queuesOf(all []outbox.ForwardStatus) (queues []web.Queue) {
	for _, x := range all {
		queues = append(queues, web.Queue{
			Share: x.Share, URL: x.URL, Paused: x.Paused, Error: x.Error, Unread: x.Unread, Oldest: web.Milli(x.Oldest),
			Arriving: x.Arriving, Waiting: x.Waiting, Sending: x.Sending, There: x.There, Failed: x.Failed, Dropped: x.Dropped,
		})
	}
	return queues
}

// servePages serves metrics and dashboard until the returned function is called. It goes on while
// transfers end, so that probes can see that state.
func servePages(pages *web.Pages, said *serverLog) (stop func()) {
	said.print("dashboard on " + pages.URL()) // not into a log, because the URL contains the token
	said.tell(fmt.Sprintf("metrics on http://%s/metrics", pages.Addr()), "metrics and dashboard", "address", fmt.Sprint(pages.Addr()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pages.Serve(ctx); err != nil {
			said.log.Error("metrics and dashboard", "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
