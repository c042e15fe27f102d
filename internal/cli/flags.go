package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// auto is what leaves a setting to fxfer.
const auto = "auto"

// parsed is a flag whose text is parsed when it is set. It satisfies pflag.Value.
type parsed[T any] struct {
	kind  string // what usage calls the value
	text  string
	value *T
	parse func(string) (T, error)
}

func (p *parsed[T]) String() string { return p.text }
func (p *parsed[T]) Type() string   { return p.kind }

func (p *parsed[T]) Set(s string) error {
	v, err := p.parse(s)
	if err == nil {
		p.text, *p.value = s, v
	}
	return err
}

// addParsed adds a flag. Usage shows kind, what the value is, and text, which stands for the value that is there already.
func addParsed[T any](flags *pflag.FlagSet, value *T, name, kind, text, usage string, parse func(string) (T, error)) {
	flags.Var(&parsed[T]{kind, text, value, parse}, name, usage)
}

// parseAutoCount is parseCount, or 0 for auto.
func parseAutoCount(s string) (int, error) {
	if s == auto {
		return 0, nil
	}
	return parseCount(s)
}

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number from 1 up", s)
	}
	return int(n), nil
}

// maxSockBuf is what Linux can be asked for: it doubles the request and keeps it in an int.
const maxSockBuf = 1<<30 - 1

func parseSockBuf(s string) (int, error) {
	if s == auto {
		return 0, nil
	}
	n, err := units.ParseSize(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or auto", err)
	case n == 0 || n > maxSockBuf:
		return 0, fmt.Errorf("%q is not from 1 byte to less than 1 GiB", s)
	}
	return int(n), nil
}

// congestionForm is that of the kernels' names, of at most 15 bytes (TCP_CA_NAME_MAX in linux/tcp.h).
var congestionForm = regexp.MustCompile(`^[a-z0-9_-]{1,15}$`)

func parseCongestion(s string) (string, error) {
	switch {
	case s == auto:
		return "", nil
	case !congestionForm.MatchString(s):
		return "", fmt.Errorf("%q is not the name of a congestion control such as bbr or cubic, nor auto", s)
	}
	return s, nil
}

func parseLimit(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := units.ParseRate(s)
	if err != nil {
		return 0, fmt.Errorf("%w, or none", err)
	}
	return n, nil
}

func parseVerify(s string) (bool, error) {
	switch s {
	case "digest":
		return false, nil
	case "readback":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither digest nor readback", s)
}

func parsePin(s string) (string, error) {
	pin, err := identity.ParsePin(s)
	return string(pin), err
}

// addTrust adds the flags that say who the server is, and who this client.
func addTrust(flags *pflag.FlagSet, opt *fxfer.Options) {
	addParsed(flags, &opt.Pin, "pin", "key", "", "the server's key, as \"fxfer serve\" prints it", parsePin)
	addParsed(flags, &opt.TLS.CA, "tls-ca", "file", "none", "CAs that vouch for it (PEM), or system", parsePEM)
	addParsed(flags, &opt.TLS.Cert, "tls-cert", "file", "none", "show this certificate (PEM), not the host's key", parsePEM)
	addParsed(flags, &opt.TLS.Key, "tls-key", "file", "none", "the private key of that (PEM)", parsePEM)
}

// parsePEM reads the name of a file of certificates, or none.
func parsePEM(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	return parseFile(s)
}

func parseTransport(s string) (fxfer.Transport, error) {
	switch t := fxfer.Transport(s); t {
	case fxfer.TransportTCP, fxfer.TransportQUIC, fxfer.TransportAuto:
		return t, nil
	}
	return "", fmt.Errorf("%q is neither tcp nor quic nor auto", s)
}

// parseFolder reads the name of a folder that there is.
func parseFolder(s string) (string, error) {
	info, err := os.Stat(s)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", s)
	}
	return s, nil
}

// addTransport adds the flags of a client.
func addTransport(flags *pflag.FlagSet, opt *fxfer.Options) {
	addParsed(flags, &opt.QLog, "qlog", "dir", "", "log QUIC connections into an existing folder, for qvis", parseFolder)
	addParsed(flags, &opt.Transport, "transport", "how", auto, "tcp, quic, or auto: what the path shows", parseTransport)
}

func addTuning(flags *pflag.FlagSet, sockBuf *int, congestion *string) {
	addParsed(flags, sockBuf, "sock-buf", "size", auto, "fixed socket buffers, both ends, as 64KiB", parseSockBuf)
	addParsed(flags, congestion, "congestion", "name", auto, "congestion control, both ends, as bbr", parseCongestion)
}

// transferFlags are what send and get have in common.
type transferFlags struct {
	opt     fxfer.Options
	call    fxfer.Transfer
	list    string // of files to send
	nul     bool   // how its paths end
	report  string // file for what became of each entry
	target  string // URL, without secrets, for history
	json    bool
	quiet   bool
	explain bool
}

// add adds the flags, those that list adds among them if it is not nil.
func (f *transferFlags) add(flags *pflag.FlagSet, list func(*pflag.FlagSet)) {
	group(flags, "What is sent", func() {
		f.addSelection(flags)
		if list != nil {
			list(flags)
		}
	})
	f.addTarget(flags)
	if list != nil {
		f.addSnapshot(flags)
	}
	group(flags, "Network", func() { f.addNetwork(flags) })
	group(flags, "Output", func() {
		addParsed(flags, &f.report, "report", "file", "", "what became of each entry, as JSON lines", parseFile)
		addParsed(flags, &f.call.Manifest, "manifest", "file", "", "digests of the files in place, for b3sum -c", parseFile)
		flags.BoolVar(&f.json, "json", false, "print JSON lines on standard output")
		flags.BoolVar(&f.explain, "explain", false, "tell what the limit was at each moment, with all evidence")
		flags.BoolVar(&f.quiet, "quiet", false, "print nothing but errors")
	})
}

func (f *transferFlags) addNetwork(flags *pflag.FlagSet) {
	addParsed(flags, &f.opt.Compress, "compress", "how", "none", "none, zstd, or auto: where it is faster", parseCompress)
	addParsed(flags, &f.opt.RateLimit, "rate-limit", "rate", "none", "of what is sent, as 200mbit or 20MB/s", parseLimit)
	addParsed(flags, &f.opt.RetryFor, "retry-for", "time", "0s", "try a lost connection again for so long, as 10m", units.ParseTime)
	addParsed(flags, &f.opt.Streams, "streams", "n", auto, "parallel data streams", parseAutoCount)
	addParsed(flags, &f.opt.MaxStreams, "max-streams", "n", strconv.Itoa(fxfer.DefaultMaxStreams), "most streams auto may open", parseCount)
	addTransport(flags, &f.opt)
	addTuning(flags, &f.opt.SockBuf, &f.opt.Congestion)
	addTrust(flags, &f.opt)
}

// check refuses flags that contradict each other. What the command line says takes precedence over other settings.
func (f *transferFlags) check(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("streams") && flags.Changed("max-streams") && f.opt.Streams > 0:
		return usageError("leave one of the two out", "--max-streams bounds what --streams auto may open, but --streams fixes the number")
	case flags.Changed("max-delete") && !f.call.Target.Delete:
		return usageError("add --delete", "--max-delete bounds what --delete removes")
	case flags.Changed("allow-failed") && f.call.Target.Snapshot == "":
		return usageError("add --snapshot, or leave it out: what fails keeps nothing else from being sent", "--allow-failed is of a snapshot")
	case f.call.Target.DryRun && flags.Changed("manifest"):
		return usageError("leave one of the two out", "--manifest lists what is in place after a transfer, and --dry-run makes none")
	case flags.Changed("from0") && f.list == "":
		return usageError("add --files-from", "--from0 says how the list of --files-from is to be read")
	case f.explain && (f.json || f.quiet):
		return usageError("--json carries all of it", "--explain is for people: it excludes --json and --quiet")
	case flags.Changed("json") && flags.Changed("quiet") && f.json && f.quiet:
		return usageError("leave one of the two out", "--json and --quiet exclude each other")
	}
	if f.opt.Streams > 0 {
		f.opt.MaxStreams = 0 // a setting for auto
	}
	if f.json && f.quiet {
		f.json, f.quiet = !flags.Changed("quiet"), flags.Changed("quiet")
	}
	return nil
}

// parseURL reads a URL that names a share, or may name only the server.
func parseURL(s string, needShare bool) (fxfer.URL, error) {
	u, err := fxfer.ParseURL(s)
	switch {
	case err != nil:
		return u, usageError("", "%w", err)
	case needShare && u.Share == "":
		return u, usageError("`fxfer ls "+u.Redacted()+"` lists the shares", "%s names no share: expected fxfer://host/share", u.Redacted())
	}
	return u, nil
}

// checkPin refuses a pin that contradicts the one of an invitation.
func checkPin(pin string, u fxfer.URL) error {
	if u.Token != "" && pin != "" && pin != string(u.Pin) {
		return usageError("leave --pin out, or ask for a new invitation", "the invitation is for another key than --pin")
	}
	return nil
}

// exactly returns a check of the number of arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return usageError("usage: "+c.UseLine(), "an argument is missing")
		case len(args) > n:
			return usageError("usage: "+c.UseLine(), "%q is one argument too many", args[n])
		}
		return nil
	}
}

// noEmpty refuses empty arguments, which are mistakes of a script.
func noEmpty(args []string) error {
	for i, arg := range args {
		if arg == "" {
			return usageError("", "argument %d is empty", i+1)
		}
	}
	return nil
}

var errInterrupted = errors.New("interrupted")
