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
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// serving is what a running server tells commands on its host. Nothing in it is trusted further than a guess.
type serving struct {
	Address string   `json:"address"` // that it listens on
	Shares  []string `json:"shares"`
	Rights  []string `json:"rights"` // of these
}

const servingFile = "serving.json"

// write leaves it in a home folder. Without it, invite asks for more.
func (s *serving) write(home string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, servingFile), append(text, '\n'), 0o600)
}

// readServing returns nil if no server has left any.
func readServing(home string) (*serving, error) {
	text, err := os.ReadFile(filepath.Join(home, servingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := new(serving)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	return s, err
}

// NewInvite returns the command that makes an invitation.
func NewInvite() *cobra.Command {
	var g grantFlags
	var host string
	expires := identity.InviteTTL
	port := 0
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print a URL that admits one machine to a running server",
		Long: `Invite prints a URL that admits one machine, once, to the server on this host
that has the same FXFER_HOME. The server need not run yet. Without --share, the
URL is for all shares of the running server, with at most the rights of each
share.`,
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
			example := g.rights
			if u.Share = g.shares[0]; u.Share == identity.AllShares {
				u.Share, example = "", identity.List
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

// longestInvite bounds how long a secret lies about.
const longestInvite = 30 * 24 * time.Hour

func parseExpiry(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time such as 30m, 24h or 7d", s)
	case d <= 0 || d > longestInvite:
		return 0, fmt.Errorf("%q is not more than nothing and at most 30d", s)
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

// urlOf is that of the server, without a share.
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

// tellInvite says what is to be done with an invitation.
func tellInvite(to io.Writer, url string, until time.Time, rights fxfer.Rights) {
	when := until.Format("15:04")
	if time.Until(until) > 12*time.Hour {
		when = until.Format("2006-01-02 15:04")
	}
	fmt.Fprintf(to, "fxfer: this URL admits one machine, once, until %s; on that machine:\n", when)
	fmt.Fprintf(to, "fxfer:   %s\n", exampleOf(url, rights))
}

// invite prints an invitation's URL, and what the other machine is to do with it.
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

// tcpAddr reads an address that a server listens on; what is no such is every one, on the port that is the default.
func tcpAddr(s string) *net.TCPAddr {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return net.TCPAddrFromAddrPort(a)
	}
	return &net.TCPAddr{Port: identity.DefaultPort}
}

// exampleOf is a command for a URL on whose share there are rights.
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

// reachableHost guesses how other machines call the one that listens on addr: by the address listened on, or the one this machine
// sends from, or its name.
func reachableHost(addr net.Addr) string {
	if at, ok := addr.(interface{ AddrPort() netip.AddrPort }); ok {
		if ip := at.AddrPort().Addr().Unmap(); ip.IsValid() && !ip.IsUnspecified() {
			return ip.String()
		}
	}
	// Connecting a UDP socket only looks the route up. The addresses are for documentation (RFC 5737, RFC 3849).
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
