package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newClientsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "clients",
		Short: "Say which clients a server of this host admits",
		Long: `Clients shows and changes authorized_clients in FXFER_HOME: a server that runs with
the same one heeds it at once. Clients can also be in the server's configuration;
what revoke says counts there, too.`,
		Example: `  fxfer clients ls
  fxfer clients add ed25519:KEY --share backup --rights wo --comment nas
  fxfer clients revoke nas`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newClientsListCommand(), newClientsAddCommand(), newClientsRevokeCommand())
	return c
}

// openStore opens this host's keys and lists.
func openStore() (*identity.Store, error) {
	home, err := identity.Home()
	if err != nil {
		return nil, err
	}
	return identity.OpenStore(home)
}

type jsonClient struct {
	Type    string            `json:"type"`
	Key     string            `json:"key"`
	Rights  map[string]string `json:"rights"`
	Revoked bool              `json:"revoked"`
	Comment string            `json:"comment,omitempty"`
}

func newClientsListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List clients",
		Long:    "Ls lists the clients in authorized_clients: key, rights by share, and the comment.",
		Example: `  fxfer clients ls`,
		Args:    exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			list, err := store.Clients()
			var bad *identity.LineError
			if err != nil && !errors.As(err, &bad) {
				return err
			}
			out := c.OutOrStdout()
			t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, x := range list {
				if asJSON {
					line := jsonClient{"client", string(x.ID), map[string]string{}, x.Revoked, x.Comment}
					for share, rights := range x.Grants {
						line.Rights[share] = rights.String()
					}
					printJSON(out, line)
					continue
				}
				rights := x.Grants.String()
				if x.Revoked {
					rights = "revoked"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", x.ID, rights, oneLine(x.Comment))
			}
			_ = t.Flush()
			if bad != nil {
				return bad
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

// grantFlags say what a client may do.
type grantFlags struct {
	shares  []string
	rights  fxfer.Rights
	comment string
}

func (g *grantFlags) add(flags *pflag.FlagSet, shares string) {
	g.rights = identity.Read | identity.Write
	flags.StringArrayVar(&g.shares, "share", nil, "`NAME` of a share, \"*\" for each; repeatable"+shares)
	addParsed(flags, &g.rights, "rights", "rights", "rw", "rw, ro, wo, or names with + between them, as list+write", identity.ParseRights)
	flags.StringVar(&g.comment, "comment", "", "`text` for people")
}

func (g *grantFlags) grants() (identity.Grants, error) {
	grants := identity.Grants{}
	for _, s := range g.shares {
		if s != identity.AllShares {
			if err := identity.CheckShare(s); err != nil {
				return nil, usageError("", "--share: %w", err)
			}
		}
		grants[s] = g.rights
	}
	return grants, nil
}

func newClientsAddCommand() *cobra.Command {
	var g grantFlags
	c := &cobra.Command{
		Use:   "add KEY",
		Short: "Admit a client, or give it more rights",
		Long: `Add admits the client with this key, as "fxfer key" prints it there, or gives it
further rights. It takes a revocation back.`,
		Example: `  fxfer clients add ed25519:KEY --share backup --rights wo --comment nas`,
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := identity.ParsePrincipal(args[0])
			if err != nil {
				return usageError("`fxfer key` prints it on that machine", "%w", err)
			}
			if len(g.shares) == 0 {
				return usageError("for example: --share backup, or --share \"*\"", "no share is named")
			}
			grants, err := g.grants()
			if err != nil {
				return err
			}
			store, err := openStore()
			if err == nil {
				err = store.AddAuthorized(id, grants, g.comment)
			}
			return err
		},
	}
	g.add(c.Flags(), "")
	return c
}

func newClientsRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke KEY",
		Short: "Take all rights from a client, and end its sessions",
		Long: `Revoke takes all rights from a client for good, also those in the server's
configuration, and ends its running sessions. KEY is its key, the beginning of that,
or the comment that it has alone. "fxfer clients add" takes it back.`,
		Example: `  fxfer clients revoke nas`,
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			list, err := store.Clients()
			if bad := (*identity.LineError)(nil); err != nil && !errors.As(err, &bad) {
				return err
			}
			id, err := whichClient(list, args[0])
			if err == nil {
				err = store.Revoke(id)
			}
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "revoked %s\n", id)
			}
			return err
		},
	}
}

// leastKey is how many characters of a key, behind its prefix, are enough to mean it.
const leastKey = 6

// whichClient finds a client by its key, the beginning of that, its certificate's name, or its comment.
func whichClient(list []identity.Client, text string) (identity.Principal, error) {
	if id, err := identity.ParsePrincipal(text); err == nil {
		return id, nil
	}
	var found []identity.Principal
	bare := strings.TrimSuffix(identity.Pin(text).Bare(), "…")
	for _, c := range list {
		if text != "" && c.Comment == text || len(bare) >= leastKey && !c.ID.IsName() && strings.HasPrefix(identity.Pin(c.ID).Bare(), bare) {
			found = append(found, c.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", usageError("`fxfer clients ls` lists them; one that is only in the server's configuration is named by its whole key",
			"no client has the key or the comment %q", text)
	}
	return "", usageError("give the whole key", "%d clients fit %q", len(found), text)
}

func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "key",
		Short:   "Print the key of this host",
		Long:    `Key prints the public key by which others know this host: "fxfer clients add" takes it.`,
		Example: `  fxfer key`,
		Args:    exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			pin, err := pinOf(store)
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), pin)
			}
			return err
		},
	}
}

func pinOf(store *identity.Store) (identity.Pin, error) {
	key, err := store.Key()
	if err != nil {
		return "", err
	}
	return identity.PinOfPrivate(key), nil
}

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

func newInviteCommand() *cobra.Command {
	var g grantFlags
	var host string
	expires := identity.InviteTTL
	port := 0
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print a URL that admits one machine to a running server",
		Long: `Invite prints a URL that admits one machine, once, to the server that runs on this
host with the same FXFER_HOME, or will. Without --share it is for all shares that
run, with at most the rights that these have.`,
		Example: `  fxfer invite --share backup --rights wo --expires 24h`,
		Args:    exactly(0),
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
	addParsed(c.Flags(), &expires, "expires", "time", "10m", "how long it is good, as 24h or 7d", parseExpiry)
	addParsed(c.Flags(), &host, "name", "host", "", "this host, as the other machine sees it", parseName)
	addParsed(c.Flags(), &port, "port", "n", "the server's", "that the other machine connects to", parsePort)
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
	n, err := parseCount(s)
	if err != nil || n > 65535 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", s)
	}
	return n, nil
}

// checkShares takes the shares of the server where none is named, and refuses those that it does not have.
func (g *grantFlags) checkShares(now *serving) error {
	if len(g.shares) == 0 {
		if now == nil || len(now.Shares) == 0 {
			return usageError("name one: --share NAME", "no server runs with this FXFER_HOME: there are no shares to invite to")
		}
		g.shares = now.Shares
		return nil
	}
	for _, s := range g.shares {
		if now != nil && s != identity.AllShares && !slices.Contains(now.Shares, s) {
			return usageError("it has "+strings.Join(now.Shares, ", "), "the server has no share %q", s)
		}
	}
	return nil
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
