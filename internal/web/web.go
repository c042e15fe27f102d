// Package web serves a server's pages: metrics for Prometheus, health, and a dashboard.
package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

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

// loopback is the address of pages for this host alone.
const loopback = "127.0.0.1:"

// ParseAddr parses a listen address: a port (on the loopback interface only) or host:port.
func ParseAddr(s string) (string, error) {
	if !strings.Contains(s, ":") {
		s = loopback + s
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not a port, such as %s, nor ADDRESS:PORT, such as 0.0.0.0:%s for all addresses of this host",
			strings.TrimPrefix(s, loopback), DefaultPort, DefaultPort)
	}
	return s, nil
}

// Pages are the web pages of one server. Listen creates them.
type Pages struct {
	*endpoint
	opt    Options
	server Server
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
	s, err := newEndpoint(addr, opt.Home, opt.Names, opt.Log)
	if err != nil {
		return nil, err
	}
	s.guard.advice = "; or start the server with --name NAME"
	return &Pages{endpoint: s, opt: opt, server: server, feed: newFeed(server), jobs: jobList{ask: opt.Jobs}}, nil
}

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

// Serve answers requests until ctx is done.
func (p *Pages) Serve(ctx context.Context) error { return p.serve(ctx, p.handler(), p.feed.run) }

func (p *Pages) handler() http.Handler {
	mux := p.pages("index.html", newRegistry(all, p.report), func() string {
		if p.server.Status().Ready {
			return ""
		}
		return "draining"
	})
	p.dashboard(mux)
	return mux
}
