package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/fleet"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// external holds the flags for NATS servers of one's own.
type external struct{ nats fleet.NATS }

func (x *external) add(c *cobra.Command) {
	flags := c.Flags()
	option.AddList(flags, &x.nats.URLs, "nats", "URL", "nats:// or tls:// URL of a NATS server of your own; repeatable", parseNATS)
	option.Add(flags, &x.nats.Credentials, "nats-credentials", "file", "", "NATS: a .creds file, or the seed of an NKey", option.ParseReadable)
	option.Add(flags, &x.nats.CA, "nats-ca", "file", "", "NATS: trust the certificates in this PEM file", option.ParseReadable)
	option.Add(flags, &x.nats.Cert, "nats-cert", "file", "", "NATS: show this certificate, PEM", option.ParseReadable)
	option.Add(flags, &x.nats.Key, "nats-key", "file", "", "NATS: its key, PEM", option.ParseReadable)
}

func parseNATS(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", err
	case u.Scheme != "nats" && u.Scheme != "tls", u.Host == "", u.Path != "" || u.RawQuery != "":
		return "", fmt.Errorf("%q is not like tls://host:4222", s)
	case u.User != nil:
		return "", fmt.Errorf("the URL has secrets, which other users of this host can see: use --nats-credentials")
	}
	return s, nil
}

// queue returns the queue, or nil without --nats. Flags of a controller's own queue, which the command
// may have as well, are errors beside --nats.
func (x *external) queue(c *cobra.Command, other ...string) (*fleet.NATS, error) {
	const advice = "see `fxfer fleet start --help`"
	if len(x.nats.URLs) == 0 {
		for _, name := range []string{"nats-credentials", "nats-ca", "nats-cert", "nats-key"} {
			if c.Flags().Changed(name) {
				return nil, exit.Usage(advice, "--%s needs --nats", name)
			}
		}
		return nil, nil
	}
	for _, name := range other {
		if c.Flags().Changed(name) {
			return nil, exit.Usage(advice, "--%s is for a queue in the controller, and --nats for one of your own", name)
		}
	}
	if (x.nats.Cert == "") != (x.nats.Key == "") {
		return nil, exit.Usage(advice, "--nats-cert and --nats-key need each other")
	}
	return &x.nats, nil
}

// member holds the flags by which members find their queue.
type member struct {
	controller, credentials string
	external                external
}

func (m *member) add(c *cobra.Command) {
	m.controller = "localhost:" + defaultPort
	option.Add(c.Flags(), &m.controller, "controller", "address", m.controller, "host, or host:port, of the controller", parseController)
	option.Add(c.Flags(), &m.credentials, "credentials", "file", "", "credentials; without it fleet/credentials.json in FXFER_HOME", option.ParseFile)
	m.external.add(c)
	c.Flags().SortFlags = false
	option.AddSettings(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) }
}

func parseController(s string) (string, error) {
	if !strings.Contains(s, ":") {
		s += ":" + defaultPort
	}
	if _, err := parseAddress(s); err != nil {
		return "", fmt.Errorf("%q is not like head or head:%s", s, defaultPort)
	}
	return s, nil
}

func (m *member) queue(c *cobra.Command) (fleet.Queue, error) {
	nats, err := m.external.queue(c, "controller", "credentials")
	if nats != nil || err != nil {
		return nats, err
	}
	file := m.credentials
	if file == "" {
		dir, err := folder()
		if err != nil {
			return nil, err
		}
		file = fleet.CredentialsFile(dir)
	}
	keys, err := fleet.LoadCredentials(file)
	if errors.Is(err, fs.ErrNotExist) && m.credentials == "" {
		err = &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("this host has no credentials of a fleet: there is no %s", file)}
		return nil, exit.WithHint(err, "copy the file from the host of `fxfer fleet start`, or name it with --credentials")
	}
	if err != nil {
		return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}, "copy the file from the controller, and name it with --credentials")
	}
	return &fleet.Controlled{Address: m.controller, Credentials: keys}, nil
}

// askFor is how long a question to the controller may take.
const askFor = 30 * time.Second

// ask calls do while it is connected to the queue. An error of do is one of the queue, unless it is
// of another kind.
func (m *member) ask(c *cobra.Command, do func(context.Context, *fleet.Member) error) error {
	ctx, cancel := context.WithTimeout(c.Context(), askFor)
	defer cancel()
	x, err := m.connect(ctx, c)
	if err != nil {
		return err
	}
	defer x.Close()
	if err = do(ctx, x); err != nil && fxfer.KindOf(err) == fxfer.KindOther {
		err = &fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}
	}
	return err
}

// connect connects to the queue for a short time.
func (m *member) connect(ctx context.Context, c *cobra.Command) (*fleet.Member, error) {
	queue, err := m.queue(c)
	if err != nil {
		return nil, err
	}
	x, err := fleet.Connect(ctx, queue)
	if err == nil {
		return x, nil
	}
	advice := ""
	if _, controlled := queue.(*fleet.Controlled); controlled && fleet.Away(err) {
		advice = "does `fxfer fleet start` run there, and on this port?"
	}
	return nil, exit.WithHint(&fxfer.Error{Kind: fxfer.KindUnreachable, Err: err}, advice)
}
