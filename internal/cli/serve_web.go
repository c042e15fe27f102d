package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// openPages listens for metrics and dashboard, before the process is confined.
func openPages(f *serveFlags, server *fxfer.Server) (*web.Pages, error) {
	pages, err := web.Listen(f.web, server, web.Options{Version: version(), Home: server.Home(), Names: []string{f.name}, Log: f.opt.Log})
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindUsage, Err: err}
	}
	return pages, nil
}

// servePages answers until the func it returns is called: also while transfers end, so that a probe sees that.
func servePages(pages *web.Pages, log *slog.Logger, talk io.Writer) (stop func()) {
	fmt.Fprintf(talk, "fxfer: dashboard on %s\n", pages.URL())
	fmt.Fprintf(talk, "fxfer: metrics on http://%s/metrics\n", pages.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pages.Serve(ctx); err != nil {
			log.Error("metrics and dashboard", "error", err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}
