package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// serving is what a running server writes into its home folder for other commands on its host. Each
// server with this folder has a file of its own. Commands use it for suggestions only and do not
// trust it.
type serving struct {
	Address string   `json:"address"` // the address that the server listens on
	Shares  []string `json:"shares"`
	Rights  []string `json:"rights"`          // the rights on these shares
	Relay   bool     `json:"relay,omitempty"` // it is a relay; the shares are its targets
	Web     string   `json:"web,omitempty"`   // the address of the dashboard; "" for none

	Clients []identity.Client `json:"clients,omitempty"` // those in the configuration that have rights there
}

// file returns the name of the file in a home folder. A server that takes the place of one that was
// killed has the same.
func (s *serving) file(home string) string {
	return filepath.Join(home, "serving-"+url.QueryEscape(s.Address)+".json")
}

// write writes the file into a home folder. Without the file, invite needs more flags. A command that
// runs meanwhile sees the old file or the whole new one.
func (s *serving) write(home string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := s.file(home)
	fresh := name + ".new"
	if err = os.WriteFile(fresh, append(text, '\n'), 0o600); err == nil {
		err = os.Rename(fresh, name)
	}
	if err != nil {
		_ = os.Remove(fresh)
	}
	return err
}

// granted returns what the configuration gives a client. s may be nil.
func (s *serving) granted(id identity.Principal) identity.Grants {
	if s == nil {
		return nil
	}
	for _, c := range s.Clients {
		if c.ID == id {
			return c.Grants
		}
	}
	return nil
}

// readServing returns what the servers that run with a home folder have written. It leaves out those
// that were killed.
func readServing(home string) (all []*serving, err error) {
	names, err := filepath.Glob(filepath.Join(home, "serving*.json"))
	for _, name := range names {
		text, failed := os.ReadFile(name)
		if errors.Is(failed, fs.ErrNotExist) { // it has just ended
			continue
		}
		if failed != nil {
			return nil, failed
		}
		s := new(serving)
		if json.Unmarshal(text, s) == nil && s.runs() { // a disk that was full may have cut it off
			all = append(all, s)
		}
	}
	return all, err
}

// together returns what several servers have, nil for none. Its Address is that of no server.
func together(all []*serving) *serving {
	if len(all) == 0 {
		return nil
	}
	sum := new(serving)
	for _, s := range all {
		sum.Shares, sum.Rights = append(sum.Shares, s.Shares...), append(sum.Rights, s.Rights...)
		sum.Clients = append(sum.Clients, s.Clients...)
	}
	return sum
}

// serverFor returns the server that an invitation to shares is for, nil if none runs. Without shares,
// these are all of the server. The port, 0 for none, may be that of a router.
func serverFor(all []*serving, port int, shares []string) (*serving, error) {
	fits := keep(all, func(s *serving) bool { return tcpAddr(s.Address).Port == port })
	if len(fits) == 0 {
		fits = all
	}
	if len(fits) > 1 && len(shares) > 0 {
		fits = keep(fits, func(s *serving) bool {
			return !slices.ContainsFunc(shares, func(share string) bool { return share != identity.AllShares && !slices.Contains(s.Shares, share) })
		})
	}
	switch {
	case len(all) == 0:
		return nil, nil
	case len(fits) == 1:
		return fits[0], nil
	}
	return nil, exit.Usage("name the port of one of them, such as --port "+strconv.Itoa(tcpAddr(all[0].Address).Port),
		"%d servers run with this FXFER_HOME: on %s", len(all), strings.Join(addresses(all), " and "))
}

func keep(all []*serving, fits func(*serving) bool) []*serving {
	return slices.DeleteFunc(slices.Clone(all), func(s *serving) bool { return !fits(s) })
}

func addresses(all []*serving) (text []string) {
	for _, s := range all {
		text = append(text, s.Address)
	}
	return text
}

// runs reports whether a server may still run: its address does not refuse connections, or is taken
// for QUIC. A server that was killed could not remove the file.
func (s *serving) runs() bool {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return true
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	address := net.JoinHostPort(host, port)
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	udp, err := net.ListenPacket("udp", address)
	if err == nil {
		udp.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// allows returns which of these rights a share gives. s may be nil, and may not know the share.
func (s *serving) allows(share string, rights fxfer.Rights) fxfer.Rights {
	if s == nil {
		return rights
	}
	i := slices.Index(s.Shares, share)
	if i < 0 || i >= len(s.Rights) {
		return rights
	}
	has, err := identity.ParseRights(s.Rights[i])
	if err != nil {
		return rights
	}
	return has.And(rights)
}

// noteLess names the shares that give less than the rights in the flags.
func (g *grantFlags) noteLess(to io.Writer, now *serving) {
	for _, share := range g.shares {
		if gets := now.allows(share, g.rights); !gets.Has(g.rights) {
			fmt.Fprintf(to, "fxfer: note: of %s, share %s gives only %s\n", g.rights, share, gets)
		}
	}
}

// Dashboard returns the address of the dashboard of the server with a home folder.
func Dashboard(home string) (addr string, err error) {
	all, err := readServing(home)
	with := keep(all, func(s *serving) bool { return s.Web != "" })
	switch {
	case err != nil:
		return "", err
	case len(all) == 0:
		return "", exit.Usage("start it with --web; or run this as the account of the server, with its FXFER_HOME",
			"no server runs with FXFER_HOME=%s", home)
	case len(with) == 0:
		return "", exit.Usage("start it with --web", "the server that runs has no dashboard")
	case len(with) > 1:
		return "", exit.Usage("name the dashboard: --web "+with[0].Web, "%d servers with dashboards run with FXFER_HOME=%s: on %s",
			len(with), home, strings.Join(addresses(with), " and "))
	}
	return with[0].Web, nil
}

// NewInvite returns the command that creates an invitation.
func NewInvite() *cobra.Command {
	var g grantFlags
	var host string
	expires := identity.InviteTTL
	port := 0
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print a URL that admits one client to a running server",
		Long: `Invite prints a URL that admits one client, once, to the server on this host
that has the same FXFER_HOME. A client is one user account on one machine: use
the URL as the account that will run the transfers. With --share, the server
need not run yet. Without --share, the URL is for all shares of the running
server; if several run, --port names one. A client never gets more than the
rights of the share itself.

Rights are read, which includes list; write, which includes changes and deletion of
what is there; list, which shows names; and append, which only adds snapshots. rw is
read and write, ro is read, wo is write.`,
		Example: `  fxfer invite                                            all shares, for 10 minutes
  fxfer invite --share backup --rights append --comment laptop
  fxfer invite --share backup --rights ro --expires 24h --name nas.example.org`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			all, err := readServing(store.Dir())
			if err != nil {
				return err
			}
			now, err := serverFor(all, port, g.shares)
			if err != nil {
				return err
			}
			if err := g.checkShares(now); err != nil {
				return err
			}
			grants, err := g.grants()
			if err != nil {
				return err
			}
			u, err := urlOf(store, now, host, port)
			if err != nil {
				return err
			}
			if u.Token, err = store.Invite(grants, expires, g.comment); err != nil {
				return err
			}
			example := now.allows(g.shares[0], g.rights)
			if u.Share = g.shares[0]; u.Share == identity.AllShares {
				u.Share, example = "", identity.List
			}
			if c.Flags().Changed("share") {
				g.noteLess(c.ErrOrStderr(), now)
			}
			use := exampleOf(u.String(), example)
			if now != nil && now.Relay {
				u.Share = ""
				use = fmt.Sprintf("fxfer ls --via %s fxfer://%s", u, g.shares[0])
			}
			tellInvite(c.ErrOrStderr(), use, time.Now().Add(expires))
			if now == nil {
				fmt.Fprintf(c.ErrOrStderr(), "fxfer: no server runs with FXFER_HOME=%s: start it first\n", store.Dir())
			}
			fmt.Fprintln(c.OutOrStdout(), u.String())
			return nil
		},
	}
	g.add(c.Flags(), " (default all)")
	option.Add(c.Flags(), &expires, "expires", "time", "10m", "how long the URL is valid, such as 24h or 7d", parseExpiry)
	option.Add(c.Flags(), &host, "name", "host", "", "the name of this machine in that URL", nameParser("--port has that of the URL"))
	option.Add(c.Flags(), &port, "port", "n", "the server's", "port that the other machine connects to", parsePort)
	return c
}

// longestInvite limits how long an invitation, which is a secret, stays valid.
const longestInvite = 30 * 24 * time.Hour

func parseExpiry(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time such as 30m, 24h or 7d", s)
	case d <= 0 || d > longestInvite:
		return 0, fmt.Errorf("%q is out of range: expected more than 0 and at most 30d", s)
	}
	return d, nil
}

func parsePort(s string) (int, error) {
	n, err := option.ParseCount(s)
	if err != nil || n > 65535 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return n, nil
}

// urlOf returns the URL of the server without a share.
func urlOf(store *identity.Store, now *serving, host string, port int) (u fxfer.URL, err error) {
	if u.Pin, err = pinOf(store); err != nil {
		return u, err
	}
	address := tcpAddr("")
	if now != nil {
		address = tcpAddr(now.Address)
	}
	if u.Host, u.Port = host, port; u.Host == "" {
		u.Host = reachableHost(address)
	}
	if u.Port == 0 {
		u.Port = address.Port
	}
	return u, nil
}

// tellInvite explains how to use an invitation, by an example.
func tellInvite(to io.Writer, example string, until time.Time) {
	when := until.Format("15:04")
	if time.Until(until) > 12*time.Hour {
		when = until.Format("2006-01-02 15:04")
	}
	fmt.Fprintf(to, "fxfer: this URL admits one user account on one machine, once, until %s; as that user:\n", when)
	fmt.Fprintf(to, "fxfer:   %s\n", example)
}

// invite prints the URL of an invitation and the command to run on the other machine.
func invite(server *fxfer.Server, f *serveFlags, out io.Writer, said *serverLog) error {
	host := f.name
	if host == "" {
		host = reachableHost(server.Addr())
	}
	url, err := server.Invite(fxfer.InviteOptions{Host: host})
	if err != nil {
		return err
	}
	if said.talk != nil {
		tellInvite(said.talk, exampleOf(url, f.opt.Shares[0].Rights), time.Now().Add(identity.InviteTTL))
	}
	fmt.Fprintln(out, url)
	return nil
}

// tcpAddr parses the address that a server listens on. If that fails, it returns the wildcard
// address with the default port.
func tcpAddr(s string) *net.TCPAddr {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return net.TCPAddrFromAddrPort(a)
	}
	return &net.TCPAddr{Port: identity.DefaultPort}
}

// exampleOf returns an example of a command that these rights on the share allow.
func exampleOf(url string, rights fxfer.Rights) string {
	switch {
	case rights.Has(identity.Write):
		return "fxfer send FILE " + url
	case rights.Has(identity.Read):
		return "fxfer get " + url + " FOLDER"
	case rights.Has(identity.Append):
		return "fxfer send --snapshot FOLDER/ " + url + "/NAME"
	}
	return "fxfer ls " + url
}

// reachableHost guesses under which name or address other machines reach a listener: the address it
// listens on, else the address that this machine sends from, else the name of this machine.
func reachableHost(addr net.Addr) string {
	if at, ok := addr.(interface{ AddrPort() netip.AddrPort }); ok {
		if ip := at.AddrPort().Addr().Unmap(); ip.IsValid() && !ip.IsUnspecified() {
			return ip.String()
		}
	}
	// Connecting a UDP socket sends nothing and only looks up the route. The addresses are reserved
	// for documentation (RFC 5737, RFC 3849).
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", far)
		if err != nil {
			continue
		}
		from := conn.LocalAddr().(*net.UDPAddr).IP
		conn.Close()
		if from.IsGlobalUnicast() {
			return from.String()
		}
	}
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "localhost"
}
