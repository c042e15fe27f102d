package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// serving is what a running server writes into its home folder for other commands on its host.
// Commands use it for suggestions only and do not trust it.
type serving struct {
	Address string   `json:"address"` // the address that the server listens on
	Shares  []string `json:"shares"`
	Rights  []string `json:"rights"`        // the rights on these shares
	Web     string   `json:"web,omitempty"` // the address of the dashboard; "" for none

	Clients []identity.Client `json:"clients,omitempty"` // those in the configuration that have rights there
}

const servingFile = "serving.json"

// write writes the file into a home folder. Without the file, invite needs more flags.
func (s *serving) write(home string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, servingFile), append(text, '\n'), 0o600)
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

// readServing returns nil if no server has written the file, or if the one that has was killed.
func readServing(home string) (*serving, error) {
	text, err := os.ReadFile(filepath.Join(home, servingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := new(serving)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil && !s.runs() {
		return nil, nil
	}
	return s, err
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
	now, err := readServing(home)
	switch {
	case err != nil:
		return "", err
	case now == nil:
		return "", exit.Usage("start it with --web; or run this as the account of the server, with its FXFER_HOME",
			"no server runs with FXFER_HOME=%s", home)
	case now.Web == "":
		return "", exit.Usage("start it with --web", "the server that runs has no dashboard")
	}
	return now.Web, nil
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
server. A client never gets more than the rights of the share itself.`,
		Example: `  fxfer invite --share backup --rights wo --expires 24h`,
		Args:    option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			now, err := readServing(store.Dir())
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
			tellInvite(c.ErrOrStderr(), u.String(), time.Now().Add(expires), example)
			fmt.Fprintln(c.OutOrStdout(), u.String())
			return nil
		},
	}
	g.add(c.Flags(), " (default all)")
	option.Add(c.Flags(), &expires, "expires", "time", "10m", "how long the URL is valid, such as 24h or 7d", parseExpiry)
	option.Add(c.Flags(), &host, "name", "host", "", "the name of this machine in that URL", parseName)
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

// tellInvite explains how to use an invitation.
func tellInvite(to io.Writer, url string, until time.Time, rights fxfer.Rights) {
	when := until.Format("15:04")
	if time.Until(until) > 12*time.Hour {
		when = until.Format("2006-01-02 15:04")
	}
	fmt.Fprintf(to, "fxfer: this URL admits one user account on one machine, once, until %s; as that user:\n", when)
	fmt.Fprintf(to, "fxfer:   %s\n", exampleOf(url, rights))
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
		tellInvite(said.talk, url, time.Now().Add(identity.InviteTTL), f.opt.Shares[0].Rights)
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
