package option

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// CompleteWithin is how long a shell waits for what a server has.
const CompleteWithin = 1500 * time.Millisecond

const (
	urlScheme = "fxfer://"

	noFiles      = cobra.ShellCompDirectiveNoFileComp
	keepOnTyping = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
)

// flagValues are the words that flags take. AddCompletion offers them.
var flagValues = map[string][]string{
	"compress":   {"none", "zstd", Auto},
	"congestion": {Auto, "bbr", "cubic", "reno"},
	"crypto":     {"own", "std"},
	"delta":      {Auto, "fixed", "chunks", "none"},
	"log-format": {Auto, "text", "json"},
	"priority":   {Auto, "low", "normal", "high"},
	"sync":       {string(fxfer.SyncBatch), string(fxfer.SyncFile), string(fxfer.SyncNone)},
	"transport":  {Auto, "tcp", "quic"},
	"verify":     {"digest", "readback"},
}

// AddCompletion lets shells complete the values of flags, of c and of its subcommands.
func AddCompletion(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if values := flagValues[f.Name]; values != nil && f.Value.Type() != "bool" {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, noFiles)) // fails only for unknown flags
		}
	})
	for _, name := range []string{"profile", "save"} {
		if c.LocalFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, completeProfile) // fails only for unknown flags
		}
	}
	for _, sub := range c.Commands() {
		AddCompletion(sub)
	}
}

func completeProfile(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	home, err := identity.Home()
	if err != nil {
		return nil, noFiles
	}
	return withPrefix(profile.Names(home), typed), noFiles
}

// CompleteURL completes URLs: known servers, their shares, and what is there.
func CompleteURL(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	host, path, named := strings.Cut(strings.TrimPrefix(typed, urlScheme), "/")
	if !strings.HasPrefix(typed, urlScheme) || !named {
		return withPrefix(servers(), typed), keepOnTyping
	}
	folder := urlScheme + host + "/" + path[:strings.LastIndex(path, "/")+1]
	u, err := fxfer.ParseURL(folder)
	if err != nil {
		return nil, noFiles
	}
	var found []string
	ask(c, u, func(ctx context.Context, client *fxfer.Client) error {
		entries, err := client.List(ctx, u)
		for _, e := range entries {
			name := fxfer.URL{Host: u.Host, Port: u.Port, Share: e.Path}.String()
			name = folder + name[strings.LastIndex(name, "/")+1:]
			if e.Kind == "share" || e.Kind == "folder" || e.Kind == "symlink" {
				name += "/"
			}
			found = append(found, name)
		}
		return err
	})
	return withPrefix(found, typed), keepOnTyping
}

// CompleteFileOrURL is CompleteURL where a file of this host may stand, too.
func CompleteFileOrURL(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(typed) > 1 && strings.HasPrefix(urlScheme, typed) || strings.HasPrefix(typed, urlScheme) {
		return CompleteURL(c, args, typed)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// CompleteSnapshot completes words, and the names of the snapshots at the first argument that is a
// URL.
func CompleteSnapshot(words ...string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names := slices.Clone(words)
		for _, arg := range args {
			u, err := fxfer.ParseURL(arg)
			if err != nil || u.Share == "" {
				continue
			}
			ask(c, u, func(ctx context.Context, client *fxfer.Client) error {
				all, err := client.Snapshots(ctx, u)
				for _, x := range all {
					names = append(names, x.Name)
				}
				return err
			})
			break
		}
		return withPrefix(names, typed), noFiles
	}
}

// servers returns the URLs of the known servers.
func servers() (urls []string) {
	home, err := identity.Home()
	if err != nil {
		return nil
	}
	store, err := identity.OpenStore(home)
	if err != nil {
		return nil
	}
	all, _ := store.KnownServers() // what can't be read is not offered
	for _, server := range all {
		host, port, err := net.SplitHostPort(server)
		if number, portErr := strconv.Atoi(port); err == nil && portErr == nil {
			urls = append(urls, fxfer.URL{Host: host, Port: number}.String())
		}
	}
	return urls
}

// ask lets do talk to a server that is known already. It asks nobody, prints nothing, learns no key,
// and gives up soon.
func ask(c *cobra.Command, u fxfer.URL, do func(context.Context, *fxfer.Client) error) {
	if u.Token != "" || ApplySettings(c) != nil {
		return
	}
	opt := clientOptions(c)
	if opt.TLS.CA == "" && !isKnown(u) {
		return
	}
	ctx, cancel := context.WithTimeout(c.Context(), CompleteWithin)
	defer cancel()
	client, err := fxfer.NewClient(opt)
	if err == nil {
		_ = do(ctx, client)
	}
}

// isKnown reports whether the key of a server is known.
func isKnown(u fxfer.URL) bool {
	home, err := identity.Home()
	if err != nil {
		return false
	}
	store, err := identity.OpenStore(home)
	if err != nil {
		return false
	}
	_, known, err := store.KnownServer(u.Address())
	return known && err == nil
}

// clientOptions returns what flags and settings say about the connection, but for a pin, which would
// be remembered.
func clientOptions(c *cobra.Command) (opt fxfer.Options) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddTrust(flags, &opt)
	AddTransport(flags, &opt)
	flags.VisitAll(func(f *pflag.Flag) {
		if have := c.Flags().Lookup(f.Name); have != nil && f.Name != "pin" && f.Name != "qlog" && have.Value.String() != "" {
			if all, ok := have.Value.(pflag.SliceValue); ok {
				_ = f.Value.(pflag.SliceValue).Replace(all.GetSlice())
				return
			}
			_ = f.Value.Set(have.Value.String())
		}
	})
	return opt
}

func withPrefix(all []string, prefix string) (fit []string) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			fit = append(fit, s)
		}
	}
	return fit
}
