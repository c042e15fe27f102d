package serve

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/webhook"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// notInServerConfig are the flags of serve that its configuration may not contain.
var notInServerConfig = append([]string{"share", "config", "check-config", "invite", "name", "once", "help"}, doorFlags...)

// doorFlags are the flags of serve that are keys of doors in the configuration.
var doorFlags = []string{"sftp", "ftp", "webdav"}

// load reads the configuration of a server: the flags of serve by name, shares and clients. Flags
// on the command line take precedence, then the environment.
func (f *serveFlags) load(flags *pflag.FlagSet, path string) error {
	return option.ConfigError(f.read(flags, path))
}

// read is load, but returns all faults of the file.
func (f *serveFlags) read(flags *pflag.FlagSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return exit.Usage("", "read the configuration: %w", err)
	}
	r := &serverReader{path: path, flags: flags, f: f}
	switch found, err := config.Parse(path, text, r.top); {
	case err != nil:
		return err
	case !found:
		return exit.Usage(leastServer, "%s is empty: a server needs at least one share", path)
	case len(f.opt.Shares) == 0:
		return exit.Usage(leastServer, "%s has no shares: a server needs at least one", path)
	}
	return nil
}

// faultsOf returns each fault of a configuration, or an error that is none.
func faultsOf(err error) (each []error) {
	var faults config.Faults
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &faults):
		return []error{err}
	}
	for _, fault := range faults {
		each = append(each, fault)
	}
	return each
}

// eachFault prints all faults of a configuration if there are several, one line each, and returns
// the error for the command line.
func eachFault(out io.Writer, err error) error {
	var faults config.Faults
	switch {
	case !errors.As(err, &faults):
		return err
	case len(faults) == 1:
		return exit.Usage(serverKeys, "%w", faults[0])
	}
	for _, fault := range faults {
		fmt.Fprintln(out, term.OneLine(fault.Error()))
	}
	return exit.Usage(serverKeys, "%s has %d faults", faults[0].Path, len(faults))
}

// leastServer is the hint against a configuration without shares.
const leastServer = "for example: shares: {backup: {dir: /srv/backup}}"

// serverKeys is the hint against faults in a configuration.
const serverKeys = "docs/server.md explains all keys"

// serverReader reads the configuration of a server into serveFlags.
type serverReader struct {
	path  string
	flags *pflag.FlagSet
	f     *serveFlags
	names []string // of all shares, faulty ones too
	// unsure is set if shares or CAs that clients rely on may be missing because of a fault.
	unsure bool
}

func (r *serverReader) top(n config.Node) {
	var fields []config.Field
	r.flags.VisitAll(func(x *pflag.Flag) {
		if !slices.Contains(notInServerConfig, x.Name) {
			fields = append(fields, config.Inner(x.Name, func(n config.Node) { setFlag(x, n) }))
		}
	})
	n.Object("the server", append(fields,
		config.Inner("doors", r.doors),
		config.Inner("tls", r.tls),
		config.Inner("shares", r.shares),
		config.Inner("clients", func(n config.Node) {
			r.unsure = n.Faults() > 0
			r.clients(n)
		}))...)
}

// doors reads the addresses at which clients of older protocols use the shares.
func (r *serverReader) doors(n config.Node) {
	more := map[string]func(config.Node){"ftp": r.ftp, "webdav": r.webdav}
	var fields []config.Field
	for _, name := range doorFlags {
		fields = append(fields, config.Inner(name, func(n config.Node) {
			if read := more[name]; read != nil && n.IsMapping() {
				read(n)
				return
			}
			setFlag(r.flags.Lookup(name), n)
		}))
	}
	n.Object("doors", fields...)
}

// ftp reads what the door for FTP has beside its address.
func (r *serverReader) ftp(n config.Node) {
	d := &r.f.opt.Doors.FTP
	before := n.Faults()
	n.Object("ftp",
		config.Scalar("active", &d.Active, strconv.ParseBool),
		config.Scalar("implicit-tls", &d.ImplicitTLS, parseDoor),
		config.Inner("listen", func(n config.Node) { setFlag(r.flags.Lookup("ftp"), n) }),
		config.Scalar("passive-ports", &d.Ports, parsePorts),
		config.Scalar("public-address", &d.Public, parseAddress),
		config.List("without-tls", &d.Clear, parsePrefix))
	if n.Faults() == before && d.Addr == "" && d.ImplicitTLS == "" {
		n.Fault("ftp has no address: expected at least {listen: \":2121\"}")
	}
}

// webdav reads what the door for WebDAV has beside its address.
func (r *serverReader) webdav(n config.Node) {
	d := &r.f.opt.Doors.WebDAV
	before := n.Faults()
	n.Object("webdav",
		config.Inner("listen", func(n config.Node) { setFlag(r.flags.Lookup("webdav"), n) }),
		config.List("without-tls", &d.Clear, parsePrefix))
	if n.Faults() == before && d.Addr == "" {
		n.Fault("webdav has no address: expected at least {listen: \":8443\"}")
	}
}

// parsePorts reads a range of ports.
func parsePorts(s string) (r fxfer.PortRange, err error) {
	first, last, found := strings.Cut(s, "-")
	a, errFirst := strconv.ParseUint(first, 10, 16)
	b, errLast := strconv.ParseUint(last, 10, 16)
	r = fxfer.PortRange{First: uint16(a), Last: uint16(b)}
	if !found || errFirst != nil || errLast != nil || a == 0 || r.Len() < 1 || r.Len() > fxfer.MaxPassivePorts {
		return fxfer.PortRange{}, fmt.Errorf("%q is not a range of 1 to %d ports, such as 50000-50099", s, fxfer.MaxPassivePorts)
	}
	return r, nil
}

// parseAddress reads an IPv4 address: clients know only such ones from an answer to PASV.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 address, such as 192.0.2.7", s)
	}
	return a, nil
}

// setFlag sets a flag to the value of its key, unless the command line or the environment sets it.
func setFlag(x *pflag.Flag, n config.Node) {
	inEnvironment := option.InEnvironment(x.Name)
	for _, value := range option.Values(x, n) {
		text, ok := value.Text()
		if !ok || x.Changed || inEnvironment {
			continue
		}
		if err := x.Value.Set(text); err != nil {
			value.Fault("%s: %w", x.Name, option.Problem(x, text, err))
		}
	}
}

// noDir is the fault of a share without a folder.
const noDir = "share %q has no folder: expected at least {dir: FOLDER}"

func (r *serverReader) shares(n config.Node) {
	values := map[string]config.Node{}
	for _, e := range n.Entries("shares by their names") {
		r.names = append(r.names, e.Name)
		s := fxfer.Share{Name: e.Name, Rights: identity.Read | identity.Write}
		before := n.Faults()
		if !e.Value.IsMapping() {
			e.Key.Fault(noDir, s.Name)
			continue
		}
		var forward *outbox.Forward
		e.Value.Object(fmt.Sprintf("share %q", s.Name),
			config.List("allow", &s.Allow, parsePrefix),
			config.Scalar("dir", &s.Dir, r.dir),
			config.Inner("forward", func(n config.Node) { forward = r.forward(s, n) }),
			config.Scalar("keep", &s.Keep, snapshot.ParseKeep),
			config.Scalar("privileged", &s.Privileged, strconv.ParseBool),
			config.Scalar("quota", &s.Quota, parseQuota),
			config.Scalar("quota-files", &s.QuotaFiles, parseFiles),
			config.Scalar("rate-limit", &s.RateLimit, option.ParseLimit),
			config.Scalar("rights", &s.Rights, identity.ParseRights))
		switch {
		case n.Faults() > before:
		case s.Dir == "":
			e.Key.Fault(noDir, s.Name)
		default:
			if err := r.f.addShare(s); err != nil {
				e.Key.Fault("%w", withoutHint(err))
				continue
			}
			if forward != nil {
				r.f.opt.Connect = true
				r.f.forwards = append(r.f.forwards, *forward)
				values[s.Name] = e.Value
			}
		}
	}
	for i, x := range r.f.forwards {
		for _, before := range r.f.forwards[:i] {
			if x.Excludes(before) {
				values[x.Share].Fault("forward: the share %q has the same folder, and only one of the two can be sent on like this", before.Share)
			}
		}
		for _, s := range r.f.opt.Shares {
			if to := x.Then.MoveTo; to != "" && outbox.IsInside(s.Dir, to) { // clients could make names there
				values[x.Share].Fault("then: %s is inside of the share %q", to, s.Name)
			}
		}
		if info, err := os.Stat(x.Then.MoveTo); x.Then.MoveTo != "" && (err != nil || !info.IsDir()) {
			values[x.Share].Fault("then: there is no folder %s", x.Then.MoveTo)
		}
	}
}

// forward reads where the files of a share go on to.
func (r *serverReader) forward(s fxfer.Share, n config.Node) *outbox.Forward {
	x := outbox.Forward{Share: s.Name, Dir: s.Dir, Settle: outbox.DefaultSettle}
	before, confirms, within := n.Faults(), false, defaultConfirm
	o := n.Object(fmt.Sprintf("forward of share %q", s.Name),
		config.Scalar("confirm", &confirms, parseConfirm),
		config.Scalar("confirm-within", &within, parseConfirmWithin),
		config.Scalar("pin", &x.Pin, option.ParsePin),
		config.Scalar("priority", &x.Priority, parseForwardPriority),
		config.Scalar("rate-limit", &x.RateLimit, option.ParseLimit),
		config.Scalar("settle", &x.Settle, option.ParseSettle),
		config.Scalar("then", &x.Then, func(s string) (outbox.Then, error) { return option.ParseThen(s, r.dir) }),
		config.Scalar("url", &x.URL, parseForwardURL),
		config.Scalar("webhook", &x.Webhook.URL, webhook.Parse),
		config.Scalar("webhook-secret", &x.Webhook.Secret, r.secret))
	if confirms {
		x.ConfirmWithin = within
	}
	switch {
	case n.Faults() > before:
	case o.Has("confirm-within") && !confirms:
		o["confirm-within"].Key.Fault("confirm-within has no effect without confirm: remote")
	case o.Has("webhook-secret") && x.Webhook.URL == "":
		o["webhook-secret"].Key.Fault("webhook-secret has no effect without webhook")
	case x.URL.Share == "":
		n.Fault("forward of share %q has no URL: expected at least {url: fxfer://HOST/SHARE}", s.Name)
	default:
		if err := option.CheckPin(x.Pin, x.URL); err != nil {
			n.Fault("%w", withoutHint(err))
		}
	}
	return &x
}

// secret returns the file of a webhook's secret, if it has one.
func (r *serverReader) secret(s string) (string, error) {
	file, err := r.dir(s)
	if err == nil {
		_, err = webhook.Bearer(file)
	}
	return file, err
}

// Bounds of confirm-within. Clients give up themselves, and doors have deadlines of their own.
const (
	defaultConfirm = 30 * time.Second
	minConfirm     = time.Second
	maxConfirm     = time.Minute
)

func parseConfirm(s string) (bool, error) {
	if s != "remote" {
		return false, fmt.Errorf("%q is not known: expected remote, or no such key", s)
	}
	return true, nil
}

func parseConfirmWithin(s string) (time.Duration, error) {
	d, err := units.ParseTime(s)
	if err == nil && (d < minConfirm || d > maxConfirm) {
		err = fmt.Errorf("%q is not between %gs and %gm", s, minConfirm.Seconds(), maxConfirm.Minutes())
	}
	return d, err
}

func parseForwardURL(s string) (fxfer.URL, error) {
	u, err := option.ParseURL(s, true)
	return u, withoutHint(err)
}

// parseForwardPriority reads the priority of what a server sends on: it is no more urgent than what
// people send.
func parseForwardPriority(s string) (fxfer.Priority, error) {
	if p := fxfer.Priority(s); p == fxfer.PriorityLow || p == fxfer.PriorityNormal {
		return p, nil
	}
	return "", fmt.Errorf("%q is neither low nor normal", s)
}

// withoutHint removes a hint that names flags, because a file uses keys.
func withoutHint(err error) error {
	var known *fxfer.Error
	if !errors.As(err, &known) {
		return err
	}
	return &fxfer.Error{Kind: known.Kind, Err: known.Err}
}

// tls reads the names of the certificate files and checks the files.
func (r *serverReader) tls(n config.Node) {
	t := &r.f.opt.TLS
	before := n.Faults()
	o := n.Object("tls",
		config.Scalar("cert", &t.Cert, r.dir),
		config.Scalar("client-ca", &t.ClientCA, func(s string) (string, error) {
			if s == fxfer.SystemCA {
				return s, nil
			}
			return r.dir(s)
		}),
		config.Scalar("client-crl", &t.ClientCRL, r.dir),
		config.Scalar("key", &t.Key, r.dir))
	if n.Faults() > before {
		return
	}
	file, err := t.Check()
	if err == nil {
		return
	}
	for name, value := range map[string]string{"cert": t.Cert, "key": t.Key, "client-ca": t.ClientCA, "client-crl": t.ClientCRL} {
		if e, ok := o[name]; ok && value == file {
			n = e.Key
		}
	}
	n.Fault("%w", withoutHint(err))
}

// dir makes a path absolute. Relative paths start at the folder of the configuration.
func (r *serverReader) dir(s string) (string, error) {
	if s == "" {
		return "", errors.New("expected a path")
	}
	if !filepath.IsAbs(s) {
		s = filepath.Join(filepath.Dir(r.path), s)
	}
	return filepath.Abs(s)
}

func (r *serverReader) clients(n config.Node) {
	byID := map[string]string{}
	for _, e := range n.Entries("clients by their names") {
		c := fxfer.Admission{Name: e.Name}
		before := n.Faults()
		e.Value.Object(fmt.Sprintf("client %q", c.Name),
			config.List("allow", &c.Allow, parsePrefix),
			config.Scalar("key", &c.Key, option.ParsePin),
			config.Scalar("max-sessions", &c.MaxSessions, option.ParseCount),
			config.Scalar("name", &c.Certificate, parseClientName),
			config.Scalar("priority", &c.Priority, parseMostPriority),
			config.Scalar("rate-limit", &c.RateLimit, option.ParseLimit),
			config.Inner("rights", func(n config.Node) { r.rights(&c, n) }),
			config.Scalar("user", &c.User, parseUser))
		id := c.Key + c.Certificate
		if c.User != "" {
			id += "user:" + c.User
		}
		switch {
		case n.Faults() > before:
		case id == "":
			e.Key.Fault("client %q has no key: expected key: ed25519:… as `fxfer key` prints it there, name: the name in its certificate, or user: the name of a user of a door", c.Name)
		case c.Key != "" && c.Certificate != "":
			e.Key.Fault("client %q has both a key and a name: expected one of them", c.Name)
		case c.User != "" && c.Key+c.Certificate != "":
			e.Key.Fault("client %q has a user and a key or name: expected one of them", c.Name)
		case c.Certificate != "" && r.f.opt.TLS.ClientCA == "" && !r.unsure:
			e.Key.Fault("client %q is known by the name in its certificate, but no CA is trusted to certify names: expected client-ca in tls", c.Name)
		case byID[id] != "":
			e.Key.Fault("client %q has the key or name of %q", c.Name, byID[id])
		default:
			byID[id] = c.Name
			r.f.opt.Clients = append(r.f.opt.Clients, c)
		}
	}
}

// parseClientName reads the name in a certificate. "*" stands for any name.
func parseClientName(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	id, err := identity.ParseName(s)
	return string(id), err
}

// parseUser reads the name of a user of a door.
func parseUser(s string) (string, error) {
	_, err := identity.ParseUser(s)
	return s, err
}

// parseMostPriority reads the bound of a client's priority. Without one, there is no key.
func parseMostPriority(s string) (fxfer.Priority, error) {
	p, err := option.ParsePriority(s)
	if err != nil || p == "" {
		return "", fmt.Errorf("%q is none of low, normal and high", s)
	}
	return p, nil
}

// rights reads rights. They are either for all shares, or a mapping by share.
func (r *serverReader) rights(c *fxfer.Admission, n config.Node) {
	c.Rights = map[string]fxfer.Rights{}
	read := func(key, share string, n config.Node) {
		if rights, ok := config.Value(n, key, identity.ParseRights); ok {
			c.Rights[share] = rights
		}
	}
	if !n.IsMapping() {
		read("rights", identity.AllShares, n)
		return
	}
	for _, e := range n.Entries("rights by share") {
		if e.Name != identity.AllShares && !r.mayShare(e.Name) {
			e.Key.Fault("there is no share %q: expected one of shares, or \"*\"", e.Name)
			continue
		}
		read(e.Name, e.Name, e.Value)
	}
}

// mayShare reports whether there is a share of this name, or may be one behind a fault.
func (r *serverReader) mayShare(name string) bool {
	return slices.Contains(r.names, name) || r.unsure && len(r.names) == 0 ||
		slices.ContainsFunc(r.f.opt.Shares, func(s fxfer.Share) bool { return s.Name == name })
}

// parsePrefix reads an address or a range of addresses.
func parsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p != p.Masked() {
			return p, fmt.Errorf("%q has bits behind the prefix: expected %s, or %s alone", s, p.Masked(), p.Addr())
		}
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a range such as 192.0.2.0/24 or 2001:db8::/32", s)
	}
	return a.Unmap().Prefix(a.Unmap().BitLen())
}

// parseQuota reads a size above 0, or "none".
func parseQuota(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := units.ParseSize(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or none", err)
	case n == 0:
		return 0, fmt.Errorf("%q leaves no space: expected more than 0, or none", s)
	}
	return n, nil
}

func parseFiles(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := option.ParseCount(s)
	if err != nil {
		return 0, fmt.Errorf("%w, nor none", err)
	}
	return int64(n), nil
}

// again returns new flags: those of the command line and the environment as they are, and those of
// the configuration as the file is now.
func (f *serveFlags) again(flags *pflag.FlagSet) (*serveFlags, error) {
	fresh := new(serveFlags)
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fresh.add(set)
	var err error
	flags.VisitAll(func(x *pflag.Flag) {
		if !x.Changed || set.Lookup(x.Name) == nil || err != nil {
			return
		}
		values := []string{x.Value.String()}
		if list, ok := x.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if err == nil {
				err = set.Set(x.Name, v) // Set also sets Changed
			}
		}
	})
	if err == nil {
		err = option.ApplyEnvironment(set)
	}
	if err == nil {
		err = fresh.read(set, f.config)
	}
	return fresh, err
}
