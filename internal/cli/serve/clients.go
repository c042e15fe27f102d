package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// NewClients returns the commands that list, admit and revoke clients.
func NewClients() *cobra.Command {
	c := &cobra.Command{
		Use:   "clients",
		Short: "List, admit and revoke clients of a server on this host",
		Long: `Clients lists and changes authorized_clients in FXFER_HOME. A server with the
same FXFER_HOME applies changes at once. Clients can also be in the server's
configuration; a revocation counts for these, too.

Users of a door, such as SFTP, are clients with names instead of keys: password
and ssh-key say how they log in, and their rights are those of user:NAME.`,
		Example: `  fxfer clients ls
  fxfer clients add ed25519:KEY --share backup --rights wo --comment nas
  fxfer clients revoke nas`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newClientsListCommand(), newClientsAddCommand(), newClientsPasswordCommand(), newClientsKeyCommand(), newClientsRevokeCommand())
	return c
}

// openStore opens the keys and lists of this host.
func openStore() (*identity.Store, error) {
	home, err := identity.Home()
	var store *identity.Store
	if err == nil {
		store, err = identity.OpenStore(home)
	}
	if err != nil {
		return nil, &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	return store, nil
}

// allClients returns the clients in authorized_clients, and those in the configurations of the running
// servers, except the revoked. An error may be that of single lines.
func allClients(store *identity.Store) (list, configured []identity.Client, err error) {
	list, err = store.Clients()
	all, _ := readServing(store.Dir()) // without it, there are fewer
	now := together(all)
	if now == nil {
		return list, nil, err
	}
	for _, c := range now.Clients {
		if !slices.ContainsFunc(list, func(x identity.Client) bool { return x.ID == c.ID && x.Revoked }) {
			configured = append(configured, c)
		}
	}
	return list, configured, err
}

type jsonClient struct {
	Type    string            `json:"type"`
	Key     string            `json:"key"`
	Rights  map[string]string `json:"rights"`
	Revoked bool              `json:"revoked"`
	Comment string            `json:"comment,omitempty"`
	InFile  bool              `json:"configuration,omitempty"` // of the server, not authorized_clients
}

func newClientsListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List clients",
		Long: `Ls lists the clients in authorized_clients: key, rights by share, and the comment.
While the server runs, it also lists those in its configuration, with their names.`,
		Example: `  fxfer clients ls`,
		Args:    option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			list, configured, err := allClients(store)
			var bad *identity.LineError
			if err != nil && !errors.As(err, &bad) {
				return err
			}
			out := c.OutOrStdout()
			t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for i, x := range append(slices.Clip(configured), list...) {
				inFile := i < len(configured)
				if asJSON {
					line := jsonClient{"client", string(x.ID), map[string]string{}, x.Revoked, x.Comment, inFile}
					for share, rights := range x.Grants {
						line.Rights[share] = rights.String()
					}
					term.JSON(out, line)
					continue
				}
				rights := x.Grants.String()
				if x.Revoked {
					rights = "revoked"
				}
				comment := term.OneLine(x.Comment)
				if inFile {
					comment += " (in the configuration)"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", x.ID, rights, comment)
			}
			_ = t.Flush()
			if len(list)+len(configured) == 0 && bad == nil && !asJSON {
				fmt.Fprintln(c.ErrOrStderr(), "fxfer: no clients yet; those in the configuration are listed while the server runs")
			}
			if bad != nil {
				return bad
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	return c
}

// grantFlags describe what a client is granted.
type grantFlags struct {
	shares  []string
	rights  fxfer.Rights
	comment string
}

func (g *grantFlags) add(flags *pflag.FlagSet, shares string) {
	g.rights = identity.Read | identity.Write
	flags.StringArrayVar(&g.shares, "share", nil, "`NAME` of a share, \"*\" for each; repeatable"+shares)
	option.Add(flags, &g.rights, "rights", "rights", "rw", identity.RightsSyntax(), identity.ParseRights)
	flags.StringVar(&g.comment, "comment", "", "`text` that describes the client")
}

func (g *grantFlags) grants() (identity.Grants, error) {
	grants := identity.Grants{}
	for _, s := range g.shares {
		if s != identity.AllShares {
			if err := identity.CheckShare(s); err != nil {
				return nil, exit.Usage("", "--share: %w", err)
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
		Short: "Admit a client, or change its rights",
		Long: `Add admits the client with this key. "fxfer key" prints the key on the client.
If the client is admitted already, add sets its rights on the shares named, and
its comment. Its rights on other shares stay. Add takes a revocation back. It
prints what the client may do now.`,
		Example: `  fxfer clients add ed25519:KEY --share backup --rights wo --comment nas`,
		Args:    option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := identity.ParsePrincipal(args[0])
			if err != nil {
				return exit.Usage("`fxfer key` prints it on that machine", "%w", err)
			}
			if len(g.shares) == 0 {
				return exit.Usage("for example: --share backup, or --share \"*\"", "no share is named")
			}
			store, err := openStore()
			if err != nil {
				return err
			}
			said, err := g.admit(store, id)
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), said)
			}
			return err
		},
	}
	g.add(c.Flags(), "")
	return c
}

// admit gives a client what the flags say, and returns a sentence about that.
func (g *grantFlags) admit(store *identity.Store, id identity.Principal) (said string, err error) {
	all, err := readServing(store.Dir())
	if err != nil {
		return "", err
	}
	now := together(all)
	if err := g.checkShares(now); err != nil {
		return "", err
	}
	grants, err := g.grants()
	if err != nil {
		return "", err
	}
	old, known, _ := store.Client(id) // a line with a fault, if any, stays as it is
	if err := store.Admit(id, grants, g.comment); err != nil {
		return "", err
	}
	c, _, _ := store.Client(id)
	said = fmt.Sprintf("admitted %s: %s", id, c.Grants)
	switch {
	case known && old.Revoked:
		said = fmt.Sprintf("admitted %s: %s; it was revoked", id, c.Grants.Merge(now.granted(id)))
	case known && old.Grants.String() != c.Grants.String():
		said = fmt.Sprintf("changed %s: %s; it was %s", id, c.Grants, old.Grants)
	case known && old.Comment == c.Comment:
		said = fmt.Sprintf("nothing to change: %s has %s", id, c.Grants)
	case known:
		said = fmt.Sprintf("changed %s: its comment is %q", id, term.OneLine(c.Comment))
	}
	return said, nil
}

// maxPasswordFile bounds what is read of a password or a public key, bytes.
const maxPasswordFile = 64 << 10

func newClientsPasswordCommand() *cobra.Command {
	var g grantFlags
	c := &cobra.Command{
		Use:   "password NAME",
		Short: "Give a user of a door a password",
		Long: `Password sets the password with which the user NAME logs in at a door, such as
SFTP. It asks for the password twice; if standard input is not a terminal, its
first line is the password. Only a hash of it is kept, in door_users.

With --share, the user also gets rights, as by "fxfer clients add user:NAME".
A user without rights can't log in.`,
		Example: `  fxfer clients password scanner --share scans --rights wo`,
		Args:    option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.enrol(c, args[0], func(store *identity.Store) (string, error) {
				password, err := readPassword(c)
				if err != nil {
					return "", err
				}
				if err := store.SetPassword(args[0], password); err != nil {
					return "", exit.Usage("", "%w", err)
				}
				return "set the password of user:" + args[0], nil
			})
		},
	}
	g.add(c.Flags(), "")
	return c
}

func newClientsKeyCommand() *cobra.Command {
	var g grantFlags
	c := &cobra.Command{
		Use:   "ssh-key NAME FILE",
		Short: "Let a user of a door log in with a key of ssh",
		Long: `Ssh-key lets the user NAME log in with the private half of the public key in
FILE, such as ~/.ssh/id_ed25519.pub; "-" is standard input. A user may have
several keys. They are in door_users, where you can also remove them.

With --share, the user also gets rights, as by "fxfer clients add user:NAME".
A user without rights can't log in.`,
		Example: `  fxfer clients ssh-key anna id_ed25519.pub --share docs`,
		Args:    option.Exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			return g.enrol(c, args[0], func(store *identity.Store) (string, error) {
				text, err := readSmall(c.InOrStdin(), args[1])
				if err != nil {
					return "", exit.Usage("", "read the public key: %w", err)
				}
				if err := store.AddKey(args[0], text); err != nil {
					return "", exit.Usage("ssh-keygen writes it to a file that ends in .pub", "%w", err)
				}
				return "added a key of user:" + args[0], nil
			})
		},
	}
	g.add(c.Flags(), "")
	return c
}

// enrol calls change, which returns a sentence, and gives the user of a door what the flags say.
func (g *grantFlags) enrol(c *cobra.Command, name string, change func(*identity.Store) (string, error)) error {
	id, err := identity.ParseUser(name)
	if err != nil {
		return exit.Usage("", "%w", err)
	}
	if len(g.shares) == 0 && (c.Flags().Changed("rights") || c.Flags().Changed("comment")) {
		return exit.Usage("for example: --share scans", "no share is named")
	}
	store, err := openStore()
	if err != nil {
		return err
	}
	said, err := change(store)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.OutOrStdout(), said)
	if len(g.shares) == 0 {
		list, configured, err := allClients(store)
		if !slices.ContainsFunc(append(list, configured...), func(x identity.Client) bool { return x.ID == id && !x.Revoked }) {
			fmt.Fprintf(c.ErrOrStderr(), "fxfer: this user has no rights yet: fxfer clients add %s --share NAME\n", id)
		}
		return err
	}
	if said, err = g.admit(store, id); err == nil {
		fmt.Fprintln(c.OutOrStdout(), said)
	}
	return err
}

// readPassword asks for a new password, or reads it from standard input.
func readPassword(c *cobra.Command) (string, error) {
	in := c.InOrStdin()
	if password, asked, err := term.NewPassword(in, c.ErrOrStderr()); asked || err != nil {
		return password, err
	}
	text, err := readSmall(in, "-")
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// readSmall reads a small file; "-" is in.
func readSmall(in io.Reader, name string) (string, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPasswordFile+1))
	if err == nil && len(text) > maxPasswordFile {
		err = fmt.Errorf("%s has more than %d KiB", name, maxPasswordFile>>10)
	}
	return string(text), err
}

func newClientsRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke all rights of a client, and end its sessions",
		Long: `Revoke takes all rights from a client, also those in the server's configuration,
and ends its running sessions. KEY is the client's key, the beginning of the
key, or its comment if no other client has the same. "fxfer clients add" takes a
revocation back.`,
		Example: `  fxfer clients revoke nas`,
		Args:    option.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			list, configured, err := allClients(store)
			if bad := (*identity.LineError)(nil); err != nil && !errors.As(err, &bad) {
				return err
			}
			id, err := whichClient(append(list, configured...), args[0])
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

// leastKey is the number of characters after a key's prefix that are enough to name the key.
const leastKey = 6

// whichClient finds a client by its key, the beginning of its key, the name in its certificate, or
// its comment.
func whichClient(list []identity.Client, text string) (identity.Principal, error) {
	if id, err := identity.ParsePrincipal(text); err == nil {
		return id, nil
	}
	var found []identity.Principal
	bare := strings.TrimSuffix(identity.Pin(text).Bare(), "…")
	for _, c := range list {
		if text != "" && c.Comment == text || len(bare) >= leastKey && !c.ID.IsName() && strings.HasPrefix(identity.Pin(c.ID).Bare(), bare) {
			if slices.Contains(found, c.ID) {
				continue
			}
			found = append(found, c.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		if n := len(bare); identity.Pin(text).Bare() != text && n < leastKey {
			return "", exit.Usage("`fxfer clients ls` lists the keys", "%q is too short: give at least %d characters of the key", text, leastKey)
		}
		return "", exit.Usage("`fxfer clients ls` lists them; one that is only in the server's configuration is named by its whole key",
			"no client has the key or the comment %q", text)
	}
	return "", exit.Usage("give the whole key", "%d clients fit %q", len(found), text)
}

// cutRights cuts the rights from the end of NAME:rights or NAME=rights, as "fxfer serve --share" and lists of
// clients have them.
func cutRights(s string) (name, rights string, ok bool) {
	i := strings.LastIndexAny(s, ":=")
	if i <= 0 {
		return "", "", false
	}
	_, err := identity.ParseRights(s[i+1:])
	return s[:i], s[i+1:], err == nil
}

// checkShares returns the shares of the server if none are named. Otherwise it rejects names of
// shares that the server does not have, and names with rights at the end if no server runs.
func (g *grantFlags) checkShares(now *serving) error {
	if len(g.shares) == 0 {
		if now == nil || len(now.Shares) == 0 {
			return exit.Usage("name a share: fxfer invite --share NAME; or run this as the account of the server", "no server runs with this FXFER_HOME: there are no shares to invite to")
		}
		g.shares = now.Shares
		return nil
	}
	for _, s := range g.shares {
		if now == nil || !slices.Contains(now.Shares, s) {
			if name, rights, ok := cutRights(s); ok {
				return exit.Usage("rights are a flag of their own: --share "+term.Name(name)+" --rights "+rights, "%q is not the name of a share", s)
			}
		}
		if now != nil && s != identity.AllShares && !slices.Contains(now.Shares, s) {
			return exit.Usage("it has "+strings.Join(now.Shares, ", ")+"; start it with a new share first", "the server has no share %q", s)
		}
	}
	return nil
}
