package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// relayMemory is the limit of Go's memory, in bytes: with its program, which takes 28 MiB, a relay keeps
// within 64 MiB. The kernel's memory is beside that.
const relayMemory = 34 << 20

// NewRelay returns the command that runs a relay.
func NewRelay() *cobra.Command {
	var opt fxfer.RelayOptions
	var log logFlags
	c := &cobra.Command{
		Use:   "relay --to HOST[:PORT]...",
		Short: "Join two legs of a long way to a server",
		Long: `Relay passes on the connections of clients to the servers that --to names, and to no
others. A client names the relay by --via. Each leg of the way then has its own
congestion control, windows and rate: a loss near one end is repaired there, and
does not hold up a long leg. "fxfer plan --leg" computes what that gives.

Client and server encrypt from end to end: the relay sees who connects to which
server, and how much passes. It keeps nothing on its disk.

A server behind NAT can call the relay. --to NAME=KEY gives a name to the server with
that key ("fxfer key" there). It runs "fxfer serve --call RELAY=KEY", with the key
of the relay, which connects to it by the connections that the server makes.

The relay has a key and admits clients as a server does, with the same commands.
The servers of --to take the place of shares: "fxfer invite --share HOST:PORT"
admits a client to one, with any right. The server still has to admit the client.

Relays carry TCP. To servers, all clients of a relay come from its address.`,
		Example: `  fxfer relay --to nas.example.org
  fxfer relay --to nas.example.org:7433 --to vault --listen :7500
  fxfer relay --to web1=ed25519:2gx…                      web1 calls this relay
  fxfer invite --share nas.example.org:7433       on the same host
  fxfer send --via relay photos fxfer://nas.example.org/files`,
		SuggestFor: []string{"proxy", "forward", "tunnel"},
		Args:       option.Exactly(0),
		PreRunE:    func(c *cobra.Command, _ []string) error { return option.ApplySettings(c) },
		RunE: func(c *cobra.Command, _ []string) error {
			if len(opt.Targets) == 0 {
				return exit.Usage("for example: fxfer relay --to nas.example.org", "--to is missing: which servers does the relay lead to?")
			}
			return runRelay(c.Context(), opt, log, c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	option.AddList(flags, &opt.Targets, "to", "host[:port]", "a server that clients may reach, or NAME=KEY of one that calls; repeatable", fxfer.ParseTarget)
	flags.StringVar(&opt.Listen, "listen", fmt.Sprintf(":%d", identity.DefaultPort), "`address` to listen on")
	option.AddList(flags, &opt.Allow, "allow", "range", "admit only these addresses, such as 192.0.2.0/24; repeatable", parsePrefix)
	option.Add(flags, &opt.RateLimit, "rate-limit", "rate", "none", "limit all clients together, per direction, such as 1gbit", option.ParseLimit)
	option.Add(flags, &opt.ClientRateLimit, "client-rate-limit", "rate", "none", "limit each client", option.ParseLimit)
	option.Add(flags, &opt.MaxConnections, "max-connections", "n", strconv.Itoa(fxfer.DefaultRelayConnections),
		"most connections; a transfer has one for each stream", option.ParseCount)
	option.Add(flags, &opt.MaxConnectionsPerClient, "max-connections-per-client", "n", strconv.Itoa(fxfer.DefaultRelayClientConnections),
		"most connections of one client", option.ParseCount)
	option.AddCrypto(flags, &opt.StandardCrypto)
	log.add(flags)
	option.AddSettings(c)
	return c
}

func runRelay(parent context.Context, opt fxfer.RelayOptions, log logFlags, errs io.Writer) error {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	said, err := log.open(errs, false)
	if err != nil {
		return err
	}
	defer said.close()
	opt.Log = said.log
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(relayMemory)
	}
	relay, err := fxfer.NewRelay(opt)
	if err != nil {
		return exit.WithHint(err, listenHint(err, opt.Listen))
	}
	said.tell("relay on "+relay.Addr().String(), "listening", "address", relay.Addr().String())
	now := &serving{Address: relay.Addr().String(), Relay: true}
	for _, target := range opt.Targets {
		target, key, calls := strings.Cut(target, "=")
		if calls {
			said.tell("leads to "+target+", which calls with the key "+key, "target", "target", target, "server", key)
		} else {
			said.tell("leads to "+target, "target", "target", target)
		}
		now.Shares, now.Rights = append(now.Shares, target), append(now.Rights, "rw")
	}
	said.tell("key "+relay.Pin(), "key", "key", relay.Pin())
	if err := now.write(relay.Home()); err != nil {
		said.log.Warn("fxfer invite will not find this relay", "error", err)
	}
	defer func() { _ = os.Remove(now.file(relay.Home())) }()
	return relay.Serve(ctx)
}
