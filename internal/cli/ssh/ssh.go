// Package ssh reaches folders of hosts where no server runs. It starts the system's ssh, which
// starts a server over there for one client and one folder, and stops that server at the end. Keys
// go through ssh, which vouches for both ends; files take direct connections.
//
// A server that ssh starts is `fxfer serve --once REQUEST`. Package serve has it. Its standard output
// carries one Answer; the client then writes a line to its standard input now and then, and the
// server ends when these stop or the input ends.
package ssh

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

const (
	// answerWithin bounds the login and the start of the server, and any pause of an upload between
	// them. A person may have to type a password: sshd allows 2 minutes for a login (LoginGraceTime).
	answerWithin = 5 * time.Minute
	// connectAgain is how long an ssh that takes the place of another may take to connect.
	connectAgain = 15 * time.Second
	// callAfter is when the server is asked to connect to this host, if it does not answer before.
	// Most paths have answered by then, and this host need not listen.
	callAfter = 500 * time.Millisecond
	// callWithin is how long a call may take after the server turned out not to answer: a second
	// SYN leaves after 1 s.
	callWithin = 1500 * time.Millisecond
	// reachWithin is how long the server's port may take to answer: a second SYN leaves after 1 s,
	// a third after 3 s.
	reachWithin = 4 * time.Second
	// channelWithin is how long a connection inside ssh may take, login included.
	channelWithin = 30 * time.Second
	// aliveEvery is how often the client writes a line.
	aliveEvery = 15 * time.Second
	// SilentAfter is how long a server waits for a line before it ends.
	SilentAfter = 2 * time.Minute
	// endWithin is how long the server may take to end: see server.Serve.
	endWithin = 15 * time.Second
	// stopWithin is the same after a signal, when nobody should wait. The server ends nevertheless.
	stopWithin = 300 * time.Millisecond
	// restoreWithin is how long ssh may take to restore the terminal.
	restoreWithin = time.Second
	// outputWithin is how long the output of an ssh that ended may stay open.
	outputWithin = time.Second
)

// Flags are the flags of commands that reach hosts by ssh.
type Flags struct {
	ssh    []string // ssh and its options; nil is ssh
	remote string   // the program over there; "" looks for it, and uploads it if need be
	binary string   // the program to upload, or a folder of programs; "" is this one
	ports  Ports

	notes io.Writer // for people, set by Run
}

// Title is what help calls the flags.
const Title = "Hosts that ssh reaches"

// Add adds the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	option.Add(flags, &f.ssh, "ssh-command", "command", "ssh", "ssh and options, such as 'ssh -F file'", splitWords)
	option.Add(flags, &f.remote, "remote-command", "command", option.Auto, "fxfer over there; auto also uploads one", parseRemote)
	option.Add(flags, &f.binary, "remote-binary", "path", option.Auto, "program to upload, or a folder of them", parseBinary)
	option.Add(flags, &f.ports, "ports", "range", "any", "port for data, such as 50000-50100", parsePorts)
}

func parseRemote(s string) (string, error) {
	if s == option.Auto {
		return "", nil
	}
	return s, nil
}

func parseBinary(s string) (string, error) {
	if s == option.Auto {
		return "", nil
	}
	return option.ParseFile(s)
}

// splitWords splits a command at blanks outside of quotes.
func splitWords(s string) (words []string, err error) {
	var word strings.Builder
	quote, open := rune(0), false
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, open = c, true
		case quote == 0 && c == ' ':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	if quote != 0 || len(words) == 0 {
		return nil, fmt.Errorf("%q is not a command such as ssh -F file", s)
	}
	return words, nil
}

// Use is what a command does with places.
type Use int

// The uses.
const (
	Read  Use = iota
	Match     // read what fits patterns in their paths
	Write
)

// Run calls do with the URLs of places. It starts a server by ssh, for as long as do runs, if the
// places are on a host that ssh reaches, and completes opt for this server. Otherwise it changes
// nothing.
func (f *Flags) Run(c *cobra.Command, opt *fxfer.Options, places []string, use Use, do func(urls []string) error) error {
	targets, err := parseAll(places, use == Match)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return do(places)
	}
	if err := trustSSH(c.Flags(), opt); err != nil {
		return err
	}
	quiet, _ := c.Flags().GetBool("quiet") // false where a command has no such flag
	if f.notes = c.ErrOrStderr(); quiet {
		f.notes = io.Discard
	}
	ctx, stop := exit.Interruptible(c.Context())
	defer stop()
	said := &relay{w: c.ErrOrStderr()}
	defer said.end()
	l := &login{flags: f, targets: targets, write: use == Write, asked: *opt, errs: said}
	urls, err := l.begin(ctx, opt)
	if err != nil {
		if ctx.Err() != nil {
			err = exit.Interrupted("")
		}
		return err
	}
	if opt.RetryFor > 0 {
		opt.Renew = l.renew
	} else {
		running, lost := context.WithCancel(ctx)
		defer lost()
		c.SetContext(running)
		s := l.started
		go func() {
			<-s.ended
			lost()
		}()
	}
	err = do(urls)
	if ctx.Err() != nil {
		_ = l.close(stopWithin) // the signal may have gone to ssh, too
		return err
	}
	if kind := fxfer.KindOf(err); l.hasEnded() && (kind == fxfer.KindInterrupted || kind == fxfer.KindUnreachable) {
		err = exit.WithHint(&fxfer.Error{Kind: fxfer.KindUnreachable, Err: fmt.Errorf("the connection of ssh to %s ended: %w: %w", targets[0].host, l.howEnded(), err)},
			"the same command resumes")
	}
	if failed := l.close(endWithin); err == nil && failed != nil {
		fmt.Fprintf(f.notes, "fxfer: warning: ssh %s: %v\n", targets[0].host, failed)
	}
	return err
}

// parseAll reads places. It returns none if all are URLs of servers that run anyway.
func parseAll(places []string, patterns bool) (targets []target, err error) {
	for _, place := range places {
		if !Is(place) {
			continue
		}
		t, err := parse(place, patterns)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, nil
	}
	if len(targets) < len(places) {
		return nil, exit.Usage("name one after the other", "ssh reaches some of the places, but not all")
	}
	other := func(t target) bool { return t.host != targets[0].host || t.port != targets[0].port }
	if i := slices.IndexFunc(targets, other); i >= 0 {
		return nil, exit.Usage("name one after the other", "%s and %s are two hosts", targets[0].host, targets[i].host)
	}
	return targets, nil
}

// trustSSH removes what else would vouch for the server: ssh does.
func trustSSH(flags *pflag.FlagSet, opt *fxfer.Options) error {
	for _, name := range []string{"pin", "tls-ca", "tls-cert", "tls-key"} {
		if flags.Changed(name) {
			return exit.Usage("leave it out", "--%s is not for hosts that ssh reaches: ssh knows them by its own keys", name)
		}
	}
	if flags.Changed("via") {
		return exit.Usage("leave it out, or name the server in a URL", "--via is not for hosts that ssh reaches: ssh knows the way to them")
	}
	opt.Pin, opt.TLS, opt.Via, opt.Forget = "", fxfer.TLS{}, nil, true
	return nil
}
