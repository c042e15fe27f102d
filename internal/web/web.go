// Package web serves a server's pages: metrics for Prometheus, health, and a dashboard.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fxfer/fxfer/pkg/fxfer"
)

// DefaultPort is the port of the pages if the user names none.
const DefaultPort = "7434"

// Server is the server whose state the pages show.
type Server interface {
	Status() *fxfer.Status
	Past() []fxfer.SessionStatus
	Session(id string) (fxfer.SessionStatus, bool)
	Cancel(id string) bool
	SetPriority(id string, p fxfer.Priority) (found bool, err error)
	Clients() ([]fxfer.ClientStatus, error)
	Revoke(key string) error
}

// ParseAddr parses a listen address: a port (on the loopback interface only) or host:port.
func ParseAddr(s string) (string, error) {
	if !strings.Contains(s, ":") {
		s = "127.0.0.1:" + s
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("invalid address %q: for example %s, or 0.0.0.0:%s for all addresses of this machine", s, DefaultPort, DefaultPort)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("invalid port %q", port)
	}
	return s, nil
}

// Pages are the web pages of one server. Listen creates them.
type Pages struct {
	opt    Options
	server Server
	listen *places
	guard  *guard
	feed   *feed
	jobs   jobList
}

// Options configure Pages.
type Options struct {
	Version string // version of this program
	Home    string // folder with the dashboard's token
	// Names are host names that browsers may use for this server. Its own host name, localhost
	// and IP addresses are always allowed.
	Names []string
	Log   *slog.Logger

	// Jobs returns the backup jobs of this host, or is nil if there are none. It is called
	// rarely, and never concurrently.
	Jobs func() ([]Job, error)
	// Queues returns the queues of the shares whose files are sent on, or is nil if there are none. It
	// is called concurrently.
	Queues func() []Queue
}

// Listen opens the address of the pages. The caller calls Serve next.
func Listen(addr string, server Server, opt Options) (*Pages, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and dashboard: %w", err)
	}
	p := &Pages{opt: opt, server: server, listen: newPlaces(l), feed: newFeed(server), jobs: jobList{ask: opt.Jobs}}
	if p.guard, err = newGuard(opt.Home, opt.Names); err != nil {
		l.Close()
		return nil, err
	}
	return p, nil
}

// URL returns the dashboard's URL. It contains the token: anyone who has the URL may do what the
// dashboard offers. Browsers keep the part with the token to themselves.
func (p *Pages) URL() string { return urlOf(p.listen.Addr().String(), p.guard.token) }

// URL returns the dashboard's URL for pages at addr, which has the form that ParseAddr returns.
// The token comes from home. If home has none, URL creates it, and a server that starts later
// uses it.
func URL(home, addr string) (string, error) {
	token, err := keptToken(home)
	if err != nil {
		return "", fmt.Errorf("read the dashboard's token: %w", err)
	}
	return urlOf(addr, token), nil
}

func urlOf(addr, token string) string {
	host, port, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/#token=" + token
}

// Addr returns the address on which the pages listen.
func (p *Pages) Addr() net.Addr { return p.listen.Addr() }

const (
	// Time limits for a client's request and for the server's answer.
	headWithin  = 5 * time.Second
	readWithin  = 10 * time.Second
	writeWithin = 30 * time.Second
	idleWithin  = 2 * time.Minute
	maxHead     = 16 << 10
	maxBody     = 4 << 10
	// endWithin limits how long Serve waits for open requests when it ends.
	endWithin = 2 * time.Second
)

// Serve answers requests until ctx is done.
func (p *Pages) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: p.handler(), ConnState: p.listen.note, ReadHeaderTimeout: headWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHead, ErrorLog: slog.NewLogLogger(p.opt.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	var feeding sync.WaitGroup
	defer feeding.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feeding.Go(func() { p.feed.run(ctx) })
	ended := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(ended)
		within, cancel := context.WithTimeout(context.Background(), endWithin)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(p.listen)
	if !unhook() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (p *Pages) handler() http.Handler {
	mux := http.NewServeMux()
	metrics := promhttp.HandlerFor(newRegistry(p.server, p.opt.Version, p.queues), promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(p.opt.Log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
	mux.Handle("GET /metrics", p.guard.public(metrics.ServeHTTP))
	mux.Handle("GET /healthz", p.guard.public(func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }))
	mux.Handle("GET /readyz", p.guard.public(func(w http.ResponseWriter, _ *http.Request) {
		if p.server.Status().Ready {
			plain(w, http.StatusOK, "ready")
		} else {
			plain(w, http.StatusServiceUnavailable, "draining")
		}
	}))
	p.dashboard(mux)
	return mux
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
