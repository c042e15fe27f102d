// Package serve contains the command that runs a server, and the commands that decide which clients
// it admits.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/hint"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/outbox"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	opt     fxfer.ServerOptions
	config  string // the server's configuration file, "" if there is none
	check   bool   // only check the configuration
	shares  []string
	invite  bool
	name    string
	log     logFlags
	quiet   bool
	copies  bool // make copies for clients
	keep    snapshot.Keep
	version string // version of this program, for the dashboard
	web     string // address of metrics and dashboard, "" for none
	webAt   string // where they listen
	once    bool   // serve whom ssh brings

	forwards []outbox.Forward // of shares in the configuration
}

// New returns the command that runs a server. The argument is the version of this program.
func New(version string) *cobra.Command {
	f := serveFlags{version: version}
	c := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Offer folders to other machines",
		Long: `Serve offers folders as shares. DIR becomes a share with the name of that folder.
A client is one user account on one machine. An invitation admits a new client;
the server remembers its key. "fxfer clients" lists, adds and revokes clients.

Clients may read and write a share (rw), only read it (ro) or only write it
(wo). With the right "append", a client can add snapshots ("fxfer send
--snapshot") and read its own, but cannot change or delete them. Only the server
deletes old snapshots, by --keep.

On SIGTERM or Ctrl-C, the server ends within 10 s. Running transfers keep what
has arrived, and the same commands resume them later.

With --call, the server calls a relay and keeps one connection to it, so that
clients reach it from there through NAT and firewalls: see "fxfer relay --help".

With --sftp, --ftp and --webdav, clients of these protocols use the shares with a
name and a password: see "fxfer clients password --help".

When the server is full, clients with --retry-for try again; others fail. The
defaults suit a machine with 1 GB of memory. Connections use at most half of the
limit on open files (ulimit -n).

With --config, a file lists shares, limits, quotas and clients. SIGHUP reads it
again. Most flags are also keys of that file; docs/server.md lists them.`,
		Example: `  fxfer serve --invite /srv/files
  fxfer serve --share backup=/srv/backup:append --keep daily=14,weekly=8
  fxfer serve --share backup=/srv/backup:wo --share pub=/srv/pub:ro
  fxfer serve --config /etc/fxfer/fxfer.yaml`,
		SuggestFor: []string{"server", "listen", "daemon"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usage("more folders: --share NAME=DIR", "%q is one folder too many", args[1])
			}
			return option.NoEmpty(args)
		},
		PreRunE: func(c *cobra.Command, args []string) error {
			switch {
			case f.once && c.Flags().NFlag() > 1:
				return exit.Usage("for example: fxfer send FILE host:folder", "--once stands alone: ssh starts it, and says what to serve")
			case f.once:
				return nil // no setting of this account matters
			case f.config != "" && (len(args) > 0 || c.Flags().Changed("share")):
				return exit.Usage("put it into that file, or leave --config out", "with --config all shares are in the file")
			case f.config != "":
				if err := option.ApplyEnvironment(c.Flags()); err != nil {
					return err
				}
				if f.check {
					return eachFault(c.OutOrStdout(), f.read(c.Flags(), f.config))
				}
				return f.load(c.Flags(), f.config)
			case f.check:
				return exit.Usage("for example: fxfer serve --check-config --config fxfer.yaml", "--check-config needs --config")
			case len(args) > 0:
				return option.ApplySettings(c, "share") // a DIR on the command line replaces the shares of the settings
			}
			return option.ApplySettings(c)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if f.once {
				return once(c.Context(), args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
			}
			if f.config == "" {
				if err := f.setShares(args); err != nil {
					return err
				}
			}
			if f.check {
				fmt.Fprintf(c.OutOrStdout(), "%s: all right: %s, %s\n", f.config, units.Count(int64(len(f.opt.Shares)), "share", "shares"),
					units.Count(int64(len(f.opt.Clients)), "client", "clients"))
				return nil
			}
			return serve(c.Context(), &f, c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().SortFlags = false
	f.add(c.Flags())
	c.Flags().StringVar(&f.config, "config", "", "read the server's configuration from this `file`")
	c.Flags().BoolVar(&f.check, "check-config", false, "only check that file")
	c.Flags().BoolVar(&f.once, "once", false, "serve one client for one use; \"fxfer send FILE host:folder\" starts this by ssh")
	c.Annotations = map[string]string{option.Settable: "true"}
	return c
}

// add adds the flags that can also be keys of the configuration.
func (f *serveFlags) add(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.opt.Listen, "listen", fmt.Sprintf(":%d", identity.DefaultPort), "`address` to listen on")
	flags.StringArrayVar(&f.shares, "share", nil, "offer a folder: `NAME=DIR[:right]`; right (default rw) is "+identity.RightsSyntax())
	flags.BoolVar(&f.invite, "invite", false, "print a URL that admits one client")
	option.Add(flags, &f.name, "name", "host", "", "the name of this machine in the URL of --invite", nameParser("the URL gets that of --listen"))
	option.AddList(flags, &f.opt.Allow, "allow", "range", "admit only these addresses, such as 192.0.2.0/24; repeatable", parsePrefix)
	option.Add(flags, &f.opt.RateLimit, "rate-limit", "rate", "none", "limit all sessions together, per direction, such as 1gbit", option.ParseLimit)
	option.Add(flags, &f.opt.ClientRateLimit, "client-rate-limit", "rate", "none", "limit each client", option.ParseLimit)
	option.Add(flags, &f.opt.MaxSessions, "max-sessions", "n", strconv.Itoa(fxfer.DefaultMaxSessions), "most sessions at a time", option.ParseCount)
	option.Add(flags, &f.opt.MaxSessionsPerClient, "max-sessions-per-client", "n", strconv.Itoa(fxfer.DefaultMaxSessionsPerClient),
		"most sessions of one client", option.ParseCount)
	option.Add(flags, &f.opt.Transport, "transport", "how", option.Auto, "tcp, quic, or auto for both on one port", option.ParseTransport)
	option.AddCrypto(flags, &f.opt.StandardCrypto)
	addBounds(flags, &f.opt)
	option.AddTuning(flags, &f.opt.SockBuf, &f.opt.Congestion)
	option.Add(flags, &f.opt.PartialAge, "partial-age", "age", showDays(fxfer.DefaultPartialAge), "remove partial files not written for this long; or none", parsePartialAge)
	f.log.add(flags)
	f.log.addAudit(flags)
	option.Add(flags, &f.web, "web", "port", "", "metrics, health and dashboard on localhost, or ADDRESS:PORT", web.ParseAddr)
	option.Add(flags, &f.opt.Doors.SFTP, "sftp", "address", "none", "serve SFTP at this address, such as :2022", parseDoor)
	option.Add(flags, &f.opt.Doors.WebDAV.Addr, "webdav", "address", "none", "serve WebDAV at this address, such as :8443", parseDoor)
	option.Add(flags, &f.opt.Doors.FTP.Addr, "ftp", "address", "none", "serve FTP with TLS at this address, such as :2121", parseDoor)
	flags.BoolVar(&f.copies, "copies", false, "let clients have files sent on from here to other servers (fxfer copy)")
	option.AddList(flags, &f.opt.Call, "call", "relay", "call this fxfer relay, where clients reach the server: `HOST[:PORT][=KEY]`; repeatable", parseCall)
	flags.BoolVar(&f.quiet, "quiet", false, "print only the URL and errors")
	option.Add(flags, &f.keep, "keep", "policy", "all", "old snapshots to keep in append shares, such as daily=7,weekly=4; elsewhere, jobs decide", snapshot.ParseKeep)
}

// addBounds adds the flags that limit how much of this machine clients can use, authenticated or
// not.
func addBounds(flags *pflag.FlagSet, o *fxfer.ServerOptions) {
	option.Add(flags, &o.MaxConnections, "max-connections", "n", option.Auto, "most connections; at most a quarter of them before login", option.ParseAutoCount)
	option.Add(flags, &o.MaxConnectionsPerAddress, "max-connections-per-address", "n", strconv.Itoa(fxfer.DefaultMaxConnectionsPerAddress),
		"most connections of one address or IPv6 /64", option.ParseCount)
	option.Add(flags, &o.MaxHandshakes, "max-handshakes", "n", strconv.Itoa(fxfer.DefaultMaxHandshakes), "most handshakes per second; others wait", option.ParseCount)
	option.Add(flags, &o.MaxHandshakesPerAddress, "max-handshakes-per-address", "n", strconv.Itoa(fxfer.DefaultMaxHandshakesPerAddress), "most handshakes per second of one address", option.ParseCount)
	option.Add(flags, &o.MaxMemory, "max-memory", "size", showMemory(fxfer.DefaultMaxMemory), "most memory for the buffers of data streams", parseMemory)
}

// parseCall reads the address of a relay and its key.
func parseCall(s string) (u fxfer.URL, err error) {
	name, key, pinned := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(s, "fxfer://"), "/"), "=")
	if u.Host, u.Port, err = identity.SplitHost(name); err == nil && pinned {
		u.Pin, err = identity.ParsePin(key)
	}
	return u, err
}

// parseDoor reads the address of a door. "" and "none" are none.
func parseDoor(s string) (string, error) {
	if s == "" || s == "none" {
		return "", nil
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not an address: expected :PORT or ADDRESS:PORT", s)
	}
	return s, nil
}

func showMemory(bytes int64) string { return fmt.Sprintf("%dMiB", bytes>>20) }

func parseMemory(s string) (int64, error) {
	n, err := units.ParseSize(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is not an amount of memory: expected more than 0", s)
	}
	return n, err
}

// parsePartialAge is units.ParseTime, but also accepts "none", which is less than 0.
func parsePartialAge(s string) (time.Duration, error) {
	if s == "none" {
		return -1, nil
	}
	d, err := units.ParseTime(s)
	if err == nil && d < time.Hour {
		err = fmt.Errorf("%q is less than an hour: clients that retry would find nothing to resume", s)
	}
	return d, err
}

func showDays(d time.Duration) string { return fmt.Sprintf("%dd", d/(24*time.Hour)) }

// setShares reads the shares from the flags and arguments.
func (f *serveFlags) setShares(args []string) error {
	for _, dir := range args {
		if err := f.addShare(fxfer.Share{Dir: dir, Rights: identity.Read | identity.Write}); err != nil {
			return err
		}
	}
	for _, s := range f.shares {
		if err := f.addShare(parseShareFlag(s)); err != nil {
			return err
		}
	}
	for i := range f.opt.Shares {
		if s := &f.opt.Shares[i]; s.Rights.Has(identity.Append) && !s.Rights.Has(identity.Write) {
			s.Keep = f.keep
		}
	}
	if len(f.opt.Shares) == 0 {
		return exit.Usage("for example: fxfer serve --invite /srv/files", "nothing to offer: name a folder")
	}
	return nil
}

// addShare adds a share after completing and checking it.
func (f *serveFlags) addShare(s fxfer.Share) error {
	if s.Dir == "" {
		return exit.Usage("for example: --share pub=/srv/pub:ro", "the folder of the share %q is missing", s.Name)
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return fmt.Errorf("find the folder of a share: %w", err)
	}
	if s.Name == "" {
		s.Name = filepath.Base(dir)
	}
	if err := identity.CheckShare(s.Name); err != nil {
		return exit.Usage("name it: --share NAME="+dir, "%w", err)
	}
	for _, other := range f.opt.Shares {
		if other.Name == s.Name {
			return exit.Usage("name one of them: --share NAME="+dir, "two shares have the name %q", s.Name)
		}
	}
	info, err := os.Stat(dir)
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = fmt.Errorf("%s: %w", dir, cause.Err)
	}
	switch {
	case err != nil:
		hint := missingHint(dir, err)
		if f.invite && errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(f.shares, func(share string) bool { return parseShareFlag(share).Name == s.Name }) {
			hint = "--invite takes no value: it admits to all shares; `fxfer invite --share NAME` admits to one"
		}
		return exit.WithHint(&fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("share %s: %w", s.Name, err)}, hint)
	case !info.IsDir():
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("share %s: %s is not a folder", s.Name, dir)}
	}
	s.Dir = dir
	f.opt.Shares = append(f.opt.Shares, s)
	return nil
}

// missingHint helps against a folder of a share that cannot be opened.
func missingHint(dir string, err error) string {
	if !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if i := strings.LastIndexByte(dir, ':'); i > 0 {
		if _, err := os.Stat(dir[:i]); err == nil {
			return fmt.Sprintf("%q is not a right: use %s", dir[i+1:], identity.RightsSyntax())
		}
	}
	return "create the folder first: mkdir -p " + dir
}

// listenHint helps against an address that cannot be listened on: listen, or that of a door.
func listenHint(err error, listen string) string {
	var bad *net.AddrError
	var failed *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &failed) && !samePort(failed.Addr, listen):
		return "another program uses this port: choose another one for this protocol"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another server runs on this port: `fxfer invite` admits clients to it; --listen :7500 starts one more"
	case errors.Is(err, syscall.EADDRNOTAVAIL) && errors.As(err, &failed) && failed.Addr != nil:
		_, port, _ := net.SplitHostPort(failed.Addr.String())
		return "this host does not have that address; :" + port + " means all of its addresses"
	case errors.Is(err, syscall.EACCES) && errors.As(err, &failed): // not a folder
		return "ports below 1024 need root or the capability CAP_NET_BIND_SERVICE: choose a higher port"
	case errors.As(err, &bad):
		return fmt.Sprintf("expected :PORT or ADDRESS:PORT, such as --listen :%d", identity.DefaultPort)
	}
	return ""
}

// samePort reports whether two addresses have one port.
func samePort(a net.Addr, b string) bool {
	if a == nil {
		return false
	}
	_, port, _ := net.SplitHostPort(a.String())
	_, other, _ := net.SplitHostPort(b)
	return port == other
}

func serve(parent context.Context, f *serveFlags, flags *pflag.FlagSet, out, errs io.Writer) error {
	f.opt.Connect = f.opt.Connect || f.copies || len(f.opt.Call) > 0
	notBegun := fxfer.BeginConfined(f.opt, f.settings(), []string{f.web}, f.folders()...)
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	said, err := f.log.open(errs, f.quiet)
	if err != nil {
		return err
	}
	defer said.close()
	f.opt.Log, f.opt.Audit = said.log, said.audit
	if os.Getenv("GOMEMLIMIT") == "" { // the collector then keeps garbage within the limit, too
		debug.SetMemoryLimit(cmp.Or(f.opt.MaxMemory, fxfer.DefaultMaxMemory))
	}
	systemd, err := newSupervisor()
	if err != nil {
		said.log.Warn("systemd is not notified of this server", "error", err)
	}
	if f.opt.Socket, f.opt.Datagrams, err = activated(); err != nil {
		return err
	}
	home, err := f.home()
	if err != nil {
		return err
	}
	forwards := outbox.NewForwards(fxfer.Options{Home: home, StandardCrypto: f.opt.StandardCrypto}, said.log)
	f.opt.Forwarder = forwards.Of
	var copies *outbox.Copies
	if f.copies {
		if copies, err = outbox.OpenCopies(fxfer.Options{Home: home, StandardCrypto: f.opt.StandardCrypto}, said.log); err != nil {
			return err
		}
		defer copies.Close()
		f.opt.Copies = copies
	}
	server, err := fxfer.NewServer(f.opt)
	if err != nil {
		return exit.WithHint(err, listenHint(err, f.opt.Listen))
	}
	var pages *web.Pages
	if f.web != "" {
		if pages, err = openPages(f, server, forwards); err != nil {
			return err
		}
		f.webAt = pages.Addr().String()
	}
	f.confine(server, notBegun, said)
	f.announce(server, said)
	now := f.serving(server)
	if err := now.write(home); err != nil {
		said.log.Warn("fxfer invite will not find this server", "error", err)
	}
	defer func() { _ = os.Remove(now.file(home)) }()
	if pages != nil {
		defer servePages(pages, said)()
	}
	if f.invite {
		if err := invite(server, f, out, said); err != nil {
			return err
		}
	}
	running, end := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end()
	tasks.Go(func() {
		<-running.Done()
		if ctx.Err() == nil { // not a signal: Serve failed
			return
		}
		systemd.tell("STOPPING=1", "STATUS=ending when transfers have reached a checkpoint")
		said.tell("ending when running transfers have reached a checkpoint; a second signal ends at once", "draining")
	})
	forwards.Apply(f.forwards)
	tasks.Go(func() {
		<-running.Done()
		forwards.Close()
	})
	if copies != nil {
		tasks.Go(func() { copies.Run(running, server.OpenCopy) })
	}
	if f.config != "" {
		tasks.Go(func() {
			exit.OnHangup(running, func() {
				systemd.tell(reloading()...)
				f.reload(server, forwards, flags, said, home)
				systemd.tell("READY=1")
			})
		})
	}
	alive, died := context.WithCancel(context.Background()) // the watchdog is also fed while transfers end
	defer died()
	tasks.Go(func() { systemd.keepTelling(alive, server) })
	systemd.tell("READY=1")
	return server.Serve(ctx)
}

// confine confines the process to the folders of the server, and says whether that holds. notBegun is the
// error of BeginConfined, which explains a failure better.
func (f *serveFlags) confine(server *fxfer.Server, notBegun error, said *serverLog) {
	if err := server.Confine(f.folders()...); err != nil {
		if notBegun != nil {
			err = notBegun
		}
		reason := strings.TrimSuffix(err.Error(), ": "+errors.ErrUnsupported.Error())
		said.tell("note: the server runs without a sandbox (Landlock): "+reason, "this process is not confined to its shares", "reason", err)
	} else {
		said.log.Info("this process is confined to its shares and its home folder, by Landlock")
	}
}

// announce says where the server listens, and what it offers.
func (f *serveFlags) announce(server *fxfer.Server, said *serverLog) {
	said.tell("listening on "+server.Addr().String(), "listening", "address", server.Addr().String())
	for _, s := range f.opt.Shares {
		said.tell(fmt.Sprintf("share %s: %s (%s)", s.Name, term.OneLine(s.Dir), s.Rights), "share", "share", s.Name, "dir", s.Dir, "rights", s.Rights.String())
	}
	said.tell("key "+server.Pin(), "key", "key", server.Pin())
	for _, d := range server.Doors() {
		said.tell(fmt.Sprintf("%s on %s, key %s", d.Name, d.Addr, d.Fingerprint), "door", "door", d.Name, "address", d.Addr, "key", d.Fingerprint)
	}
}

// reload reads the configuration again and applies it. If it is faulty, nothing changes.
func (f *serveFlags) reload(server *fxfer.Server, forwards *outbox.Forwards, flags *pflag.FlagSet, said *serverLog, home string) {
	said.reopen()
	fresh, err := f.again(flags)
	if err == nil {
		err = server.Reload(fresh.opt)
	}
	for _, fault := range faultsOf(err) {
		args := []any{"error", fault}
		if help := hint.Of(fault); help != "" {
			args = append(args, "hint", help)
		}
		said.log.Error("the configuration is refused; the server keeps the old one", args...)
	}
	if err != nil {
		return
	}
	forwards.Apply(fresh.forwards)
	fresh.webAt = f.webAt
	_ = fresh.serving(server).write(home) // a failure was reported when the server started
	said.log.Info("configuration reloaded", "file", f.config, "shares", len(fresh.opt.Shares), "clients", len(fresh.opt.Clients))
	if keys := f.needRestart(fresh); len(keys) > 0 {
		said.log.Warn("the configuration has changes that need a restart", "keys", strings.Join(keys, ", "))
	}
}

// needRestart returns the keys of the configuration that differ in fresh and need a restart to
// change.
func (f *serveFlags) needRestart(fresh *serveFlags) (keys []string) {
	was, is := f.fixed(), fresh.fixed()
	for i := range is {
		if was[i].value != is[i].value {
			keys = append(keys, is[i].key)
		}
	}
	return keys
}

// fixedKey is a key with a value that stays until the server ends.
type fixedKey struct {
	key   string
	value any // comparable
}

func (f *serveFlags) fixed() []fixedKey {
	o := &f.opt
	return []fixedKey{
		{"listen", o.Listen}, {"transport", o.Transport}, {"crypto", o.StandardCrypto}, {"sock-buf", o.SockBuf},
		{"congestion", o.Congestion}, {"max-connections", o.MaxConnections},
		{"max-connections-per-address", o.MaxConnectionsPerAddress}, {"max-handshakes", o.MaxHandshakes},
		{"max-handshakes-per-address", o.MaxHandshakesPerAddress}, {"max-memory", o.MaxMemory}, {"web", f.web},
		{"doors: sftp", o.Doors.SFTP}, {"doors: ftp", fmt.Sprint(o.Doors.FTP)}, {"doors: webdav", fmt.Sprint(o.Doors.WebDAV)},
		{"log-format", f.log.format}, {"log-level", f.log.level}, {"audit-log", f.log.audit}, {"tls: cert", o.TLS.Cert}, {"tls: key", o.TLS.Key},
		{"shares: forward", o.Connect || f.copies || len(o.Call) > 0}, {"copies", f.copies}, {"call", fmt.Sprint(o.Call)},
	}
}

// home returns the folder of the server's state.
func (f *serveFlags) home() (string, error) {
	if f.opt.Home != "" {
		return f.opt.Home, nil
	}
	return identity.Home()
}

// serving returns what other commands on this host may know about the server.
func (f *serveFlags) serving(server *fxfer.Server) *serving {
	s := &serving{Address: server.Addr().String(), Web: f.webAt}
	for _, share := range f.opt.Shares {
		s.Shares, s.Rights = append(s.Shares, share.Name), append(s.Rights, share.Rights.String())
	}
	for _, a := range f.opt.Clients {
		id := identity.Principal(cmp.Or(a.Key, a.Certificate))
		if a.User != "" {
			id, _ = identity.ParseUser(a.User) // checked when it was read
		}
		if a.Rights != nil {
			s.Clients = append(s.Clients, identity.Client{ID: id, Grants: a.Rights, Comment: a.Name})
		}
	}
	return s
}

// settings returns the files that option.ApplySettings may have read.
func (f *serveFlags) settings() []string {
	if name := os.Getenv("FXFER_CONFIG"); name != "" && f.config == "" {
		return []string{name}
	}
	return nil
}

// folders returns the folders that the process needs besides shares and home.
func (f *serveFlags) folders() (read []fxfer.Folder) {
	if f.config != "" {
		read = append(read, fxfer.Folder{Path: filepath.Dir(f.config)})
	}
	if name := f.log.audit; name != "" && name != auditToLog {
		read = append(read, fxfer.Folder{Path: filepath.Dir(name), Write: true})
	}
	for _, x := range f.forwards {
		for _, dir := range x.Then.Writes(x.Dir) {
			read = append(read, fxfer.Folder{Path: dir, Write: true})
		}
		if x.Webhook.Secret != "" {
			read = append(read, fxfer.Folder{Path: filepath.Dir(x.Webhook.Secret)})
			if target, err := filepath.EvalSymlinks(x.Webhook.Secret); err == nil {
				read = append(read, fxfer.Folder{Path: filepath.Dir(target)})
			}
		}
	}
	return read
}
