package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	opt    fxfer.ServerOptions
	shares []string
	invite bool
	name   string
	quiet  bool
	age    time.Duration // from which partial files are removed; 0: never
	web    string        // address of metrics and dashboard; "" is none
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Offer folders to other machines",
		Long: `Serve offers folders, as shares, to clients whose key is in authorized_clients
and to those that bring an invitation. DIR is a share under its own name.

A share is read and written (rw), only read (ro) or only written (wo). SIGTERM
or Ctrl-C lets running transfers reach a checkpoint, then ends, within 10 s.

A client for whom there is no room is told so, and tries again for as long as
its --retry-for allows. The defaults are for a machine with 1 GB of memory.
Connections take at most half of the open files that the system allows.`,
		Example: `  fxfer serve --invite /srv/files
  fxfer serve --share backup=/srv/backup:wo --share pub=/srv/pub:ro`,
		SuggestFor: []string{"server", "listen", "daemon"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("more folders: --share NAME=DIR", "%q is one folder too many", args[1])
			}
			return noEmpty(args)
		},
		PreRunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return applySettings(c, "share") // a DIR on the command line takes their place
			}
			return applySettings(c)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.setShares(args); err != nil {
				return err
			}
			return serve(c.Context(), &f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.opt.Listen, "listen", fmt.Sprintf(":%d", identity.DefaultPort), "`address` to listen on")
	flags.StringArrayVar(&f.shares, "share", nil, "offer a folder, as `NAME=DIR[:ro]`; repeatable")
	flags.BoolVar(&f.invite, "invite", false, "print a URL that admits one machine")
	addParsed(flags, &f.name, "name", "host", "", "in that URL, as the other machine sees this one", parseName)
	addParsed(flags, &f.opt.MaxSessions, "max-sessions", "n", strconv.Itoa(fxfer.DefaultMaxSessions), "most sessions at a time", parseCount)
	addParsed(flags, &f.opt.MaxSessionsPerClient, "max-sessions-per-client", "n", strconv.Itoa(fxfer.DefaultMaxSessionsPerClient),
		"most of one client's key", parseCount)
	addBounds(flags, &f.opt)
	addTuning(flags, &f.opt.SockBuf, &f.opt.Congestion)
	addParsed(flags, &f.age, "partial-age", "age", "none", "remove partial files not written for so long, as 14d", parsePartialAge)
	addParsed(flags, &f.web, "web", "port", "", "metrics, health and dashboard, on this machine or as ADDRESS:PORT", web.ParseAddr)
	flags.BoolVar(&f.quiet, "quiet", false, "print nothing but the URL and errors")
	addSettings(c)
	return c
}

// addBounds adds the flags that bound what clients, and those that want to be, may take of this machine.
func addBounds(flags *pflag.FlagSet, o *fxfer.ServerOptions) {
	addParsed(flags, &o.MaxConnections, "max-connections", "n", auto, "most connections at a time; a quarter may be of strangers", parseAutoCount)
	addParsed(flags, &o.MaxConnectionsPerAddress, "max-connections-per-address", "n", strconv.Itoa(fxfer.DefaultMaxConnectionsPerAddress),
		"most of one address, or IPv6 /64", parseCount)
	addParsed(flags, &o.MaxHandshakes, "max-handshakes", "n", strconv.Itoa(fxfer.DefaultMaxHandshakes), "most handshakes a second; others wait", parseCount)
	addParsed(flags, &o.MaxHandshakesPerAddress, "max-handshakes-per-address", "n", strconv.Itoa(fxfer.DefaultMaxHandshakesPerAddress), "most of one address", parseCount)
	addParsed(flags, &o.MaxMemory, "max-memory", "size", showMemory(fxfer.DefaultMaxMemory), "most for the buffers of data streams", parseMemory)
}

func showMemory(bytes int64) string { return fmt.Sprintf("%dMiB", bytes>>20) }

func parseMemory(s string) (int64, error) {
	n, err := parseSize(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("%q is no memory at all", s)
	}
	return n, err
}

// parseName reads the name or address of this machine.
func parseName(s string) (string, error) {
	host, port, err := identity.SplitHost(s)
	if err == nil && port != identity.DefaultPort {
		err = fmt.Errorf("%q has a port: the URL has the one that is listened on", s)
	}
	return host, err
}

// setShares reads what is to be offered.
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
	if len(f.opt.Shares) == 0 {
		return usageError("for example: fxfer serve --invite /srv/files", "nothing to offer: name a folder")
	}
	return nil
}

// parseShareFlag reads NAME=DIR[:right] or DIR[:right]. DIR may hold colons and equals signs; a name holds no slash. The name
// of the second form is left empty.
func parseShareFlag(s string) fxfer.Share {
	share := fxfer.Share{Rights: identity.Read | identity.Write}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if rights, err := identity.ParseRights(s[i+1:]); err == nil {
			s, share.Rights = s[:i], rights
		}
	}
	name, dir, found := strings.Cut(s, "=")
	if !found || strings.ContainsAny(name, `/\`) {
		name, dir = "", s
	}
	share.Name, share.Dir = name, dir
	return share
}

// addShare completes a share, checks it and adds it.
func (f *serveFlags) addShare(s fxfer.Share) error {
	if s.Dir == "" {
		return usageError("for example: --share pub=/srv/pub:ro", "the folder of the share %q is missing", s.Name)
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return fmt.Errorf("find the folder of a share: %w", err)
	}
	if s.Name == "" {
		s.Name = filepath.Base(dir)
	}
	if err := identity.CheckShare(s.Name); err != nil {
		return usageError("name it: --share NAME="+dir, "%w", err)
	}
	for _, other := range f.opt.Shares {
		if other.Name == s.Name {
			return usageError("name one of them: --share NAME="+dir, "two shares have the name %q", s.Name)
		}
	}
	info, err := os.Stat(dir)
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = fmt.Errorf("%s: %w", dir, cause.Err)
	}
	switch {
	case err != nil:
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("share %s: %w", s.Name, err)}
	case !info.IsDir():
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("share %s: %s is not a folder", s.Name, dir)}
	}
	s.Dir = dir
	f.opt.Shares = append(f.opt.Shares, s)
	return nil
}

func serve(parent context.Context, f *serveFlags, out, errs io.Writer) error {
	ctx, stop := interruptible(parent)
	defer stop()
	talk := errs
	level := slog.LevelInfo
	if f.quiet {
		talk, level = io.Discard, slog.LevelError
	}
	f.opt.Log = slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level}))
	if os.Getenv("GOMEMLIMIT") == "" { // garbage counts, too
		debug.SetMemoryLimit(cmp.Or(f.opt.MaxMemory, fxfer.DefaultMaxMemory))
	}
	server, err := fxfer.NewServer(f.opt)
	if err != nil {
		return err
	}
	var pages *web.Pages
	if f.web != "" {
		if pages, err = openPages(f, server); err != nil {
			return err
		}
	}
	if err := server.Confine(); err != nil {
		f.opt.Log.Info("this process is not confined to its shares", "reason", err)
	} else {
		f.opt.Log.Info("this process is confined to its shares and its home folder, by Landlock")
	}
	fmt.Fprintf(talk, "fxfer: listening on %s\n", server.Addr())
	for _, s := range f.opt.Shares {
		fmt.Fprintf(talk, "fxfer: share %s: %s (%s)\n", s.Name, oneLine(s.Dir), s.Rights)
	}
	fmt.Fprintf(talk, "fxfer: key %s\n", server.Pin())
	if pages != nil {
		defer servePages(pages, f.opt.Log, talk)()
	}
	if f.invite {
		if err := invite(server, f, out, talk); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() {
		fmt.Fprintln(talk, "fxfer: ending when running transfers have reached a checkpoint; once more ends at once")
	})()
	if f.age > 0 {
		var sweeping sync.WaitGroup
		defer sweeping.Wait()
		sweep, end := context.WithCancel(ctx)
		defer end()
		sweeping.Go(func() { sweepShares(sweep, f.opt.Shares, f.age, f.opt.Log) })
	}
	return server.Serve(ctx)
}

// invite prints an invitation's URL, and what the other machine is to do with it.
func invite(server *fxfer.Server, f *serveFlags, out, talk io.Writer) error {
	host := f.name
	if host == "" {
		host = reachableHost(server.Addr())
	}
	url, err := server.Invite(host)
	if err != nil {
		return err
	}
	until := time.Now().Add(identity.InviteTTL).Format("15:04")
	fmt.Fprintf(talk, "fxfer: this URL admits one machine, once, until %s; on that machine:\n", until)
	share := f.opt.Shares[0]
	if share.Rights.Has(identity.Write) {
		fmt.Fprintf(talk, "fxfer:   fxfer send FILE %s\n", url)
	} else {
		fmt.Fprintf(talk, "fxfer:   fxfer get %s FOLDER\n", url)
	}
	fmt.Fprintln(out, url)
	return nil
}

// reachableHost guesses how other machines call the one that listens on addr: by the address listened on, or the one this machine
// sends from, or its name.
func reachableHost(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		if ip := tcp.AddrPort().Addr().Unmap(); ip.IsValid() && !ip.IsUnspecified() {
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
