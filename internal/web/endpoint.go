package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// endpoint is where pages are served, and who may see them.
type endpoint struct {
	listen *places
	guard  *guard
	log    *slog.Logger
}

// newEndpoint opens an address. names are those that browsers may use for this host.
func newEndpoint(addr, home string, names []string, log *slog.Logger) (*endpoint, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and dashboard: %w", err)
	}
	e := &endpoint{listen: newPlaces(l), log: log}
	if e.guard, err = newGuard(home, names); err != nil {
		l.Close()
		return nil, err
	}
	return e, nil
}

// URL returns the dashboard's URL. It contains the token: anyone who has the URL may do what the
// dashboard offers. Browsers keep the part with the token to themselves.
func (e *endpoint) URL() string { return urlOf(e.listen.Addr().String(), e.guard.token) }

// Addr returns the address on which the pages listen.
func (e *endpoint) Addr() net.Addr { return e.listen.Addr() }

const (
	// Time limits for a client's request and for the server's answer.
	headWithin  = 5 * time.Second
	readWithin  = 10 * time.Second
	writeWithin = 30 * time.Second
	idleWithin  = 2 * time.Minute
	maxHead     = 16 << 10
	maxBody     = 4 << 10
	// endWithin limits how long serve waits for open requests when it ends.
	endWithin = 2 * time.Second
)

// serve answers requests until ctx is done. feed runs beside it until then.
func (e *endpoint) serve(ctx context.Context, handler http.Handler, feed func(context.Context)) error {
	server := &http.Server{
		Handler: handler, ConnState: e.listen.note, ReadHeaderTimeout: headWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHead, ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	var feeding sync.WaitGroup
	defer feeding.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feeding.Go(func() { feed(ctx) })
	ended := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(ended)
		within, cancel := context.WithTimeout(context.Background(), endWithin)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(e.listen)
	if !unhook() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// pages serves what each endpoint has, but no data: metrics, health, and the pages for people, of which
// home is the first. unready says why the process is not ready, "" if it is.
func (e *endpoint) pages(home string, registry *prometheus.Registry, unready func() string) *http.ServeMux {
	g, mux := e.guard, http.NewServeMux()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
	mux.Handle("GET /metrics", g.public(metrics.ServeHTTP))
	mux.Handle("GET /healthz", g.public(func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }))
	mux.Handle("GET /readyz", g.public(func(w http.ResponseWriter, _ *http.Request) {
		if why := unready(); why != "" {
			plain(w, http.StatusServiceUnavailable, why)
			return
		}
		plain(w, http.StatusOK, "ready")
	}))
	mux.Handle("GET /{$}", g.public(page(home)))
	mux.Handle("GET /login", g.public(page("login.html")))
	mux.Handle("GET /assets/{name}", g.public(asset))
	return mux
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
